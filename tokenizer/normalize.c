/* SPDX-License-Identifier: MIT */
/*
 * A step reads a view (bytes and their origins) and either finds that it changes nothing, or writes
 * the buffer that the view does not lie in. Most steps change nothing on most text, and then no
 * byte is copied.
 */
#include "tokenizer/normalize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/json_component.h"
#include "tokenizer/tok_types.h"
#include "tokenizer/unicode_forms.h"

enum {
    PROBE_BYTES = 64 << 10, /* of a repeated pattern: the base of the bound counts little then */
    TOO_LONG = 1,           /* a buffer's limit is reached */
};

enum norm_kind {
    NORM_FORM,
    NORM_LOWERCASE,
    NORM_CLEAN, /* BertNormalizer's first half */
    NORM_MARKS, /* accents vanish */
    NORM_STRIP,
    NORM_REPLACE,
    NORM_PREPEND,
    NORM_CHARSMAP,
};

struct tok_norm_step {
    enum norm_kind kind;
    bool compose, compat;              /* NORM_FORM */
    bool clean, spread_han;            /* NORM_CLEAN */
    bool left, right;                  /* NORM_STRIP */
    struct tok_component_text content; /* NORM_REPLACE, NORM_PREPEND */
    struct tok_component_pattern what; /* NORM_REPLACE */
    struct tok_charsmap *map;          /* NORM_CHARSMAP */
};

/* Input of a step. origin NULL: part of the text as it came, whose first byte is at base. */
struct view {
    const char *bytes;
    const uint32_t *origin;
    size_t len;
    uint32_t base;
    int buffer; /* which of the work's two buffers holds it, or -1 */
};

struct norm_run {
    const struct tok_normalizer *n;
    struct tok_work *w;
    uint32_t base; /* origin of the text's first byte */
};

/* ---- loading ------------------------------------------------------------------------------- */

static void finish_step(struct tok_norm_step *step)
{
    tok_component_text_finish(&step->content);
    tok_component_pattern_finish(&step->what);
    tok_charsmap_destroy(step->map);
}

static int add_step(struct tok_normalizer *n, struct tok_norm_step step)
{
    struct tok_norm_step *p = realloc(n->steps, (n->n_steps + 1) * sizeof(*p));
    if (p) n->steps = p;
    if (p) n->steps[n->n_steps++] = step;
    return p ? 0 : TOK_ENOMEM;
}

static int load_bert(struct tok_normalizer *n, struct tok_component *c)
{
    struct tok_norm_step clean = {.kind = NORM_CLEAN};
    clean.clean = tok_member_bool(c, "clean_text");
    clean.spread_han = tok_member_bool(c, "handle_chinese_chars");
    bool lower = tok_member_bool(c, "lowercase");
    bool strip = tok_member_bool_or(c, "strip_accents", lower);
    int rc = add_step(n, clean);
    if (!rc && strip) rc = add_step(n, (struct tok_norm_step){.kind = NORM_FORM});
    if (!rc && strip) rc = add_step(n, (struct tok_norm_step){.kind = NORM_MARKS});
    if (!rc && lower) rc = add_step(n, (struct tok_norm_step){.kind = NORM_LOWERCASE});
    return rc;
}

