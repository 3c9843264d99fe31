/* SPDX-License-Identifier: MIT */
/*
 * References inside a document. A resource is a schema with an identifier; URIs are resolved
 * against the resource around (RFC 3986, section 5). Nothing outside the document is looked for.
 */
#include <string.h>

#include "base/hex.h"
#include "tokenizer/grammar/schema/goals.h"

/* An identified schema, or an anchor in one. */
struct gram_resource {
    struct gram_resource *next;
    const char *uri; /* without fragment */
    uint32_t len;
    const char *anchor; /* NULL: the resource itself */
    uint32_t anchor_len;
    struct gram_js *schema;
};

struct span {
    const char *s;
    size_t n;
};

/* ---- URIs ---------------------------------------------------------------------------------- */

static size_t scheme_length(struct span u)
{
    for (size_t i = 0; i < u.n; i++) {
        char c = u.s[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (c == ':' && i > 0) return i + 1;
        if (!letter && (i == 0 || !((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.')))
            return 0;
    }
    return 0;
}

/* "scheme://authority", or as much of it as there is. */
static size_t authority_length(struct span u)
{
    size_t n = scheme_length(u);
    if (u.n - n < 2 || u.s[n] != '/' || u.s[n + 1] != '/') return n;
    for (n += 2; n < u.n && u.s[n] != '/' && u.s[n] != '?'; n++)
        ;
    return n;
}

/* Takes "." and ".." out of the path that begins at `from`. */
static size_t remove_dots(char *s, size_t from, size_t n)
{
    size_t out = from;
    for (size_t i = from; i < n;) {
        size_t end = i + 1; /* a segment with its slash */
        while (end < n && s[end] != '/')
            end++;
        bool last = end == n;
        size_t name = i + (s[i] == '/'), len = end - name;
        if (len == 1 && s[name] == '.') {
            if (last && s[i] == '/') s[out++] = '/';
        } else if (len == 2 && s[name] == '.' && s[name + 1] == '.') {
            while (out > from && s[--out] != '/')
                ;
            if (last) s[out++] = '/';
        } else {
            memmove(s + out, s + i, end - i);
            out += end - i;
        }
        i = end;
    }
    return out;
}

/* The URI that ref means inside base; neither has a fragment. */
static struct span resolve_uri(struct gram_build *b, struct span base, struct span ref)
{
    size_t keep = base.n, path;
    if (scheme_length(ref)) return ref;
    if (ref.n == 0) return base;
    path = authority_length(base);
    if (ref.n >= 2 && ref.s[0] == '/' && ref.s[1] == '/')
        keep = scheme_length(base);
    else if (ref.s[0] == '/')
        keep = path;
    else
        while (keep > path && base.s[keep - 1] != '/')
            keep--;
    char *s = gram_temp(b, keep + ref.n + 2);
    memcpy(s, base.s, keep);
    size_t n = keep;
    if (keep == path && path > scheme_length(base) && ref.s[0] != '/') s[n++] = '/';
    memcpy(s + n, ref.s, ref.n);
    n += ref.n;
    size_t from = authority_length((struct span){s, n});
    return (struct span){s, remove_dots(s, from, n)};
}

static struct span without_fragment(const struct gram_js *v, struct span *ret_fragment)
{
    const char *hash = memchr(v->text, '#', v->len);
    size_t n = hash ? (size_t)(hash - v->text) : v->len;
    *ret_fragment = (struct span){NULL, 0};
    if (hash) *ret_fragment = (struct span){hash + 1, v->len - n - 1};
    return (struct span){v->text, n};
}

/* ---- resources ----------------------------------------------------------------------------- */

static void add_resource(struct gram_build *b, struct span uri, struct span anchor,
                         struct gram_js *schema)
{
    struct gram_resource *r = gram_temp(b, sizeof(*r));
    *r = (struct gram_resource){b->schema->resources, uri.s, (uint32_t)uri.n, anchor.s,
                                (uint32_t)anchor.n,   schema};
    b->schema->resources = r;
}

static struct gram_js *identifier_of(const struct gram_build *b, const struct gram_js *s)
{
    struct gram_js *id = gram_js_get(s, "$id");
    if ((!id || id->type != GRAM_JS_STRING) && b->schema->draft <= 4) id = gram_js_get(s, "id");
    if ((!id || id->type != GRAM_JS_STRING) && !gram_js_get(b->schema->root, "$schema"))
        id = gram_js_get(s, "id");
    if (!b->schema->siblings && gram_js_get(s, "$ref")) return NULL;
    return id && id->type == GRAM_JS_STRING ? id : NULL;
}

static void walk_schema(struct gram_build *b, struct gram_js *s, struct span base)
{
    struct span fragment, none = {NULL, 0};
    gram_steps(b, 1);
    if (s->type != GRAM_JS_OBJECT) return;
    struct gram_js *id = identifier_of(b, s);
    if (id) {
        struct span uri = without_fragment(id, &fragment);
        if (uri.n) {
            base = resolve_uri(b, base, uri);
            add_resource(b, base, none, s);
            s->marks |= GRAM_MARK_RESOURCE;
        }
        if (fragment.n) add_resource(b, base, fragment, s);
    }
    static const char *const anchors[] = {"$anchor", "$dynamicAnchor"};
    for (int i = 0; i < 2; i++) {
        const struct gram_js *a = gram_js_get(s, anchors[i]);
        if (a && a->type == GRAM_JS_STRING)
            add_resource(b, base, (struct span){a->text, a->len}, s);
    }
    for (struct gram_js *v = s->child; v; v = v->next) {
        int schemas = gram_kw_schemas(b, v);
        if (gram_js_key_is(v, "$defs") || gram_js_key_is(v, "definitions")) schemas = 2;
        if (schemas == 1) walk_schema(b, v, base);
        for (struct gram_js *inner = schemas == 2 ? v->child : NULL; inner; inner = inner->next)
            walk_schema(b, inner, base);
    }
}

void gram_find_resources(struct gram_build *b)
{
    struct span none = {"", 0}, no_anchor = {NULL, 0};
    walk_schema(b, b->schema->root, none);
    if (!(b->schema->root->marks & GRAM_MARK_RESOURCE)) {
        add_resource(b, none, no_anchor, b->schema->root);
        b->schema->root->marks |= GRAM_MARK_RESOURCE;
    }
}

/* ---- references ---------------------------------------------------------------------------- */

_Noreturn static void not_here(struct gram_build *b, struct gram_js *ref)
{
    gram_leave_out(b, ref, "$ref",
                   "%s is not inside this schema; only local references are supported.",
                   gram_quote(b, ref->text, ref->len));
}

_Noreturn static void not_found(struct gram_build *b, const struct gram_js *ref)
{
    gram_fail_at(b, ref, "$ref", "%s is not found.", gram_quote(b, ref->text, ref->len));
}

static const struct gram_resource *find_resource(struct gram_build *b, struct span uri,
                                                 struct span anchor)
{
    uint32_t n = 0;
    for (const struct gram_resource *r = b->schema->resources; r; r = r->next) {
        if (++n % 16 == 0) gram_steps(b, 1);
        if (r->len != uri.n || memcmp(r->uri, uri.s, uri.n) != 0) continue;
        if (!anchor.s != !r->anchor || r->anchor_len != anchor.n) continue;
        if (anchor.s && memcmp(r->anchor, anchor.s, anchor.n) != 0) continue;
        return r;
    }
    return NULL;
}

/* The URI of the resource that a value of the document lies in. */
static struct span base_of(struct gram_build *b, const struct gram_js *v)
{
    uint32_t n = 0;
    while (v->parent && !(v->marks & GRAM_MARK_RESOURCE))
        v = v->parent;
    for (const struct gram_resource *r = b->schema->resources; r; r = r->next) {
        if (++n % 16 == 0) gram_steps(b, 1);
        if (r->schema == v && !r->anchor) return (struct span){r->uri, r->len};
    }
    return (struct span){"", 0};
}

/* %XX decoded. */
static struct span percent_decode(struct gram_build *b, struct span s)
{
    char *out = gram_temp(b, s.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        bool escape = s.s[i] == '%' && i + 2 < s.n && hex_value(s.s[i + 1]) >= 0 &&
                      hex_value(s.s[i + 2]) >= 0;
        out[n++] = escape ? (char)(hex_value(s.s[i + 1]) * 16 + hex_value(s.s[i + 2])) : s.s[i];
        i += escape ? 2 : 0;
    }
    return (struct span){out, n};
}

/* One token of a pointer, with ~0 and ~1 decoded in place of out. */
static size_t read_token(struct span p, size_t *at, char *out)
{
    size_t n = 0;
    for (; *at < p.n && p.s[*at] != '/'; ++*at) {
        bool escape =
            p.s[*at] == '~' && *at + 1 < p.n && (p.s[*at + 1] == '0' || p.s[*at + 1] == '1');
        out[n++] = escape ? (p.s[*at + 1] == '0' ? '~' : '/') : p.s[*at];
        *at += escape;
    }
    return n;
}

static struct gram_js *element(struct gram_build *b, const struct gram_js *array,
                               const char *digits, size_t n)
{
    uint32_t i = 0;
    for (size_t k = 0; k < n; k++) {
        if (digits[k] < '0' || digits[k] > '9' || i > array->n) return NULL;
        i = i * 10 + (uint32_t)(digits[k] - '0');
    }
    gram_steps(b, (i < array->n ? i : array->n) / 32);
    struct gram_js *v = n ? array->child : NULL;
    while (v && i-- > 0)
        v = v->next;
    return v;
}

static struct gram_js *follow_pointer(struct gram_build *b, struct gram_js *v, struct span pointer)
{
    char *token = gram_temp(b, pointer.n + 1);
    for (size_t at = 0; v && at < pointer.n;) {
        at++; /* the slash */
        size_t n = read_token(pointer, &at, token);
        gram_steps(b, 1);
        v = v->type == GRAM_JS_ARRAY ? element(b, v, token, n) : gram_js_get_n(v, token, n);
    }
    return v;
}

static struct gram_js *resolve(struct gram_build *b, struct gram_js *ref)
{
    struct span fragment, none = {NULL, 0};
    gram_check_keyword(b, GRAM_KW_REF, ref);
    struct span uri = without_fragment(ref, &fragment);
    uri = resolve_uri(b, base_of(b, ref), uri);
    const struct gram_resource *r = find_resource(b, uri, none);
    if (!r) not_here(b, ref);
    if (fragment.n == 0) return r->schema;
    fragment = percent_decode(b, fragment);
    if (fragment.s[0] != '/') {
        const struct gram_resource *a = find_resource(b, uri, fragment);
        if (!a) not_found(b, ref);
        return a->schema;
    }
    struct gram_js *v = follow_pointer(b, r->schema, fragment);
    if (!v && uri.n)
        v = follow_pointer(b, b->schema->root, fragment); /* an id that means nothing */
    if (!v) not_found(b, ref);
    return v;
}

struct gram_js gram_anything = {.type = GRAM_JS_TRUE};

struct gram_js *gram_resolve(struct gram_build *b, struct gram_js *ref)
{
    if (ref->keyword == GRAM_KW_LEFT_OUT) return &gram_anything;
    if (!ref->stands_for) ref->stands_for = resolve(b, ref);
    return ref->stands_for;
}
