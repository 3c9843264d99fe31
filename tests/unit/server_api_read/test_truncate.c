/* SPDX-License-Identifier: MIT */
/* Where chats are cut. Linked with --wrap=chat_input_make and --wrap=eng_info: a message has as many
 * tokens as its content has bytes, and the context is test_ctx. */
#include "server/api/read/truncate.h"

#include <ctype.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "server/models/served_model.h"
#include "test.h"

static struct eng_info info;
static int n_made, fails_at;

int __wrap_chat_input_make(const struct srv_model *model, const struct chat_input *in,
                           struct tok_prompt *prompt, struct tok_ids *ids);
const struct eng_info *__wrap_eng_info(const struct eng *e);

const struct eng_info *__wrap_eng_info(const struct eng *e)
{
    (void)e;
    return &info;
}

static size_t tokens_of(const json_t *messages)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        n += json_string_length(json_object_get(json_array_get(messages, i), "content"));
    return n;
}

int __wrap_chat_input_make(const struct srv_model *model, const struct chat_input *in,
                           struct tok_prompt *prompt, struct tok_ids *ids)
{
    (void)model, (void)prompt;
    if (++n_made == fails_at) return param_fail(SRV_ERR_TEMPLATE, "messages", "I will not.");
    ids->n = tokens_of(in->messages);
    return 0;
}

/* "s10 u100 a50 c5:xy r20:x": roles (c: the assistant with calls of these ids, r: a result, d: a
 * developer), tokens. */
static json_t *read_chat(const char *text)
{
    static const char letters[] = "sduacr";
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "assistant", "tool"};
    json_t *list = json_array();
    while (*text) {
        const char *letter = strchr(letters, *text++);
        REQUIRE(letter && *letter);
        size_t n = strtoul(text, (char **)&text, 10);
        char *content = calloc(1, n + 1);
        memset(content, 'x', n);
        json_t *m = json_pack("{s:s, s:s}", "role", roles[letter - letters], "content", content);
        free(content);
        if (*letter == 'c') json_object_set_new(m, "tool_calls", json_array());
        for (text += *text == ':'; isalpha((unsigned char)*text); text++) {
            json_t *id = json_stringn(text, 1), *calls = json_object_get(m, "tool_calls");
            if (calls)
                json_array_append_new(calls, json_pack("{s:o}", "id", id));
            else
                json_object_set_new(m, "tool_call_id", id);
        }
        json_array_append_new(list, m);
        text += strspn(text, " ");
    }
    return list;
}

/* Makes the prompt of a chat; truncate_finish is due. */
static int make(struct truncation *t, const json_t *list, const json_t *ends, int64_t *ret_n)
{
    const struct srv_model model = {0};
    const struct chat_input in = {.messages = list, .ends = ends, .field = "messages"};
    struct tok_prompt prompt = {0};
    struct tok_ids ids = {0};
    t->automatic = true;
    n_made = 0;
    int rc = truncate_make(t, &model, &in, &prompt, &ids);
    *ret_n = (int64_t)ids.n;
    return rc;
}

