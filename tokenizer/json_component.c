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

/* The first fault counts. */
static void wrong(struct tok_component *c, const char *name, const char *wanted)
{
    char shown[48];
    const char *type = json_string_value(json_object_get(c->json, "type"));
    if (!type) type = "component";
    if (!c->rc)
        c->rc = fail_with(TOK_EINVAL, c->err, c->errlen, "%s: the member \"%s\" should be %s",
                          shown_text(shown, sizeof(shown), type, strlen(type)), name, wanted);
}

bool tok_member_bool(struct tok_component *c, const char *name)
{
    const json_t *v = json_object_get(c->json, name);
    if (!json_is_boolean(v)) wrong(c, name, "true or false");
    return json_is_true(v);
}

bool tok_member_bool_or(struct tok_component *c, const char *name, bool otherwise)
{
    const json_t *v = json_object_get(c->json, name);
    return v && !json_is_null(v) ? tok_member_bool(c, name) : otherwise;
}

uint32_t tok_member_uint(struct tok_component *c, const char *name, uint32_t max)
{
    const json_t *v = json_object_get(c->json, name);
    char wanted[48];
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > max) {
        snprintf(wanted, sizeof(wanted), "a whole number from 0 to %u", max);
        wrong(c, name, wanted);
    }
    return (uint32_t)json_integer_value(v);
}

/* A copy of a JSON string with a terminator after it. */
static struct tok_component_text copy_string(struct tok_component *c, const json_t *v)
{
    struct tok_component_text text = {.len = json_string_length(v)};
    if (c->rc) return (struct tok_component_text){0};
    text.s = malloc(text.len + 1);
    if (text.s)
        memcpy(text.s, json_string_value(v), text.len + 1);
    else
        c->rc = TOK_ENOMEM;
    return text;
}

struct tok_component_text tok_member_text(struct tok_component *c, const char *name)
{
    const json_t *v = json_object_get(c->json, name);
    if (!json_is_string(v)) wrong(c, name, "a string");
    return copy_string(c, v);
}

void tok_member_char(struct tok_component *c, const char *name, char ret[5])
{
    const json_t *v = json_object_get(c->json, name);
    const char *s = json_string_value(v);
    size_t len = json_string_length(v);
    if (s && len && len == utf8_len((unsigned char)s[0]))
        memcpy(ret, s, len + 1);
    else
        wrong(c, name, "one character");
}

int tok_component_unknown(struct tok_component *c, const char *what, const char *name)
{
    char shown[64];
    if (c->rc) return c->rc;
    return c->rc = fail_with(TOK_EINVAL, c->err, c->errlen, "the %s \"%s\" is not supported", what,
                             shown_text(shown, sizeof(shown), name, strlen(name)));
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
    const struct tok_uni *uni;
    tok_component_fn *fn;
    void *data;
    char *err;
    size_t errlen;
    int n; /* components so far */
};

static int visit(struct visit *v, const json_t *json, int depth)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    struct tok_component c = {.json = json, .uni = v->uni, .err = v->err, .errlen = v->errlen};
    const json_t *list, *item;
    size_t i;
    int rc = 0;
    if (!type)
        return fail_with(TOK_EINVAL, v->err, v->errlen, "a %s should be an object with a \"type\"",
                         v->what);
    if (depth > MAX_NESTING || v->n++ > TOK_MAX_COMPONENTS)
        return fail_with(TOK_EINVAL, v->err, v->errlen,
                         "%s: nested deeper than %d, or more than %d components", v->what,
                         MAX_NESTING, TOK_MAX_COMPONENTS);
    list = json_object_get(json, v->list);
    if (strcmp(type, "Sequence") != 0)
        rc = v->fn(v->data, type, &c);
    else if (!json_is_array(list))
        wrong(&c, v->list, "an array");
    else
        json_array_foreach(list, i, item)
        {
            if (!rc) rc = visit(v, item, depth + 1);
        }
    return rc ? rc : c.rc;
}

int tok_component_visit(const char *what, const char *list, const json_t *json,
                        const struct tok_uni *uni, tok_component_fn *fn, void *data, char *err,
                        size_t errlen)
{
    struct visit v = {what, list, uni, fn, data, err, errlen, 0};
    if (!json || json_is_null(json)) return 0;
    return visit(&v, json, 0);
}

/* ---- patterns ------------------------------------------------------------------------------ */

struct tok_component_pattern tok_member_pattern(struct tok_component *c)
{
    struct tok_component_pattern p = {.re = NULL};
    const json_t *pattern = json_object_get(c->json, "pattern");
    const json_t *literal = json_object_get(pattern, "String"),
                 *re = json_object_get(pattern, "Regex"), *v = re ? re : literal;
    if (json_object_size(pattern) != 1 || !json_is_string(v))
        wrong(c, "pattern", "{\"String\": ...} or {\"Regex\": ...}");
    if (c->rc) return p;
    if (re || !json_string_length(v))
        c->rc = tok_regex_create(&p.re, c->uni, json_string_value(v), json_string_length(v), c->err,
                                 c->errlen);
    else
        p.literal = copy_string(c, v);
    return p;
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
