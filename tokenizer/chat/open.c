/* SPDX-License-Identifier: MIT */
/* Opening the chat template of a model directory: read its files, parse, probe. See chat.h. */
#include "tokenizer/chat/chat_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

/* Error codes of templates are passed on as they are. */
_Static_assert((int)JINJA_EINVAL == (int)TOK_EINVAL && (int)JINJA_ENOMEM == (int)TOK_ENOMEM &&
                   (int)JINJA_ELIMIT == (int)TOK_ELIMIT && (int)JINJA_ERAISE == (int)TOK_ERAISE,
               "error codes of templates and of the tokenizer differ");

enum {
    DEFAULT_OUTPUT_BYTES = 16 << 20,
    DEFAULT_MEMORY_BYTES = 64 << 20,
    DEFAULT_STEPS = 2 * 1000 * 1000,
    DEFAULT_CPU_MS = 250,
};

/* The template's own sentence, with the file's name in front. */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int open_template(struct jinja_template **ret, const char *source, const char *file,
                         char *err, size_t errlen)
{
    char why[JINJA_ERR_BYTES], sentence[JINJA_ERR_BYTES + NAME_MAX + 100];
    if (!source) return 0;
    int rc = jinja_template_open(ret, source, strlen(source), why, sizeof(why));
    if (rc == 0) return 0;
    snprintf(sentence, sizeof(sentence), "the chat template in %.*s cannot be used: %s", NAME_MAX,
             last_part(file), why);
    jinja_copy_sentence(err, errlen, sentence);
    return rc;
}

int tok_chat_open(struct tok_chat **ret, const char *dir, const struct tok_chat_params *params,
                  char *err, size_t errlen)
{
    static const struct tok_chat_params defaults;
    const struct tok_chat_params *p = params ? params : &defaults;
    struct tok_chat_files files = {0};
    struct tok_chat *c = calloc(1, sizeof(*c));
    if (!c) return fail_with(TOK_ENOMEM, err, errlen, "out of memory");
    c->max_output_bytes = p->max_output_bytes ? p->max_output_bytes : DEFAULT_OUTPUT_BYTES;
    c->max_memory_bytes = p->max_memory_bytes ? p->max_memory_bytes : DEFAULT_MEMORY_BYTES;
    c->max_steps = p->max_steps ? p->max_steps : DEFAULT_STEPS;
    c->max_cpu_ms = p->max_cpu_ms ? p->max_cpu_ms : DEFAULT_CPU_MS;
    int rc = tok_chat_files_read(&files, dir, p, err, errlen);
    if (!rc) rc = open_template(&c->plain, files.plain, files.plain_file, err, errlen);
    if (!rc) rc = open_template(&c->with_tools, files.with_tools, files.tools_file, err, errlen);
    if (!rc) {
        c->variables = files.variables;
        files.variables = NULL;
        c->has_another = files.has_another;
        snprintf(c->file, sizeof(c->file), "%s",
                 last_part(files.plain ? files.plain_file : files.tools_file));
        rc = tok_chat_probe(c);
        if (rc) snprintf(err, errlen, "out of memory");
    }
    tok_chat_files_finish(&files);
    if (rc)
        tok_chat_close(c);
    else
        *ret = c;
    return rc;
}

void tok_chat_close(struct tok_chat *c)
{
    if (!c) return;
    jinja_template_close(c->plain);
    jinja_template_close(c->with_tools);
    free(c->variables);
    free(c);
}

const char *tok_chat_source(const struct tok_chat *c)
{
    return jinja_template_source(c->plain ? c->plain : c->with_tools);
}

const char *tok_chat_file(const struct tok_chat *c)
{
    return c->file;
}

bool tok_chat_has_another(const struct tok_chat *c)
{
    return c->has_another;
}

const struct tok_chat_caps *tok_chat_caps(const struct tok_chat *c)
{
    return &c->caps;
}
