/* SPDX-License-Identifier: MIT */
/* The tree of a schema's text; see json_doc.h. */
#include "tokenizer/grammar/json_doc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_reader.h"
#include "base/utf8.h"
#include "tokenizer/grammar/build.h"

struct parser {
    struct gram_build *b;
    struct jr r;
    char err[200];
    int code;
    const char *what;
    uint32_t n_nodes;
};

/* For one schema among several, the message names its place. */
_Noreturn static void refuse(struct gram_build *b, int code, const char *what, const char *problem)
{
    if (code == GRAM_EINVAL && b->pointer[0])
        gram_fail_at(b, NULL, NULL, "%s is %s.", what, problem);
    gram_fail(b, code, "%s is %s.", what, problem);
}

static void check(struct parser *p)
{
    if (p->r.failed == JR_ENOMEM) gram_fail_memory(p->b);
    if (p->r.failed) refuse(p->b, p->code, p->what, p->err);
}

static const char *copy(struct parser *p, const char *s, size_t n)
{
    char *text = gram_temp(p->b, n + 1);
    memcpy(text, s, n);
    return text;
}

struct gram_js *gram_js_new(struct gram_build *b, enum gram_js_type type, const char *text,
                            size_t len)
{
    struct gram_js *v = gram_temp(b, sizeof(*v));
    v->type = (uint8_t)type;
    v->text = text;
    v->len = (uint32_t)len;
    return v;
}

void gram_js_append(struct gram_js *parent, struct gram_js *child, const char *key, size_t key_len)
{
    child->parent = parent;
    child->key = key;
    child->key_len = (uint32_t)key_len;
    child->index = parent->n++;
    if (parent->last)
        parent->last->next = child;
    else
        parent->child = child;
    parent->last = child;
}

static struct gram_js *read_scalar(struct parser *p)
{
    const char *s;
    size_t n;
    switch (jr_scalar(&p->r, &s, &n)) {
    case '"': return gram_js_new(p->b, GRAM_JS_STRING, copy(p, s, n), n);
    case 't': return gram_js_new(p->b, GRAM_JS_TRUE, "", 0);
    case 'f': return gram_js_new(p->b, GRAM_JS_FALSE, "", 0);
    case 'n': return gram_js_new(p->b, GRAM_JS_NULL, "", 0);
    default: return gram_js_new(p->b, GRAM_JS_NUMBER, copy(p, s, n), n);
    }
}

static int compare_keys(const char *x, uint32_t nx, const char *y, uint32_t ny)
{
    int order = memcmp(x, y, nx < ny ? nx : ny);
    return order ? order : (nx > ny) - (nx < ny);
}

static struct gram_js *find(const struct gram_js *object, const char *key, size_t len)
{
    uint32_t lo = 0, hi = object->n;
    for (struct gram_js *v = object->sorted ? NULL : object->child; v; v = v->next)
        if (v->key_len == len && memcmp(v->key, key, len) == 0) return v;
    while (object->sorted && lo < hi) {
        struct gram_js *v = object->sorted[(lo + hi) / 2];
        int order = compare_keys(v->key, v->key_len, key, (uint32_t)len);
        if (!order) return v;
        if (order < 0)
            lo = (lo + hi) / 2 + 1;
        else
            hi = (lo + hi) / 2;
    }
    return NULL;
}

static int by_key(const void *x, const void *y)
{
    const struct gram_js *a = *(struct gram_js *const *)x, *b = *(struct gram_js *const *)y;
    int order = compare_keys(a->key, a->key_len, b->key, b->key_len);
    return order ? order : a->index < b->index ? -1 : 1;
}

/* A member's value takes the place of an earlier one of the same key, which is to be dropped. */
static void take_place(struct gram_js *first, const struct gram_js *later)
{
    uint32_t index = first->index;
    struct gram_js *next = first->next;
    *first = *later;
    first->index = index;
    first->next = next;
    first->last = NULL;
    for (struct gram_js *v = first->child; v; v = v->next) {
        v->parent = first;
        first->last = v;
    }
}

/* Takes the marked members out of the list. */
static void drop_marked(struct gram_js *object)
{
    struct gram_js **link = &object->child;
    for (object->last = NULL; *link;) {
        if ((*link)->marks) {
            *link = (*link)->next;
            continue;
        }
        object->last = *link;
        link = &(*link)->next;
    }
}

