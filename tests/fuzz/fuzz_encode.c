/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes texts of WordPiece and Unigram tokenizers, the first byte picks one: whatever is valid
 * UTF-8 is encoded, the ids are tokens, none of them special, and decode to valid UTF-8. The files
 * are fixed; fuzz_tokenizer_json fuzzes those.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true,\"normalized\":false,"       \
    "\"single_word\":false,\"lstrip\":false,\"rstrip\":false}],"
#define WORDPIECE                                                                                  \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"max_input_chars_per_word\":20,"       \
    "\"continuing_subword_prefix\":\"##\",\"vocab\":{\"<s>\":0,\"?\":1,\"a\":2,\"##a\":3,"         \
    "\"aa\":4,\"##ab\":5,\"e\":6,\"##\\u0301\":7,\"\\u6c34\":8,\"##b\":9,\"b\":10,\"i\":11}}}"
#define UNIGRAM(options)                                                                           \
    "\"model\":{\"type\":\"Unigram\"," options "\"vocab\":[[\"<s>\",0],[\"?\",0],[\"\\u2581\","    \
    "-2],[\"\\u2581a\",-3],[\"a\",-2.5],[\"aa\",-5],[\"aab\",-5.5],[\"b\",-3],[\"<s\",-9],"        \
    "[\"e\\u0301\",-4],[\"<0xC3>\",-20],[\"<0xA9>\",-20],[\"\\u6c34\",-1]]}}"

/* By tests/golden/tokenizer/charsmap.py: a to X, b with an acute to Z, e with one to nothing. */
#define MAP                                                                                        \
    "QAMAAAAEAAAAAAAAAAAAgAAAAAAAAAAAAgAAgAAAAAAAAAAABAAAgAAAAAAFAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAGGJAQAAAAAAAAAAAGKAAQBliAEAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACBAQIAgTkCAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAACpqQIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAMIoAwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAADMNAMAAAAAAAAAAAAAAAAA" \
    "AAAAAMwsAwBYAFoAAChjKQA="

static const char *const files[] = {
    "{" ADDED "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
    "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true},"
    "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\","
    "\"prefix\":\"##\",\"cleanup\":true}," WORDPIECE,
    "{" ADDED WORDPIECE,
    "{" ADDED "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" MAP "\"},"
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\","
    "\"prepend_scheme\":\"always\"},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":"
    "\"\\u2581\",\"prepend_scheme\":\"always\"}," UNIGRAM("\"unk_id\":1,"),
    "{" ADDED UNIGRAM("\"unk_id\":1,\"byte_fallback\":true,"),
};
enum { N_FILES = sizeof(files) / sizeof(files[0]) };

static struct tok *load(const char *file)
{
    char err[256];
    struct tok *t = calloc(1, sizeof(*t));

    if (!t || tok_load(t, file, strlen(file), err, sizeof(err))) abort();
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tok *toks[N_FILES];
    struct tok_ids ids = {0};
    char err[256] = "", *text;
    size_t len;

    if (size == 0) return 0;
    struct tok **t = &toks[data[0] % N_FILES];
    if (!*t) *t = load(files[data[0] % N_FILES]);
    int rc = tok_encode(*t, (const char *)data + 1, size - 1, 0, &ids, err, sizeof(err));
    if ((rc == 0) != utf8_valid((const char *)data + 1, size - 1)) abort();
    for (size_t i = 0; i < ids.n; i++) {
        if (!tok_token_string(*t, ids.ids[i], &(size_t){0}) || tok_is_special(*t, ids.ids[i]))
            abort();
    }
    if (tok_decode(*t, ids.ids, ids.n, false, &text, &len) == 0) {
        if (!utf8_valid(text, len)) abort();
        free(text);
    }
    tok_ids_finish(&ids);
    return 0;
}
