/* SPDX-License-Identifier: MIT */
/*
 * The functions every template has: range, dict, namespace, and what transformers
 * adds, raise_exception and strftime_now.
 */
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "tokenizer/template/dict.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/print.h"

enum {
    MAX_RANGE = 100000, /* the sandbox's own limit */
    TIME_BYTES = 512,   /* mostly enough */
    MAX_TIME_BYTES = 64 * 1024,
};

JINJA_FN(make_range)
{
    bool one = jinja_is(a[1], JINJA_MISSING);
    struct jinja_range *range = JINJA_NEW(r, struct jinja_range);
    for (size_t i = 0; i < 3; i++)
        if (jinja_is(a[i], JINJA_BIG)) jinja_raise(r, "range of integers beyond 64 bits");
    range->start = one ? 0 : jinja_to_index(r, a[0]);
    range->stop = jinja_to_index(r, one ? a[0] : a[1]);
    range->step = jinja_to_index(r, jinja_or(a[2], jinja_int(1)));
    if (range->step == 0) jinja_raise(r, "range() arg 3 must not be zero");
    bool up = range->step > 0;
    if (up ? range->start < range->stop : range->start > range->stop) {
        uint64_t distance = up ? (uint64_t)range->stop - (uint64_t)range->start
                               : (uint64_t)range->start - (uint64_t)range->stop;
        uint64_t step = up ? (uint64_t)range->step : 0 - (uint64_t)range->step;
        uint64_t n = (distance - 1) / step + 1;
        if (n > MAX_RANGE)
            jinja_raise(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                        MAX_RANGE);
        range->n = (int64_t)n;
    }
    return (struct jinja_value){.type = JINJA_RANGE, .u.range = range};
}

/* dict(mapping, **kwargs) */
static struct jinja_dict *new_dict(struct jinja_run *r, const struct jinja_args *args)
{
    struct jinja_dict *d = jinja_dict_new(r);
    if (args->n_pos > 1) jinja_raise(r, "dict expected at most 1 argument, got %zu", args->n_pos);
    if (args->n_pos && !jinja_is(args->pos[0], JINJA_DICT))
        jinja_raise(r, "a dict of pairs is not supported in chat templates");
    if (args->n_pos) jinja_dict_add_all(r, d, args->pos[0].u.dict);
    for (size_t i = 0; i < args->n_kw; i++)
        jinja_dict_put(r, d, jinja_from_str(args->keys[i]), args->kw[i]);
    return d;
}

JINJA_FN(make_dict)
{
    return jinja_from_dict(new_dict(r, args));
}

JINJA_FN(make_namespace)
{
    return (struct jinja_value){.type = JINJA_NAMESPACE, .u.dict = new_dict(r, args)};
}

JINJA_FN(raise_exception)
{
    const struct jinja_str *s = jinja_to_str(r, a[0]);
    jinja_fail(r, JINJA_ERAISE, "%.*s", s->len > JINJA_ERR_BYTES ? JINJA_ERR_BYTES : (int)s->len,
               s->s);
}

/* %f, %z and %Z as of a naive datetime; the rest is the C library's. */
static const char *python_format(struct jinja_run *r, const struct jinja_str *format)
{
    struct jinja_sb sb = {.r = r};
    for (size_t i = 0; i < format->len; i++) {
        char c = format->s[i], next = i + 1 < format->len ? format->s[i + 1] : '\0';
        if (c != '%' || next == '\0') {
            jinja_sb_add_part(&sb, format, i, 1);
            continue;
        }
        i++;
        if (next == 'f')
            jinja_sb_add_lit(&sb, "000000");
        else if (next != 'z' && next != 'Z')
            jinja_sb_add_part(&sb, format, i - 1, 2);
    }
    jinja_sb_add_lit(&sb, "."); /* so that an empty result and a short buffer can be told apart */
    return jinja_copy(r, sb.data, sb.len);
}

JINJA_FN(strftime_now)
{
    const struct jinja_str *format = jinja_need_str(r, a[0], "strftime_now() argument");
    if (memchr(format->s, '\0', format->len)) jinja_raise(r, "embedded null character");
    const char *fmt = python_format(r, format);
    char *text = NULL;
    size_t n = 0;
    for (size_t size = TIME_BYTES; n == 0 && size <= MAX_TIME_BYTES; size *= 128) {
        jinja_spend_chars(r, size);
        text = jinja_alloc(r, size, 1);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        n = strftime(text, size, fmt, r->now);
#pragma GCC diagnostic pop
    }
    if (n == 0) jinja_raise(r, "strftime_now() gives more than %d bytes", MAX_TIME_BYTES);
    if (!utf8_valid(text, n - 1)) jinja_raise(r, "strftime_now() gives no valid text");
    bool input = (format->origin & JINJA_INPUT) != 0;
    return jinja_from_str(jinja_str_new(r, text, n - 1, input ? JINJA_INPUT : JINJA_TRUSTED));
}

static const struct jinja_function builtins[] = {
    {"range", make_range, {"start stop step", 1}},
    {"dict", make_dict, {NULL, 0}},
    {"namespace", make_namespace, {NULL, 0}},
    {"raise_exception", raise_exception, {"message", 1}},
    {"strftime_now", strftime_now, {"format", 1}},
};

void jinja_add_globals(struct jinja_run *r, struct jinja_dict *context)
{
    for (size_t i = 0; i < sizeof(builtins) / sizeof(builtins[0]); i++) {
        if (jinja_dict_get_name(r, context, builtins[i].name)) continue;
        jinja_dict_put_name(r, context, builtins[i].name,
                            (struct jinja_value){.type = JINJA_BUILTIN, .u.builtin = &builtins[i]});
    }
}
