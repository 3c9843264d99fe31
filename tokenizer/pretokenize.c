/* SPDX-License-Identifier: MIT */
/*
 * Every splitting stage yields spans that cover its piece, each a match or not; a folder joins them
 * by the stage's behaviour and hands the results to the next stage. Empty results vanish.
 */
#include "tokenizer/pretokenize.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/fast_split.h"
#include "tokenizer/tok_types.h"

enum stage_kind {
    STAGE_BYTELEVEL,
    STAGE_KNOWN,   /* a Split whose pattern has a splitter of its own */
    STAGE_PATTERN, /* Split by any other */
    STAGE_CHARS,   /* Digits, Punctuation, WhitespaceSplit: single characters of a class */
    STAGE_WORDS,   /* Whitespace */
    STAGE_BERT,    /* BertPreTokenizer */
    STAGE_METASPACE,
};

enum behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };
enum scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct tok_pre_stage {
    enum stage_kind kind;
    enum behavior behavior;
    bool invert;
    struct tok_component_pattern pattern; /* STAGE_PATTERN */
    enum tok_split_kind known;            /* STAGE_KNOWN */
    unsigned props;                       /* STAGE_CHARS: any of these properties */
    bool prefix_space, use_regex;         /* STAGE_BYTELEVEL */
    char mark[5];                         /* STAGE_METASPACE: the replacement */
    enum scheme scheme;
    bool split;
};

/* ---- loading ------------------------------------------------------------------------------- */

static void load_behavior(struct tok_pre_stage *s, struct tok_component *c, bool optional)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"}; /* enum behavior */
    const json_t *v = json_object_get(c->json, "behavior");
    const char *name = v || !optional ? json_string_value(v) : names[ISOLATED];
    size_t i = 0;
    while (name && i < sizeof(names) / sizeof(names[0]) && strcmp(names[i], name) != 0)
        i++;
    if (!name || i == sizeof(names) / sizeof(names[0]))
        tok_component_unknown(c, "split behavior", name ? name : "");
    s->behavior = (enum behavior)i;
}

/* A known pattern that keeps all of the text, as these always do, needs no search. */
static bool use_known(struct tok_pre_stage *s, const json_t *json)
{
    const json_t *re = json_object_get(json_object_get(json, "pattern"), "Regex");
    bool keeps = s->behavior == ISOLATED || (s->behavior == REMOVED && s->invert);
    return keeps && json_is_string(re) &&
           tok_split_find(json_string_value(re), json_string_length(re), &s->known);
}

static void load_split(struct tok_pre_stage *s, struct tok_component *c)
{
    load_behavior(s, c, false);
    s->invert = tok_member_bool(c, "invert");
    s->kind = use_known(s, c->json) ? STAGE_KNOWN : STAGE_PATTERN;
    if (s->kind == STAGE_PATTERN) s->pattern = tok_member_pattern(c);
}

/* "add_prefix_space": false is the older way to say "never" and must not contradict the scheme. */
static int load_metaspace(struct tok_pre_stage *s, struct tok_component *c)
{
    static const char *const names[] = {"always", "first", "never"}; /* enum scheme */
    const json_t *v = json_object_get(c->json, "prepend_scheme");
    const char *name = v ? json_string_value(v) : names[0];
    int i = 0;
    s->behavior = MERGED_WITH_NEXT;
    tok_member_char(c, "replacement", s->mark);
    s->split = tok_member_bool_or(c, "split", true);
    while (i < 3 && !(name && strcmp(name, names[i]) == 0))
        i++;
    if (i == 3) return tok_component_unknown(c, "prepend_scheme", name ? name : "");
    s->scheme = (enum scheme)i;
    if (c->rc || s->scheme == PREPEND_NEVER ||
        !json_is_false(json_object_get(c->json, "add_prefix_space")))
        return 0;
    return fail_with(TOK_EINVAL, c->err, c->errlen,
                     "Metaspace: \"add_prefix_space\" contradicts \"prepend_scheme\"");
}

