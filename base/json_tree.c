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
    struct buf key; /* of the member being read, NUL-terminated */
    struct jt_fault *fault;
    char problem[160];
};

/* ---- faults -------------------------------------------------------------------------------- */

/* At the reader's position; `key`: that it is about, or "". */
static int refuse(struct reader *r, const char *problem, const char *key)
{
    struct jt_fault *f = r->fault;
    const char *text = r->json.text;
    size_t end = r->json.pos < r->json.len ? r->json.pos + 1 : r->json.len;
    f->line = 1;
    snprintf(f->problem, sizeof(f->problem), "%s", problem);
    snprintf(f->key, sizeof(f->key), "%s", key);
    for (size_t i = 0; i < end; i++) {
        bool newline = i > 0 && text[i - 1] == '\n';
        f->line += newline;
        f->column = (newline ? 0 : f->column) + ((text[i] & 0xC0) != 0x80);
    }
    return -1;
}

static int check(struct reader *r, int rc)
{
    return rc == JR_EINVAL ? refuse(r, r->json.problem, "") : rc;
}

static int count_value(struct reader *r)
{
    char problem[48];
    if (++r->n_values <= r->p->max_values) return 0;
    snprintf(problem, sizeof(problem), "more than %zu values", r->p->max_values);
    return refuse(r, problem, "");
}

/* ---- values -------------------------------------------------------------------------------- */

static int read_number(struct reader *r, json_t **ret)
{
    const char *s;
    size_t len;
    if (check(r, jr_number(&r->json, &s, &len))) return -1;
    if (r->json.depth > 0 && r->json.pos == r->json.len) { /* an error of what it is in */
        *ret = json_null();
        return 0;
    }
    bool integer = !memchr(s, '.', len) && !memchr(s, 'e', len) && !memchr(s, 'E', len);
    bool constant = s[len - 1] == 'N' || s[len - 1] == 'y';
    errno = 0;
    long long whole = integer && !constant ? strtoll(s, NULL, 10) : 0;
    if (integer && !constant && !errno) {
        *ret = json_integer(whole);
        return 0;
    }
    double value = strtod(s, NULL);
    if (!isfinite(value) && !integer && !constant) return refuse(r, "a number out of range", "");
    if (!isfinite(value)) value = *s == '-' ? -DBL_MAX / 2 : DBL_MAX / 2;
    if (integer && value == (double)INT64_MIN) value = nextafter(value, -DBL_MAX);
    *ret = json_real(value);
    return 0;
}

static int read_scalar(struct reader *r, char first, json_t **ret)
{
    const char *s;
    size_t len;
    bool truth;
    switch (first) {
    case '"':
        if (check(r, jr_string(&r->json, &s, &len))) return -1;
        *ret = json_stringn_nocheck(s, len);
        break;
    case 't':
    case 'f':
        if (check(r, jr_bool(&r->json, &truth))) return -1;
        *ret = truth ? json_true() : json_false();
        break;
    case 'n':
        if (check(r, jr_null(&r->json))) return -1;
        *ret = json_null();
        break;
    default:
        if (read_number(r, ret)) return -1;
    }
    return *ret ? 0 : -1;
}

static int read_key(struct reader *r)
{
    const char *s;
    size_t len;
    if (check(r, jr_key(&r->json, &s, &len))) return -1;
    if (memchr(s, '\0', len)) return refuse(r, "a key holds \\u0000", "");
    buf_clear(&r->key);
    buf_add(&r->key, s, len);
    buf_add(&r->key, "", 1);
    return r->key.failed ? -1 : 0;
}

/* Gives a value to what it is in, or makes it the root. */
static int attach(struct reader *r, json_t *parent, json_t *value)
{
    if (!parent) {
        r->root = value;
        return 0;
    }
    if (json_is_array(parent)) return json_array_append_new(parent, value) ? -1 : 0;
    size_t n = json_object_size(parent);
    if (json_object_set_new_nocheck(parent, r->key.data, value)) return -1;
    if (json_object_size(parent) > n || (r->p->flags & JT_REPEATS)) return 0;
    return refuse(r, "a key that comes twice,", r->key.data);
}

/* `parent`: the array, or the object whose key has been read, that the value is in; or NULL. */
static int read_value(struct reader *r, json_t *parent)
{
    json_t *value = NULL;
    char open = jr_peek(&r->json);
    size_t begin = r->json.pos;
    if (open != '{' && open != '[')
        return read_scalar(r, open, &value) || attach(r, parent, value) ? -1 : 0;
    if (r->json.depth == JT_MAX_DEPTH) return refuse(r, "more than 160 levels", "");
    if (check(r, jr_open(&r->json, open)) || count_value(r)) return -1;
    value = open == '{' ? json_object() : json_array();
    if (!value || attach(r, parent, value)) return -1;
    for (bool first = true;; first = false) {
        int more = check(r, jr_more(&r->json, open == '{' ? '}' : ']'));
        if (more < 0) return -1;
        if (more == 0) break;
        if (!first && count_value(r)) return -1;
        if ((open == '{' && read_key(r)) || read_value(r, value)) return -1;
    }
    return r->p->complete ? r->p->complete(r->p->ctx, value, begin, r->json.pos - begin) : 0;
}

/* ---- the text ------------------------------------------------------------------------------ */

/* At the first byte that is not UTF-8. */
static int refuse_bytes(struct reader *r)
{
    const char *text = r->json.text;
    int n = 1;
    while (n > 0) {
        r->json.pos += utf8_ascii_prefix(text + r->json.pos, r->json.len - r->json.pos);
        n = utf8_classify((const unsigned char *)text + r->json.pos, r->json.len - r->json.pos);
        if (n > 0) r->json.pos += (size_t)n;
    }
    return refuse(r, "bytes that are not UTF-8", "");
}

static int read_all(struct reader *r)
{
    if (!utf8_valid(r->json.text, r->json.len)) return refuse_bytes(r);
    char c = jr_peek(&r->json);
    if (c != '{' && c != '[' && !(r->p->flags & JT_ANY))
        return refuse(r, "expected an object or an array", "");
    if (read_value(r, NULL)) return -1;
    return check(r, jr_end(&r->json));
}

int jt_read(json_t **ret, const char *text, size_t len, const struct jt_params *params,
            struct jt_fault *fault)
{
    struct reader r = {.p = params, .n_values = 1, .fault = fault};
    jr_init(&r.json, text, len, params->flags & (JR_NUL | JR_CONSTANTS), r.problem,
            sizeof(r.problem));
    buf_init(&r.key, len + 1);
    *fault = (struct jt_fault){.line = 0};
    int rc = read_all(&r);
    jr_finish(&r.json);
    buf_finish(&r.key);
    if (rc)
        json_decref(r.root);
    else
        *ret = r.root;
    return rc;
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
