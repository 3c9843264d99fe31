/* SPDX-License-Identifier: MIT */
/* Texts of a request as token ids; see json_fields.h. */
#include "server/api/read/json_fields.h"

#include <stdlib.h>

int param_encode_failed(int rc, const char *path, const char *message)
{
    if (rc == TOK_ENOMEM) return param_no_memory();
    return rc ? param_fail(SRV_ERR_INVALID_VALUE, path, "%s", message) : 0;
}

int param_encode(const struct tok *tok, const char *text, size_t len, unsigned flags,
                 const char *path, struct tok_ids *ids)
{
    char message[256] = "";
    int rc = tok_encode(tok, text, len, flags, ids, message, sizeof(message));
    return param_encode_failed(rc, path, message);
}

int param_take_ids(const json_t *list, int32_t n_ids, const char *path, struct tok_ids *ids)
{
    size_t n = json_array_size(list);
    ids->ids = malloc((n ? n : 1) * sizeof(*ids->ids));
    if (!ids->ids) return param_no_memory();
    ids->n = n;
    return param_read_ids(list, n_ids, path, ids->ids);
}

int param_keep_ids(struct srv_request *req, int rc, struct tok_ids *ids, const int32_t **ret,
                   int64_t *ret_n)
{
    *ret = rc ? NULL : srv_request_copy(req, ids->ids, ids->n * sizeof(*ids->ids));
    *ret_n = rc ? 0 : (int64_t)ids->n;
    tok_ids_finish(ids);
    return rc ? rc : *ret ? 0 : param_no_memory();
}
