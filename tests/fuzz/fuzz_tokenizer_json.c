/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes tokenizer.json: whatever loads must encode and decode without a fault, and every answer
 * must keep the header's promises. What does not load must say why.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const texts[] = {
    "",
    " ",
    "Hello, world! It's 12 o'clock.\n\n",
    ("  \xe2\x96\x81\xe6\xb0\xb4"
     "e\xcc\x81\xc5\xbf \t"),
    "<s>aaaa aaaa aaaaaaab</s>",
    "\xf0\x9f\x91\xa9 x\xcc\xa7\xcc\x81 \xc4\xb0<0x41>",
    "ab\xcc\x81\xc2\xa9\xe2\x80\x8d\r\nHello \xe0\xa2\x97",
};

static void check_ids(const struct tok *t, const struct tok_ids *ids, bool from_post)
{
    char bytes[64], *text;
    size_t len;

    for (size_t i = 0; i < ids->n; i++) {
        if (!from_post && !tok_token_string(t, ids->ids[i], &(size_t){0})) abort();
        if (!from_post && ids->ids[i] >= tok_vocab_size(t)) abort();
        tok_token_bytes(t, ids->ids[i], bytes, sizeof(bytes));
        tok_is_special(t, ids->ids[i]);
    }
    if (tok_decode(t, ids->ids, ids->n, false, &text, &len) == 0) {
        if (!utf8_valid(text, len) || text[len]) abort();
        free(text);
    }
}

/* The ids of a text, joined with themselves or alone. */
static void check_join(const struct tok *t, const struct tok_ids *a, bool pair)
{
    struct tok_ids ids = {0};
    char err[256] = "";
    size_t n_first;

    int rc = tok_join(t, a, pair ? a : NULL, &ids, &n_first, err, sizeof(err));
    if (rc && !err[0]) abort();
    if (!rc && ids.n != a->n * (1 + pair) + tok_n_special(t, pair)) abort();
    if (!rc && n_first > ids.n) abort();
    tok_ids_finish(&ids);
}

static void use(const struct tok *t)
{
    char err[256];

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (unsigned flags = 0; flags < 4; flags++) {
            struct tok_ids ids = {0};
            struct tok_range input = {2, 5};
            err[0] = 0;
            int rc = tok_encode_marked(t, texts[i], strlen(texts[i]), &input, i & 1, flags, &ids,
                                       err, sizeof(err));
            if (rc && !err[0]) abort();
            if (!rc) check_ids(t, &ids, flags & TOK_ADD_SPECIAL);
            if (!rc) check_join(t, &ids, flags & 1);
            tok_ids_finish(&ids);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[256] = "";
    struct tok *t = calloc(1, sizeof(*t));

    if (!t) return 0;
    int rc = tok_load(t, (const char *)data, size, err, sizeof(err));
    if (rc == 0)
        use(t);
    else if (!err[0])
        abort();
    tok_close(t);
    return 0;
}
