/* SPDX-License-Identifier: MIT */
/*
 * The API's error object and the one table from error kinds to HTTP status, type and code.
 *
 * {"error": {"message", "type", "param", "code"}}: all four keys always. Messages are short, name
 * thing, value and limit, never echo more than 100 bytes of input, and hold no file names.
 */
#pragma once

#include <stdbool.h>
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
    SRV_ERR_MODEL_NOT_FOUND,  /* 404 model_not_found */
    SRV_ERR_UNKNOWN_URL,      /* 404 unknown_url */
    SRV_ERR_METHOD,           /* 405 method_not_allowed */
    SRV_ERR_TIMEOUT,          /* 408 request_timeout */
    SRV_ERR_NO_ROOM,          /* 409 insufficient_memory: for a second model */
    SRV_ERR_PINNED,           /* 409 model_pinned */
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

/* A further member of the error object. Lists end with a NULL name. */
struct srv_error_number {
    const char *name;
    int64_t value;
};

/* Appends the whole object; detail: with the message as "detail" next to it too. param and
 * numbers may be NULL, and so may trace_parent, or be "". */
void srv_error_write(struct buf *b, enum srv_error kind, const char *param, const char *message,
                     const struct srv_error_number *numbers, bool detail, const char *trace_parent);

/* The data of the event `error` of Responses, with this sequence number. */
void srv_error_write_typed(struct buf *b, enum srv_error kind, const char *param,
                           const char *message, int number, const char *trace_parent);

/* The shape of text-embeddings-inference, {"error", "error_type"}, Ollama's, {"error", "code"}, and
 * Cohere's, {"message"}. */
void srv_error_write_tei(struct buf *b, enum srv_error kind, const char *message);
void srv_error_write_ollama(struct buf *b, enum srv_error kind, const char *message);
void srv_error_write_cohere(struct buf *b, const char *message);

/* The same kinds in the Anthropic dialect's shape:
 * {"type": "error", "error": {"type", "message"}, "request_id", "traceparent"}. SRV_ERR_THREAD also
 * has "details": {"error_code"} in the error, by which Anthropic's SDKs know to send the whole
 * conversation. */
void srv_error_write_anthropic(struct buf *b, enum srv_error kind, const char *message,
                               const char *request_id, const char *trace_parent);
