/* SPDX-License-Identifier: MIT */
/*
 * The tables of request fields: each row is complete, and none hides another. And bodies of the
 * common fields: what is read, derived, refused and noted.
 */
#include "test.h"

#include "server/api/read/generation_fields.h"
#include "server/api/routes.h"
#include "server/config/config.h"
#include "server/api/routes.h"
#include "server/http/request.h"
#include "server/http/server.h"

static const struct param_field *const tables[] = {
    srv_fields_common,     srv_fields_completions, srv_fields_chat,
    srv_fields_responses,  srv_fields_messages,    srv_fields_tokens,
    srv_fields_embeddings, srv_fields_swap,        srv_fields_stream_options,
};

static const struct param_field *row_of(const struct param_field *fields, const char *name)
{
    for (; fields->name; fields++)
        if (!strcmp(fields->name, name) || (fields->also && !strcmp(fields->also, name)))
            return fields;
    return NULL;
}

static void check_row(const struct param_field *f)
{
    bool is_number = f->type == PARAM_INT || f->type == PARAM_NUMBER;
    bool in_range = f->preset >= f->min && f->preset <= f->max;
    REQUIRE_MSG(!is_number || f->min < f->max, "%s: an empty range", f->name);
    REQUIRE_MSG(!is_number || in_range || f->otherwise || !f->meaning,
                "%s: the preset %g is outside the range, and no words say what holds", f->name,
                f->preset);
    if (!f->meaning) return;
    REQUIRE_MSG(f->type != PARAM_UNSUPPORTED, "%s: described, but refused", f->name);
    size_t len = strlen(f->meaning);
    REQUIRE_MSG(len > 3 && f->meaning[len - 1] != '.', "%s: %s", f->name, f->meaning);
    REQUIRE_MSG(!strpbrk(f->meaning, "|\n") && !strstr(f->meaning, "](#"), "%s: %s", f->name,
                f->meaning);
}

static void test_rows_are_complete(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(tables); i++)
        for (const struct param_field *f = tables[i]; f->name; f++) {
            check_row(f);
            REQUIRE_MSG(row_of(tables[i], f->name) == f, "%s stands twice", f->name);
            REQUIRE(!f->also || row_of(tables[i], f->also) == f);
        }
}

/* A dialect's own row hides the common one, so it must say something else. */
static void test_own_rows_differ(void **state)
{
    (void)state;
    for (size_t i = 1; i <= 4; i++)
        for (const struct param_field *f = tables[i]; f->name; f++) {
            const struct param_field *other = row_of(srv_fields_common, f->name);
            if (!other) continue;
            bool same = f->type == other->type && f->offset == other->offset;
            REQUIRE_MSG(!same || f->meaning, "%s: the common row says as much", f->name);
        }
}

