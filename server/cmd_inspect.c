/* SPDX-License-Identifier: MIT */
/*
 * hearth inspect --model DIR: what a model directory holds, what would be served, and every problem
 * found. The report goes to stdout; the first problem also to stderr, and the status is then 1.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "server/cmd.h"
#include "server/config.h"
#include "tokenizer/tokenizer.h"

struct inspection {
    char first_problem[1024];
};

static void print_line(void *ctx, const char *text)
{
    static const char mark[] = "problem: ";
    struct inspection *in = ctx;
    printf("%s\n", text);
    if (!in->first_problem[0] && strncmp(text, mark, sizeof(mark) - 1) == 0)
        snprintf(in->first_problem, sizeof(in->first_problem), "%s", text + sizeof(mark) - 1);
}

static void print_problem(struct inspection *in, const char *sentence)
{
    char text[1024];
    snprintf(text, sizeof(text), "problem: %s", sentence);
    print_line(in, text);
}

static void inspect_tokenizer(struct inspection *in, const char *dir)
{
    struct tok *tok = NULL;
    char err[900] = "tokenizer.json cannot be used";
    if (tok_open(&tok, dir, err, sizeof(err))) print_problem(in, err);
    else printf("tokenizer: %d tokens\n", (int)tok_vocab_size(tok));
    tok_close(tok);
}

static void inspect_template(struct inspection *in, const struct srv_config *config)
{
    struct tok_chat *chat = NULL;
    char err[900] = "the chat template cannot be used";
    struct tok_chat_params params = {.template_file = config->chat_template_file};
    int rc = tok_chat_open(&chat, config->model, &params, err, sizeof(err));
    if (rc == 0) {
        const struct tok_chat_caps *caps = tok_chat_caps(chat);
        printf("chat template: %zu bytes; system role %s, tools %s\n",
               strlen(tok_chat_source(chat)), caps->system_role ? "yes" : "no",
               caps->tools ? "yes" : "no");
    } else if (rc == TOK_ENOENT && !config->chat_template_file) {
        printf("chat template: none\n");
    } else {
        print_problem(in, err);
    }
    tok_chat_close(chat);
}

int srv_cmd_inspect(const struct srv_config *config)
{
    struct inspection in = {{0}};
    eng_inspect(config->model, print_line, &in);
    inspect_tokenizer(&in, config->model);
    inspect_template(&in, config);
    printf("verdict: %s be served\n", in.first_problem[0] ? "cannot" : "can");
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "hearth: the report cannot be written\n");
        return EXIT_FAILURE;
    }
    if (!in.first_problem[0]) return EXIT_SUCCESS;
    fprintf(stderr, "hearth: %s cannot be served: %s\n", config->model, in.first_problem);
    return EXIT_FAILURE;
}
