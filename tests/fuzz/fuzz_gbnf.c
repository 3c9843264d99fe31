/* SPDX-License-Identifier: MIT */
/* Fuzzes GBNF: a grammar, and behind a zero byte a text, which is also taken as choices of ids. */
#include "grammar_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *text;
    size_t n_text, n = fuzz_cut(data, size, &text, &n_text);
    struct gram *g = fuzz_compile(GRAM_GBNF, data, n, false);

    if (g) {
        fuzz_text(g, text, n_text);
        fuzz_answer(g, text, n_text);
    }
    gram_release(g);
    return 0;
}
