/* SPDX-License-Identifier: MIT */
/* "Did you mean": the nearest name, and none if all are too far. */
#include "test.h"

#include "base/nearest.h"

static const char *nearest(const char *typed, const char *const *names, size_t n)
{
    static char found[100];
    struct srv_nearest near;
    srv_nearest_init(&near, typed, strlen(typed));
    for (size_t i = 0; i < n; i++)
        srv_nearest_offer(&near, names[i], strlen(names[i]));
    if (!near.name) return "(none)";
    snprintf(found, sizeof(found), "%.*s", (int)near.name_len, near.name);
    return found;
}

static void nearest_names(void **state)
{
    static const char *const names[] = {"port", "host", "parallel", "prefix-cache", "threads"};
    static const struct {
        const char *typed, *wanted;
    } cases[] = {
        {"port", "port"},                 /* itself */
        {"prot", "port"},                 /* an exchange of neighbours is one edit */
        {"por", "port"},                  /* one letter missing */
        {"ports", "port"},                /* one too many */
        {"hosd", "host"},                 /* another letter */
        {"paralel", "parallel"},          /* */
        {"prefixcache", "prefix-cache"},  /* */
        {"perfix_cashe", "prefix-cache"}, /* three edits of twelve letters */
        {"perfiks_cash", "(none)"},       /* more than three */
        {"po", "(none)"},                 /* two letters are like too many names */
        {"pxxt", "(none)"},               /* half of the letters */
        {"", "(none)"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++)
        REQUIRE_EQ_STR(nearest(cases[i].typed, names, N_OF(names)), cases[i].wanted);
}

static void the_first_of_equals_is_kept(void **state)
{
    static const char *const names[] = {"cart", "card", "care"};
    (void)state;
    REQUIRE_EQ_STR(nearest("carx", names, N_OF(names)), "cart");
    REQUIRE_EQ_STR(nearest("care", names, N_OF(names)), "care");
}

/* Long texts are compared by their beginnings, within the memory there is. */
static void long_texts(void **state)
{
    char typed[5000], name[6000];
    const char *const names[] = {name};
    (void)state;
    memset(typed, 'a', sizeof(typed));
    memset(name, 'b', sizeof(name));
    typed[sizeof(typed) - 1] = name[sizeof(name) - 1] = '\0';
    REQUIRE_EQ_STR(nearest(typed, names, 1), "(none)");
    REQUIRE_EQ_STR(nearest("abc", names, 1), "(none)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_names),
        cmocka_unit_test(the_first_of_equals_is_kept),
        cmocka_unit_test(long_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