/* Callback of tok_component_visit for one component that is not a Sequence. */
static int load_stage(void *data, const char *type, struct tok_component *c)
{
    static const struct {
        const char *type;
        enum stage_kind kind;
        enum behavior behavior;
        unsigned props;
    } known[] = {
        {"ByteLevel", STAGE_BYTELEVEL, 0, 0},
        {"Split", STAGE_PATTERN, 0, 0},
        {"Metaspace", STAGE_METASPACE, 0, 0},
        {"Digits", STAGE_CHARS, CONTIGUOUS, TOK_UNI_NUMBER},
        {"Punctuation", STAGE_CHARS, ISOLATED, TOK_UNI_PUNCT},
        {"WhitespaceSplit", STAGE_CHARS, REMOVED, TOK_UNI_WHITE},
        {"BertPreTokenizer", STAGE_BERT, 0, 0},
        {"Whitespace", STAGE_WORDS, 0, 0},
    };
    enum { N_KNOWN = sizeof(known) / sizeof(known[0]) };
    struct tok_pretok *p = data;
    size_t i = 0;
    while (i < N_KNOWN && strcmp(type, known[i].type) != 0)
        i++;
    if (i == N_KNOWN) return tok_component_unknown(c, "pre-tokenizer", type);
    struct tok_pre_stage *s = realloc(p->stages, (p->n_stages + 1) * sizeof(*s));
    if (!s) return TOK_ENOMEM;
    p->stages = s;
    s += p->n_stages++;
    *s = (struct tok_pre_stage){
        .kind = known[i].kind, .behavior = known[i].behavior, .props = known[i].props};
    if (s->kind == STAGE_BYTELEVEL) {
        s->prefix_space = tok_member_bool(c, "add_prefix_space");
        s->use_regex = tok_member_bool_or(c, "use_regex", true);
    }
    if (s->kind == STAGE_PATTERN) load_split(s, c);
    if (s->props == TOK_UNI_NUMBER && tok_member_bool(c, "individual_digits"))
        s->behavior = ISOLATED;
    if (s->props == TOK_UNI_PUNCT) load_behavior(s, c, true);
    return s->kind == STAGE_METASPACE ? load_metaspace(s, c) : 0;
}

int tok_pretok_load(struct tok_pretok *p, const struct tok_uni *uni, const json_t *json,
                    bool allow_raw, char *err, size_t errlen)
{
    p->uni = uni;
    int rc = tok_component_visit("pre-tokenizer", "pretokenizers", json, uni, load_stage, p, err,
                                 errlen);
    if (rc) return rc;
    p->raw_bytes = allow_raw && p->n_stages && p->stages[p->n_stages - 1].kind == STAGE_BYTELEVEL;
    return 0;
}

void tok_pretok_finish(struct tok_pretok *p)
{
    for (size_t i = 0; i < p->n_stages; i++)
        tok_component_pattern_finish(&p->stages[i].pattern);
    free(p->stages);
    *p = (struct tok_pretok){0};
}

/* ---- running ------------------------------------------------------------------------------- */

/* A piece on its way; its first at_start bytes come from the text's first character. */
struct piece {
    const char *s;
    size_t len;
    size_t at_start;
};

struct pre_run {
    const struct tok_pretok *p;
    struct tok_work *w;
    tok_piece_fn *fn;
    void *data;
};

static int run_stage(struct pre_run *run, size_t stage, struct piece piece);

/* Hands bytes [begin, end) of a piece to the next stage. */
static int hand_on(struct pre_run *run, size_t stage, const struct piece *piece, size_t begin,
                   size_t end)
{
    size_t at_start = piece->at_start > begin ? piece->at_start - begin : 0;
    if (begin == end) return 0;
    if (stage + 1 == run->p->n_stages) return run->fn(run->data, piece->s + begin, end - begin);
    return run_stage(run, stage + 1, (struct piece){piece->s + begin, end - begin, at_start});
}

/* Joins spans by a behaviour; one result is held back until it is known to be complete. */
struct folder {
    struct pre_run *run;
    size_t stage;
    const struct piece *piece;
    enum behavior behavior;
    bool invert;
    size_t begin, end; /* the result held back */
    bool holds;        /* whether there is one */
    bool was_match;    /* the last span */
};

/* Returns true if the span is added to the result that was held back. */
static bool joins(const struct folder *f, bool match)
{
    switch (f->behavior) {
    case CONTIGUOUS: return match == f->was_match;
    case MERGED_WITH_PREVIOUS: return match && !f->was_match;
    case MERGED_WITH_NEXT: return f->was_match && !match;
    case REMOVED:
    case ISOLATED: return false;
    }
    return false;
}

static int fold(struct folder *f, size_t begin, size_t end, bool match)
{
    int rc = 0;
    match ^= f->invert;
    if (f->behavior == ISOLATED || f->behavior == REMOVED) {
        if (f->behavior == REMOVED && match) return 0;
        return hand_on(f->run, f->stage, f->piece, begin, end);
    }
    if (f->holds && joins(f, match)) {
        f->end = end;
    } else {
        if (f->holds) rc = hand_on(f->run, f->stage, f->piece, f->begin, f->end);
        f->begin = begin;
        f->end = end;
        f->holds = true;
    }
    f->was_match = match;
    return rc;
}

