/* SPDX-License-Identifier: MIT */
/* The options table: precedence, spellings, errors that say what is valid, and the example file. */
#include "test.h"

#include <unistd.h>

#include "server/config/config.h"
#include "server/config/ini.h"
#include "server/config/options.h"

/* The environment of a test: pairs, ended by NULL. */
static const char *const *environment;

static const char *fake_env(const char *name)
{
    for (int i = 0; environment && environment[i]; i += 2) {
        if (strcmp(environment[i], name) == 0) return environment[i + 1];
    }
    return NULL;
}

enum { MAX_ARGS = 16 };

/* Loads from a command line written with blanks. */
static int load(struct srv_config *c, const char *line, char *err, size_t errlen)
{
    char text[1024] = "hearth ";
    char *argv[MAX_ARGS];
    int argc = 0;
    snprintf(text + 7, sizeof(text) - 7, "%s", line);
    for (char *p = text; *p && argc < MAX_ARGS;) {
        argv[argc++] = p;
        p += strcspn(p, " ");
        if (*p) *p++ = '\0';
    }
    return srv_config_load(c, argc, argv, fake_env, err, errlen);
}

static void defaults(void **state)
{
    struct srv_config c;
    char err[512];
    (void)state;
    environment = NULL;
    REQUIRE_EQ_INT(load(&c, "", err, sizeof(err)), 0);
    REQUIRE_EQ_INT(c.command, SRV_CMD_SERVE);
    REQUIRE_EQ_STR(c.host, "127.0.0.1");
    REQUIRE_EQ_INT(c.port, 8080);
    REQUIRE_EQ_INT(c.parallel, 4);
    REQUIRE_EQ_INT(c.max_body_bytes, 4 << 20);
    REQUIRE(!c.model && c.prefix_cache && !c.strict_params && c.vllm_metrics);
    srv_config_finish(&c);
    srv_config_finish(&c);
}

static void spellings(void **state)
{
    static const struct {
        const char *line;
        int port, parallel;
        int64_t ctx;
        bool cache;
    } cases[] = {
        {"serve --port 1 --parallel 2 --ctx-size 3 --prefix-cache off", 1, 2, 3, false},
        {"--port=1 -np 2 -c 3 --no-prefix-cache", 1, 2, 3, false},
        {"--max-num-seqs 2 --max-model-len 3 --port 1 --no-enable-prefix-caching", 1, 2, 3, false},
        {"--port 1 -np 2 -c 3 --prefix-cache", 1, 2, 3, true},
        {"--port 7 -np 2 -c 3 --prefix-cache=true --port 1", 1, 2, 3, true},
    };
    (void)state;
    environment = NULL;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_config c;
        char err[512] = "";
        REQUIRE_MSG(load(&c, cases[i].line, err, sizeof(err)) == 0, "%s: %s", cases[i].line, err);
        REQUIRE_EQ_INT(c.port, cases[i].port);
        REQUIRE_EQ_INT(c.parallel, cases[i].parallel);
        REQUIRE_EQ_INT(c.ctx_size, cases[i].ctx);
        REQUIRE_EQ_INT(c.prefix_cache, cases[i].cache);
        srv_config_finish(&c);
    }
}

static void positionals_and_subcommands(void **state)
{
    struct srv_config c;
    char err[512];
    (void)state;
    environment = NULL;
    REQUIRE_EQ_INT(load(&c, "serve org/name -t 2", err, sizeof(err)), 0);
    REQUIRE_EQ_STR(c.model, "org/name");
    srv_config_finish(&c);
    REQUIRE_EQ_INT(load(&c, "generate -m dir -p Hi -n 3 --temp 0.5", err, sizeof(err)), 0);
    REQUIRE_EQ_INT(c.command, SRV_CMD_GENERATE);
    REQUIRE_EQ_INT(c.max_tokens, 3);
    REQUIRE(c.temperature == 0.5);
    srv_config_finish(&c);
    REQUIRE_EQ_INT(load(&c, "healthcheck http://x/", err, sizeof(err)), 0);
    REQUIRE_EQ_STR(c.url, "http://x/");
    srv_config_finish(&c);
    REQUIRE_EQ_INT(load(&c, "--healthcheck http://y/", err, sizeof(err)), 0);
    REQUIRE_EQ_INT(c.command, SRV_CMD_HEALTHCHECK);
    srv_config_finish(&c);
    REQUIRE_EQ_INT(load(&c, "bench --help", err, sizeof(err)), 0);
    REQUIRE(c.help && c.command == SRV_CMD_BENCH);
    srv_config_finish(&c);
}

