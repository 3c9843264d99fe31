/* SPDX-License-Identifier: MIT */
/* Options from flags, environment and file: precedence, spellings, errors that say what is valid. */
#include "test.h"

#include <unistd.h>

#include "command_line.h"
#include "server/config/config.h"

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
    REQUIRE_EQ_INT(c.max_body_bytes, 0);
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
        {"--tool-format python", "'python' is not one of: auto hermes list"},
        {"--chat-template-kwargs [1]", "chat-template-kwargs is not a JSON object"},
        {"--chat-template-kwargs {\"a\":1}x", "chat-template-kwargs is not a JSON object"},
        {"--chat-template-kwargs {\"a\":1,\"tools\":[]}", "must not name messages, tools"},
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

static const char file_of_models[] = "[model]\n"
                                     "alias = first\n"
                                     "chat-template-file = t\n"
                                     "[model embed]\n"
                                     "model = /e\n"
                                     "alias = e1, e2\n"
                                     "numerics = int8\n"
                                     "kv-memory = 5M\n"
                                     "[compute]\n"
                                     "numerics = exact\n"
                                     "parallel = 7\n"
                                     "[model chat]\n"
                                     "model = /old\n";

static void write_models(char path[], const char *text)
{
    int fd = mkstemp(path);
    REQUIRE(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* Settings of [model] are of the first model, those of [compute] of all, sections of one. */
static void several_models(void **state)
{
    char path[] = "/tmp/test_models_XXXXXX", err[512] = "", line[256];
    struct srv_config c;
    (void)state;
    environment = NULL;
    write_models(path, file_of_models);
    snprintf(line, sizeof(line), "--config %s --model chat=/new=x --model rank=org/r --chunk 64",
             path);
    REQUIRE_MSG(load(&c, line, err, sizeof(err)) == 0, "%s", err);
    REQUIRE_EQ_INT(c.n_more, 2);
    const struct srv_config *chat = &c.more[0], *rank = &c.more[1];
    REQUIRE(!c.is_further && chat->is_further);
    REQUIRE_EQ_STR(c.entry, "embed");
    REQUIRE_EQ_STR(c.model, "/e");
    REQUIRE_EQ_STR(c.numerics, "int8");
    REQUIRE_EQ_INT(c.kv_memory_bytes, 5 << 20);
    REQUIRE_EQ_INT(c.alias.n, 3);
    REQUIRE_EQ_STR(c.chat_template_file, "t");
    REQUIRE_EQ_STR(chat->entry, "chat");
    REQUIRE_EQ_STR(chat->model, "/new=x");
    REQUIRE_EQ_STR(chat->numerics, "exact");
    REQUIRE(chat->alias.n == 0 && !chat->chat_template_file && chat->kv_memory_bytes == 0);
    REQUIRE_EQ_STR(rank->model, "org/r");
    for (int i = 0; i < 3; i++) {
        const struct srv_config *one = i ? &c.more[i - 1] : &c;
        REQUIRE(one->parallel == 7 && one->chunk == 64);
    }
    srv_config_finish(&c);
    snprintf(line, sizeof(line), "--config %s --model b=/b --lora x=/x@v1,y=/y@b --lora z=/z@chat",
             path);
    REQUIRE_MSG(load(&c, line, err, sizeof(err)) == 0, "%s", err);
    REQUIRE(c.lora.n == 1 && c.more[0].lora.n == 1 && c.more[1].lora.n == 1);
    REQUIRE_EQ_STR(c.lora.items[0], "x=/x@v1"); /* @NAME of a model says which one it is for */
    REQUIRE_EQ_STR(c.more[0].lora.items[0], "z=/z");
    REQUIRE_EQ_STR(c.more[1].lora.items[0], "y=/y");
    srv_config_finish(&c);
    snprintf(line, sizeof(line), "--config %s --model /plain", path);
    REQUIRE_EQ_INT(load(&c, line, err, sizeof(err)), 0);
    REQUIRE_EQ_STR(c.model, "/plain"); /* the one without a name is the first */
    REQUIRE(!c.entry && c.n_more == 2 && c.alias.n == 1);
    srv_config_finish(&c);
    snprintf(line, sizeof(line), "generate --config %s --model chat=/x --prompt p", path);
    REQUIRE_EQ_INT(load(&c, line, err, sizeof(err)), 0);
    REQUIRE_EQ_STR(c.model, "/x");
    REQUIRE(c.n_more == 0);
    srv_config_finish(&c);
    unlink(path);
}

static void names_of_models_are_checked(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[model a]\nthreads = 2\n", "'threads' is not a setting of one model"},
        {"[model a]\nport = 2\n", "it belongs into [listen]"},
        {"[model a/b]\nmodel = x\n", "[model a/b]: a name has 1 to 64 letters"},
        {"[model a]\nnumerics = int8\n", "model a: its directory is missing"},
        {"[model a]\nmodel = x\nnumerics = int7\n", "'int7' is not one of"},
        {"[models a]\nmodel = x\n", "unknown section [models a]"},
        {"[model a]\nmodel = x\n[model b]\nmodel = z\n[model a]\nmodel = y\n",
         "model: model a is 'x' and 'y'"},
        {"[model]\nmodel = a=x\n[model a]\nmodel = y\n", "model: model a is 'x' and 'y'"},
    };
    (void)state;
    environment = NULL;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char path[] = "/tmp/test_models_XXXXXX", err[512] = "", line[256];
        struct srv_config c;
        write_models(path, cases[i].text);
        snprintf(line, sizeof(line), "--config %s", path);
        REQUIRE(load(&c, line, err, sizeof(err)) != 0);
        REQUIRE_MSG(strstr(err, cases[i].says), "%s", err);
        srv_config_finish(&c);
        unlink(path);
    }
    struct srv_config twice;
    char many[1024] = "", err[512] = "";
    REQUIRE(load(&twice, "--model a=x --model b=z --model a=y", err, sizeof(err)) != 0);
    REQUIRE_MSG(strstr(err, "--model: model a is 'x' and 'y'"), "%s", err);
    srv_config_finish(&twice);
    for (int i = 0, n = 0; i < 33; i++)
        n += snprintf(many + n, sizeof(many) - (size_t)n, "[model m%d]\nmodel = x\n", i);
    char path[] = "/tmp/test_models_XXXXXX", line[256];
    struct srv_config c;
    write_models(path, many);
    snprintf(line, sizeof(line), "--config %s", path);
    REQUIRE(load(&c, line, err, sizeof(err)) != 0);
    REQUIRE_MSG(strstr(err, "more than 32 models"), "%s", err);
    srv_config_finish(&c);
    unlink(path);
}

