/* SPDX-License-Identifier: MIT */
/*
 * Records to text: whatever the wakes cut the records into, text, end and offsets are the same. The
 * tokens are those of the demo model; every way of cutting up to ten of them is tried.
 */
#include "test.h"

#include "base/utf8.h"
#include "server/api/run/choice_text.h"
#include "tokenizer/tokenizer.h"

enum { MAX_TOKENS = 64, MAX_CUT = 9 };

struct text_case {
    const char *name;
    const char *tokens; /* encoded for the records */
    const char *stops[3];
    enum eng_finish finish; /* 0: the engine has not ended it */
    int min_tokens;
    int stop_at;   /* the token whose id is a stop id, or -1 */
    int n_dropped; /* of the last tokens, so that a character may be incomplete */
    bool include_stop;
    const char *text; /* NULL: not ended, as much as in one piece */
    const char *reason;
    int stop; /* the stop string found, or -1 */
};

static const struct text_case cases[] = {
    {"length",
     "Tom and the red ball",
     {0},
     ENG_FINISH_LENGTH,
     0,
     -1,
     0,
     false,
     "Tom and the red ball",
     "length",
     -1},
    {"all is banned", "Tom and", {0}, ENG_FINISH_STOP, 0, -1, 0, false, "Tom and", "stop", -1},
    {"stop string", "Tom and the red ball", {"zz", "and the"}, 0, 0, -1, 0, false, "Tom ", "stop", 1},
    {"and a late end",
     "Tom and the red ball",
     {"and the"},
     ENG_FINISH_LENGTH,
     0,
     -1,
     0,
     false,
     "Tom ",
     "stop",
     0},
    {"included",
     "Tom and the red ball",
     {"and the"},
     ENG_FINISH_CANCELLED,
     0,
     -1,
     0,
     true,
     "Tom and the",
     "stop",
     0},
    {"behind a token without text",
     "Tom<|im_end|> and the red ball",
     {" and the"},
     0,
     0,
     -1,
     0,
     false,
     "Tom",
     "stop",
     0},
    {"not before min_tokens",
     "Tom and the red ball",
     {"Tom"},
     ENG_FINISH_LENGTH,
     3,
     -1,
     0,
     false,
     "Tom and the red ball",
     "length",
     -1},
    {"begun, never complete",
     "Tom and the",
     {"the dog"},
     ENG_FINISH_LENGTH,
     0,
     -1,
     0,
     false,
     "Tom and the",
     "length",
     -1},
    {"cancelled", "Tom and the", {0}, ENG_FINISH_CANCELLED, 0, -1, 0, false, NULL, NULL, -1},
    {"running", "Tom and the", {0}, 0, 0, -1, 0, false, NULL, NULL, -1},
    {"stop id", "Tom and the red", {0}, ENG_FINISH_STOP, 0, 2, 0, false, NULL, "stop", -1},
    {"stop id included", "Tom and the red", {0}, ENG_FINISH_STOP, 0, 2, 0, true, NULL, "stop", -1},
    {"characters",
     "\xe2\x82\xac\xc3\xa9",
     {0},
     ENG_FINISH_LENGTH,
     0,
     -1,
     0,
     false,
     "\xe2\x82\xac\xc3\xa9",
     "length",
     -1},
    {"incomplete character",
     "a\xe2\x82\xac",
     {0},
     ENG_FINISH_LENGTH,
     0,
     -1,
     1,
     false,
     NULL,
     "length",
     -1},
    {"incomplete before a stop id",
     "a\xe2\x82\xac",
     {"\xef\xbf\xbd"},
     ENG_FINISH_STOP,
     0,
     2,
     0,
     false,
     NULL,
     "stop",
     -1},
};

static struct tok *tok;

struct subject {
    struct gen_choice choice;
    struct choice_rules rules;
    _Alignas(16) char memory[1 << 16];
    int32_t ids[MAX_TOKENS], stop_id;
    int n_ids;
};

