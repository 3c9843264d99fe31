/* SPDX-License-Identifier: MIT */
/* The error table and the error object; see api_error.h. */
#include "server/http/api_error.h"

#include "base/buf.h"
#include "base/json_writer.h"

#define INVALID "invalid_request_error"

#define ROW(kind, status_, type_, code_, when_, advice_)                                           \
    [SRV_ERR_##kind] = {                                                                           \
        .status = status_, .type = type_, .code = code_, .when = when_, .advice = advice_}

const struct srv_error_row srv_errors[SRV_ERR_COUNT] = {
    ROW(INVALID_JSON, 400, INVALID, "invalid_json",
        "the body is not one JSON object, or nests too deeply", "send one JSON object in UTF-8"),
    ROW(INVALID_TYPE, 400, INVALID, "invalid_type", "a field has the wrong JSON type",
        "correct the field that `param` names"),
    ROW(INVALID_VALUE, 400, INVALID, "invalid_value", "a field has a value outside its range",
        "correct the field that `param` names; the message has the range"),
    ROW(MISSING, 400, INVALID, "missing_required_parameter", "a required field is absent or null",
        "add the field that `param` names"),
    ROW(UNSUPPORTED, 400, INVALID, "unsupported_parameter",
        "a field asks for a feature that is not supported", "leave the field out"),
    ROW(UNSUPPORTED_TASK, 400, INVALID, "unsupported_model_task",
        "the route needs another kind of model than the one served", "ask the route that it names"),
    ROW(INVALID_SCHEMA, 400, INVALID, "invalid_json_schema",
        "a JSON schema is malformed, uses a keyword that is refused, or allows no value",
        "correct the schema where the message points"),
    ROW(INVALID_GRAMMAR, 400, INVALID, "invalid_grammar",
        "a regular expression, a list of choices or a grammar is malformed",
        "correct it where the message says"),
    ROW(NO_TOKEN_LEFT, 400, INVALID, "no_token_left",
        "`logit_bias`, `allowed_token_ids` or `min_tokens` leave no token that the grammar allows",
        "relax one of them"),
    ROW(THREAD, 400, INVALID, "thread_unsupported_request",
        "`thread` of a Messages request: the server keeps no conversations",
        "send the whole conversation without `thread`, as Anthropic's SDKs then do; the code is "
        "in `error.details.error_code`"),
    ROW(CONTEXT, 400, INVALID, "context_length_exceeded",
        "the prompt and the tokens to generate exceed the context",
        "shorten the prompt or lower `max_tokens`; the error object has the numbers"),
    ROW(TEMPLATE, 400, INVALID, "invalid_value", "the chat template refused the messages",
        "correct the messages; the message is the template's own"),
    ROW(MODEL_INVALID, 400, INVALID, "model_invalid",
        "the model to be loaded cannot be served, or failed its test",
        "correct the directory; the message is the loader's own"),
    ROW(NOT_LOADED, 400, INVALID, "model_not_loaded",
        "the model is not in memory, and is not loaded for the request: `autoload=false`, "
        "`--models-autoload off`, or no room next to the pinned ones",
        "load it with `POST /models/load`, or ask for another model"),
    ROW(BAD_REQUEST, 400, INVALID, "bad_request",
        "the head of the request is malformed, or its Host header is missing or not valid",
        "correct the client or the proxy"),
    ROW(API_KEY, 401, "authentication_error", "invalid_api_key", "the API key is missing or wrong",
        "send `Authorization: Bearer KEY` or `x-api-key: KEY`"),
    ROW(FORBIDDEN, 403, INVALID, "forbidden",
        "the Host or Origin header is not an accepted one, or the client may not swap the model",
        "name it in `--allowed-hosts` or `--cors-origins`; set an operator key"),
    ROW(QUOTA, 403, INVALID, "quota_exceeded",
        "the key's files or batches, or all files, reach their limit, or the disk is full",
        "delete files, or wait until batches have ended; the message has both numbers"),
    ROW(MODEL_NOT_FOUND, 404, INVALID, "model_not_found",
        "`model` is not a name of the served model, or to be loaded and not on this machine",
        "use a name that `GET /v1/models` lists; fetch a model with `hearth pull`"),
    ROW(UNKNOWN_URL, 404, INVALID, "unknown_url", "the path is not an endpoint",
        "correct the path"),
    ROW(NOT_FOUND, 404, INVALID, "not_found", "the key has no file or batch of this id",
        "use an id that `GET /v1/files` or `GET /v1/batches` lists"),
    ROW(METHOD, 405, INVALID, "method_not_allowed", "the endpoint does not accept this method",
        "use a method of the `Allow` header"),
    ROW(TIMEOUT, 408, INVALID, "request_timeout", "the head or body did not arrive in time",
        "send it again, faster"),
    ROW(NO_ROOM, 409, INVALID, "insufficient_memory",
        "the memory limit does not hold a second model next to the running one",
        "start with `--swap-memory`, raise `--memory`, or load a smaller model; the error object "
        "has "
        "the numbers"),
    ROW(PINNED, 409, INVALID, "model_pinned", "the model to be unloaded is pinned",
        "unload another one, or start without `pin`"),
    ROW(FILE_IN_USE, 409, INVALID, "file_in_use",
        "the file to be deleted is the input of a batch that has not ended",
        "wait for the batch, or cancel it"),
    ROW(SWAP_IN_PROGRESS, 409, INVALID, "swap_in_progress",
        "another swap loads, or the model before still drains",
        "send it again after `Retry-After`"),
    ROW(TOO_LARGE, 413, INVALID, "request_too_large",
        "the body is larger than `--max-body-bytes`, or the answer needs more memory than there is",
        "send a shorter body, ask for less, or raise the limit"),
    ROW(MEDIA_TYPE, 415, INVALID, "unsupported_media_type",
        "the Content-Type is not JSON, or the body is compressed",
        "send plain JSON with `Content-Type: application/json`"),
    ROW(HEADERS, 431, INVALID, "headers_too_large", "the head of the request is too large",
        "send fewer or shorter headers"),
    ROW(QUEUE_FULL, 429, "rate_limit_error", "queue_full",
        "the queue or the memory for answers is full",
        "send the same request again after `Retry-After`"),
    ROW(INTERNAL, 500, "server_error", "internal_error", "the server or the model failed",
        "look for the request id in the log"),
    ROW(LOADING, 503, "service_unavailable", "model_loading",
        "the model is still loading: the server starts, `--load-wait-ms` is over, or too many wait "
        "for the model",
        "send it again after `Retry-After`"),
    ROW(MODEL_FAILED, 503, "service_unavailable", "model_failed",
        "the model could not be loaded; it is tried again after 30 s",
        "look at the log; correct the model's directory"),
    ROW(MODEL_UNLOADED, 503, "service_unavailable", "model_unloaded",
        "the model was replaced or unloaded while it answered, and `--swap-drain-ms` is over",
        "send it again: the new model answers"),
    ROW(SHUTTING_DOWN, 503, "service_unavailable", "shutting_down", "the server is stopping",
        "send it to another replica, or after `Retry-After`"),
    ROW(OVERLOADED, 503, "service_unavailable", "server_overloaded",
        "too many connections, or no memory for the body or the answer",
        "send it again after `Retry-After`"),
    ROW(QUEUE_TIMEOUT, 503, "service_unavailable", "queue_timeout",
        "the request waited in the queue for `--queue-timeout-ms`",
        "send it again after `Retry-After`"),
    ROW(DEADLINE, 504, "timeout_error", "deadline_exceeded",
        "the deadline of the request passed before its first token",
        "allow more time, or ask for less"),
};

