/* SPDX-License-Identifier: MIT */
/*
 * A pull as a command: the lines of its progress, on a terminal and elsewhere, exit statuses with
 * their last line.
 */
#include "fake_repo.h"

#include <limits.h>

#include "server/config/config.h"
#include "server/hub/pull_run.h"

static char *shown; /* what stderr or stdout got */
static size_t n_shown;
static FILE *terminal, *before;

static void begin_capture(FILE **stream)
{
    before = *stream;
    terminal = *stream = open_memstream(&shown, &n_shown);
}

static const char *end_capture(FILE **stream)
{
    static char text[4000];
    fclose(terminal);
    *stream = before;
    snprintf(text, sizeof(text), "%s", shown);
    free(shown);
    return text;
}

static void sizes(void **state)
{
    static const struct {
        int64_t n;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {999, "999 B"},
        {1000, "1.0 kB"},
        {99950, "100 kB"},
        {999499, "999 kB"},
        {999500, "1.0 MB"},
        {269000000, "269 MB"},
        {9940000000, "9.9 GB"},
        {9960000000, "10 GB"},
        {2500000000000, "2.5 TB"},
        {2500000000000000, "2500 TB"},
    };
    char text[64];
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++)
        REQUIRE_EQ_STR(pull_format_bytes(cases[i].n, text, sizeof(text)), cases[i].text);
}

static const struct hub_name name_of_x = {.repo = "org/x", .revision = "main"};

static struct pull_view make_view(bool on_terminal)
{
    return (struct pull_view){.name = &name_of_x, .terminal = on_terminal, .planned = true};
}

static struct hub_progress progress_of(int64_t n_fetched, int64_t n_bytes, int64_t n_total)
{
    return (struct hub_progress){.n_bytes = n_bytes,
                                 .n_total = n_total,
                                 .n_fetched = n_fetched,
                                 .path = "model.safetensors"};
}

/* The line after a second. */
static const char *line_of(struct pull_view *v, int64_t per_s, int64_t n_bytes, int64_t n_total)
{
    struct hub_progress p = progress_of(per_s, n_bytes, n_total);
    v->begin_us = v->shown_us = 5000000;
    begin_capture(&stderr);
    pull_view_show(v, &p, 5999999); /* too soon for a line */
    pull_view_show(v, &p, 6000000);
    pull_view_show(v, &p, 6999999);
    return end_capture(&stderr);
}

static void lines(void **state)
{
    static const struct {
        int64_t per_s, n_bytes, n_total;
        const char *figures;
    } cases[] = {
        {10000000, 111000000, 269000000, "41 %, 111 MB of 269 MB"},
        {0, 0, 999, "0 %, 0 B of 999 B"},
        {1, 999, 999, "100 %, 999 B of 999 B"},
        {99, 999999, 1000000, "99 %, 1.0 MB of 1.0 MB"},
    };
    char wanted[200];
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct pull_view v = make_view(false);
        snprintf(wanted, sizeof(wanted), "hearth: model.safetensors: %s\n", cases[i].figures);
        REQUIRE_EQ_STR(line_of(&v, cases[i].per_s, cases[i].n_bytes, cases[i].n_total), wanted);
    }
}

/* Files that are complete, and no figures. */
static void on_a_terminal(void **state)
{
    struct pull_view v = make_view(true);
    (void)state;
    REQUIRE_EQ_STR(line_of(&v, 10, 20, 30), "");
    v = make_view(false);
    v.quiet = true;
    REQUIRE_EQ_STR(line_of(&v, 10, 20, 30), "");
    v = make_view(false);
    v.planned = false;
    REQUIRE_EQ_STR(line_of(&v, 10, 20, 30), "");
}

