/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the streaming decoder: the first byte picks a layout and whether special tokens are
 * skipped, the rest are ids, a byte each. Pieces are valid UTF-8, and joined they are the plain
 * decoding.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":256,\"content\":\"<s>\",\"special\":true,\"normalized\":false,"     \
    "\"single_word\":false,\"lstrip\":false,\"rstrip\":false}],"
#define OP(name) "{\"type\":\"" name "\"}"
#define REPLACE(from, to)                                                                          \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"
#define STRIP(start, stop)                                                                         \
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":" start ",\"stop\":" stop "}"
#define SEQUENCE(list) "{\"type\":\"Sequence\",\"decoders\":[" list "]}"

/* Whether the tokens are the byte alphabet, and the decoder. */
static const struct {
    bool bytes;
    const char *decoder;
} layouts[] = {
    {true, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true}"},
    {true, SEQUENCE(OP("ByteLevel") "," STRIP("1", "2") "," REPLACE("ab", "\xc3\xa9"))},
    {false, SEQUENCE(REPLACE("\xe2\x96\x81",
                             " ") "," OP("ByteFallback") "," OP("Fuse") "," STRIP("1", "0"))},
    {false, SEQUENCE(OP("ByteFallback") "," OP("Fuse") "," REPLACE("\xe2\x96\x81", " ") "," REPLACE(
                "aab", "x") "," STRIP("0", "3"))},
    {false,
     "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"first\"}"},
    {false,
     SEQUENCE(OP("ByteFallback") ",{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\"}")},
    {false,
     SEQUENCE("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+|b\"},\"content\":\"\"}," STRIP(
         "1", "1"))},
    {false, "null"},
};

#define N_LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static const char *const words[] = {"\xe2\x96\x81",
                                    "\xe2\x96\x81the",
                                    "a",
                                    "b",
                                    "ab",
                                    "aa",
                                    " ",
                                    "  ",
                                    "\xc3\xa9",
                                    "\xe6\xb0\xb4",
                                    "-",
                                    "\xe2\x96\x81\xe2\x96\x81"};

static void token_name(char *out, size_t size, bool bytes, unsigned i)
{
    char utf8[5] = "";

    if (bytes) {
        utf8[utf8_put(utf8, tok_bytelevel_char((uint8_t)i))] = 0;
        if (i == '"' || i == '\\')
            snprintf(out, size, "\\%c", (int)i);
        else
            snprintf(out, size, "%s", utf8);
    } else if (i < sizeof(words) / sizeof(words[0])) {
        snprintf(out, size, "%s", words[i]);
    } else {
        snprintf(out, size, "<0x%02X>", i);
    }
}

static struct tok *make(bool bytes, const char *decoder)
{
    static char json[16384];
    char err[256], name[16];
    size_t n = (size_t)snprintf(json, sizeof(json),
                                "{" ADDED "\"decoder\":%s,\"model\":{\"type\":\"BPE\",\"vocab\":{",
                                decoder);
    struct tok *t = calloc(1, sizeof(*t));

    for (unsigned i = 0; i < 256; i++) {
        token_name(name, sizeof(name), bytes, i);
        n += (size_t)snprintf(json + n, sizeof(json) - n, "%s\"%s\":%u", i ? "," : "", name, i);
    }
    n += (size_t)snprintf(json + n, sizeof(json) - n, "},\"merges\":[]}}");
    if (!t || tok_load(t, json, n, err, sizeof(err))) {
        fprintf(stderr, "the target's own tokenizer: %s\n", err);
        abort();
    }
    return t;
}

/* One check of streamed against plain. */
static void check(const struct tok *t, const int32_t *ids, size_t n, bool skip)
{
    struct tok_decoder *d;
    char *plain, *joined;
    const char *s;
    size_t plain_len, len, at = 0;

    if (tok_decode(t, ids, n, skip, &plain, &plain_len) || tok_decoder_create(&d, t, skip)) abort();
    joined = malloc(plain_len + 1);
    for (size_t i = 0; i <= n; i++) {
        int rc = i < n ? tok_decoder_push(d, ids[i], &s, &len) : tok_decoder_flush(d, &s, &len);
        if (rc || !utf8_valid(s, len) || at + len > plain_len) abort();
        memcpy(joined + at, s, len);
        at += len;
    }
    if (at != plain_len || memcmp(joined, plain, at) != 0 || !utf8_valid(plain, plain_len)) abort();
    free(joined);
    free(plain);
    tok_decoder_destroy(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tok *toks[N_LAYOUTS];
    static int32_t ids[4096];

    if (size == 0 || size > sizeof(ids) / sizeof(ids[0])) return 0;
    size_t which = (data[0] >> 1) % N_LAYOUTS;
    if (!toks[which]) toks[which] = make(layouts[which].bytes, layouts[which].decoder);
    for (size_t i = 1; i < size; i++)
        ids[i - 1] = data[i] == 255 ? 256 + (int32_t)(i % 3) : data[i];
    check(toks[which], ids, size - 1, data[0] & 1);
    return 0;
}