/* Callback of tok_component_visit for one component that is not a Sequence. */
static int load_step(void *data, const char *type, struct tok_component *c)
{
    static const char *const names[] = {"NFD",   "NFC",     "NFKD",        "NFKC",     "Replace",
                                        "Strip", "Prepend", "Precompiled", "Lowercase"};
    static const enum norm_kind kinds[] = {NORM_FORM,    NORM_FORM,     NORM_FORM,
                                           NORM_FORM,    NORM_REPLACE,  NORM_STRIP,
                                           NORM_PREPEND, NORM_CHARSMAP, NORM_LOWERCASE};
    size_t i = 0;
    if (strcmp(type, "BertNormalizer") == 0) return load_bert(data, c);
    while (i < sizeof(names) / sizeof(names[0]) && strcmp(type, names[i]) != 0)
        i++;
    if (i == sizeof(names) / sizeof(names[0])) return tok_component_unknown(c, "normalizer", type);
    struct tok_norm_step step = {.kind = kinds[i], .compose = i & 1, .compat = i & 2};
    if (step.kind == NORM_STRIP) {
        step.left = tok_member_bool(c, "strip_left");
        step.right = tok_member_bool(c, "strip_right");
    } else if (step.kind == NORM_REPLACE) {
        step.content = tok_member_text(c, "content");
        step.what = tok_member_pattern(c);
    } else if (step.kind == NORM_PREPEND) {
        step.content = tok_member_text(c, "prepend");
    } else if (step.kind == NORM_CHARSMAP) {
        c->rc = tok_charsmap_load(&step.map, c->json, c->err, c->errlen);
    }
    int rc = add_step(data, step);
    if (rc) finish_step(&step);
    return rc;
}

/* Normalizes a pattern repeated. TOK_EINVAL when the steps make too much of it. */
static int probe(const struct tok_normalizer *n, const struct tok_component_text *pattern,
                 char *err, size_t errlen)
{
    size_t times = pattern->len < PROBE_BYTES ? PROBE_BYTES / pattern->len : 1;
    size_t len = pattern->len * times;
    AUTO(tok_work_finish) struct tok_work work;
    AUTO_FREE char *text = malloc(len);
    char shown[48];
    const char *s;
    const uint32_t *origin;
    tok_work_init(&work, len, err, errlen);
    if (!text) return TOK_ENOMEM;
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * pattern->len, pattern->s, pattern->len);
    int rc = tok_normalize(n, &work, text, len, 0, &s, &len, &origin);
    if (rc != TOK_ELIMIT) return rc;
    return fail_with(
        TOK_EINVAL, err, errlen, "\"%s\", repeated, grows to more than %d times its length",
        shown_text(shown, sizeof(shown), pattern->s, pattern->len), TOK_GROWTH_PER_BYTE);
}

int tok_normalizer_load(struct tok_normalizer *n, const struct tok_uni *uni, const json_t *json,
                        char *err, size_t errlen)
{
    n->uni = uni;
    int rc = tok_component_visit("normalizer", "normalizers", json, uni, load_step, n, err, errlen);
    for (size_t i = 0; i < n->n_steps && !rc; i++) {
        const struct tok_component_text *literal = &n->steps[i].what.literal;
        if (literal->s && n->steps[i].content.len > literal->len)
            rc = probe(n, literal, err, errlen);
    }
    return rc;
}

void tok_normalizer_finish(struct tok_normalizer *n)
{
    for (size_t i = 0; i < n->n_steps; i++)
        finish_step(&n->steps[i]);
    free(n->steps);
    *n = (struct tok_normalizer){0};
}

void tok_work_init(struct tok_work *w, size_t text_len, char *err, size_t errlen)
{
    *w = (struct tok_work){.growth = tok_growth(text_len), .err = err, .errlen = errlen};
    tok_regex_scratch_init(&w->regex, text_len);
}

void tok_work_finish(struct tok_work *w)
{
    for (int i = 0; i < 2; i++) {
        free(w->text[i].bytes);
        free(w->text[i].origin);
    }
    for (size_t i = 0; i < sizeof(w->pieces) / sizeof(w->pieces[0]); i++)
        free(w->pieces[i].s);
    tok_norm_chars_destroy(w->chars);
    tok_regex_scratch_finish(&w->regex);
}

/* ---- buffers ------------------------------------------------------------------------------- */

