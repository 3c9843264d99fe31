/* SPDX-License-Identifier: MIT */
/*
 * JSON in and out: json.loads and json.dumps; see json.h.
 */
#include "tokenizer/template/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_reader.h"
#include "base/utf8.h"
#include "tokenizer/template/dict.h"
#include "tokenizer/template/print.h"

/* ---- reading ------------------------------------------------------------------------------- */

struct reader {
    struct jinja_run *r;
    struct jr json;
    uint8_t origin;
    const char *what;
    struct jinja_value value; /* the whole */
    char err[160];
};

static struct jinja_value read_value(struct reader *rd, int depth);

_Noreturn static void fail_at(const struct reader *rd, const char *problem)
{
    jinja_raise(rd->r, "%s: %s at byte %zu", rd->what, problem, rd->json.pos);
}

/* Ends the run after an error of the JSON reader. */
static void check(const struct reader *rd)
{
    if (rd->json.failed)
        jinja_fail(rd->r, rd->json.failed == JR_ENOMEM ? JINJA_ENOMEM : JINJA_EINVAL, "%s: %s",
                   rd->what, rd->err);
}

static struct jinja_value read_key(struct reader *rd)
{
    const char *text;
    size_t len;
    jr_key(&rd->json, &text, &len);
    return jinja_from_str(jinja_str_new(rd->r, text, len, rd->origin));
}

/* Integers of any size; NaN and the infinities as json.loads reads them. */
static struct jinja_value take_number(struct reader *rd, const char *text, size_t len)
{
    struct jinja_value v;
    bool negative = *text == '-', is_float = false;
    for (size_t i = 0; i < len; i++)
        is_float |= strchr(".eENI", text[i]) != NULL;
    if (is_float) {
        jinja_spend_digits(rd->r, len);
        return jinja_float(strtod(jinja_copy(rd->r, text, len), NULL));
    }
    if (!jinja_int_parse(rd->r, text + negative, len - negative, negative, &v))
        fail_at(rd, "an integer with too many digits");
    return v;
}

/* An array, or an object: the last of equal keys wins and has the place of the first. */
static struct jinja_value read_items(struct reader *rd, bool object, int depth)
{
    struct jinja_list *l = object ? NULL : jinja_list_new(rd->r, 0);
    struct jinja_dict *d = object ? jinja_dict_new(rd->r) : NULL;
    jr_open(&rd->json, object ? '{' : '[');
    while (jr_more(&rd->json, object ? '}' : ']') > 0) {
        struct jinja_value key = object ? read_key(rd) : jinja_none();
        struct jinja_value value = read_value(rd, depth + 1);
        if (object)
            jinja_dict_put(rd->r, d, key, value);
        else
            jinja_list_add(rd->r, l, value);
    }
    return object ? jinja_from_dict(d) : jinja_from_list(l);
}

/* Lists and dicts from the request are marked too: their brackets, printed, are its text. */
static struct jinja_value read_value(struct reader *rd, int depth)
{
    const char *text;
    size_t len;
    check(rd);
    jinja_spend(rd->r, 1);
    if (depth > JINJA_MAX_VALUE_DEPTH) fail_at(rd, "too deeply nested");
    char first = jr_peek(&rd->json);
    bool input = rd->origin == JINJA_INPUT;
    if (first == '[' || first == '{')
        return jinja_tainted(read_items(rd, first == '{', depth), input);
    jr_scalar(&rd->json, &text, &len);
    check(rd);
    switch (first) {
    case '"': return jinja_from_str(jinja_str_new(rd->r, text, len, rd->origin));
    case 't':
    case 'f': return jinja_tainted(jinja_bool(first == 't'), input);
    case 'n': return jinja_tainted(jinja_none(), input);
    default: return jinja_tainted(take_number(rd, text, len), input);
    }
}

static void read_all(struct jinja_run *r, void *arg)
{
    struct reader *rd = arg;
    rd->value = read_value(rd, 0);
    jr_end(&rd->json);
    check(rd);
    /* an escape costs a step, so that a text of nothing else is paid for */
    uint64_t n_escapes = 0;
    const char *p = rd->json.text, *end = p + rd->json.len;
    for (; (p = memchr(p, '\\', (size_t)(end - p))); p += 2)
        n_escapes++;
    jinja_spend(r, n_escapes);
}

/* Guarded, because the JSON reader holds memory of its own. */
struct jinja_value jinja_json_parse(struct jinja_run *r, const char *text, size_t len,
                                    uint8_t origin, const char *what)
{
    struct reader rd = {.r = r, .origin = origin, .what = what};
    if (!utf8_valid(text, len)) jinja_raise(r, "%s is not valid UTF-8", what);
    jr_init(&rd.json, text, len, JR_NUL | JR_CONSTANTS, rd.err, sizeof(rd.err));
    rd.json.max_depth = JINJA_MAX_VALUE_DEPTH + 1;
    int rc = jinja_guard(r, read_all, &rd);
    jr_finish(&rd.json);
    if (rc) jinja_fail_again(r);
    return rd.value;
}

/* ---- writing ------------------------------------------------------------------------------- */

struct writer {
    struct jinja_sb sb;
    const struct jinja_json_style *style;
};

static void write_value(struct writer *w, struct jinja_value v, int depth);

