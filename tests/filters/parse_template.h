/* SPDX-License-Identifier: MIT */
/*
 * The chat templates of hearth-filter parse with the styles that were found for them: the
 * directory's own and the last ones that lines brought.
 *
 * Threads: unsafe; one owner.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tools/tools.h"

struct filter_error;
struct srv_config;

/* A template and how its model writes; chat NULL: there is none. */
struct parse_template {
    char *source; /* owned; NULL: the directory's own */
    struct tok_chat *chat;
    struct tools_style style;
    int rc; /* 0, or the enum tok_error that problem explains */
    char problem[1024];
    uint64_t used; /* when it was asked for last */
};

enum { PARSE_MAX_TEMPLATES = 16 };

struct parse_templates {
    const struct srv_config *config;                       /* borrowed */
    struct parse_template own, given[PARSE_MAX_TEMPLATES]; /* used 0: empty */
    uint64_t n_asked;
};

/* Opens the directory's template, if there is a directory. A problem is told when it is asked for.
 * Returns 0, or -1 after a message on stderr. */
int parse_templates_open(struct parse_templates *t, const struct srv_config *config);
void parse_templates_close(struct parse_templates *t);

/* The template with this source, NUL-terminated; NULL: the directory's. NULL with e filled. */
const struct parse_template *parse_template_find(struct parse_templates *t, const char *source,
                                                 struct filter_error *e);