/* Room for n more bytes; TOO_LONG above the buffer's limit. */
static int reserve(struct tok_norm_text *t, size_t n)
{
    size_t need = t->len + n, cap = t->cap ? t->cap : 256;
    if (need > t->max) return TOO_LONG;
    if (need <= t->cap) return 0;
    while (cap < need)
        cap *= 2;
    char *bytes = realloc(t->bytes, cap);
    if (!bytes) return TOK_ENOMEM;
    t->bytes = bytes;
    uint32_t *origin = realloc(t->origin, cap * sizeof(*origin));
    if (!origin) return TOK_ENOMEM;
    t->origin = origin;
    t->cap = cap;
    return 0;
}

/* Origin of byte i: that of the character it belongs to. */
static uint32_t origin_at(const struct view *v, size_t i)
{
    if (v->origin) return v->origin[i];
    while (i > 0 && ((unsigned char)v->bytes[i] & 0xC0) == 0x80)
        i--;
    return v->base + (uint32_t)i;
}

/* A step on its way over a view. */
struct edit {
    struct norm_run *run;
    struct view *v;
    struct tok_norm_text *t; /* NULL: nothing was changed */
    size_t done;             /* bytes of the view */
    int rc;                  /* of the first failure, after which nothing is put */
};

/* Appends bytes that share one origin. */
static void put(struct edit *e, const char *s, size_t len, uint32_t origin)
{
    struct tok_norm_text *t = e->t;
    if (!e->rc) e->rc = reserve(t, len);
    if (e->rc) return;
    if (len) memcpy(t->bytes + t->len, s, len);
    for (size_t i = 0; i < len; i++)
        t->origin[t->len + i] = origin;
    t->len += len;
}

static void put_code_point(struct edit *e, uint32_t cp, uint32_t origin)
{
    char utf8[4];
    put(e, utf8, utf8_put(utf8, cp), origin);
}

/* Copies up to `begin`; what is put next comes in place of [begin, end), whole characters. */
static void replace(struct edit *e, size_t begin, size_t end)
{
    const struct view *v = e->v;
    size_t from = e->done, n = begin - from;
    if (!e->t) { /* the buffer that the view does not lie in */
        e->t = &e->run->w->text[v->buffer == 0];
        e->t->len = 0;
        e->t->max = SIZE_MAX;
        e->rc = reserve(e->t, v->len + 1);
        e->t->max = v->len + e->run->w->growth.left;
    }
    struct tok_norm_text *t = e->t;
    e->done = end;
    if (!e->rc) e->rc = reserve(t, n);
    if (e->rc || n == 0) return;
    memcpy(t->bytes + t->len, v->bytes + from, n);
    if (v->origin) {
        memcpy(t->origin + t->len, v->origin + from, n * sizeof(*t->origin));
    } else {
        uint32_t at = v->base;
        for (size_t i = 0; i < n; i++) {
            if (((unsigned char)v->bytes[from + i] & 0xC0) != 0x80)
                at = v->base + (uint32_t)(from + i);
            t->origin[t->len + i] = at;
        }
    }
    t->len += n;
}

/* The view is of the changed text from now on. */
static int end_step(struct edit *e)
{
    if (!e->t) return e->rc;
    replace(e, e->v->len, e->v->len);
    if (!e->rc)
        *e->v = (struct view){e->t->bytes, e->t->origin, e->t->len, e->run->base,
                              e->t == &e->run->w->text[1]};
    return e->rc;
}

/* ---- steps --------------------------------------------------------------------------------- */

/* Returns true if a form may change a character or join it to the one before it. */
static bool needs_care(const struct tok_normalizer *n, const struct tok_norm_step *step,
                       uint32_t cp)
{
    if (!step->compose || step->compat) return cp >= 0x80;
    return tok_uni_props(n->uni, cp) & TOK_UNI_NFC_CARE;
}

/*
 * The next part of the text that a form may change: a character that needs no care (what follows
 * may join it), and all after it that do. From *begin on; false when there is none.
 */
