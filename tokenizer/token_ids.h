/* SPDX-License-Identifier: MIT */
/* Appending to the public list of ids. Threads: unsafe; one owner. */
#pragma once

#include "tokenizer/tok_types.h"

/* Appends n ids: 0 or TOK_ENOMEM. */
int tok_ids_add(struct tok_ids *ids, const int32_t *more, size_t n);