static int fold_end(struct folder *f)
{
    return f->holds ? hand_on(f->run, f->stage, f->piece, f->begin, f->end) : 0;
}

static int split_chars(struct pre_run *run, const struct tok_pre_stage *s, struct folder *f)
{
    const unsigned char *begin = (const unsigned char *)f->piece->s, *p = begin,
                        *end = p + f->piece->len;
    const unsigned char *done = begin;
    int rc = 0;
    while (p < end && !rc) {
        const unsigned char *ch = p;
        if (!(tok_uni_props(run->p->uni, utf8_next(&p)) & s->props)) continue;
        if (done < ch) rc = fold(f, (size_t)(done - begin), (size_t)(ch - begin), false);
        if (!rc) rc = fold(f, (size_t)(ch - begin), (size_t)(p - begin), true);
        done = p;
    }
    if (!rc && done < end) rc = fold(f, (size_t)(done - begin), f->piece->len, false);
    return rc ? rc : fold_end(f);
}

static int split_pattern(struct pre_run *run, const struct tok_pre_stage *s, struct folder *f)
{
    struct tok_pattern_iter it = tok_pattern_iter(&s->pattern, f->piece->s, f->piece->len);
    size_t begin, end, done = 0;
    int more, rc = 0;
    while ((more = tok_pattern_next(&it, &run->w->regex, &begin, &end, run->w->err,
                                    run->w->errlen)) == 1) {
        if (done != begin) rc = fold(f, done, begin, false);
        if (!rc) rc = fold(f, begin, end, true);
        if (rc) return rc;
        done = end;
    }
    if (more < 0) return more;
    if (done != f->piece->len) rc = fold(f, done, f->piece->len, false);
    return rc ? rc : fold_end(f);
}

/*
 * Runs of words and of other characters between white space: \w+|[^\w\s]+. As BERT does: words,
 * and single punctuation characters.
 */
static int split_words(struct pre_run *run, size_t stage, const struct piece *piece, bool bert)
{
    const unsigned char *begin = (const unsigned char *)piece->s, *p = begin, *end = p + piece->len;
    const unsigned char *from = begin;
    enum { WHITE, WORDS, OTHER } was = WHITE;
    int rc = 0;
    while (p < end && !rc) {
        const unsigned char *ch = p;
        unsigned props = tok_uni_props(run->p->uni, utf8_next(&p)), is;
        if (bert)
            is = props & TOK_UNI_WHITE ? WHITE : props & TOK_UNI_PUNCT ? OTHER : WORDS;
        else
            is = props & TOK_UNI_WORD ? WORDS : props & TOK_UNI_WHITE ? WHITE : OTHER;
        if (is == was && !(bert && is == OTHER)) continue;
        if (was) rc = hand_on(run, stage, piece, (size_t)(from - begin), (size_t)(ch - begin));
        from = ch;
        was = is;
    }
    if (!rc && was) rc = hand_on(run, stage, piece, (size_t)(from - begin), piece->len);
    return rc;
}

/* ---- stages that rewrite ------------------------------------------------------------------- */

static int spend(struct pre_run *run, size_t before, size_t after)
{
    return tok_growth_spend(&run->w->growth, before, after, run->w->err, run->w->errlen);
}

/* The stage's own buffer with room for n bytes; its content is lost. NULL if out of memory. */
static char *buffer(struct pre_run *run, size_t index, size_t n)
{
    struct tok_component_text *b = &run->w->pieces[index];
    if (b->len < n) {
        char *p = malloc(n * 2);
        if (!p) return NULL;
        free(b->s);
        *b = (struct tok_component_text){p, n * 2};
    }
    return b->s;
}

/* Replaces blanks by the mark and puts one in front as the scheme says. */
static int metaspace(struct pre_run *run, const struct tok_pre_stage *s, size_t stage,
                     struct piece *piece)
{
    size_t mark_len = strlen(s->mark), n = 0, at_start = 0;
    char *out = buffer(run, stage, (piece->len + 1) * mark_len);
    if (!out) return TOK_ENOMEM;
    bool marked =
        piece->s[0] == ' ' || (piece->len >= mark_len && !memcmp(piece->s, s->mark, mark_len));
    bool wanted = s->scheme == PREPEND_ALWAYS || (s->scheme == PREPEND_FIRST && piece->at_start);
    if (!marked && wanted) {
        memcpy(out, s->mark, mark_len);
        n = mark_len;
    }
    for (size_t i = 0; i < piece->len; i++) {
        if (i == piece->at_start) at_start = n;
        if (piece->s[i] == ' ') {
            memcpy(out + n, s->mark, mark_len);
            n += mark_len;
        } else {
            out[n++] = piece->s[i];
        }
    }
    if (piece->at_start >= piece->len)
        at_start = n;
    else if (piece->at_start == 0)
        at_start = 0;
    int rc = spend(run, piece->len, n);
    *piece = (struct piece){out, n, at_start};
    return rc;
}