static bool next_cluster(const struct norm_run *run, const struct tok_norm_step *step,
                         const struct view *v, size_t *begin, size_t *end)
{
    const unsigned char *text = (const unsigned char *)v->bytes, *p = text + *end,
                        *stop = text + v->len;
    const unsigned char *last = p;
    bool found = false;
    while (p < stop) {
        const unsigned char *ch = p;
        bool care = needs_care(run->n, step, utf8_next(&p));
        if (found && !care) {
            p = ch;
            break;
        }
        found = care;
        if (!care) last = ch;
    }
    *begin = (size_t)(last - text);
    *end = (size_t)(p - text);
    return found;
}

/* Appends the normalized form of bytes [begin, end). */
static void put_cluster(struct edit *e, const struct tok_norm_step *step, size_t begin, size_t end)
{
    struct tok_norm_chars *c = e->run->w->chars;
    const unsigned char *text = (const unsigned char *)e->v->bytes, *p = text + begin;
    c->n = 0;
    while (p < text + end && !e->rc) {
        uint32_t origin = origin_at(e->v, (size_t)(p - text));
        e->rc = tok_uniform_decompose(c, utf8_next(&p), origin, step->compat);
    }
    if (!e->rc) e->rc = tok_uniform_order(c);
    if (!e->rc && step->compose) tok_uniform_compose(c);
    for (size_t i = 0; i < c->n && !e->rc; i++)
        put_code_point(e, c->v[i].cp, c->v[i].origin);
}

static int apply_form(struct norm_run *run, const struct tok_norm_step *step, struct view *v)
{
    struct edit e = {.run = run, .v = v};
    size_t begin, end = 0;
    while (!e.rc && next_cluster(run, step, v, &begin, &end)) {
        if (!run->w->chars) run->w->chars = calloc(1, sizeof(*run->w->chars));
        if (!run->w->chars) return TOK_ENOMEM;
        replace(&e, begin, end);
        put_cluster(&e, step, begin, end);
    }
    return end_step(&e);
}

