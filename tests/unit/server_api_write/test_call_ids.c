/* SPDX-License-Identifier: MIT */
/* Ids of calls: unlike each other, the same whenever they are written, and short for some models. */
#include "test.h"

#include <ctype.h>

#include "server/api/write/openai_json.h"
#include "server/models/served_model.h"

static struct srv_model model;
static const struct srv_gen g = {.tools = {.served = &model, .random = {1, 2, 3}},
                                 .body = {.text = "{\"id\":\"Used45678\"}", .len = 18}};

static void check_letters(const char *id, size_t n)
{
    REQUIRE_EQ_INT(strlen(id), n);
    for (size_t i = 0; i < n; i++)
        REQUIRE(isalnum((unsigned char)id[i]));
}

static void test_long(void **state)
{
    struct choice_part parts[2] = {{.kind = CHOICE_CALL, .call = 0},
                                   {.kind = CHOICE_CALL, .call = 1}};
    struct gen_choice first = {.index = 0, .parts = parts, .n_parts = 2}, second = first;
    char a[SRV_CALL_ID_MAX], b[SRV_CALL_ID_MAX], c[SRV_CALL_ID_MAX], again[SRV_CALL_ID_MAX];
    second.index = 1;
    model.style.short_ids = false;
    srv_gen_call_id(&g, &first, &parts[0], "call_", a);
    srv_gen_call_id(&g, &first, &parts[1], "call_", b);
    srv_gen_call_id(&g, &second, &parts[0], "call_", c);
    srv_gen_call_id(&g, &first, &parts[0], "call_", again);
    REQUIRE(!strncmp(a, "call_", 5));
    check_letters(a + 5, SRV_CALL_ID_CHARS);
    REQUIRE(strcmp(a, b) && strcmp(a, c) && strcmp(b, c));
    REQUIRE_EQ_STR(a, again);
}

/* The model's own id counts if it is well-formed and new. */
static void test_short(void **state)
{
    static const struct {
        const char *written;
        bool kept;
    } cases[] = {
        {"abcDEF123", true},   {"Used45678", false}, {"abcDEF12", false},
        {"abcDEF1234", false}, {"abc-EF123", false}, {"", false},
    };
    model.style.short_ids = true;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct choice_part parts[2] = {{.kind = CHOICE_CALL}, {.kind = CHOICE_CALL, .call = 1}};
        struct gen_choice choice = {.parts = parts, .n_parts = 2};
        char id[SRV_CALL_ID_MAX];
        snprintf(parts[0].id, sizeof(parts[0].id), "%s", cases[i].written);
        snprintf(parts[1].id, sizeof(parts[1].id), "%s", cases[i].written);
        srv_gen_call_id(&g, &choice, &parts[0], "call_", id);
        check_letters(id, 9);
        REQUIRE_MSG(!strcmp(id, cases[i].written) == cases[i].kept, "%s", cases[i].written);
        srv_gen_call_id(&g, &choice, &parts[1], "call_", id);
        REQUIRE_MSG(strcmp(id, cases[i].written), "%s is given out twice", id);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
