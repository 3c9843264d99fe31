/* SPDX-License-Identifier: MIT */
/* The ids that a draft model may write, from both tokenizers; the engine is not there. */
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"
#include "server/models/token_facts.h"
#include "tokenizer/tokenizer.h"

static struct eng_info facts;
static enum eng_draft_state draft_state;

const struct eng_info *__wrap_eng_info(const struct eng *e);
enum eng_draft_state __wrap_eng_draft_state(const struct eng *e, const char **ret_error);

const struct eng_info *__wrap_eng_info(const struct eng *e)
{
    (void)e;
    return &facts;
}

enum eng_draft_state __wrap_eng_draft_state(const struct eng *e, const char **ret_error)
{
    (void)e;
    (void)ret_error;
    return draft_state;
}

static char dir[64], err[600];
static struct tok *tok;

static void write_tokenizer(const char *text)
{
    char path[100];
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    FILE *f = fopen(path, "w");
    REQUIRE(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void remove_tokenizer(void)
{
    char path[100];
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    unlink(path);
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/test_fit_XXXXXX");
    if (!mkdtemp(dir)) return -1;
    write_tokenizer("{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"z\":100},\"merges\":[]}}");
    facts.vocab_size = 500;
    draft_state = ENG_DRAFTS_LOADING;
    return tok_open(&tok, dir, err, sizeof(err));
}

static int teardown(void **state)
{
    (void)state;
    tok_close(tok);
    remove_tokenizer();
    return rmdir(dir);
}

static int ids_of(uint64_t **ret)
{
    *ret = (uint64_t *)&facts; /* what stands there before does not matter */
    err[0] = '\0';
    return srv_draft_ids(ret, (struct eng *)&facts, tok, dir, err, sizeof(err));
}

static void ids_that_both_have(void **state)
{
    uint64_t *ids;
    (void)state;
    write_tokenizer("{\"model\":{\"vocab\":{\"a\":0,\"c\":2,\"z\":100},\"merges\":[]}}");
    REQUIRE_EQ_INT(ids_of(&ids), 0);
    REQUIRE_EQ_INT(ids[0], 1);
    REQUIRE_EQ_INT(ids[1], 1ll << 36);
    for (int i = 2; i < 8; i++) /* as many as the model has rows of */
        REQUIRE_EQ_INT(ids[i], 0);
    free(ids);
    facts.vocab_size = 1; /* a model of fewer rows than its tokenizer has ids */
    REQUIRE_EQ_INT(ids_of(&ids), 0);
    REQUIRE_EQ_INT(ids[1], 1ll << 36);
    free(ids);
}

static void no_draft_model_no_ids(void **state)
{
    static const enum eng_draft_state states[] = {ENG_DRAFTS_NONE, ENG_DRAFTS_FAILED};
    uint64_t *ids = (uint64_t *)&facts;
    (void)state;
    REQUIRE(srv_draft_ids(&ids, (struct eng *)&facts, tok, NULL, err, sizeof(err)) == 0 && !ids);
    remove_tokenizer(); /* nobody looks */
    for (size_t i = 0; i < N_OF(states); i++) {
        draft_state = states[i];
        REQUIRE(ids_of(&ids) == 0 && !ids);
    }
}

/* For a look at the files: whatever an engine would say. */
static void ids_without_an_engine(void **state)
{
    uint64_t *ids;
    (void)state;
    draft_state = ENG_DRAFTS_NONE;
    REQUIRE_EQ_INT(srv_draft_ids(&ids, NULL, tok, dir, err, sizeof(err)), 0);
    REQUIRE(ids[0] == 3 && ids[1] == 1ull << 36);
    free(ids);
}

static void another_tokenizer_is_refused(void **state)
{
    uint64_t *ids;
    (void)state;
    write_tokenizer("{\"model\":{\"vocab\":{\"a\":0,\"q\":1,\"z\":100},\"merges\":[]}}");
    REQUIRE(ids_of(&ids) == -1 && !ids);
    REQUIRE_MSG(strstr(err, dir) && strstr(err, "does not fit the model: id 1 is a token, 'b'") &&
                    strstr(err, "; choose one with the same tokenizer"),
                "%s", err);
}

/* Names the file and what helps, not a difference that nobody has seen. */
static void a_tokenizer_that_cannot_be_read(void **state)
{
    static const char *const texts[] = {"{\"model\":3}", "", NULL};
    uint64_t *ids;
    (void)state;
    for (int i = 0; i < 3; i++) {
        if (texts[i])
            write_tokenizer(texts[i]);
        else
            remove_tokenizer();
        REQUIRE(ids_of(&ids) == -1 && !ids);
        REQUIRE_MSG(strstr(err, dir) && strstr(err, "/tokenizer.json: ") &&
                        !strstr(err, "not fit") &&
                        strstr(err, "; fetch it again, or start without a draft model"),
                    "%s", err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ids_that_both_have, setup, teardown),
        cmocka_unit_test_setup_teardown(ids_without_an_engine, setup, teardown),
        cmocka_unit_test_setup_teardown(no_draft_model_no_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(another_tokenizer_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tokenizer_that_cannot_be_read, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
