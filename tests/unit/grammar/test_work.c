/* SPDX-License-Identifier: MIT */
/*
 * The work of a byte and of a mask is bounded for every grammar, however many ways it has to read a
 * text. Counted in steps of the machine, which are the same on every computer.
 */
#include <limits.h>
#include <string.h>

#include "test.h"

#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/state.h"
#include "toy_vocab.h"

/* Both rules read any text without parentheses, and each may follow the other. */
static const char ambiguous[] = "root ::= (x)* \"end\"\n"
                                "x ::= y | z | \"(\" x \")\"\n"
                                "y ::= [^()]{1,30} z?\n"
                                "z ::= [^()]{1,20} y?\n";

/* Every letter may end each of four rules, and all of them may be left out. */
static const char heavy[] = "root ::= (a? b? c? d?){0,50} \"end\"\n"
                            "a ::= \"(\" root \")\" | [a-z]\n"
                            "b ::= \"(\" root \")\" | [a-z]{1,9}\n"
                            "c ::= [a-z]{2,9} root?\n"
                            "d ::= ([a-z] (\"[\" root \"]\")?){1,40}\n";

/* The most steps that a mask and a byte of the text took. */
struct work {
    uint64_t mask, byte;
};

static struct work work_of(const char *grammar, const char *text)
{
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    struct gram *g = toy_compile(v, GRAM_GBNF, grammar, NULL);
    struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
    struct work most = {0, 0};

    for (const char *p = text; *p; p++) {
        uint64_t bits[TOY_MASK_WORDS], begin = s->m.work;
        int32_t id = TOY_BYTES + (uint8_t)*p;
        REQUIRE(gram_mask(s, bits) == GRAM_NEXT_MASK);
        uint64_t masked = s->m.work;
        REQUIRE_MSG(toy_allows(bits, id) && gram_take(s, id), "%s at %zu", text, p - text);
        if (masked - begin > most.mask) most.mask = masked - begin;
        if (s->m.work - masked > most.byte) most.byte = s->m.work - masked;
    }
    gram_release(g);
    free(memory);
    gram_vocab_destroy(v);
    return most;
}

static void test_ambiguous_text_takes_few_steps(void **state)
{
    (void)state;
    struct work w =
        work_of(ambiguous, "abc(def)ghi((jkl))mno(p)qrs((t))uabcdefghijklmnopqrstuvwend");
    REQUIRE_MSG(w.byte < 2000, "%llu steps for a byte", (unsigned long long)w.byte);
    REQUIRE_MSG(w.mask < 60000, "%llu steps for a mask", (unsigned long long)w.mask);
}

/* Two rules that begin alike: every parenthesis doubles the ways to read it. */
static void test_nesting_takes_few_steps(void **state)
{
    (void)state;
    struct work w = work_of("root ::= t+\n"
                            "t ::= \"a\" | \"(\" e \")\" | \"(\" e \")\" \"x\"? | \"b\"\n"
                            "e ::= t+\n",
                            "((((((a))))))");
    REQUIRE_MSG(w.byte < 5000, "%llu steps for a byte", (unsigned long long)w.byte);
    REQUIRE_MSG(w.mask < 100000, "%llu steps for a mask", (unsigned long long)w.mask);
}

/* Where a mask would take too many steps, tokens of one byte spell what may come. */
static void test_a_mask_ends(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    struct gram *g = toy_compile(v, GRAM_GBNF, heavy, NULL);
    struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
    uint64_t bits[TOY_MASK_WORDS];

    for (int i = 0; i < 30; i++) {
        uint64_t begin = s->m.work;
        REQUIRE(gram_mask(s, bits) == GRAM_NEXT_MASK);
        REQUIRE_MSG(s->m.work - begin < 1000000, "%llu steps",
                    (unsigned long long)(s->m.work - begin));
        REQUIRE(toy_allows(bits, TOY_BYTES + 'a') && !toy_allows(bits, TOY_BYTES + '!'));
        REQUIRE(gram_take(s, TOY_BYTES + 'a'));
    }
    REQUIRE(gram_overflows(s) > 0);
    gram_release(g);
    free(memory);
    gram_vocab_destroy(v);
}

