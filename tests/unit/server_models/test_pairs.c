/* SPDX-License-Identifier: MIT */
/* Queries and documents, perhaps empty, as the ids of one prompt. */
#include "test.h"

#include "server/models/pairs.h"

/* Text next to a mark of the vocabulary is tokenized by itself. */
#define TEMPLATE                                                                                   \
    "<|im_start|>{query}<|im_end|>{instruction}<|im_start|>{document}<|im_end|>\nAnswer:"

static struct tok *tok;

static struct srv_pair_text pair_of(const char *query, const char *document,
                                    const char *instruction, int64_t document_tokens)
{
    return (struct srv_pair_text){.query = query,
                                  .n_query = strlen(query),
                                  .document = document,
                                  .n_document = strlen(document),
                                  .instruction = instruction,
                                  .document_tokens = document_tokens};
}

static void encode(const char *template, bool judges, struct srv_pair_text pair,
                   struct srv_pair_ids *ret)
{
    static struct srv_pairs pairs;
    char text[200] = "", err[200] = "";
    snprintf(text, sizeof(text), "%s", template ? template : "");
    pairs = (struct srv_pairs){.tok = tok, .template = template ? text : NULL, .judges = judges};
    *ret = (struct srv_pair_ids){0};
    struct srv_pair_front own = {0};
    if (!pair.front) pair.front = &own;
    int rc = srv_pairs_encode(&pairs, &pair, ret, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    tok_ids_finish(&own.ids);
}

/* A document is cut to so many of its own tokens, whichever texts are empty. */
static void empty_texts_are_counted(void **state)
{
    static const char *const texts[] = {"", "a", "<|im_end|> the cat"};
    (void)state;
    for (int judges = 0; judges < 2; judges++)
        for (int i = 0; i < 27; i++) {
            const char *query = texts[i % 3], *document = texts[i / 3 % 3], *task = texts[i / 9];
            struct srv_pair_ids whole, cut, none;
            encode(TEMPLATE, judges, pair_of(query, document, task, 0), &whole);
            encode(TEMPLATE, judges, pair_of(query, document, task, 1 << 20), &cut);
            REQUIRE_MSG(cut.ids.n == whole.ids.n && cut.n_tail == whole.n_tail, "case %d", i);
            REQUIRE(!memcmp(cut.ids.ids, whole.ids.ids, cut.ids.n * sizeof(*cut.ids.ids)));
            tok_ids_finish(&cut.ids);
            encode(TEMPLATE, judges, pair_of(query, "", task, 1), &none);
            encode(TEMPLATE, judges, pair_of(query, document, task, 1), &cut);
            REQUIRE_MSG(cut.ids.n == none.ids.n + !!*document, "case %d: %zu, %zu", i, cut.ids.n,
                        none.ids.n);
            tok_ids_finish(&whole.ids);
            tok_ids_finish(&none.ids);
            tok_ids_finish(&cut.ids);
        }
}

/* Nothing but the texts, which are empty: no ids and no error, with the lengths of both. */
static void nothing_at_all(void **state)
{
    static const char *const templates[] = {NULL, "{query}{document}"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct srv_pair_ids ids;
        encode(templates[i / 2], i % 2, pair_of("", "", "", i), &ids);
        REQUIRE_EQ_INT(ids.ids.n, 0);
        REQUIRE_EQ_INT(ids.n_tail + ids.n_first, 0);
        tok_ids_finish(&ids.ids);
    }
}

/* Pairs after each other have the ids of each alone, and a query is encoded for the first of them. */
static void pairs_in_a_row(void **state)
{
    static const char *const queries[] = {"the moon", "", "a cat"}, *const documents[] = {
                                                                        "the sun and the moon", "",
                                                                        "b c d"};
    static const char *const templates[] = {NULL, TEMPLATE, TEMPLATE};
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int cut = 0; cut < 8; cut++) {
            struct srv_pair_front front = {0};
            const int32_t *made = NULL;
            for (int i = 0; i < 18; i++) {
                struct srv_pair_text pair =
                    pair_of(queries[i / 3 % 3], documents[i % 3], i < 9 ? "x" : "y", cut % 4);
                struct srv_pair_ids alone, row;
                pair.most_tokens = cut / 4 * 3;
                encode(templates[kind], kind == 1, pair, &alone);
                pair.front = &front;
                encode(templates[kind], kind == 1, pair, &row);
                REQUIRE_EQ_INT(row.ids.n, alone.ids.n);
                REQUIRE(row.ids.n == 0 ||
                        !memcmp(row.ids.ids, alone.ids.ids, row.ids.n * sizeof(*row.ids.ids)));
                REQUIRE(row.n_tail == alone.n_tail && row.n_first == alone.n_first &&
                        row.cut == alone.cut);
                REQUIRE(i % 3 == 0 || front.ids.ids == made);
                made = front.ids.ids;
                tok_ids_finish(&row.ids);
                tok_ids_finish(&alone.ids);
            }
            tok_ids_finish(&front.ids);
        }
}

static int open_demo(void **state)
{
    char dir[1024], err[200];
    const char *root = getenv("HEARTH_SOURCE_ROOT");
    (void)state;
    snprintf(dir, sizeof(dir), "%s/deploy/demo", root ? root : ".");
    return tok_open(&tok, dir, err, sizeof(err));
}

static int close_demo(void **state)
{
    (void)state;
    tok_close(tok);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_texts_are_counted),
        cmocka_unit_test(nothing_at_all),
        cmocka_unit_test(pairs_in_a_row),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
