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
    FILE *f = open_memstream(&text, &len);
    srv_config_print(f, c);
    fclose(f);
    return text;
}

static void printed_configuration_reads_back_the_same(void **state)
{
    char path[] = "/tmp/test_config_XXXXXX", err[512] = "", line[256];
    struct srv_config a, b;
    (void)state;
    const char *const env[] = {
        "HEARTH_API_KEY", "topsecret", "HEARTH_UNIX_SOCKET", "/x y", "HEARTH_ALIAS", "p,q", NULL};
    environment = env;
    REQUIRE_EQ_INT(load(&a, "--port 5 --no-prefix-cache --memory 3M", err, sizeof(err)), 0);
    char *first = printed(&a);
    REQUIRE(!strstr(first, "topsecret"));
    environment = NULL;
    int fd = mkstemp(path);
    REQUIRE(write(fd, first, strlen(first)) == (ssize_t)strlen(first));
    close(fd);
    snprintf(line, sizeof(line), "--config %s", path);
    REQUIRE_MSG(load(&b, line, err, sizeof(err)) == 0, "%s", err);
    char *second = printed(&b);
    REQUIRE_EQ_STR(first, second);
    free(first);
    free(second);
    srv_config_finish(&a);
    srv_config_finish(&b);
    unlink(path);
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
            REQUIRE_MSG(shown == wanted, "%s: %s", srv_command_name((enum srv_command)command),
                        o->key);
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_configuration_reads_back_the_same),
        cmocka_unit_test(example_file_is_the_printed_defaults),
        cmocka_unit_test(help_shows_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