/* ---- masks in pieces ----------------------------------------------------------------------- */

struct paced {
    struct gram_pace pace; /* first, so that one is the other */
    const struct gram_state *s;
    uint64_t before, most; /* steps at the last call, and between two */
    int n_calls, n_allowed;
};

static bool one_more(struct gram_pace *pace)
{
    struct paced *p = (struct paced *)pace;
    uint64_t n = p->s->m.work - p->before;
    if (n > p->most) p->most = n;
    p->before = p->s->m.work;
    p->pace.left = 1;
    return ++p->n_calls <= p->n_allowed;
}

static enum gram_next mask_in_pieces(struct gram_state *s, uint64_t *bits, int n_allowed,
                                     struct paced *ret)
{
    *ret = (struct paced){.pace = {1, one_more}, .s = s, .n_allowed = n_allowed};
    ret->before = s->m.work;
    return gram_mask_paced(s, bits, &ret->pace);
}

/* Asked after every step a mask is the same; given up anywhere it leaves no trace. */
static void check_pieces(struct gram_state *s, const char *name)
{
    uint64_t whole[TOY_MASK_WORDS], pieces[TOY_MASK_WORDS], before = gram_overflows(s);
    struct paced all, some;
    enum gram_next next = gram_mask(s, whole);
    uint64_t n_overflows = gram_overflows(s) - before;
    REQUIRE(mask_in_pieces(s, pieces, INT_MAX, &all) == next);
    REQUIRE_MSG(memcmp(whole, pieces, sizeof(whole)) == 0, "%s", name);
    REQUIRE_MSG(all.most < 300, "%s: %llu steps at once", name, (unsigned long long)all.most);
    for (int n = 0; n < all.n_calls; n += 1 + all.n_calls / 7) {
        before = gram_overflows(s);
        REQUIRE(mask_in_pieces(s, pieces, n, &some) == GRAM_NEXT_LATER);
        REQUIRE(some.n_calls == n + 1 && gram_overflows(s) == before);
        REQUIRE(gram_mask(s, pieces) == next);
        REQUIRE_MSG(memcmp(whole, pieces, sizeof(whole)) == 0, "%s", name);
        REQUIRE(gram_overflows(s) == before + n_overflows);
    }
}

static void test_masks_come_in_pieces(void **state)
{
    static const struct {
        enum gram_kind kind;
        const char *grammar, *text;
    } cases[] = {
        {GRAM_GBNF, ambiguous, "abc(def)ghi((j"},
        {GRAM_GBNF, heavy, "abcabc"},
        {GRAM_REGEX, "([a-z]{2,40}x|[a-y]{3,50}|(ab|ba)*){1,9}", "abcdex"},
        {GRAM_SCHEMA,
         "{\"anyOf\": [{\"type\": \"string\", \"maxLength\": 9, \"pattern\": \"^[a-z]*x\"},"
         " {\"type\": \"string\", \"maxLength\": 7, \"pattern\": \"^[a-x0-9]*$\"}]}",
         "\"abcd"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct gram_vocab *v = toy_vocab();
        void *memory = toy_state_memory();
        struct gram *g = toy_compile(v, cases[i].kind, cases[i].grammar, NULL);
        struct gram_state *s = gram_state_init(memory, g, NULL, NULL);
        check_pieces(s, cases[i].grammar);
        for (const char *p = cases[i].text; *p; p++) {
            REQUIRE(gram_take(s, TOY_BYTES + (uint8_t)*p));
            check_pieces(s, cases[i].grammar);
        }
        gram_release(g);
        free(memory);
        gram_vocab_destroy(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ambiguous_text_takes_few_steps),
        cmocka_unit_test(test_nesting_takes_few_steps),
        cmocka_unit_test(test_a_mask_ends),
        cmocka_unit_test(test_masks_come_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
