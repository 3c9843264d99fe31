/* SPDX-License-Identifier: MIT */
/*
 * Template source and context: the bytes up to the first NUL are a template, the rest the JSON
 * object of its variables (none: a small one of our own). Parsing and rendering must end within
 * their budgets, leave a sentence where they fail, and give valid UTF-8 with a mask of the right
 * length.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "tokenizer/template/json.h"
#include "tokenizer/template/template.h"
#include "tokenizer/tokenizer.h"

enum { MEMORY_BYTES = 32 << 20, OUTPUT_BYTES = 1 << 20, STEPS = 50000 };

static const char default_context[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": "
    "\"u \\u00e9\\n1\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
    "[{\"function\": "
    "{\"name\": \"f\", \"arguments\": {\"k\": [1, 2.5, null, true]}}}]}], \"tools\": null, \"s\": "
    "\"a,B c\","
    " \"n\": 7, \"d\": {\"a\": 1, \"b\": \"x\"}, \"l\": [3, 1, 2], \"add_generation_prompt\": "
    "true}";

struct job {
    const struct jinja_template *t;
    const char *context;
    size_t len;
};

/* The builtins abort where something is wrong, so that the fuzzer sees it. */
static void check(bool ok)
{
    if (!ok) abort();
}

static void render(struct jinja_run *r, void *arg)
{
    const struct job *job = arg;
    const struct tm now = {.tm_year = 125, .tm_mon = 2, .tm_mday = 9};
    struct jinja_value v = jinja_json_parse(r, job->context, job->len, JINJA_INPUT, "context");
    if (v.type != JINJA_DICT) return;
    const struct jinja_str *s = jinja_template_render(r, job->t, v.u.dict, &now);
    check(s->len <= OUTPUT_BYTES);
    check(utf8_valid(s->s, s->len));
    for (size_t i = 0; i < s->len; i++) {
        uint8_t origin = jinja_str_origin_at(s, i);
        check(origin == JINJA_TRUSTED || origin == JINJA_INPUT);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *source = (const char *)data;
    const char *nul = size ? memchr(source, '\0', size) : NULL;
    size_t len = nul ? (size_t)(nul - source) : size;
    struct job job = {.context = default_context, .len = sizeof(default_context) - 1};
    struct jinja_template *t = NULL;
    char err[256] = "";
    int rc = jinja_template_open(&t, source, len, err, sizeof(err));
    if (rc) {
        check(err[0] && utf8_valid(err, strlen(err)));
        return 0;
    }
    if (nul) {
        job.context = nul + 1;
        job.len = size - len - 1;
    }
    job.t = t;
    struct jinja_run *r = calloc(1, sizeof(*r));
    if (r) {
        jinja_run_init(r, MEMORY_BYTES, STEPS);
        r->max_output_bytes = OUTPUT_BYTES;
        rc = jinja_guard(r, render, &job);
        check(rc == 0 || rc == TOK_ERAISE || r->err[0]);
        jinja_run_finish(r);
    }
    free(r);
    jinja_template_close(t);
    return 0;
}
