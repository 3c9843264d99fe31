/* SPDX-License-Identifier: MIT */
/*
 * Undefined values; see value.h.
 */
#include "tokenizer/template/value.h"

static struct jinja_value new_undefined(struct jinja_run *r, const char *hint, const char *name,
                                        const char *owner)
{
    struct jinja_undefined *u = JINJA_NEW(r, struct jinja_undefined);
    *u = (struct jinja_undefined){.hint = hint, .name = name, .owner = owner};
    return (struct jinja_value){.type = JINJA_UNDEFINED, .u.undefined = u};
}

struct jinja_value jinja_undefined_name(struct jinja_run *r, const char *name)
{
    return new_undefined(r, NULL, name, NULL);
}

struct jinja_value jinja_undefined_attr(struct jinja_run *r, struct jinja_value owner,
                                        const struct jinja_str *name)
{
    return new_undefined(r, NULL, jinja_copy(r, name->s, name->len), jinja_object_name(owner));
}

struct jinja_value jinja_undefined_hint(struct jinja_run *r, const char *hint)
{
    return new_undefined(r, hint, NULL, NULL);
}

void jinja_fail_undefined(struct jinja_run *r, struct jinja_value v)
{
    const struct jinja_undefined *u = v.u.undefined;
    if (u->hint) jinja_raise(r, "%s", u->hint);
    if (u->owner) jinja_raise(r, "'%s' has no attribute '%s'", u->owner, u->name);
    jinja_raise(r, "'%s' is undefined", u->name);
}
