/* SPDX-License-Identifier: MIT */
#include "tokenizer/token_ids.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void tok_ids_finish(struct tok_ids *ids)
{
    free(ids->ids);
    *ids = (struct tok_ids){0};
}

int tok_ids_add(struct tok_ids *ids, const int32_t *more, size_t n)
{
    size_t need;
    if (__builtin_add_overflow(ids->n, n, &need) || ARRAY_ROOM(ids->ids, ids->cap, need, 64))
        return TOK_ENOMEM;
    if (n == 0) return 0;
    memcpy(ids->ids + ids->n, more, n * sizeof(*more));
    ids->n += n;
    return 0;
}
