/* SPDX-License-Identifier: MIT */
/* --print-config: it reads back the same, shows no secret, and is the example file; --help. */
#include "test.h"

#include <unistd.h>

#include "command_line.h"
#include "server/config/config.h"
#include "server/config/options.h"

static char *printed(const struct srv_config *c)
{
    char *text = NULL;
    size_t len;
    char err[512] = "";
    FILE *f = open_memstream(&text, &len);
    REQUIRE_MSG(srv_config_print(f, c, err, sizeof(err)) == 0, "%s", err);
    fclose(f);
    return text;
}

/* Writes the text into a file and reads that as the configuration. */
static void read_back(struct srv_config *ret, const char *text)
{
    char path[] = "/tmp/test_config_XXXXXX", err[512] = "", line[256];
    int fd = mkstemp(path);
    REQUIRE(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    snprintf(line, sizeof(line), "--config %s", path);
    int rc = load(ret, line, err, sizeof(err));
    unlink(path);
    REQUIRE_MSG(rc == 0, "%s", err);
}

static void printed_configuration_reads_back_the_same(void **state)
{
    char err[512] = "";
    struct srv_config a, b;
    (void)state;
    const char *const env[] = {
        "HEARTH_API_KEY", "topsecret", "HEARTH_UNIX_SOCKET", "/x y", "HEARTH_ALIAS", "p,q", NULL};
    environment = env;
    REQUIRE_EQ_INT(load(&a,
                        "--port 5 --no-prefix-cache --memory 3M --model chat=/c --model embed=/e",
                        err, sizeof(err)),
                   0);
    REQUIRE(a.n_more == 1 && a.alias.n == 2 && a.more[0].alias.n == 0);
    char *first = printed(&a);
    REQUIRE(!strstr(first, "topsecret"));
    environment = NULL;
    read_back(&b, first);
    char *second = printed(&b);
    REQUIRE_EQ_STR(first, second);
    free(first);
    free(second);
    srv_config_finish(&a);
    srv_config_finish(&b);
}

static void texts_are_quoted_where_the_reader_needs_it(void **state)
{
    static const char *const texts[] = {"two words", " before", "after ", "\tx",   "x\t",
                                        "\rx",       "\"a\" b", "it's",   "'a' b", "a\"b'c",
                                        "#x",        "[x]",     "a = b",  "\"",    "\xc3\xa9"};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char list[64], err[512] = "";
        struct srv_config a, b;
        snprintf(list, sizeof(list), "%s,last", texts[i]);
        const char *const env[] = {"HEARTH_SYSTEM", texts[i], "HEARTH_ALIAS", list, NULL};
        environment = env;
        REQUIRE_EQ_INT(load(&a, "", err, sizeof(err)), 0);
        environment = NULL;
        char *text = printed(&a);
        read_back(&b, text);
        REQUIRE_EQ_STR(b.system, texts[i]);
        REQUIRE_EQ_INT(b.alias.n, 2);
        REQUIRE_EQ_STR(b.alias.items[0], a.alias.items[0]);
        REQUIRE_EQ_STR(b.alias.items[1], "last");
        free(text);
        srv_config_finish(&a);
        srv_config_finish(&b);
    }
}

/* A file that reads back as something else is worse than none. */
static void texts_that_no_line_holds_are_refused(void **state)
{
    static const char *const texts[] = {"a\nport = 1", "'a\"", " 'a\"b"};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char err[512] = "", *text = NULL;
        size_t len;
        struct srv_config c;
        const char *const env[] = {"HEARTH_SYSTEM", texts[i], NULL};
        environment = env;
        REQUIRE_EQ_INT(load(&c, "", err, sizeof(err)), 0);
        environment = NULL;
        FILE *f = open_memstream(&text, &len);
        REQUIRE_EQ_INT(srv_config_print(f, &c, err, sizeof(err)), -1);
        fclose(f);
        REQUIRE(strncmp(err, "system: ", 8) == 0);
        free(text);
        srv_config_finish(&c);
    }
}

static void example_file_is_the_printed_defaults(void **state)
{
    char path[512], err[512];
    struct srv_config c;
    (void)state;
    environment = NULL;
    REQUIRE_EQ_INT(load(&c, "", err, sizeof(err)), 0);
    char *wanted = printed(&c);
    snprintf(path, sizeof(path), "%s/config.example.ini", test_source_root());
    FILE *f = fopen(path, "r");
    REQUIRE(f != NULL);
    char *text = calloc(1, 1 << 16);
    size_t n = fread(text, 1, (1 << 16) - 1, f);
    fclose(f);
    REQUIRE(n > 0);
    REQUIRE_MSG(strcmp(text, wanted) == 0,
                "write it again: hearth --print-config > config.example.ini");
    free(text);
    free(wanted);
    srv_config_finish(&c);
}

/* Every option a subcommand takes is in its help, and no hidden one. */
static void help_shows_every_option(void **state)
{
    (void)state;
    for (int command = 0; command < SRV_CMD_COUNT; command++) {
        char *text = NULL;
        size_t len;
        FILE *f = open_memstream(&text, &len);
        srv_config_print_help(f, (enum srv_command)command);
        fclose(f);
        for (int i = 0; i < srv_n_options; i++) {
            const struct srv_option *o = &srv_options[i];
            char flag[100];
            if (o->flags & SRV_OPT_ENV_ONLY) continue;
            snprintf(flag, sizeof(flag), "\n  --%s ", o->key);
            flag[strlen(flag) - 1] = o->type == SRV_OPT_BOOL && o->aliases ? ',' : ' ';
            bool shown = strstr(text, flag) != NULL;
            bool wanted = (o->commands & (1u << command)) && !(o->flags & SRV_OPT_HIDDEN);
            REQUIRE_MSG(shown == wanted, "%s: %s", srv_commands[command].name, o->key);
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_configuration_reads_back_the_same),
        cmocka_unit_test(texts_are_quoted_where_the_reader_needs_it),
        cmocka_unit_test(texts_that_no_line_holds_are_refused),
        cmocka_unit_test(example_file_is_the_printed_defaults),
        cmocka_unit_test(help_shows_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
