/* SPDX-License-Identifier: MIT */
#include "server/http/param_error.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "server/config/config.h"
#include "server/http/request.h"
#include "server/http/server.h"

enum { ECHO_BYTES = 64 };

_Thread_local struct param_error param_error;

int param_fail(enum srv_error kind, const char *path, const char *format, ...)
{
    param_error.kind = kind;
    snprintf(param_error.path, sizeof(param_error.path), "%s", path ? path : "");
    FORMAT_REST(param_error.message, sizeof(param_error.message), format);
    return -1;
}

int param_no_memory(void)
{
    return param_fail(SRV_ERR_OVERLOADED, NULL, "The server is out of memory for this request.");
}

void param_reply(struct srv_request *req)
{
    srv_reply_error(req, param_error.kind, param_error.path[0] ? param_error.path : NULL, "%s",
                    param_error.message);
    param_error = (struct param_error){0};
}

const char *param_word(const char *text, char buf[PARAM_WORD_MAX])
{
    size_t len = strlen(text), kept = len < PARAM_WORD_MAX ? len : PARAM_WORD_MAX - 4;
    for (size_t i = 0; i < kept; i++)
        buf[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    snprintf(buf + kept, PARAM_WORD_MAX - kept, "%s", kept < len ? "..." : "");
    return buf;
}

/* Only printable ASCII that fits a header is repeated, because keys come from clients. */
static bool can_repeat(const char *key)
{
    size_t len = strlen(key);
    for (const char *p = key; *p; p++)
        if (*p <= ' ' || *p >= 127 || *p == ',') return false;
    return len > 0 && len <= ECHO_BYTES;
}

void param_note(struct param_unknown *unknown, const char *key)
{
    size_t used = strlen(unknown->list);
    if (can_repeat(key) && used + strlen(key) + 2 <= sizeof(unknown->list))
        snprintf(unknown->list + used, sizeof(unknown->list) - used, "%s%s", used ? "," : "", key);
    else
        unknown->n_left++;
}

int param_name_ignored(struct srv_request *req, const struct param_unknown *unknown)
{
    if (unknown->n > 0 && req->server->config->strict_params)
        return param_fail(SRV_ERR_UNSUPPORTED, NULL, "Unknown parameters: %s.",
                          unknown->list[0] ? unknown->list : "(not printable)");
    char names[sizeof(unknown->list) + 16];
    size_t used = (size_t)snprintf(names, sizeof(names), "%s", unknown->list);
    if (unknown->n_left > 0)
        snprintf(names + used, sizeof(names) - used, "%s...+%d", used ? "," : "", unknown->n_left);
    if (names[0]) srv_reply_header(req, "x-ignored-params", names);
    return 0;
}
