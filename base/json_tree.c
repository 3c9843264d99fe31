/* SPDX-License-Identifier: MIT */
/* See json_tree.h. */
#include "base/json_tree.h"

#include <errno.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/json_reader.h"
#include "base/shown.h"
#include "base/utf8.h"

/* A value takes about 100 bytes in jansson, so this bounds a file's tree to about 100 MB. */
enum { MAX_FILE_VALUES = 1000000 };

_Static_assert(JT_MAX_DEPTH == 160, "as the error says");

/* A text on its way. */
struct reader {
    const struct jt_params *p;
    struct jr json;
    json_t *root;
    size_t n_values;
    struct buf key;         /* of the member being read, NUL-terminated */
    struct jt_fault *fault; /* of an error that is not the JSON reader's, without its place */
};

/* ---- faults -------------------------------------------------------------------------------- */

/* At the reader's position; `key`: that it is about, or "". */
static void refuse(struct reader *r, const char *problem, const char *key)
{
    if (r->json.failed) return;
    snprintf(r->fault->problem, sizeof(r->fault->problem), "%s", problem);
    snprintf(r->fault->key, sizeof(r->fault->key), "%s", key);
    jr_refuse(&r->json, JR_EINVAL, "%s", problem);
}

static void refuse_memory(struct reader *r)
{
    jr_refuse(&r->json, JR_ENOMEM, "out of memory");
}

/* The fault is at the reader's position. */
static void find_place(struct reader *r)
{
    struct jt_fault *f = r->fault;
    const char *text = r->json.text;
    size_t end = r->json.pos < r->json.len ? r->json.pos + 1 : r->json.len;
    f->line = 1;
    if (!*f->problem) snprintf(f->problem, sizeof(f->problem), "%s", r->json.problem);
    for (size_t i = 0; i < end; i++) {
        bool newline = i > 0 && text[i - 1] == '\n';
        f->line += newline;
        f->column = (newline ? 0 : f->column) + ((text[i] & 0xC0) != 0x80);
    }
}

static void count_value(struct reader *r)
{
    char problem[48];
    if (++r->n_values <= r->p->max_values) return;
    snprintf(problem, sizeof(problem), "more than %zu values", r->p->max_values);
    refuse(r, problem, "");
}

/* ---- values -------------------------------------------------------------------------------- */

static json_t *new_number(struct reader *r, const char *s, size_t len)
{
    if (r->json.depth > 0 && r->json.pos == r->json.len)
        return json_null(); /* an error of the array or object that it is in */
    bool integer = !memchr(s, '.', len) && !memchr(s, 'e', len) && !memchr(s, 'E', len);
    bool constant = s[len - 1] == 'N' || s[len - 1] == 'y';
    errno = 0;
    long long whole = integer && !constant ? strtoll(s, NULL, 10) : 0;
    if (integer && !constant && !errno) return json_integer(whole);
    double value = strtod(s, NULL);
    if (!isfinite(value) && !integer && !constant) refuse(r, "a number out of range", "");
    if (!isfinite(value)) value = *s == '-' ? -DBL_MAX / 2 : DBL_MAX / 2;
    if (integer && value == (double)INT64_MIN) value = nextafter(value, -DBL_MAX);
    return json_real(value);
}

/* NULL after an error, and when out of memory. */
static json_t *read_scalar(struct reader *r)
{
    const char *s;
    size_t len;
    switch (jr_scalar(&r->json, &s, &len)) {
    case 0: return NULL;
    case '"': return json_stringn_nocheck(s, len);
    case 't': return json_true();
    case 'f': return json_false();
    case 'n': return json_null();
    default: return new_number(r, s, len);
    }
}

static void read_key(struct reader *r)
{
    const char *s;
    size_t len;
    jr_key(&r->json, &s, &len);
    if (memchr(s, '\0', len)) refuse(r, "a key holds \\u0000", "");
    buf_clear(&r->key);
    buf_add(&r->key, s, len);
    buf_add(&r->key, "", 1);
    if (r->key.failed) refuse_memory(r);
}