/* For each message: x: dropped, .: kept. The context is 100, its quarter 25. */
static const struct {
    const char *chat;
    int max_tokens;
    const char *kept;
} cases[] = {
    /* it fits, exactly */
    {"s10 u40 a25 u25", 10, "...."},
    /* 101: with 10 for the answer 11 have to go, so 25 */
    {"s10 u10 a11 u4 a1 u20 a20 u25", 10, ".xxxx..."},
    {"u11 a0 u90", 10, "xx."},
    /* more than a quarter of the context is not kept for the answer: 26 have to go, so 50 */
    {"u26 a10 u14 a1 u50", 1000, "xxxx."},
    {"u26 a10 u14 a1 u50", -1, "xxxx."},
    {"u26 a10 u14 a1 u50", 0, "xx..."},
    /* nobody but the last turn reaches the quarter: all others go */
    {"u8 a8 u8 a77", 0, "xx.."},
    {"u1 a1 u1 a1 u97", 0, "xxxx."},
    /* instructions stay where they are, what comes before the first turn goes with it */
    {"s10 a9 d10 u20 a20 s10 u10 a5 u20", 10, ".x.xx...."},
    {"a20 u10 a5 u67", 0, "xxx."},
    /* a call and its results are not parted, out of order too */
    {"u5 c5:a u30 r5:a a5 u60", 0, "xxxxx."},
    {"u30 c5:a u5 r30:a u5 r1:q u40", 0, "xxxx..."},
    /* ids that come again are of the call before them */
    {"u20 c5:a r5:a u60 c5:a r9:a", 0, "xxx..."},
    /* the last turn alone is too long: its oldest rounds go, the user's message stays */
    {"s5 u20 c5:a r20:a c5:bc r10:b r10:c c5:d r20:d c1:e r9:e", 0, "..xx......."},
    {"u9 a9 s5 u20 c5:a r20:a c5:bc r10:b r10:c c5:d r20:d c1:e r9:e", 5, "xx..xxxxx...."},
    {"u20 c5:ab r20:a c5:c r20:b r20:c c5:d r20:d", 0, ".xxxxx.."},
    {"u20 a40 c5:a r5:a c20:b r10:b a1", 0, ".x....."},
    /* no cut is enough: everything stays, for the error with its numbers */
    {"u20 c5:a r20:a c5:b r100:b", 0, "....."},
    {"u40 a70", 0, ".."},
    {"s60 s60 u1", 0, "..."},
    {"s101", 0, "."},
    {"a50 a60", 0, ".."},
    {"c50:a r60:a", 0, ".."},
    {"u20 c5:a r5:a c5:b r5:q r70:b", 0, ".xx..."},
};

static void test_cuts(void **state)
{
    (void)state;
    info.ctx_tokens = 100;
    for (size_t i = 0; i < N_OF(cases); i++) {
        json_t *list = read_chat(cases[i].chat);
        struct truncation t = {.max_tokens = cases[i].max_tokens};
        int64_t n;
        char kept[32] = "";
        REQUIRE_EQ_INT(make(&t, list, NULL, &n), 0);
        for (size_t k = 0; k < json_array_size(list); k++)
            kept[k] = t.dropped && t.dropped[k] ? 'x' : '.';
        REQUIRE_MSG(!strcmp(kept, cases[i].kept), "%s: %s, not %s", cases[i].chat, kept,
                    cases[i].kept);
        REQUIRE_EQ_INT(json_array_size(t.kept) + t.n_dropped, t.kept ? json_array_size(list) : 0);
        REQUIRE_EQ_INT(n, (int64_t)tokens_of(t.kept ? t.kept : list));
        truncate_finish(&t);
        json_decref(list);
    }
}

/* The dropped items of the client's are those of which no message stays. */
static void test_items(void **state)
{
    json_t *list = read_chat("s10 u20 c5:a r25:a u10 a5 u60"), *ends = json_array();
    static const int at[] = {1, 2, 3, 3,
                             5, 6, 7}; /* the third is left out, the fifth two messages */
    static const bool dropped[] = {false, true, true, true, false, false, false};
    struct truncation t = {.max_tokens = 0};
    int64_t n;
    (void)state;
    info.ctx_tokens = 100;
    for (size_t i = 0; i < N_OF(at); i++)
        json_array_append_new(ends, json_integer(at[i]));
    REQUIRE_EQ_INT(make(&t, list, ends, &n), 0);
    REQUIRE_EQ_INT(n, 85);
    REQUIRE_EQ_INT(t.n_items, N_OF(at));
    REQUIRE_EQ_INT(t.n_dropped, 3);
    REQUIRE(!memcmp(t.dropped, dropped, sizeof(dropped)));
    truncate_finish(&t);
    json_decref(ends);
    json_decref(list);
}