static void precedence(void **state)
{
    char path[] = "/tmp/test_config_XXXXXX";
    char err[512] = "", line[256];
    struct srv_config c;
    (void)state;
    int fd = mkstemp(path);
    static const char text[] =
        "[listen]\nport = 1\nhost = 'a b'\n[compute]\nthreads = 1\nparallel = 9 \n"
        "[model]\nalias = one, two\n";
    REQUIRE(write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
    close(fd);
    const char *const env[] = {"HEARTH_PORT", "2", "HEARTH_THREADS", "2", "HEARTH_ALIAS",
                               "three,four",  NULL};
    environment = env;
    snprintf(line, sizeof(line), "--port 3 --config %s", path);
    REQUIRE_MSG(load(&c, line, err, sizeof(err)) == 0, "%s", err);
    REQUIRE_EQ_INT(c.port, 3);
    REQUIRE_EQ_INT(c.threads, 2);
    REQUIRE_EQ_INT(c.parallel, 9);
    REQUIRE_EQ_STR(c.host, "a b");
    REQUIRE_EQ_INT(c.alias.n, 2);
    REQUIRE_EQ_STR(c.alias.items[0], "three");
    srv_config_finish(&c);
    snprintf(line, sizeof(line), "--config=%s --alias five --alias six,seven", path);
    REQUIRE_EQ_INT(load(&c, line, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(c.alias.n, 3);
    REQUIRE_EQ_STR(c.alias.items[2], "seven");
    srv_config_finish(&c);
    environment = NULL;
    unlink(path);
}

static void errors_name_option_value_and_what_is_valid(void **state)
{
    static const struct {
        const char *line, *wanted;
    } cases[] = {
        {"--port 99999", "--port: 99999 is out of range; valid: 0 to 65535"},
        {"--port x", "--port: 'x' is not a number"},
        {"--port 1.5", "--port: '1.5' is not an integer"},
        {"--port 1e400", "out of range"},
        {"--port nan", "out of range"},
        {"--port", "--port: a value is missing"},
        {"--numerics foo", "--numerics: 'foo' is not one of: auto exact"},
        {"--prefix-cache=maybe", "--prefix-cache: 'maybe' is not one of: on off"},
        {"--nonsense", "--nonsense: unknown option; see --help"},
        {"--prot 1", "--prot: unknown option; did you mean --port?"},
        {"--no-prefix-cahce", "did you mean --no-prefix-cache?"},
        {"--no-prot", "--no-prot: unknown option; see --help"}, /* --no-port is none either */
        {"--debug-hook", "unknown option; see --help"},         /* hidden ones stay so */
        {"generat", "unknown subcommand 'generat'; did you mean 'generate'?"},
        {"a/model", "did you mean 'hearth serve a/model'?"},
        {"serve a b", "only one model is allowed, not both 'a' and 'b'"},
        {"--no-port", "--no-port: unknown option"},
        {"dance", "unknown subcommand 'dance'"},
        {"generate --port 1", "--port: not an option of 'generate'"},
        {"--api-key sk-123", "HEARTH_API_KEY"},
        {"--max-body-bytes 5X", "'5X' is not a number"},
        {"--tls-key-file x", "tls-cert-file and tls-key-file"},
        {"--config /nonexistent.ini", "/nonexistent.ini"},
    };
    (void)state;
    environment = NULL;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_config c;
        char err[512] = "";
        REQUIRE_MSG(load(&c, cases[i].line, err, sizeof(err)) < 0, "%s was accepted",
                    cases[i].line);
        REQUIRE_MSG(strstr(err, cases[i].wanted) != NULL, "%s: %s", cases[i].line, err);
        REQUIRE_MSG(!strstr(err, "sk-123"), "%s", err);
        srv_config_finish(&c);
    }
}

/*
 * Sampling options have no value until one is given, on every subcommand, and an empty one takes it
 * back.
 */
static void sampling_is_unset_until_given(void **state)
{
    static const char *const commands[] = {"serve", "generate", "bench"};
    struct srv_config c;
    char err[512] = "";
    (void)state;
    environment = NULL;
    for (size_t i = 0; i < N_OF(commands); i++) {
        REQUIRE_EQ_INT(load(&c, commands[i], err, sizeof(err)), 0);
        REQUIRE(c.temperature == SRV_UNSET && c.top_p == SRV_UNSET && c.min_p == SRV_UNSET);
        REQUIRE(c.top_k == SRV_UNSET && c.seed == SRV_UNSET && c.max_tokens == SRV_UNSET);
        srv_config_finish(&c);
    }
    REQUIRE_EQ_INT(
        load(&c, "serve --temperature 0 --top-p 0.5 --seed 0 --max-tokens 0", err, sizeof(err)), 0);
    REQUIRE(c.temperature == 0 && c.top_p == 0.5 && c.seed == 0 && c.max_tokens == 0);
    srv_config_finish(&c);
    REQUIRE_EQ_INT(load(&c, "serve --temperature 1 --temperature=", err, sizeof(err)), 0);
    REQUIRE(c.temperature == SRV_UNSET);
    srv_config_finish(&c);
    REQUIRE(load(&c, "serve --temperature -1", err, sizeof(err)) < 0 &&
            strstr(err, "out of range"));
    srv_config_finish(&c);
    REQUIRE(load(&c, "serve --top-k 3", err, sizeof(err)) < 0 &&
            strstr(err, "not an option of 'serve'"));
    srv_config_finish(&c);
}

static void variables_of_container_links(void **state)
{
    const char *const links[] = {"HEARTH_PORT", "tcp://10.0.0.1:80", "HEARTH_METRICS_PORT",
                                 "udp://x:1", NULL};
    const char *const wrong[] = {"HEARTH_PORT", "tcp:80", NULL};
    struct srv_config c;
    char err[512];
    (void)state;
    environment = links;
    REQUIRE_EQ_INT(load(&c, "", err, sizeof(err)), 0);
    REQUIRE(c.port == 8080 && c.metrics_port == -1 && c.warnings.n == 2);
    REQUIRE(strstr(c.warnings.items[0], "HEARTH_PORT=tcp://10.0.0.1:80 is ignored"));
    srv_config_finish(&c);
    environment = wrong;
    REQUIRE(load(&c, "", err, sizeof(err)) < 0);
    srv_config_finish(&c);
    environment = NULL;
}

static void variables_that_nothing_is_read_from(void **state)
{
    static char *const all[] = {"HEARTH_PORT=1",
                                "HEARTH_API_KEY=x",
                                "HEARTH_CONFIG=y",
                                "HEARTH_SERVICE_HOST=1",
                                "HEARTH_PORT_80_TCP=1",
                                "HEARTH_A_B_SERVICE_PORT_HTTP=1",
                                "HEARTH_A_PORT=tcp://1:2",
                                "HEARTH_REFERENCE=/x",
                                "OTHER=1",
                                "HEARTHX=1",
                                "HEARTH_HOTS=x",
                                "HEARTH_DEBUG_HOOK=1",
                                "HEARTH_ANYTHING=",
                                NULL};
    struct srv_config c;
    char err[512];
    (void)state;
    environment = NULL;
    REQUIRE_EQ_INT(load(&c, "", err, sizeof(err)), 0);
    REQUIRE_EQ_INT(srv_config_note_variables(&c, all), 0);
    REQUIRE_EQ_INT(c.warnings.n, 3);
    REQUIRE(strstr(c.warnings.items[0], "HEARTH_HOTS; did you mean HEARTH_HOST?"));
    REQUIRE(strstr(c.warnings.items[1], "HEARTH_DEBUG_HOOK") &&
            !strstr(c.warnings.items[1], "mean"));
    REQUIRE(strstr(c.warnings.items[2], "HEARTH_ANYTHING") && !strstr(c.warnings.items[2], "mean"));
    srv_config_finish(&c);
}

static void sizes_have_suffixes(void **state)
{
    static const struct {
        const char *line;
        int64_t bytes;
    } cases[] = {{"--memory 1K", 1024},
                 {"--memory 1.5MiB", 3 << 19},
                 {"--memory 2g", 2ll << 30},
                 {"--memory 12", 12},
                 {"--memory 3TB", 3ll << 40}};
    (void)state;
    environment = NULL;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_config c;
        char err[512];
        REQUIRE_EQ_INT(load(&c, cases[i].line, err, sizeof(err)), 0);
        REQUIRE_EQ_INT(c.memory_bytes, cases[i].bytes);
        srv_config_finish(&c);
    }
}

/* ---- the ini reader ------------------------------------------------------------------------ */

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

/* ---- what is printed ----------------------------------------------------------------------- */

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
                "write it anew: hearth --print-config > config.example.ini");
    free(text);
    free(wanted);
    srv_config_finish(&c);
}

