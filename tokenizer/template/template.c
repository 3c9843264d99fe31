/* SPDX-License-Identifier: MIT */
/*
 * Parsed templates: the door of template.h, put together from the parts.
 */
#include "tokenizer/template/template.h"

#include <assert.h>
#include <stdlib.h>

#include "base/fail.h"
#include "tokenizer/template/eval.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/parser.h"

enum {
    MAX_SOURCE_BYTES = 1 << 20,
    PARSE_MEMORY_BYTES = 256 << 20,
    PARSE_STEPS = 20 * 1000 * 1000,
};

struct jinja_template {
    struct jinja_run run; /* holds the tree */
    struct jinja_tree tree;
    const char *source;
    size_t len;
};

static void parse(struct jinja_run *r, void *arg)
{
    struct jinja_template *t = arg;
    t->source = jinja_copy(r, t->source, t->len);
    jinja_parse(r, t->source, t->len, &t->tree);
    jinja_resolve_names(r, &t->tree);
    r->line = 0;
}

int jinja_template_open(struct jinja_template **ret, const char *source, size_t len, char *err,
                        size_t errlen)
{
    if (len > MAX_SOURCE_BYTES)
        return fail_with(JINJA_ELIMIT, err, errlen, "the template has %zu bytes, more than %d", len,
                         MAX_SOURCE_BYTES);
    struct jinja_template *t = calloc(1, sizeof(*t));
    if (!t) return fail_with(JINJA_ENOMEM, err, errlen, "out of memory");
    jinja_run_init(&t->run, PARSE_MEMORY_BYTES, PARSE_STEPS);
    t->source = source;
    t->len = len;
    int rc = jinja_guard(&t->run, parse, t);
    if (rc == 0) {
        *ret = t;
        t = NULL;
    } else {
        jinja_copy_sentence(err, errlen, t->run.err);
    }
    jinja_template_close(t);
    return rc;
}

void jinja_template_close(struct jinja_template *t)
{
    if (!t) return;
    jinja_run_finish(&t->run);
    free(t);
}

const char *jinja_template_source(const struct jinja_template *t)
{
    return t->source;
}

const struct jinja_str *jinja_template_render(struct jinja_run *r, const struct jinja_template *t,
                                              struct jinja_dict *context, const struct tm *now)
{
    struct jinja_sb out = {.r = r};
    assert(!r->out && now);
    out.max_bytes = r->max_output_bytes;
    jinja_add_globals(r, context);
    r->context = context;
    r->out = &out;
    r->now = now;
    jinja_exec_tree(r, &t->tree);
    r->context = NULL;
    r->out = NULL;
    return jinja_sb_str(&out);
}