/* A conversation that grows: the cut moves once for each quarter, after a few looks. */
static void test_growth(void **state)
{
    enum { TURNS = 400 };
    json_t *list = read_chat("s30");
    size_t before = 0, n_moves = 0, total = 30;
    unsigned random = 7;
    (void)state;
    info.ctx_tokens = 2048;
    for (int i = 0; i < TURNS; i++) {
        char text[32];
        struct truncation t = {.max_tokens = 100};
        int64_t n;
        unsigned own = (random = random * 1103515245 + 12345) >> 16 & 63;
        snprintf(text, sizeof(text), "u%u a%u", 20 + own, 70 - own);
        json_t *turn = read_chat(text);
        json_array_extend(list, turn);
        json_decref(turn);
        total += 90;
        REQUIRE_EQ_INT(make(&t, list, NULL, &n), 0);
        REQUIRE(n <= 2048 && t.n_dropped >= before && n_made <= 10);
        if (t.kept) REQUIRE(n >= 2048 - 100 - 512 - 90);
        n_moves += t.n_dropped > before;
        before = t.n_dropped;
        truncate_finish(&t);
    }
    REQUIRE(n_moves > 0 && n_moves <= (total - 1948) / 512 + 1);
    json_decref(list);
}

/* The words of a template that refuses what is left. */
static void test_refusal(void **state)
{
    json_t *list = read_chat("u50 a10 u50");
    struct truncation t = {.max_tokens = 0};
    int64_t n;
    (void)state;
    info.ctx_tokens = 100;
    for (fails_at = 1; fails_at <= 3; fails_at++) {
        REQUIRE(make(&t, list, NULL, &n) < 0 && !strcmp(param_error.message, "I will not."));
        truncate_finish(&t);
    }
    fails_at = 0;
    json_decref(list);
}

/* As many messages as there may be; without the user nothing is cut. */
static void test_most(void **state)
{
    static const char *const chats[] = {"a1 ", "s1 ", "u1 ", "u1 c1:a r1:a ", "c1:a r1:a "};
    (void)state;
    info.ctx_tokens = 100;
    for (size_t i = 0; i < N_OF(chats); i++) {
        struct buf b;
        struct truncation t = {.max_tokens = 0};
        int64_t n;
        buf_init(&b, 1 << 20);
        buf_puts(&b, i == N_OF(chats) - 1 ? "u1 " : "");
        for (int k = 0; k < 4096; k++)
            buf_puts(&b, chats[i]);
        json_t *list = read_chat(b.data);
        REQUIRE_EQ_INT(make(&t, list, NULL, &n), 0);
        REQUIRE_EQ_INT(t.kept != NULL, i >= 2);
        if (t.kept) REQUIRE(n <= 100 && n >= 72);
        truncate_finish(&t);
        json_decref(list);
        buf_finish(&b);
    }
}

static void test_field(void **state)
{
    static const struct {
        const char *body;
        bool automatic;
        int kind; /* -1: fine */
    } fields[] = {
        {"{}", false, -1},
        {"{\"truncation\":null}", false, -1},
        {"{\"truncation\":\"disabled\"}", false, -1},
        {"{\"truncation\":\"auto\"}", true, -1},
        {"{\"truncation\":\"Auto\"}", false, SRV_ERR_INVALID_VALUE},
        {"{\"truncation\":true}", false, SRV_ERR_INVALID_TYPE},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(fields); i++) {
        json_t *body = json_loads(fields[i].body, 0, NULL);
        struct truncation t = {0};
        int rc = truncate_read(&t, body);
        REQUIRE_EQ_INT(rc == 0, fields[i].kind < 0);
        if (rc) REQUIRE_EQ_INT(param_error.kind, fields[i].kind);
        REQUIRE_EQ_INT(t.automatic, fields[i].automatic);
        json_decref(body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),    cmocka_unit_test(test_items), cmocka_unit_test(test_growth),
        cmocka_unit_test(test_refusal), cmocka_unit_test(test_most),  cmocka_unit_test(test_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
