/* SPDX-License-Identifier: MIT */
/* The tables of request fields: each row is complete, and none hides another. */
#include "test.h"

#include "server/api/read/generation_fields.h"
#include "server/api/routes.h"

static const struct param_field *const tables[] = {
    srv_fields_common,   srv_fields_completions, srv_fields_chat,       srv_fields_responses,
    srv_fields_messages, srv_fields_tokens,      srv_fields_embeddings, srv_fields_swap,
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_complete),
        cmocka_unit_test(test_own_rows_differ),
        cmocka_unit_test(test_sampling_parameters_are_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
