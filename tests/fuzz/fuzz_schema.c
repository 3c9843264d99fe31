/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes JSON schemas: a schema, and behind a zero byte a text, which is also taken as choices of
 * ids. A schema that is compiled is compiled again with strict, which changes its language in no
 * way.
 */
#include "grammar_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *text;
    size_t n_text, n = fuzz_cut(data, size, &text, &n_text);

    struct gram *g = fuzz_compile(GRAM_SCHEMA, data, n, false);
    struct gram *strict = fuzz_compile(GRAM_SCHEMA, data, n, true);
    CHECK(g || !strict);
    if (g) {
        bool accepted = fuzz_text(g, text, n_text);
        if (strict) CHECK(fuzz_text(strict, text, n_text) == accepted);
        for (size_t i = 0; i < gram_n_relaxed(g); i++)
            CHECK(gram_relaxed(g, i)[0] == '/');
        fuzz_answer(g, text, n_text);
    }
    gram_release(g);
    gram_release(strict);
    return 0;
}