/* The Anthropic dialect's names for our types. */
static const char *anthropic_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    case 500: return "api_error";
    default: return INVALID;
    }
}

static const char *tei_type(int status)
{
    if (status == 429 || status == 503) return "Overloaded";
    return status >= 500 ? "Backend" : "Validation";
}

static void write_trace(struct jw *w, const struct srv_error_object *e)
{
    if (e->trace_parent && *e->trace_parent) jw_text(w, "traceparent", e->trace_parent);
}

void srv_error_write(struct buf *b, const struct srv_error_object *e)
{
    const struct srv_error_row *row = &srv_errors[e->kind];
    struct jw w = {.out = b};
    jw_open(&w, NULL, '{');
    switch (e->dialect) {
    case SRV_DIALECT_TYPED:
        jw_fields(&w, "type %s sequence_number %d code %s message %s param %s", "error",
                  e->sequence_number, row->code, e->message, e->param);
        write_trace(&w, e);
        break;
    case SRV_DIALECT_ANTHROPIC:
        jw_fields(&w, "type %s error { type %s message %s", "error", anthropic_type(row->status),
                  e->message);
        if (e->kind == SRV_ERR_THREAD) jw_fields(&w, "details { error_code %s }", row->code);
        jw_fields(&w, "} request_id %s", e->request_id);
        write_trace(&w, e);
        break;
    case SRV_DIALECT_TEI:
        jw_fields(&w, "error %s error_type %s", e->message, tei_type(row->status));
        break;
    case SRV_DIALECT_OLLAMA: jw_fields(&w, "error %s code %s", e->message, row->code); break;
    case SRV_DIALECT_COHERE: jw_text(&w, "message", e->message); break;
    default:
        jw_fields(&w, "error { message %s type %s param %s code %s", e->message, row->type,
                  e->param, row->code);
        for (const struct srv_error_number *n = e->numbers; n && n->name; n++)
            jw_int(&w, n->name, n->value);
        write_trace(&w, e);
        jw_close(&w);
        if (e->dialect == SRV_DIALECT_DETAIL) jw_text(&w, "detail", e->message);
    }
    jw_close(&w);
    jw_end(&w);
}