static void make(struct subject *s, const struct text_case *c)
{
    static const int32_t prompt[] = {1};
    struct tok_ids ids = {0};
    char err[200] = "", *at = s->memory;
    size_t lens[3];
    int n_stops = 0;
    memset(s, 0, sizeof(*s));
    REQUIRE_EQ_INT(
        tok_encode(tok, c->tokens, strlen(c->tokens), TOK_PARSE_SPECIAL, &ids, err, sizeof(err)),
        0);
    REQUIRE(ids.n > (size_t)c->n_dropped && ids.n <= MAX_TOKENS);
    s->n_ids = (int)ids.n - c->n_dropped;
    memcpy(s->ids, ids.ids, (size_t)s->n_ids * sizeof(*ids.ids));
    tok_ids_finish(&ids);
    for (; n_stops < 3 && c->stops[n_stops]; n_stops++)
        lens[n_stops] = strlen(c->stops[n_stops]);
    s->rules.tok = tok;
    s->rules.min_tokens = c->min_tokens;
    s->rules.include_stop = c->include_stop;
    s->rules.skip_special = true;
    if (c->stop_at >= 0) {
        REQUIRE(c->stop_at < s->n_ids);
        s->stop_id = s->ids[c->stop_at];
        s->rules.ids[1] = &s->stop_id;
        s->rules.n_ids[1] = 1;
    }
    REQUIRE_EQ_INT(textout_stops_init(&s->rules.stops, c->stops, lens, n_stops), 0);
    REQUIRE_EQ_INT(choice_text_init(&s->choice, &s->rules, prompt, 1, s->n_ids, 1, &at), 0);
    REQUIRE_EQ_INT(at - s->memory, choice_text_bytes(&s->rules, s->n_ids, 1));
}

static void unmake(struct subject *s)
{
    choice_text_finish(&s->choice);
    textout_stops_finish(&s->rules.stops);
}

static void append(struct subject *s, int i)
{
    const struct eng_logprob top = {s->ids[i], -0.5f};
    const struct eng_event ev = {
        .type = ENG_EVENT_TOKEN, .id = s->ids[i], .logprob = -0.5f, .top = &top, .n_top = 1};
    choice_log_append(&s->choice.log, &ev);
}

/* A wake: what may be shown only grows, and is never taken back. */
static int look(struct subject *s)
{
    struct gen_choice *c = &s->choice;
    size_t before = c->text.n_released;
    bool stopped = choice_text_advance(c, &s->rules);
    int64_t showable = c->n_showable, eventable = c->n_eventable;
    REQUIRE(c->text.n_released >= before && c->text.n_released <= c->text.text.len);
    REQUIRE(showable >= c->n_shown && showable <= c->n_tokens);
    REQUIRE(eventable <= c->n_tokens && (c->ended || eventable <= showable));
    REQUIRE(utf8_valid(c->text.text.data, c->text.n_released));
    c->n_shown = showable;
    return stopped;
}

/* Bit i of cuts: the text worker wakes after record i; the end comes with the last or later. */
static int run(struct subject *s, const struct text_case *c, unsigned cuts, bool late)
{
    int n_stopped = 0;
    for (int i = 0; i < s->n_ids; i++) {
        append(s, i);
        if (cuts >> i & 1) n_stopped += look(s);
    }
    if (late) n_stopped += look(s);
    atomic_store(&s->choice.finish, (int)c->finish);
    n_stopped += look(s);
    return n_stopped + look(s);
}

static void compare(const struct text_case *c, const struct subject *a, const struct subject *b,
                    unsigned cuts)
{
    const struct gen_choice *x = &a->choice, *y = &b->choice;
    REQUIRE_MSG(x->text.text.len == y->text.text.len &&
                    memcmp(x->text.text.data, y->text.text.data, x->text.text.len) == 0,
                "%s, cuts %x", c->name, cuts);
    REQUIRE_MSG(x->ended == y->ended && x->n_tokens == y->n_tokens && x->stop_id == y->stop_id &&
                    x->finish_reason == y->finish_reason && x->sum_logprob == y->sum_logprob &&
                    !x->stop_string == !y->stop_string &&
                    (!x->ended || x->n_showable == y->n_showable),
                "%s, cuts %x", c->name, cuts);
    REQUIRE_MSG(memcmp(x->offsets, y->offsets, (size_t)x->n_tokens * sizeof(*x->offsets)) == 0,
                "%s, cuts %x", c->name, cuts);
}