static void table_is_consistent(void **state)
{
    (void)state;
    REQUIRE(srv_n_options < 128); /* MAX_OPTIONS of config_load.c */
    for (int i = 0; i < srv_n_options; i++) {
        const struct srv_option *o = &srv_options[i];
        REQUIRE(o->key && o->help && o->group && o->commands);
        REQUIRE_EQ_INT(strncmp(o->key, "no-", 3) == 0, 0);
        for (int k = 0; k < i; k++) {
            REQUIRE_MSG(strcmp(srv_options[k].key, o->key) != 0, "%s twice", o->key);
            REQUIRE_MSG(srv_options[k].offset != o->offset, "%s and %s share a field", o->key,
                        srv_options[k].key);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(spellings),
        cmocka_unit_test(positionals_and_subcommands),
        cmocka_unit_test(precedence),
        cmocka_unit_test(errors_name_option_value_and_what_is_valid),
        cmocka_unit_test(sampling_is_unset_until_given),
        cmocka_unit_test(variables_of_container_links),
        cmocka_unit_test(variables_that_nothing_is_read_from),
        cmocka_unit_test(sizes_have_suffixes),
        cmocka_unit_test(ini_texts),
        cmocka_unit_test(printed_configuration_reads_back_the_same),
        cmocka_unit_test(example_file_is_the_printed_defaults),
        cmocka_unit_test(table_is_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
