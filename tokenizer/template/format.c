/* SPDX-License-Identifier: MIT */
/*
 * The method format of strings, with its plain fields {}, {0} and {name}.
 */
#include <string.h>

#include "tokenizer/template/library.h"
#include "tokenizer/template/print.h"

/* {} counts by itself, {0} counts for itself: a format must not mix the two. */
struct formatter {
    struct jinja_run *r;
    const struct jinja_args *args; /* NULL: only looks whether the fields are known */
    size_t next;                   /* argument of "{}" */
    bool automatic, manual;        /* numbering seen so far */
};

static struct jinja_value positional(struct formatter *f, size_t n)
{
    if (n >= f->args->n_pos)
        jinja_raise(f->r, "Replacement index %zu out of range for positional args tuple", n);
    return f->args->pos[n];
}

/* An index is short: longer digits are a name. */
static struct jinja_value field_value(struct formatter *f, const struct jinja_str *name)
{
    size_t n = 0;
    bool index = jinja_str_is_digits(name) && name->len < 10;
    f->automatic = f->automatic || name->len == 0;
    f->manual = f->manual || index;
    if (f->automatic && f->manual)
        jinja_raise(f->r, "cannot switch between automatic and manual field numbering");
    if (name->len == 0) return positional(f, f->next++);
    for (size_t i = 0; index && i < name->len; i++)
        n = n * 10 + (size_t)(name->s[i] - '0');
    if (index) return positional(f, n);
    for (size_t i = 0; i < f->args->n_kw; i++)
        if (jinja_str_equal(f->args->keys[i], name)) return f->args->kw[i];
    jinja_raise(f->r, "format key '%.*s' is missing", (int)name->len, name->s);
}

/* The field from its '{' at `at`; returns where its '}' is. */
static size_t add_format_field(struct formatter *f, struct jinja_sb *out,
                               const struct jinja_str *format, size_t at)
{
    const char *name = format->s + at + 1, *close = memchr(name, '}', format->len - at - 1);
    if (!close) jinja_raise(f->r, "expected '}' before end of string");
    size_t len = (size_t)(close - name);
    for (size_t i = 0; i < len; i++)
        if (strchr(".[!:{", name[i]) && name[i])
            jinja_raise(
                f->r,
                "the format field '{%.*s}' is not supported in chat templates, only {}, {0} "
                "and {name} are",
                (int)len, name);
    if (f->args) {
        struct jinja_value v = field_value(f, jinja_str_part(f->r, format, at + 1, len));
        const struct jinja_str *text = jinja_to_str(f->r, v);
        jinja_sb_add(out, format->markup ? jinja_str_escape(f->r, text) : text);
    }
    return at + 1 + len;
}

static struct jinja_value expand(struct formatter *f, const struct jinja_str *format)
{
    struct jinja_sb out = {.r = f->r};
    jinja_spend_chars(f->r, format->len);
    for (size_t at = 0; at < format->len; at++) {
        char c = format->s[at];
        bool brace = c == '{' || c == '}';
        if (!brace || (at + 1 < format->len && format->s[at + 1] == c)) {
            jinja_sb_add_part(&out, format, at, 1);
            at += brace;
        } else if (c == '}') {
            jinja_raise(f->r, "Single '}' encountered in format string");
        } else {
            at = add_format_field(f, &out, format, at);
        }
    }
    return jinja_sb_value_like(&out, format);
}

struct jinja_value jinja_format(struct jinja_run *r, const struct jinja_str *format,
                                const struct jinja_args *args)
{
    struct formatter f = {.r = r, .args = args};
    return expand(&f, format);
}

void jinja_check_format(struct jinja_run *r, const struct jinja_str *format)
{
    struct formatter f = {.r = r};
    expand(&f, format);
}
