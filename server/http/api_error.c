/* SPDX-License-Identifier: MIT */
/* The error table and the error object; see api_error.h. */
#include "server/http/api_error.h"

#include <string.h>

#include "base/buf.h"

#define INVALID "invalid_request_error"

static const struct {
    int status;
    const char *type;
    const char *code;
} table[SRV_ERR_COUNT] = {
    [SRV_ERR_INVALID_JSON] = {400, INVALID, "invalid_json"},
    [SRV_ERR_INVALID_TYPE] = {400, INVALID, "invalid_type"},
    [SRV_ERR_INVALID_VALUE] = {400, INVALID, "invalid_value"},
    [SRV_ERR_MISSING] = {400, INVALID, "missing_required_parameter"},
    [SRV_ERR_UNSUPPORTED] = {400, INVALID, "unsupported_parameter"},
    [SRV_ERR_CONTEXT] = {400, INVALID, "context_length_exceeded"},
    [SRV_ERR_TEMPLATE] = {400, INVALID, "invalid_value"},
    [SRV_ERR_BAD_REQUEST] = {400, INVALID, "bad_request"},
    [SRV_ERR_API_KEY] = {401, "authentication_error", "invalid_api_key"},
    [SRV_ERR_FORBIDDEN] = {403, INVALID, "forbidden"},
    [SRV_ERR_MODEL_NOT_FOUND] = {404, INVALID, "model_not_found"},
    [SRV_ERR_UNKNOWN_URL] = {404, INVALID, "unknown_url"},
    [SRV_ERR_METHOD] = {405, INVALID, "method_not_allowed"},
    [SRV_ERR_TIMEOUT] = {408, INVALID, "request_timeout"},
    [SRV_ERR_TOO_LARGE] = {413, INVALID, "request_too_large"},
    [SRV_ERR_MEDIA_TYPE] = {415, INVALID, "unsupported_media_type"},
    [SRV_ERR_HEADERS] = {431, INVALID, "headers_too_large"},
    [SRV_ERR_QUEUE_FULL] = {429, "rate_limit_error", "queue_full"},
    [SRV_ERR_INTERNAL] = {500, "server_error", "internal_error"},
    [SRV_ERR_LOADING] = {503, "service_unavailable", "model_loading"},
    [SRV_ERR_SHUTTING_DOWN] = {503, "service_unavailable", "shutting_down"},
    [SRV_ERR_OVERLOADED] = {503, "service_unavailable", "server_overloaded"},
    [SRV_ERR_QUEUE_TIMEOUT] = {503, "service_unavailable", "queue_timeout"},
    [SRV_ERR_DEADLINE] = {504, "timeout_error", "deadline_exceeded"},
};

int srv_error_status(enum srv_error kind)
{
    return table[kind].status;
}

const char *srv_error_code(enum srv_error kind)
{
    return table[kind].code;
}

const char *srv_error_type(enum srv_error kind)
{
    return table[kind].type;
}

static void add_nullable(struct buf *b, const char *text)
{
    if (text)
        buf_json_string(b, text, strlen(text));
    else
        buf_puts(b, "null");
}

void srv_error_write(struct buf *b, enum srv_error kind, const char *param, const char *message,
                     const char *extra)
{
    buf_puts(b, "{\"error\":{\"message\":");
    buf_json_string(b, message, strlen(message));
    buf_puts(b, ",\"type\":");
    add_nullable(b, table[kind].type);
    buf_puts(b, ",\"param\":");
    add_nullable(b, param);
    buf_puts(b, ",\"code\":");
    add_nullable(b, table[kind].code);
    if (extra) buf_puts(b, extra);
    buf_puts(b, "}}");
}

/* The Anthropic dialect's names for our types. */
static const char *anthropic_type(enum srv_error kind)
{
    switch (table[kind].status) {
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

void srv_error_write_anthropic(struct buf *b, enum srv_error kind, const char *message,
                               const char *request_id)
{
    buf_printf(b,
               "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", anthropic_type(kind));
    buf_json_string(b, message, strlen(message));
    buf_puts(b, "},\"request_id\":");
    buf_json_string(b, request_id, strlen(request_id));
    buf_puts(b, "}");
}