static void test_cases(void **state)
{
    for (size_t i = 0; i < N_OF(cases); i++) {
        const struct text_case *c = &cases[i];
        static struct subject s;
        make(&s, c);
        int n_stopped = run(&s, c, 0, false);
        const struct gen_choice *choice = &s.choice;
        if (c->text)
            REQUIRE_MSG(choice->text.text.len == strlen(c->text) &&
                            memcmp(choice->text.text.data, c->text, strlen(c->text)) == 0,
                        "%s: '%.*s'", c->name, (int)choice->text.text.len, choice->text.text.data);
        REQUIRE_MSG(choice->ended == (c->reason != NULL), "%s", c->name);
        if (c->reason) REQUIRE_EQ_STR(choice->finish_reason, c->reason);
        REQUIRE_MSG(n_stopped == (c->stop >= 0), "%s", c->name);
        if (c->stop >= 0) REQUIRE(choice->stop_string == c->stops[c->stop]);
        if (c->stop_at >= 0) {
            REQUIRE_EQ_INT(choice->n_tokens, c->stop_at + 1);
            REQUIRE_EQ_INT(choice->stop_id, s.stop_id);
        }
        /* Tokens wholly inside the stop string are not shown. */
        int64_t n = choice->n_tokens;
        while (choice->stop_string && n > 0 && choice->offsets[n - 1] >= choice->text.text.len)
            n--;
        if (choice->ended) REQUIRE_EQ_INT(choice->n_showable, n);
        unmake(&s);
    }
}

static void test_every_cut(void **state)
{
    for (size_t i = 0; i < N_OF(cases); i++) {
        static struct subject whole, cut;
        make(&whole, &cases[i]);
        int n_stopped = run(&whole, &cases[i], 0, false);
        int n_bits = whole.n_ids < MAX_CUT ? whole.n_ids : MAX_CUT;
        for (unsigned cuts = 0; cuts < 2u << n_bits; cuts++) {
            make(&cut, &cases[i]);
            REQUIRE_EQ_INT(run(&cut, &cases[i], cuts >> 1, cuts & 1), n_stopped);
            compare(&cases[i], &whole, &cut, cuts);
            unmake(&cut);
        }
        unmake(&whole);
    }
}

/* A log without room for tops, and one without tokens. */
static void test_logs(void **state)
{
    _Alignas(16) char memory[256] = {0};
    char *at = memory;
    struct gen_log none = {0}, plain = {0};
    choice_log_init(&none, 0, 5, &at);
    REQUIRE(at == memory && !none.records);
    choice_log_init(&plain, 2, -1, &at);
    REQUIRE_EQ_INT(at - memory, choice_log_bytes(2, -1));
    const struct eng_logprob top = {3, -1};
    const struct eng_event ev = {.type = ENG_EVENT_TOKEN, .id = 3, .top = &top, .n_top = 1};
    choice_log_append(&plain, &ev);
    REQUIRE_EQ_INT(plain.records[0].n_top, 0);
    REQUIRE(!gen_log_top(&plain, 0));
    REQUIRE_EQ_INT(choice_log_bytes(3, 2) % 16, 0);
}

static int open_tokenizer(void **state)
{
    char dir[4096], err[256] = "";
    snprintf(dir, sizeof(dir), "%s/deploy/demo", test_source_root());
    return tok_open(&tok, dir, err, sizeof(err));
}

static int close_tokenizer(void **state)
{
    tok_close(tok);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_logs),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