/* The characters that BERT's tokenizers took for Chinese. */
static bool is_han(uint32_t cp)
{
    if (cp < 0x20000)
        return (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x4E00 && cp <= 0x9FFF) ||
               (cp >= 0xF900 && cp <= 0xFAFF);
    return cp <= 0x2A6DF || (cp >= 0x2A700 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) ||
           (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static int change_clean(const struct tok_normalizer *n, const struct tok_norm_step *step,
                        uint32_t cp, uint32_t out[3])
{
    unsigned props = tok_uni_props(n->uni, cp);
    if (step->clean && props & TOK_UNI_BERT_DROP) return 0;
    if (step->clean && props & TOK_UNI_WHITE && cp != ' ') {
        out[0] = ' ';
        return 1;
    }
    if (!step->spread_han || !is_han(cp)) return -1;
    out[0] = out[2] = ' ';
    out[1] = cp;
    return 3;
}

/* How many characters become of one, into out; -1: it stays. */
static int change(const struct tok_normalizer *n, const struct tok_norm_step *step, uint32_t cp,
                  uint32_t out[3])
{
    if (step->kind == NORM_CLEAN) return change_clean(n, step, cp, out);
    if (step->kind == NORM_MARKS)
        return cp >= 0x80 && tok_uni_props(n->uni, cp) & TOK_UNI_BERT_MARK ? 0 : -1;
    if (cp < 0x80 && !(cp >= 'A' && cp <= 'Z')) return -1;
    size_t n_lower = tok_uni_lower(cp, out);
    return n_lower == 1 && out[0] == cp ? -1 : (int)n_lower;
}

/* Steps that look at each character alone. */
static int apply_chars(struct norm_run *run, const struct tok_norm_step *step, struct view *v)
{
    const unsigned char *begin = (const unsigned char *)v->bytes, *p = begin, *end = begin + v->len;
    struct edit e = {.run = run, .v = v};
    uint32_t out[3];
    while (p < end && !e.rc) {
        size_t at = (size_t)(p - begin);
        int n = change(run->n, step, utf8_next(&p), out);
        if (n < 0) continue;
        replace(&e, at, (size_t)(p - begin));
        for (int i = 0; i < n; i++)
            put_code_point(&e, out[i], origin_at(v, at));
    }
    return end_step(&e);
}

static int apply_charsmap(struct norm_run *run, const struct tok_norm_step *step, struct view *v)
{
    struct tok_charsmap_iter it = tok_charsmap_iter(step->map, run->n->uni, v->bytes, v->len);
    struct edit e = {.run = run, .v = v};
    size_t begin, end, len;
    const char *s;
    while (!e.rc && tok_charsmap_next(&it, &begin, &end, &s, &len)) {
        replace(&e, begin, end);
        put(&e, s, len, origin_at(v, begin));
    }
    return end_step(&e);
}

static int apply_strip(struct norm_run *run, const struct tok_norm_step *step, struct view *v)
{
    const unsigned char *begin = (const unsigned char *)v->bytes, *end = begin + v->len, *p;
    while (step->left && begin < end) {
        p = begin;
        if (!(tok_uni_props(run->n->uni, utf8_next(&p)) & TOK_UNI_WHITE)) break;
        begin = p;
    }
    while (step->right && end > begin) {
        if (!(tok_uni_props(run->n->uni, utf8_before(end, &p)) & TOK_UNI_WHITE)) break;
        end = p;
    }
    size_t removed = (size_t)(begin - (const unsigned char *)v->bytes);
    v->bytes += removed;
    v->len = (size_t)(end - begin);
    if (v->origin)
        v->origin += removed;
    else
        v->base += (uint32_t)removed;
    return 0;
}

static int apply_prepend(struct norm_run *run, const struct tok_norm_step *step, struct view *v)
{
    struct edit e = {.run = run, .v = v};
    if (v->len == 0) return 0;
    replace(&e, 0, 0);
    put(&e, step->content.s, step->content.len, origin_at(v, 0));
    return end_step(&e);
}

/* The replacement of a match has the origin of the last character replaced. */
static int apply_replace(struct norm_run *run, const struct tok_norm_step *step, struct view *v)
{
    struct tok_pattern_iter it = tok_pattern_iter(&step->what, v->bytes, v->len);
    struct edit e = {.run = run, .v = v};
    size_t begin, end;
    int more = 0;
    while (!e.rc && (more = tok_pattern_next(&it, &run->w->regex, &begin, &end, run->w->err,
                                             run->w->errlen)) == 1) {
        replace(&e, begin, end);
        put(&e, step->content.s, step->content.len, end > 0 ? origin_at(v, end - 1) : run->base);
    }
    return more < 0 ? more : end_step(&e);
}

static int apply(struct norm_run *run, const struct tok_norm_step *step, struct view *v)
{
    switch (step->kind) {
    case NORM_FORM: return apply_form(run, step, v);
    case NORM_LOWERCASE:
    case NORM_CLEAN:
    case NORM_MARKS: return apply_chars(run, step, v);
    case NORM_CHARSMAP: return apply_charsmap(run, step, v);
    case NORM_STRIP: return apply_strip(run, step, v);
    case NORM_REPLACE: return v->len ? apply_replace(run, step, v) : 0;
    case NORM_PREPEND: return apply_prepend(run, step, v);
    }
    return 0;
}

int tok_normalize(const struct tok_normalizer *n, struct tok_work *w, const char *text, size_t len,
                  uint32_t base, const char **ret, size_t *ret_len, const uint32_t **ret_origin)
{
    struct norm_run run = {n, w, base};
    struct view v = {text, NULL, len, base, -1};
    int rc = 0;
    for (size_t i = 0; i < n->n_steps; i++) {
        size_t before = v.len;
        rc = apply(&run, &n->steps[i], &v);
        if (rc >= 0)
            rc = tok_growth_spend(&w->growth, before, rc == TOO_LONG ? SIZE_MAX : v.len, w->err,
                                  w->errlen);
        if (rc) return rc;
    }
    *ret = v.bytes;
    *ret_len = v.len;
    *ret_origin = v.origin;
    return 0;
}
