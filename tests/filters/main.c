/* SPDX-License-Identifier: MIT */
/*
 * hearth-filter accept|parse|render|score|tokenize [options] [model]: the parts of the program
 * without a server around them, for the tests. Not installed. score takes the options of `hearth
 * generate`, the others those of `hearth inspect`.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shown.h"
#include "server/api/read/body.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "server/hub/pull_run.h"
#include "server/models/lookup.h"
#include "tests/filters/filters.h"

static const char usage[] =
    "usage: hearth-filter accept|parse|render|tokenize [options of hearth inspect] [model]\n"
    "       hearth-filter score [options of hearth generate] [model]\n\n"
    "One JSON object per line in, one per line out:\n"
    "  accept: one of schema, json_object, regex, choice, grammar; texts; optional strict, "
    "whitespace,\n"
    "    whitespace_pattern, disable_any_whitespace, disable_additional_properties, mask_ns\n"
    "    -> compiled, relaxed, accepted, by_bytes, compile_ms, steps, bytes, masks\n"
    "  parse: text; optional template, format, think, tools, tool_choice, parallel_tool_calls,\n"
    "    add_generation_prompt_suffix, kwargs, reasoning_format, guided, cuts\n"
    "    -> content, reasoning, tool_calls, format, deltas\n"
    "  render: messages, tools, add_generation_prompt, continue_final_message, kwargs; or context\n"
    "    -> text\n"
    "  score: text or ids; optional logits (a file), greedy\n"
    "    -> ids, logprobs, argmax, perplexity, greedy_ids, greedy_margins\n"
    "  tokenize: text or ids; optional pair, add_special, parse_special, skip_special\n"
    "    -> ids, n_first; text, pieces, tail\n"
    "  a line with a fault -> error\n";

static const struct {
    const char *name, *options_of;
    int (*run)(const struct srv_config *config);
} filters[] = {{"accept", "inspect", filter_accept},
               {"parse", "inspect", filter_parse},
               {"render", "inspect", filter_render},
               {"score", "generate", filter_score},
               {"tokenize", "inspect", filter_tokenize}};

static const char *environment(const char *name)
{
    return getenv(name);
}

/* config->model as given -> a directory; without one, `preset` (NULL: none). Returns the status. */
static int find_model(struct srv_config *c, const char *preset)
{
    char dir[PATH_MAX], err[1024];
    if (c->cache_dir && setenv("HF_HUB_CACHE", c->cache_dir, 1)) return EXIT_FAILURE;
    if (!c->model) return preset ? -srv_config_replace(&c->model, preset) : EXIT_SUCCESS;
    if (c->pull && !strchr("/.", c->model[0]) && !srv_hub_is_here(c->model)) {
        int status = pull_run(c, true, dir, sizeof(dir));
        if (status) return status;
    } else if (srv_hub_resolve(c->model, environment, dir, sizeof(dir), err, sizeof(err))) {
        shown_line(stderr, "hearth: %s", err);
        return EXIT_FAILURE;
    }
    return -srv_config_replace(&c->model, dir);
}

static int run_filter(size_t which, int argc, char **argv)
{
    struct srv_config config;
    char err[1024] = "", options_of[16];
    int status = SRV_EXIT_USAGE;
    snprintf(options_of, sizeof(options_of), "%s", filters[which].options_of);
    argv[1] = options_of;
    if (srv_config_load(&config, argc, argv, environment, err, sizeof(err))) {
        shown_line(stderr, "hearth: %s", err);
    } else if (config.help) {
        status = fputs(usage, stdout) < 0 || fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    } else {
        bool needs_model = filters[which].run != filter_parse;
        status = find_model(&config, needs_model ? HEARTH_DEMO_DIR : NULL);
        if (!status) status = filters[which].run(&config);
    }
    srv_config_finish(&config);
    return status;
}

int main(int argc, char **argv)
{
    srv_json_watch_memory();
    for (size_t i = 0; argc > 1 && i < sizeof(filters) / sizeof(filters[0]); i++)
        if (strcmp(argv[1], filters[i].name) == 0) return run_filter(i, argc, argv);
    fputs(usage, stderr);
    return SRV_EXIT_USAGE;
}
