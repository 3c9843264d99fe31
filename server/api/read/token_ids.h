/* SPDX-License-Identifier: MIT */
/*
 * Texts of a request as token ids, with the errors of the field that holds them.
 *
 * Threads: the text worker that holds the request.
 */
#ifndef HEARTH_SERVER_API_READ_TOKEN_IDS_H
#define HEARTH_SERVER_API_READ_TOKEN_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "server/api/read/json_fields.h"
#include "server/http/param_error.h"
#include "tokenizer/tokenizer.h"

/* Turns an enum tok_error with its sentence into the error of the field `path`. Returns 0 for 0,
 * else -1. */
int param_encode_failed(int rc, const char *path, const char *message, struct param_error *err);

/* Appends the ids of the field's text, see tok_encode. Returns 0, or -1 with err. */
int param_encode(const struct tok *tok, const char *text, size_t len, unsigned flags,
                 const char *path, struct tok_ids *ids, struct param_error *err);

/* Reads the ids of the field's list, each below n_ids, into a zeroed `ids`. Returns 0, or -1
 * with err. */
int param_take_ids(const json_t *list, int32_t n_ids, const char *path, struct tok_ids *ids,
                   struct param_error *err);

/*
 * Moves ids into the request's memory: *ret [*ret_n]; ids is empty afterwards. rc: of making them;
 * unless it is 0 they are only freed, and it is returned. Returns 0, or -1 with err.
 */
int param_keep_ids(struct srv_request *req, int rc, struct tok_ids *ids, const int32_t **ret,
                   int64_t *ret_n, struct param_error *err);

#endif