static void test_sampling_parameters_are_fields(void **state)
{
    (void)state;
#define IS_FIELD(param, kind, least, most, neutral, ...)                                           \
    {                                                                                              \
        const struct param_field *f = row_of(srv_fields_common, #param);                           \
        REQUIRE(f && f->offset == offsetof(struct srv_gen_params, given.param));                   \
        REQUIRE(f->min == least && f->max == most && f->preset == neutral);                        \
    }
    ENG_SAMPLING_PARAMS(IS_FIELD)
}

/* ---- bodies -------------------------------------------------------------------------------- */

enum { VOCAB = 100, CTX = 64 };

static struct srv_app app;
static struct srv_server server = {.app = &app, .gate = &srv_gate};
static struct srv_config config;
static struct srv_model model;

const struct eng_info *__wrap_eng_info(const struct eng *e);

const struct eng_info *__wrap_eng_info(const struct eng *e)
{
    static const struct eng_info info = {.vocab_size = VOCAB, .ctx_tokens = CTX, .max_choices = 4};
    (void)e;
    return &info;
}

/* One body, read; close it. */
struct body {
    struct srv_request *req;
    struct srv_body tree;
    struct srv_gen_params p;
    struct param_unknown unknown;
    int rc;
};

static struct body read_body(const struct param_field *own, const char *text, const char *deadline)
{
    static const char *const names[] = {"demo", "other", NULL};
    struct body b = {.req = srv_request_create(&server, NULL, NULL, "/v1/completions")};
    REQUIRE(b.req != NULL);
    server.config = app.config = model.config = &config;
    model.names = names;
    model.defaults = srv_defaults_neutral();
    model.defaults.sampling.min_p = 0.25;
    struct srv_facts *facts = srv_facts(b.req);
    facts->model = &model;
    facts->body = text;
    facts->body_len = strlen(text);
    if (deadline)
        srv_request_add_header(b.req, "x-request-deadline-ms", 21, deadline, strlen(deadline));
    b.rc = srv_body_read(&b.tree, text, facts->body_len, PARAM_MAX_VALUES);
    if (!b.rc) b.rc = srv_gen_params_read(&b.p, b.req, own, &b.tree, &b.unknown);
    return b;
}

static void close_body(struct body *b)
{
    srv_body_finish(&b->tree);
    b->req->facts.model = NULL;
    b->req->http_held = false;
    srv_request_unref(b->req);
}

static void test_refused_bodies(void **state)
{
    static const struct {
        const char *body, *param, *message;
    } cases[] = {
        {"{", "", "not valid JSON"},
        {"{\"n\":5}", "n", "'n' is 5, but must be at most 4."},
        {"{\"n\":0}", "n", "between 1 and 16"},
        {"{\"model\":\"else\"}", "model", "'else' does not exist"},
        {"{\"stop\":5}", "stop", "must be a string or an array"},
        {"{\"stop\":[\"a\",null]}", "stop", "must be a string or an array"},
        {"{\"stream_options\":{}}", "stream_options", "only allowed when"},
        {"{\"stream\":true,\"stream_options\":[]}", "stream_options", "must be an object"},
        {"{\"stream\":true,\"stream_options\":{\"chunk_tokens\":0}}", "chunk_tokens", "between 1"},
        {"{\"stream\":true,\"prompt_logprobs\":0}", "prompt_logprobs", "cannot be streamed"},
        {"{\"max_tokens\":2,\"min_tokens\":3}", "min_tokens", "is 3, but max_tokens is 2."},
        {"{\"max_tokens\":-1}", "max_tokens", "send 'n_predict': -1."},
        {"{\"allowed_token_ids\":[]}", "allowed_token_ids", "must not be empty"},
        {"{\"allowed_token_ids\":[100]}", "allowed_token_ids", "from 0 to 99"},
        {"{\"allowed_token_ids\":1}", "allowed_token_ids", "must be an array"},
        {"{\"logit_bias\":[]}", "logit_bias", "must be an object"},
        {"{\"logit_bias\":{\"x\":1,\"100\":1,\"-1\":1}}", "logit_bias",
         "has the keys 'x', '100', '-1'; keys are token ids from 0 to 99."},
        {"{\"logit_bias\":{\"1\":true}}", "logit_bias", "of the token 1 must be a number."},
        {"{\"logit_bias\":{\"1\":101,\"2\":100,\"3\":-100.5}}", "logit_bias",
         "of the tokens 1 is 101, 3 is -100.5, but must be between -100 and 100."},
        {"{\"top_k\":-2}", "top_k", "between -1 and 2147483647"},
        {"{\"lora\":\"x\"}", "lora", "has none (--lora)"},
        {"{\"suffix\":5}", "suffix", "must be a string"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct body b = read_body(srv_fields_completions, cases[i].body, NULL);
        REQUIRE_MSG(b.rc < 0, "%s", cases[i].body);
        REQUIRE_EQ_STR(param_error.path, cases[i].param);
        REQUIRE_MSG(strstr(param_error.message, cases[i].message), "%s: %s", cases[i].body,
                    param_error.message);
        close_body(&b);
    }
}

/* Bounds of lists and texts: so many are taken, one more is not. */
static void test_bounds(void **state)
{
    static const struct {
        const char *field, *begin, *item, *end;
        int most;
    } cases[] = {
        {"stop_token_ids", "[7", ",7", "]", 64},
        {"stop", "[\"a\"", ",\"a\"", "]", SRV_MAX_STOPS},
        {"prompt_cache_key", "\"\u00e9", "\u00e9", "\"", 64},
        {"allowed_token_ids", "[7", ",7", "]", VOCAB},
        {"stop", "\"a", "a", "\"", SRV_MAX_STOP_BYTES},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++)
        for (int over = 0; over < 2; over++) {
            struct buf text;
            buf_init(&text, 1 << 16);
            buf_printf(&text, "{\"%s\":%s", cases[i].field, cases[i].begin);
            for (int n = 1; n < cases[i].most + over; n++)
                buf_puts(&text, cases[i].item);
            buf_printf(&text, "%s}", cases[i].end);
            struct body b = read_body(srv_fields_completions, text.data, NULL);
            REQUIRE_MSG((b.rc < 0) == over, "%s, %d too many: %s", cases[i].field, over,
                        param_error.message);
            REQUIRE(!over || strstr(param_error.message, "at most"));
            close_body(&b);
            buf_finish(&text);
        }
}

static void test_values(void **state)
{
    struct body b =
        read_body(srv_fields_completions,
                  "{\"model\":\"tgi\",\"temperature\":0.5,\"seed\":7,\"stop\":[\"x\",\"\",\"yz\"],"
                  "\"stop_token_ids\":[3,99],\"logit_bias\":{\"5\":-100},"
                  "\"allowed_token_ids\":[5,6],\"timings_per_token\":true,"
                  "\"prompt_logprobs\":2,\"max_tokens\":9,\"max_completion_tokens\":4}",
                  "250");
    (void)state;
    REQUIRE_MSG(b.rc == 0, "%s", param_error.message);
    REQUIRE_EQ_STR(b.p.model, "demo");
    REQUIRE(b.p.sampling.temperature == 0.5f && b.p.sampling.seed == 7);
    REQUIRE(b.p.sampling.min_p == 0.25f); /* the model's own */
    REQUIRE(b.p.n_stops == 2 && b.p.stop_lens[1] == 2 && !strcmp(b.p.stops[1], "yz"));
    REQUIRE(b.p.n_stop_ids == 2 && b.p.stop_ids[1] == 99);
    REQUIRE(b.p.sampling.n_bias == 1 && b.p.sampling.bias[0].id == 5);
    REQUIRE(b.p.sampling.bias[0].value == -100);
    REQUIRE(b.p.sampling.n_allowed_ids == 2 && b.p.sampling.allowed_ids[1] == 6);
    REQUIRE(b.p.timings && b.p.deadline_ms == 250 && b.p.asked_tokens == 4);
    REQUIRE(b.p.prompt_tops == 2 && b.p.n == 1 && b.p.skip_special && b.p.logprobs_count == -1);
    close_body(&b);
}

static void test_asked_tokens(void **state)
{
    static const struct {
        const char *body;
        int64_t asked;
    } cases[] = {
        {"{}", -1},
        {"{\"max_tokens\":0}", 0},
        {"{\"n_predict\":5}", 5},
        {"{\"n_predict\":-1}", CTX},
        {"{\"n_predict\":5,\"max_tokens\":6}", 6},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct body b = read_body(srv_fields_completions, cases[i].body, NULL);
        REQUIRE_MSG(b.rc == 0 && b.p.asked_tokens == cases[i].asked, "%s: %lld", cases[i].body,
                    (long long)b.p.asked_tokens);
        close_body(&b);
    }
}

static void test_headers_and_seeds(void **state)
{
    static const char *const wrong[] = {"", "0", "-5", "1.5", "86400001"};
    (void)state;
    for (size_t i = 0; i < N_OF(wrong); i++) {
        struct body b = read_body(srv_fields_completions, "{}", wrong[i]);
        REQUIRE_MSG(b.rc < 0 && !strcmp(param_error.path, "x-request-deadline-ms"), "'%s'",
                    wrong[i]);
        close_body(&b);
    }
    struct body one = read_body(srv_fields_completions, "{}", "86400000");
    struct body two = read_body(srv_fields_completions, "{\"seed\":-1}", NULL);
    REQUIRE(one.rc == 0 && one.p.deadline_ms == 86400000 && two.rc == 0 && two.p.deadline_ms == 0);
    REQUIRE(one.p.sampling.seed != two.p.sampling.seed && one.p.seed == -1);
    close_body(&one);
    close_body(&two);
}

static void test_model_names(void **state)
{
    const struct srv_facts facts = {.app = &app, .model = &model};
    (void)state;
    config = (struct srv_config){0};
    model.config = &config;
    REQUIRE_EQ_STR(srv_gen_model_name(&facts, NULL), "demo");
    REQUIRE_EQ_STR(srv_gen_model_name(&facts, "other"), "other");
    REQUIRE_EQ_STR(srv_gen_model_name(&facts, "dummy"), "demo");
    config.strict_model = true;
    REQUIRE(srv_gen_model_name(&facts, "dummy") == NULL);
    config.accept_any_model = true;
    REQUIRE_EQ_STR(srv_gen_model_name(&facts, "any"), "any");
    config = (struct srv_config){0};
}

static void test_what_is_ignored_is_noted(void **state)
{
    const char *text = "{\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true},"
                       "\"store\":true,\"verbosity\":\"none\",\"what is\":1}";
    struct body b = read_body(srv_fields_completions, text, NULL);
    (void)state;
    REQUIRE_MSG(b.rc == 0, "%s", param_error.message);
    REQUIRE_EQ_INT(param_name_ignored(b.req, &b.unknown), 0);
    REQUIRE_EQ_INT(b.req->n_reply_headers, 1);
    REQUIRE_EQ_STR(b.req->reply_headers[0].value, "store,continuous_usage_stats,...+1");
    config.strict_params = true;
    REQUIRE(param_name_ignored(b.req, &b.unknown) < 0);
    config.strict_params = false;
    close_body(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_complete),
        cmocka_unit_test(test_own_rows_differ),
        cmocka_unit_test(test_sampling_parameters_are_fields),
        cmocka_unit_test(test_refused_bodies),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_asked_tokens),
        cmocka_unit_test(test_headers_and_seeds),
        cmocka_unit_test(test_model_names),
        cmocka_unit_test(test_what_is_ignored_is_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