/* Takes a value into its parent; without a parent it is the root. NULL: out of memory. */
static void attach(struct reader *r, json_t *parent, json_t *value)
{
    size_t n = json_object_size(parent);
    if (!value) refuse_memory(r);
    if (r->json.failed)
        json_decref(value);
    else if (!parent)
        r->root = value;
    else if (json_is_array(parent) ? json_array_append_new(parent, value)
                                   : json_object_set_new_nocheck(parent, r->key.data, value))
        refuse_memory(r);
    else if (json_is_object(parent) && json_object_size(parent) == n && !(r->p->flags & JT_REPEATS))
        refuse(r, "a key that comes twice,", r->key.data);
}

/* `parent`: the array, or the object whose key has been read, that the value is in; or NULL. */
static void read_value(struct reader *r, json_t *parent)
{
    char open = jr_peek(&r->json), close = open == '{' ? '}' : ']';
    size_t begin = r->json.pos;
    if (open != '{' && open != '[') {
        attach(r, parent, read_scalar(r));
        return;
    }
    if (r->json.depth == JT_MAX_DEPTH) refuse(r, "more than 160 levels", "");
    jr_open(&r->json, open);
    count_value(r);
    json_t *value = open == '{' ? json_object() : json_array();
    attach(r, parent, value);
    for (bool first = true; jr_more(&r->json, close) > 0; first = false) {
        if (!first) count_value(r);
        if (open == '{') read_key(r);
        read_value(r, value);
    }
    if (r->json.failed || !r->p->complete) return;
    if (r->p->complete(r->p->ctx, value, begin, r->json.pos - begin)) refuse_memory(r);
}

/* ---- the text ------------------------------------------------------------------------------ */

/* At the first byte that is not UTF-8. */
static void refuse_bytes(struct reader *r)
{
    const char *text = r->json.text;
    int n = 1;
    while (n > 0) {
        r->json.pos += utf8_ascii_prefix(text + r->json.pos, r->json.len - r->json.pos);
        n = utf8_classify((const unsigned char *)text + r->json.pos, r->json.len - r->json.pos);
        if (n > 0) r->json.pos += (size_t)n;
    }
    refuse(r, "bytes that are not UTF-8", "");
}

static void read_all(struct reader *r)
{
    if (!utf8_valid(r->json.text, r->json.len)) refuse_bytes(r);
    char c = jr_peek(&r->json);
    if (c != '{' && c != '[' && !(r->p->flags & JT_ANY))
        refuse(r, "expected an object or an array", "");
    read_value(r, NULL);
    jr_end(&r->json);
}

int jt_read(json_t **ret, const char *text, size_t len, const struct jt_params *params,
            struct jt_fault *fault)
{
    struct reader r = {.p = params, .n_values = 1, .fault = fault};
    jr_init(&r.json, text, len, params->flags & (JR_NUL | JR_CONSTANTS), NULL, 0);
    buf_init(&r.key, len + 1);
    *fault = (struct jt_fault){.line = 0};
    read_all(&r);
    jr_finish(&r.json);
    buf_finish(&r.key);
    if (r.json.failed == JR_EINVAL) find_place(&r);
    if (r.json.failed)
        json_decref(r.root);
    else
        *ret = r.root;
    return r.json.failed ? -1 : 0;
}

int jt_read_file(json_t **ret, const char *name, const char *text, size_t len, unsigned flags,
                 char *err, size_t errlen)
{
    const struct jt_params params = {.flags = flags | JR_CONSTANTS, .max_values = MAX_FILE_VALUES};
    struct jt_fault f;
    char key[JT_KEY_BYTES];
    if (jt_read(ret, text, len, &params, &f) == 0) return 0;
    if (!*f.problem) return fail_with(JR_ENOMEM, err, errlen, "%s: out of memory", name);
    return fail_with(JR_EINVAL, err, errlen, "%s: line %d: %s%s%s", name, f.line, f.problem,
                     *f.key ? " " : "", shown_text(key, sizeof(key), f.key, strlen(f.key)));
}
