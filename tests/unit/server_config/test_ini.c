/* SPDX-License-Identifier: MIT */
/* The reader of ini text: settings with their lines, and errors that name theirs. */
#include "test.h"

#include "server/config/ini.h"

struct seen {
    char text[512];
};

static int note(void *ctx, int line, const char *section, const char *key, const char *value,
                char *err, size_t errlen)
{
    struct seen *s = ctx;
    size_t n = strlen(s->text);
    if (strcmp(key, "bad") == 0) {
        snprintf(err, errlen, "bad key");
        return -1;
    }
    snprintf(s->text + n, sizeof(s->text) - n, "%d:%s.%s=%s|", line, section, key, value);
    return 0;
}

static void ini_texts(void **state)
{
    static const struct {
        const char *text, *wanted, *error;
    } cases[] = {
        {"", "", NULL},
        {"a=1", "1:.a=1|", NULL},
        {"\xef\xbb\xbf"
         "a=1\r\n",
         "1:.a=1|", NULL},
        {"# x\n; y\n\n  [ s ]\n\tk  =  v w  \n", "5:s.k=v w|", NULL},
        {"k = a # not a comment; nor this", "1:.k=a # not a comment; nor this|", NULL},
        {"k = \"a # b\"  # comment", "1:.k=a # b|", NULL},
        {"k = ' x ' ; comment", "1:.k= x |", NULL},
        {"k =", "1:.k=|", NULL},
        {"a=1\n  b=2\n", "1:.a=1|2:.b=2|", NULL},
        {"a=x=y", "1:.a=x=y|", NULL},
        {"k = \"open", "", "x.ini:1: unclosed quote"},
        {"k = \"a\" b", "", "x.ini:1: text after the closing quote"},
        {"\n\njust words", "", "x.ini:3: expected key = value"},
        {"=v", "", "x.ini:1: expected key"},
        {"[s", "", "x.ini:1: expected a section"},
        {"[s] k=1", "", "x.ini:1: expected a section"},
        {"a=1\nbad=2\nc=3", "1:.a=1|", "x.ini:2: bad key"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct seen seen = {""};
        char err[600] = "";
        int rc = srv_ini_parse("x.ini", cases[i].text, strlen(cases[i].text), note, &seen, err,
                               sizeof(err));
        REQUIRE_EQ_STR(seen.text, cases[i].wanted);
        REQUIRE_EQ_INT(rc, cases[i].error ? -1 : 0);
        if (cases[i].error)
            REQUIRE_MSG(strncmp(err, cases[i].error, strlen(cases[i].error)) == 0, "%s", err);
    }
    char err[100];
    struct seen seen = {""};
    REQUIRE_EQ_INT(srv_ini_parse("x", "a=\0", 3, note, &seen, err, sizeof(err)), -1);
}

/* Whatever is cut off or changed, the reader ends, and its error names the file. */
static void broken_texts(void **state)
{
    static const char good[] = "# c\n[s]\nk = \"a b\" # x\nother = 'y'\n[t]\nz = 1\n";
    (void)state;
    for (size_t at = 0; at < sizeof(good) - 1; at++)
        for (int c = 0; c < 256; c++) {
            char text[sizeof(good)], err[200] = "";
            struct seen seen = {""};
            memcpy(text, good, sizeof(text));
            text[at] = (char)c;
            size_t len = c == '[' ? at : sizeof(good) - 1;
            if (srv_ini_parse("x.ini", text, len, note, &seen, err, sizeof(err)))
                REQUIRE_MSG(strncmp(err, "x.ini:", 6) == 0, "byte %zu, %d: %s", at, c, err);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ini_texts),
        cmocka_unit_test(broken_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
