/* SPDX-License-Identifier: MIT */
/*
 * The API's error object and the one table from error kinds to HTTP status, type and code.
 *
 * {"error": {"message", "type", "param", "code"}}: all four keys always. Messages are short, name
 * thing, value and limit, never echo more than 100 bytes of input, and hold no file names.
 */
#pragma once

#include <stdint.h>

struct buf;

enum srv_error {
    SRV_ERR_INVALID_JSON,     /* 400 invalid_json */
    SRV_ERR_INVALID_TYPE,     /* 400 invalid_type */
    SRV_ERR_INVALID_VALUE,    /* 400 invalid_value */
    SRV_ERR_MISSING,          /* 400 missing_required_parameter */
    SRV_ERR_UNSUPPORTED,      /* 400 unsupported_parameter */
    SRV_ERR_UNSUPPORTED_TASK, /* 400 unsupported_model_task */
    SRV_ERR_INVALID_SCHEMA,   /* 400 invalid_json_schema */
    SRV_ERR_INVALID_GRAMMAR,  /* 400 invalid_grammar */
    SRV_ERR_NO_TOKEN_LEFT,    /* 400 no_token_left, or the stream's error event */
    SRV_ERR_THREAD,           /* 400 thread_unsupported_request */
    SRV_ERR_CONTEXT,          /* 400 context_length_exceeded */
    SRV_ERR_TEMPLATE,         /* 400 invalid_value, the template's own message */
    SRV_ERR_MODEL_INVALID,    /* 400 model_invalid: it cannot be served */
    SRV_ERR_NOT_LOADED,       /* 400 model_not_loaded: not on demand, or there is no room for it */
    SRV_ERR_BAD_REQUEST,      /* 400 bad_request: framing, Host */
    SRV_ERR_API_KEY,          /* 401 invalid_api_key */
    SRV_ERR_FORBIDDEN,        /* 403 forbidden: Host or Origin not allowed */
    SRV_ERR_QUOTA,            /* 403 quota_exceeded: of files or batches */
    SRV_ERR_MODEL_NOT_FOUND,  /* 404 model_not_found */
    SRV_ERR_UNKNOWN_URL,      /* 404 unknown_url */
    SRV_ERR_NOT_FOUND,        /* 404 not_found: a file or batch */
    SRV_ERR_METHOD,           /* 405 method_not_allowed */
    SRV_ERR_TIMEOUT,          /* 408 request_timeout */
    SRV_ERR_NO_ROOM,          /* 409 insufficient_memory: for a second model */
    SRV_ERR_PINNED,           /* 409 model_pinned */
    SRV_ERR_FILE_IN_USE,      /* 409 file_in_use */
    SRV_ERR_SWAP_IN_PROGRESS, /* 409 swap_in_progress, Retry-After */
    SRV_ERR_TOO_LARGE,        /* 413 request_too_large */
    SRV_ERR_MEDIA_TYPE,       /* 415 unsupported_media_type */
    SRV_ERR_HEADERS,          /* 431 headers_too_large */
    SRV_ERR_QUEUE_FULL,       /* 429 queue_full, Retry-After */
    SRV_ERR_INTERNAL,         /* 500 internal_error */
    SRV_ERR_LOADING,          /* 503 model_loading, Retry-After */
    SRV_ERR_MODEL_FAILED,     /* 503 model_failed, Retry-After */
    SRV_ERR_MODEL_UNLOADED,   /* 503 model_unloaded, or the stream's error event */
    SRV_ERR_SHUTTING_DOWN,    /* 503 shutting_down, Connection: close */
    SRV_ERR_OVERLOADED,       /* 503 server_overloaded: connections or memory */
    SRV_ERR_QUEUE_TIMEOUT,    /* 503 queue_timeout */
    SRV_ERR_DEADLINE,         /* 504 deadline_exceeded */
    SRV_ERR_COUNT
};

struct srv_error_row {
    int status;
    const char *type, *code;
    /* For docs/errors.md: when it occurs and what the caller can do; Markdown, no full stop. */
    const char *when, *advice;
};
extern const struct srv_error_row srv_errors[SRV_ERR_COUNT];

/* The shape of errors, and what goes with it. */
enum srv_dialect {
    SRV_DIALECT_OPENAI,
    SRV_DIALECT_ANTHROPIC, /* with the header request-id */
    SRV_DIALECT_EITHER, /* of a route: Anthropic's with the header anthropic-version, or OpenAI's */
    SRV_DIALECT_TEI,    /* text-embeddings-inference */
    SRV_DIALECT_COHERE,
    SRV_DIALECT_OLLAMA, /* a form's type is taken for JSON, as curl sends it */
    SRV_DIALECT_DETAIL, /* OpenAI's with the message in "detail" too, as Jina's clients read */
    SRV_DIALECT_TYPED   /* errors are events with a type, as those of Responses */
};

/* A further member of the error object. Lists end with a NULL name. */
struct srv_error_number {
    const char *name;
    int64_t value;
};

/* An error object; a dialect has a place for some of it. What may be NULL is left out, or null. */
struct srv_error_object {
    enum srv_dialect dialect;
    enum srv_error kind;
    const char *param, *message;            /* param: may be NULL */
    const struct srv_error_number *numbers; /* may be NULL */
    const char *request_id;
    const char *trace_parent; /* may be NULL, or "" */
    int sequence_number;
};

/*
 * Appends it in the shape of its dialect; Anthropic's has the kind SRV_ERR_THREAD as "details":
 * {"error_code"} too, by which Anthropic's SDKs know to send the whole conversation.
 */
void srv_error_write(struct buf *b, const struct srv_error_object *e);