static void add(struct writer *w, struct jinja_value v, const char *text)
{
    jinja_sb_add_bytes(&w->sb, text, strlen(text), v.input ? JINJA_INPUT : JINJA_TRUSTED);
}

/* A separator or an indent: the template's text, but input where the value is. */
static void add_style(struct writer *w, struct jinja_value v, const struct jinja_str *text)
{
    jinja_sb_add(&w->sb, v.input ? jinja_str_tainted(w->sb.r, text) : text);
}

/* A character that is not copied; as UTF-16, two escapes where it takes two. */
static void write_char(struct jinja_sb *sb, int32_t cp, char quote, uint8_t origin)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char *p = cp > 0 && cp < 0x80 ? strchr(from, (char)cp) : NULL;
    unsigned high = 0xD800 + ((unsigned)(cp - 0x10000) >> 10);
    unsigned low = 0xDC00 + ((unsigned)(cp - 0x10000) & 0x3FF);
    char buf[32] = {'\\', p ? to[p - from] : 'u'};
    (void)quote;
    if (cp > 0xFFFF)
        snprintf(buf, sizeof(buf), "\\u%04x\\u%04x", high, low);
    else if (!p)
        snprintf(buf, sizeof(buf), "\\u%04x", (unsigned)cp);
    jinja_sb_add_bytes(sb, buf, strlen(buf), origin);
}

static void write_string(struct writer *w, const struct jinja_str *s)
{
    jinja_sb_add_quoted(&w->sb, s, '"', w->style->ensure_ascii, write_char);
}

/* As repr() has them, but for the three that have other names in JavaScript. */
static void write_number(struct writer *w, struct jinja_value v)
{
    if (jinja_is(v, JINJA_FLOAT) && !isfinite(v.u.d))
        add(w, v, isnan(v.u.d) ? "NaN" : v.u.d < 0 ? "-Infinity" : "Infinity");
    else
        jinja_print(&w->sb, v);
}

/* With an indent every element has its own line, also with an empty indent. */
static void new_line(struct writer *w, struct jinja_value v, int depth)
{
    if (!w->style->indent) return;
    add(w, v, "\n");
    for (int i = 0; i < depth; i++)
        add_style(w, v, w->style->indent);
}

/* Keys that are not strings are written as the strings Python makes of them. */
static void write_key(struct writer *w, struct jinja_value key)
{
    if (jinja_is(key, JINJA_STR)) {
        write_string(w, key.u.str);
        return;
    }
    if (!jinja_is_number(key) && !jinja_is(key, JINJA_NONE))
        jinja_raise(w->sb.r, "keys must be str, int, float, bool or None, not %s",
                    jinja_type_name(key));
    add(w, key, "\"");
    write_value(w, key, 0);
    add(w, key, "\"");
}

/* The dict's pairs, sorted by key where the style wants it. */
static const struct jinja_pair *ordered_pairs(struct writer *w, const struct jinja_dict *d)
{
    if (!w->style->sort_keys || d->n < 2) return d->pairs;
    struct jinja_run *r = w->sb.r;
    struct jinja_value *keys = JINJA_NEW_N(r, d->n, struct jinja_value);
    struct jinja_value *values = JINJA_NEW_N(r, d->n, struct jinja_value);
    for (size_t i = 0; i < d->n; i++) {
        keys[i] = d->pairs[i].key;
        values[i] = d->pairs[i].value;
    }
    jinja_sort(r, keys, values, d->n);
    struct jinja_pair *pairs = JINJA_NEW_N(r, d->n, struct jinja_pair);
    for (size_t i = 0; i < d->n; i++)
        pairs[i] = (struct jinja_pair){.key = keys[i], .value = values[i]};
    return pairs;
}

static void write_items(struct writer *w, struct jinja_value v, int depth)
{
    bool dict = jinja_is(v, JINJA_DICT);
    const struct jinja_pair *pairs = dict ? ordered_pairs(w, v.u.dict) : NULL;
    size_t n = dict ? v.u.dict->n : v.u.list->n;
    add(w, v, dict ? "{" : "[");
    for (size_t i = 0; i < n; i++) {
        if (i) add_style(w, v, w->style->item_sep);
        new_line(w, v, depth + 1);
        if (dict) {
            write_key(w, pairs[i].key);
            add_style(w, v, w->style->key_sep);
        }
        write_value(w, dict ? pairs[i].value : v.u.list->items[i], depth + 1);
    }
    if (n) new_line(w, v, depth);
    add(w, v, dict ? "}" : "]");
}

static void write_value(struct writer *w, struct jinja_value v, int depth)
{
    jinja_check_depth(w->sb.r, depth);
    switch (v.type) {
    case JINJA_NONE: add(w, v, "null"); break;
    case JINJA_BOOL: add(w, v, v.u.i ? "true" : "false"); break;
    case JINJA_INT:
    case JINJA_BIG:
    case JINJA_FLOAT: write_number(w, v); break;
    case JINJA_STR: write_string(w, v.u.str); break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT: write_items(w, v, depth); break;
    default: jinja_raise(w->sb.r, "Object of type %s is not JSON serializable", jinja_type_name(v));
    }
}

struct jinja_value jinja_json_dumps(struct jinja_run *r, struct jinja_value v,
                                    const struct jinja_json_style *style)
{
    struct writer w = {.style = style, .sb = {.r = r}};
    write_value(&w, v, 0);
    return jinja_sb_value(&w.sb);
}
