/* SPDX-License-Identifier: MIT */
#include "tokenizer/json_component.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "tokenizer/tok_types.h"

#define MAX_NESTING 8
#define MAX_GROWTH ((size_t)2 << 30)

void tok_component_text_finish(struct tok_component_text *t)
{
    free(t->s);
    *t = (struct tok_component_text){0};
}

static int wrong(const json_t *json, const char *name, const char *wanted, char *err, size_t errlen)
{
    char shown[48];
    const char *type = json_string_value(json_object_get(json, "type"));
    if (!type) type = "component";
    return fail_with(TOK_EINVAL, err, errlen, "%s: the member \"%s\" should be %s",
                     shown_text(shown, sizeof(shown), type, strlen(type)), name, wanted);
}

int tok_component_bool(const json_t *json, const char *name, const bool *fallback, bool *ret,
                       char *err, size_t errlen)
{
    const json_t *v = json_object_get(json, name);
    if ((!v || json_is_null(v)) && fallback) {
        *ret = *fallback;
        return 0;
    }
    if (!json_is_boolean(v)) return wrong(json, name, "true or false", err, errlen);
    *ret = json_is_true(v);
    return 0;
}

int tok_component_uint(const json_t *json, const char *name, uint32_t max, uint32_t *ret, char *err,
                       size_t errlen)
{
    const json_t *v = json_object_get(json, name);
    char wanted[48];
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > max) {
        snprintf(wanted, sizeof(wanted), "a whole number from 0 to %u", max);
        return wrong(json, name, wanted, err, errlen);
    }
    *ret = (uint32_t)json_integer_value(v);
    return 0;
}

/* A copy of a JSON string with a terminator after it. */
static int copy_string(const json_t *v, struct tok_component_text *ret)
{
    size_t len = json_string_length(v);
    char *s = malloc(len + 1);
    if (!s) return TOK_ENOMEM;
    memcpy(s, json_string_value(v), len);
    s[len] = 0;
    *ret = (struct tok_component_text){s, len};
    return 0;
}

int tok_component_string(const json_t *json, const char *name, struct tok_component_text *ret,
                         char *err, size_t errlen)
{
    const json_t *v = json_object_get(json, name);
    if (!json_is_string(v)) return wrong(json, name, "a string", err, errlen);
    return copy_string(v, ret);
}

int tok_component_char(const json_t *json, const char *name, uint32_t *ret, char *err,
                       size_t errlen)
{
    const json_t *v = json_object_get(json, name);
    const unsigned char *s = (const unsigned char *)json_string_value(v);
    size_t len = json_string_length(v);
    if (!s || len == 0 || len != utf8_len(s[0]))
        return wrong(json, name, "one character", err, errlen);
    *ret = utf8_next(&s);
    return 0;
}

int tok_component_unknown(const char *what, const char *type, char *err, size_t errlen)
{
    char shown[64];
    return fail_with(TOK_EINVAL, err, errlen, "the %s \"%s\" is not supported", what,
                     shown_text(shown, sizeof(shown), type, strlen(type)));
}

struct tok_growth tok_growth(size_t text_len)
{
    size_t max = text_len * TOK_GROWTH_PER_BYTE + TOK_GROWTH_BASE;
    if (max > MAX_GROWTH) max = MAX_GROWTH;
    return (struct tok_growth){text_len, max, max};
}

int tok_growth_spend(struct tok_growth *g, size_t before, size_t after, char *err, size_t errlen)
{
    if (after <= before) return 0;
    if (after - before <= g->left) {
        g->left -= after - before;
        return 0;
    }
    return fail_with(TOK_ELIMIT, err, errlen,
                     "the tokenizer's components add more than %zu bytes to a text of %zu bytes",
                     g->max, g->text_len);
}

struct visit {
    const char *what, *list;
    tok_component_fn *fn;
    void *data;
    char *err;
    size_t errlen;
    int n; /* components so far */
};

static int visit(struct visit *v, const json_t *json, int depth)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    const json_t *list, *item;
    size_t i;
    if (!type)
        return fail_with(TOK_EINVAL, v->err, v->errlen, "a %s should be an object with a \"type\"",
                         v->what);
    if (depth > MAX_NESTING || v->n++ > TOK_MAX_COMPONENTS)
        return fail_with(TOK_EINVAL, v->err, v->errlen,
                         "%s: nested deeper than %d, or more than %d components", v->what,
                         MAX_NESTING, TOK_MAX_COMPONENTS);
    if (strcmp(type, "Sequence") != 0) return v->fn(v->data, type, json, v->err, v->errlen);
    list = json_object_get(json, v->list);
    if (!json_is_array(list)) return wrong(json, v->list, "an array", v->err, v->errlen);
    json_array_foreach(list, i, item)
    {
        int rc = visit(v, item, depth + 1);
        if (rc) return rc;
    }
    return 0;
}

int tok_component_visit(const char *what, const char *list, const json_t *json,
                        tok_component_fn *fn, void *data, char *err, size_t errlen)
{
    struct visit v = {what, list, fn, data, err, errlen, 0};
    if (!json || json_is_null(json)) return 0;
    return visit(&v, json, 0);
}

/* ---- patterns ------------------------------------------------------------------------------ */

int tok_component_pattern(const json_t *json, const struct tok_uni *uni,
                          struct tok_component_pattern *ret, char *err, size_t errlen)
{
    const json_t *pattern = json_object_get(json, "pattern");
    const json_t *literal = json_object_get(pattern, "String"),
                 *re = json_object_get(pattern, "Regex");
    if (json_object_size(pattern) != 1 || !(json_is_string(literal) || json_is_string(re)))
        return wrong(json, "pattern", "{\"String\": ...} or {\"Regex\": ...}", err, errlen);
    if (re)
        return tok_regex_create(&ret->re, uni, json_string_value(re), json_string_length(re), err,
                                errlen);
    if (json_string_length(literal) == 0)
        return tok_regex_create(&ret->re, uni, "", 0, err, errlen);
    return copy_string(literal, &ret->literal);
}

void tok_component_pattern_finish(struct tok_component_pattern *p)
{
    tok_component_text_finish(&p->literal);
    tok_regex_destroy(p->re);
    p->re = NULL;
}

struct tok_pattern_iter tok_pattern_iter(const struct tok_component_pattern *p, const char *text,
                                         size_t len)
{
    return (struct tok_pattern_iter){p, tok_regex_iter(p->re, text, len)};
}

int tok_pattern_next(struct tok_pattern_iter *it, struct tok_regex_scratch *s, size_t *ret_begin,
                     size_t *ret_end, char *err, size_t errlen)
{
    const struct tok_component_text *literal = &it->p->literal;
    struct tok_regex_iter *r = &it->re;
    if (r->re) return tok_regex_next(r, s, ret_begin, ret_end, err, errlen);
    const char *found = memmem(r->text + r->pos, r->len - r->pos, literal->s, literal->len);
    if (!found) return 0;
    *ret_begin = (size_t)(found - r->text);
    *ret_end = r->pos = *ret_begin + literal->len;
    return 1;
}
