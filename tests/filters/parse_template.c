/* SPDX-License-Identifier: MIT */
/* The chat templates of hearth-filter parse; see parse_template.h. */
#include "tests/filters/parse_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shown.h"
#include "tests/filters/filter.h"
#include "server/config/config.h"
#include "tokenizer/chat/chat.h"

/* Opens a template and finds its style. Returns p->rc. */
static int template_open(struct parse_template *p, const struct srv_config *config)
{
    struct tok_chat_params params = {.template_text = p->source,
                                     .template_file = config->chat_template_file};
    int rc = tok_chat_open(&p->chat, config->model, &params, p->problem, sizeof(p->problem));
    if (rc == TOK_ENOENT && !config->chat_template_file) rc = 0; /* a model without a template */
    if (!rc) rc = tools_detect(&p->style, p->chat, config->tool_format);
    return p->rc = rc;
}

static void template_close(struct parse_template *p)
{
    tok_chat_close(p->chat);
    free(p->source);
    *p = (struct parse_template){.source = NULL};
}

int parse_templates_open(struct parse_templates *t, const struct srv_config *config)
{
    *t = (struct parse_templates){.config = config};
    if (!config->model) {
        t->own.rc = TOK_EINVAL;
        snprintf(t->own.problem, sizeof(t->own.problem),
                 "one of format and template is needed, or --model");
        return 0;
    }
    int rc = template_open(&t->own, config);
    if (!rc || rc == TOK_EINVAL || rc == TOK_ELIMIT) return 0;
    shown_line(stderr, "hearth: %s", rc == TOK_ENOMEM ? "out of memory" : t->own.problem);
    return -1;
}

void parse_templates_close(struct parse_templates *t)
{
    template_close(&t->own);
    for (int i = 0; i < PARSE_MAX_TEMPLATES; i++)
        template_close(&t->given[i]);
}

/* The one with this source, else the one that was not asked for the longest time. */
static struct parse_template *choose(struct parse_templates *t, const char *source)
{
    struct parse_template *oldest = &t->given[0];
    for (int i = 0; i < PARSE_MAX_TEMPLATES; i++) {
        struct parse_template *p = &t->given[i];
        if (p->used && strcmp(p->source, source) == 0) return p;
        if (p->used < oldest->used) oldest = p;
    }
    return oldest;
}

const struct parse_template *parse_template_find(struct parse_templates *t, const char *source,
                                                 struct filter_error *e)
{
    struct parse_template *p = source ? choose(t, source) : &t->own;
    if (source && (!p->used || strcmp(p->source, source) != 0)) {
        template_close(p);
        p->source = strdup(source);
        int rc = p->source ? template_open(p, t->config) : TOK_ENOMEM;
        if (rc == TOK_ENOMEM) {
            template_close(p);
            filter_fail(e, "out of memory");
            return NULL;
        }
    }
    p->used = ++t->n_asked;
    if (!p->rc) return p;
    filter_fail(e, "%s", p->problem);
    return NULL;
}