/* Splits in front of every mark. */
static int split_metaspace(struct pre_run *run, const struct tok_pre_stage *s, size_t stage,
                           struct piece piece)
{
    size_t mark_len = strlen(s->mark), begin = 0;
    int rc = metaspace(run, s, stage, &piece);
    if (rc) return rc;
    if (!s->split) return hand_on(run, stage, &piece, 0, piece.len);
    while (begin < piece.len && !rc) {
        size_t skip = utf8_len((unsigned char)piece.s[begin]);
        const char *next =
            memmem(piece.s + begin + skip, piece.len - begin - skip, s->mark, mark_len);
        size_t end = next ? (size_t)(next - piece.s) : piece.len;
        rc = hand_on(run, stage, &piece, begin, end);
        begin = end;
    }
    return rc;
}

/* Writes a piece in the byte alphabet before it is handed on. */
static int hand_on_mapped(struct pre_run *run, size_t stage, const struct piece *piece,
                          size_t begin, size_t end)
{
    size_t in_start = piece->at_start <= begin ? 0
                      : piece->at_start >= end ? end - begin
                                               : piece->at_start - begin;
    char *out = buffer(run, stage, 2 * (end - begin));
    if (!out) return TOK_ENOMEM;
    size_t at_start = tok_bytelevel_encode(piece->s + begin, in_start, out);
    size_t n = at_start + tok_bytelevel_encode(piece->s + begin + in_start, end - begin - in_start,
                                               out + at_start);
    struct piece mapped = {out, n, at_start};
    int rc = spend(run, end - begin, n);
    return rc ? rc : hand_on(run, stage, &mapped, 0, n);
}

static int split_known(struct pre_run *run, size_t stage, enum tok_split_kind kind,
                       const struct piece *piece, bool mapped)
{
    size_t at = 0;
    int rc = 0;
    while (at < piece->len && !rc) {
        size_t n = tok_split_next(kind, run->p->uni, piece->s + at, piece->len - at);
        rc = mapped ? hand_on_mapped(run, stage, piece, at, at + n)
                    : hand_on(run, stage, piece, at, at + n);
        at += n;
    }
    return rc;
}

static int split_bytelevel(struct pre_run *run, const struct tok_pre_stage *s, size_t stage,
                           struct piece piece)
{
    AUTO_FREE char *spaced = NULL;
    if (s->prefix_space && piece.s[0] != ' ') {
        int rc = spend(run, piece.len, piece.len + 1);
        if (rc) return rc;
        spaced = malloc(piece.len + 1);
        if (!spaced) return TOK_ENOMEM;
        spaced[0] = ' ';
        memcpy(spaced + 1, piece.s, piece.len);
        piece = (struct piece){spaced, piece.len + 1, piece.at_start ? piece.at_start + 1 : 0};
    }
    bool mapped = !run->p->raw_bytes || stage + 1 != run->p->n_stages;
    if (s->use_regex) return split_known(run, stage, TOK_SPLIT_GPT2, &piece, mapped);
    return mapped ? hand_on_mapped(run, stage, &piece, 0, piece.len)
                  : hand_on(run, stage, &piece, 0, piece.len);
}

static int run_stage(struct pre_run *run, size_t stage, struct piece piece)
{
    const struct tok_pre_stage *s = &run->p->stages[stage];
    struct folder f = {
        .run = run, .stage = stage, .piece = &piece, .behavior = s->behavior, .invert = s->invert};
    switch (s->kind) {
    case STAGE_BYTELEVEL: return split_bytelevel(run, s, stage, piece);
    case STAGE_KNOWN: return split_known(run, stage, s->known, &piece, false);
    case STAGE_PATTERN: return split_pattern(run, s, &f);
    case STAGE_CHARS: return split_chars(run, s, &f);
    case STAGE_WORDS:
    case STAGE_BERT: return split_words(run, stage, &piece, s->kind == STAGE_BERT);
    case STAGE_METASPACE: return split_metaspace(run, s, stage, piece);
    }
    return 0;
}

int tok_pretok_split(const struct tok_pretok *p, struct tok_work *w, const char *text, size_t len,
                     size_t at_start, tok_piece_fn *fn, void *data)
{
    struct pre_run run = {p, w, fn, data};
    if (len == 0) return 0;
    if (p->n_stages == 0) return fn(data, text, len);
    return run_stage(&run, 0, (struct piece){text, len, at_start});
}