void gram_js_index(struct gram_build *b, struct gram_js *object)
{
    enum { FEW = 8 };
    uint32_t n = 0, kept = 0;
    struct gram_js **sorted = gram_temp_array(b, object->n, sizeof(struct gram_js *));
    for (struct gram_js *v = object->child; v; v = v->next)
        sorted[n++] = v;
    gram_steps(b, 2 * n);
    qsort(sorted, n, sizeof(struct gram_js *), by_key);
    for (uint32_t i = 0; i < n; i++) {
        const struct gram_js *v = kept ? sorted[kept - 1] : NULL;
        if (v && !compare_keys(v->key, v->key_len, sorted[i]->key, sorted[i]->key_len)) {
            take_place(sorted[kept - 1], sorted[i]);
            sorted[i]->marks = 1;
        } else {
            sorted[kept++] = sorted[i];
        }
    }
    object->n = kept;
    object->sorted = kept > FEW ? sorted : NULL;
    if (kept < n) drop_marked(object);
}

/* Recurses as deep as the reader allows. */
static struct gram_js *read_value(struct parser *p)
{
    char open = jr_peek(&p->r), close = open == '{' ? '}' : ']';
    bool scalar = open != '{' && open != '[';
    struct gram_js *v = scalar        ? read_scalar(p)
                        : open == '{' ? gram_js_new(p->b, GRAM_JS_OBJECT, "", 0)
                                      : gram_js_new(p->b, GRAM_JS_ARRAY, "", 0);
    const char *key = NULL;
    size_t n = 0;
    v->id = p->n_nodes++;
    if (scalar) return v;
    jr_open(&p->r, open);
    while (jr_more(&p->r, close) > 0) {
        if (open == '{') {
            jr_key(&p->r, &key, &n);
            key = copy(p, key, n);
        }
        gram_js_append(v, read_value(p), key, n);
    }
    check(p);
    if (open == '{' && v->n > 1) gram_js_index(p->b, v);
    return v;
}

struct gram_js *gram_js_parse(struct gram_build *b, const char *text, size_t len, int max_depth,
                              int code, const char *what, uint32_t *n_nodes)
{
    if (!utf8_valid(text, len)) refuse(b, code, what, "not valid UTF-8");
    struct parser *p = gram_temp(b, sizeof(*p));
    *p = (struct parser){.b = b, .code = code, .what = what, .n_nodes = *n_nodes};
    jr_init(&p->r, text, len, JR_NUL, p->err, sizeof(p->err));
    p->r.max_depth = max_depth;
    b->reader = &p->r; /* finished by gram_compile if this is left by a jump */
    struct gram_js *root = read_value(p);
    jr_end(&p->r);
    check(p);
    jr_finish(&p->r);
    b->reader = NULL;
    *n_nodes = p->n_nodes;
    return root;
}

struct gram_js *gram_js_get_n(const struct gram_js *object, const char *key, size_t len)
{
    return object->type == GRAM_JS_OBJECT ? find(object, key, len) : NULL;
}

struct gram_js *gram_js_get(const struct gram_js *object, const char *key)
{
    return gram_js_get_n(object, key, strlen(key));
}

bool gram_js_key_is(const struct gram_js *v, const char *key)
{
    size_t n = strlen(key);
    return v->key && v->key_len == n && memcmp(v->key, key, n) == 0;
}

bool gram_js_text_is(const struct gram_js *v, const char *text)
{
    size_t n = strlen(text);
    return v->type == GRAM_JS_STRING && v->len == n && memcmp(v->text, text, n) == 0;
}

const char *gram_js_type_name(const struct gram_js *v)
{
    static const char *const names[] = {
        [GRAM_JS_NULL] = "null",        [GRAM_JS_FALSE] = "a boolean", [GRAM_JS_TRUE] = "a boolean",
        [GRAM_JS_NUMBER] = "a number",  [GRAM_JS_STRING] = "a string", [GRAM_JS_ARRAY] = "an array",
        [GRAM_JS_OBJECT] = "an object",
    };
    return names[v->type];
}
size_t gram_js_pointer(const struct gram_js *v, char *buf, size_t size)
{
    char number[16];
    size_t n = 0, len;
    buf[0] = '\0';
    if (!v || !v->parent) return 0;
    n = gram_js_pointer(v->parent, buf, size);
    len = (size_t)snprintf(number, sizeof(number), "%u", v->index);
    const char *text = v->key ? v->key : number;
    if (v->key) len = v->key_len;
    if (n + 1 < size) buf[n++] = '/';
    for (size_t i = 0; i < len; i++) {
        bool special = text[i] == '~' || text[i] == '/';
        if (n + 1 < size) buf[n++] = special ? '~' : text[i];
        if (special && n + 1 < size) buf[n++] = text[i] == '~' ? '0' : '1';
    }
    buf[n] = '\0';
    return n;
}