static void stars(void **state)
{
    static const struct {
        const char *line, *says; /* NULL: fine */
    } cases[] = {
        {"--cors-origins *,app://*,http://localhost:*,https://[::1]:*,https://a.example", NULL},
        {"--cors-origins http://localhost*", "cors-origins: 'http://localhost*' has a *"},
        {"--cors-origins https://*.example", "SCHEME://HOST:*"},
        {"--cors-origins https://a,http://*:80", "'http://*:80'"},
        {"--cors-origins **", "'**'"},
        {"--cors-origins localhost:*", "'localhost:*'"},
        {"--cors-origins ://*", "'://*'"},
        {"--cors-origins http://:*", "'http://:*'"},
        {"--allowed-hosts *", NULL},
        {"--allowed-hosts *.example", "allowed-hosts: '*.example' has a *"},
    };
    (void)state;
    environment = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct srv_config c;
        char err[512] = "";
        int rc = load(&c, cases[i].line, err, sizeof(err));
        REQUIRE_MSG(!rc == !cases[i].says, "%s: %s", cases[i].line, err);
        if (rc) REQUIRE_MSG(strstr(err, cases[i].says), "%s: %s", cases[i].line, err);
        srv_config_finish(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(spellings),
        cmocka_unit_test(stars),
        cmocka_unit_test(positionals_and_subcommands),
        cmocka_unit_test(precedence),
        cmocka_unit_test(errors_name_option_value_and_what_is_valid),
        cmocka_unit_test(sampling_is_unset_until_given),
        cmocka_unit_test(variables_of_container_links),
        cmocka_unit_test(variables_that_nothing_is_read_from),
        cmocka_unit_test(sizes_have_suffixes),
        cmocka_unit_test(several_models),
        cmocka_unit_test(names_of_models_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