static void events(void **state)
{
    struct hub_event file = {.kind = HUB_FILE, .what = "a.json", .n_total = 2100};
    struct hub_event retry = {.kind = HUB_RETRY, .text = "reset; try 2 follows in 0.5 s"};
    struct hub_event plan = {
        .kind = HUB_PLAN, .commit = COMMIT, .n_files = 3, .n_bytes = 5, .n_total = 9};
    struct pull_view v = make_view(false);
    (void)state;
    v.planned = false;
    begin_capture(&stderr);
    pull_view_event(&v, &plan);
    pull_view_event(&v, &file);
    pull_view_event(&v, &retry);
    v.quiet = true;
    pull_view_event(&v, &file);
    pull_view_event(&v, &retry);
    REQUIRE_EQ_STR(end_capture(&stderr), "hearth: a.json: 2.1 kB\nhearth: reset; try 2 follows in "
                                         "0.5 s\nhearth: reset; try 2 follows in 0.5 s\n");
    REQUIRE(v.planned);
}

/* ---- the command ---------------------------------------------------------------------------- */

static char path[PATH_MAX];

static int run_command(struct srv_config *config, bool to_serve)
{
    char cache[300];
    snprintf(cache, sizeof(cache), "%s/hub", fake_root);
    setenv("HF_HUB_CACHE", cache, 1);
    setenv("HF_ENDPOINT", "https://hub.test", 1);
    unsetenv("HF_HUB_OFFLINE");
    unsetenv("HF_TOKEN");
    setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", 1);
    config->debug_retry_ms = 1;
    n_fake_log = 0;
    path[0] = '\0';
    return pull_run(config, to_serve, path, sizeof(path));
}

static void statuses(void **state)
{
    struct srv_config config = {.command = SRV_CMD_PULL, .model = "org/x"};
    (void)state;
    fake_status = 0;
    FILES(MODEL);
    begin_capture(&stderr);
    int rc = run_command(&config, false);
    const char *text = end_capture(&stderr);
    REQUIRE_MSG(rc == 0, "%s", text);
    REQUIRE_MSG(strstr(path, "/snapshots/" COMMIT), "%s", path);
    REQUIRE_MSG(strstr(text, "hearth: vocab.json: 7 B\n") &&
                    strstr(text, "\npulled org/x: 145 B in "),
                "%s", text);
    begin_capture(&stderr);
    REQUIRE_EQ_INT(run_command(&config, false), 0);
    REQUIRE_EQ_STR(end_capture(&stderr), "org/x is complete: 145 B\n");
    fake_status = -1;
    begin_capture(&stderr);
    rc = run_command(&config, true);
    text = end_capture(&stderr);
    REQUIRE_MSG(rc == 0 && strstr(path, COMMIT), "%s", text);
    REQUIRE_MSG(strstr(text, "hearth: the hub cannot be reached; serving the copy of 2"), "%s",
                text);
    begin_capture(&stderr);
    REQUIRE_EQ_INT(run_command(&config, false), 5);
    text = end_capture(&stderr);
    REQUIRE_MSG(strstr(text, "\nhearth: the hub cannot be reached: as scripted, 5 tries\n"), "%s",
                text);
    config.model = "a/b/c";
    begin_capture(&stderr);
    REQUIRE_EQ_INT(run_command(&config, false), 2);
    REQUIRE_EQ_STR(end_capture(&stderr), "hearth: 'a/b/c' is not a model name: use org/name or "
                                         "name, with :TAG for one of its GGUF files\n");
}

static void dry_run(void **state)
{
    struct srv_config config = {.command = SRV_CMD_PULL, .model = "org/x", .dry_run = true};
    (void)state;
    fake_status = 0;
    FILES(MODEL);
    begin_capture(&stdout);
    REQUIRE_EQ_INT(run_command(&config, false), 0);
    REQUIRE_EQ_STR(end_capture(&stdout),
                   "config.json\t118\tmissing\nmodel.safetensors\t20\tmissing\ntokenizer."
                   "json\t7\tmissing\nvocab.json\t7\tmissing\ntotal\t152\tto fetch\n");
}

int main(void)
{
#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, fake_root_make, fake_root_remove)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),  cmocka_unit_test(lines), cmocka_unit_test(on_a_terminal),
        cmocka_unit_test(events), ON_DISK(statuses),       ON_DISK(dry_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
