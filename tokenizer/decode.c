/* SPDX-License-Identifier: MIT */
/*
 * A token passes through the token ops, becomes bytes or text, and the text passes through the text
 * ops, each of which may hold back a little. Bytes are gathered into characters; what cannot become
 * one is U+FFFD: one for each maximal bad part with the byte alphabet, one for each byte with byte
 * tokens.
 *
 * Where the reference turns a whole run of byte tokens into U+FFFD because some of it is bad, a
 * stream cannot: the good characters of the run have been sent by then.
 */
#include "tokenizer/decode.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/fail.h"
#include "base/hex.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/tok_types.h"

#define REPLACEMENT "\xEF\xBF\xBD"
#define MAX_STRIP 1024
#define TOKEN_SLACK 64 /* bytes that any token may become, however short it is */

enum op_kind { OP_REPLACE, OP_STRIP, OP_METASPACE, OP_FALLBACK, OP_WORDPIECE };

struct tok_decode_op {
    enum op_kind kind;
    struct tok_component_pattern what; /* OP_REPLACE */
    struct tok_component_text content; /* OP_REPLACE; OP_WORDPIECE: the prefix */
    char ch[5];                        /* OP_STRIP, OP_METASPACE: the character */
    uint32_t start, stop;              /* OP_STRIP */
    bool drop_first;                   /* OP_METASPACE: marks of the first token vanish */
    bool cleanup;                      /* OP_WORDPIECE */
};

/* ---- loading ------------------------------------------------------------------------------- */

static int out_of_order(const char *type, const char *behind, char *err, size_t errlen)
{
    return fail_with(TOK_EINVAL, err, errlen, "the decoder %s after %s is not supported", type,
                     behind);
}

static int load_replace(struct tok_decode_op *op, const struct tok_uni *uni, const json_t *json,
                        char *err, size_t errlen)
{
    op->kind = OP_REPLACE;
    int rc = tok_component_string(json, "content", &op->content, err, errlen);
    return rc ? rc : tok_component_pattern(json, uni, &op->what, err, errlen);
}

static int load_strip(struct tok_decode_op *op, const json_t *json, char *err, size_t errlen)
{
    uint32_t ch;
    op->kind = OP_STRIP;
    int rc = tok_component_char(json, "content", &ch, err, errlen);
    if (!rc) rc = tok_component_uint(json, "start", MAX_STRIP, &op->start, err, errlen);
    if (!rc) rc = tok_component_uint(json, "stop", MAX_STRIP, &op->stop, err, errlen);
    if (!rc) utf8_put(op->ch, ch);
    return rc;
}

static int load_metaspace(struct tok_decode_op *op, const json_t *json, char *err, size_t errlen)
{
    const char *scheme = json_string_value(json_object_get(json, "prepend_scheme"));
    uint32_t ch;
    op->kind = OP_METASPACE;
    op->drop_first = !scheme || strcmp(scheme, "never") != 0;
    if (op->drop_first && scheme && strcmp(scheme, "first") != 0 && strcmp(scheme, "always") != 0)
        return tok_component_unknown("prepend_scheme", scheme, err, errlen);
    int rc = tok_component_char(json, "replacement", &ch, err, errlen);
    if (!rc) utf8_put(op->ch, ch);
    return rc;
}

static int load_wordpiece(struct tok_decode_op *op, const json_t *json, char *err, size_t errlen)
{
    op->kind = OP_WORDPIECE;
    int rc = tok_component_bool(json, "cleanup", NULL, &op->cleanup, err, errlen);
    return rc ? rc : tok_component_string(json, "prefix", &op->content, err, errlen);
}

/* After ByteFallback an op must work on each character alone, whichever tokens it comes from. */
static bool by_character(const struct tok_decode_op *op)
{
    const struct tok_component_text *literal = &op->what.literal;
    if (op->kind == OP_METASPACE) return true;
    return op->kind == OP_REPLACE && literal->s &&
           literal->len == utf8_len((unsigned char)literal->s[0]);
}

/* The ops that each op may follow. */
static int check_order(const struct tok_decode_plan *p, const struct tok_decode_op *op,
                       const char *type, char *err, size_t errlen)
{
    if (p->joined) {
        bool streams = op->kind == OP_STRIP || (op->kind == OP_REPLACE && op->what.literal.s);
        if (!streams) return out_of_order(type, "Fuse or ByteLevel", err, errlen);
        if (p->n_ops - p->n_token_ops == TOK_MAX_TEXT_OPS)
            return out_of_order(type, "so many", err, errlen);
        return 0;
    }
    if (p->fallback != SIZE_MAX && !by_character(op))
        return out_of_order(type, "ByteFallback", err, errlen);
    return 0;
}

static int load_join(struct tok_decode_plan *p, bool bytelevel, char *err, size_t errlen)
{
    if (bytelevel && p->joined) return out_of_order("ByteLevel", "Fuse or ByteLevel", err, errlen);
    if (bytelevel && p->fallback != SIZE_MAX)
        return out_of_order("ByteLevel", "ByteFallback", err, errlen);
    if (!p->joined) p->join = bytelevel ? TOK_JOIN_BYTELEVEL : TOK_JOIN_PLAIN;
    p->joined = true;
    return 0;
}

static int load_op(struct tok_decode_op *op, const struct tok_uni *uni, const char *type,
                   const json_t *json, char *err, size_t errlen)
{
    if (strcmp(type, "Replace") == 0) return load_replace(op, uni, json, err, errlen);
    if (strcmp(type, "Strip") == 0) return load_strip(op, json, err, errlen);
    if (strcmp(type, "Metaspace") == 0) return load_metaspace(op, json, err, errlen);
    if (strcmp(type, "WordPiece") == 0) return load_wordpiece(op, json, err, errlen);
    op->kind = OP_FALLBACK;
    return strcmp(type, "ByteFallback") == 0 ? 0
                                             : tok_component_unknown("decoder", type, err, errlen);
}

/* Callback of tok_component_visit for one component that is not a Sequence. */
static int load_decoder(void *data, const char *type, const json_t *json, char *err, size_t errlen)
{
    struct tok_decode_plan *p = data;
    if (strcmp(type, "Fuse") == 0) return load_join(p, false, err, errlen);
    if (strcmp(type, "ByteLevel") == 0) return load_join(p, true, err, errlen);
    struct tok_decode_op *op = realloc(p->ops, (p->n_ops + 1) * sizeof(*op));
    if (!op) return TOK_ENOMEM;
    p->ops = op;
    op += p->n_ops;
    memset(op, 0, sizeof(*op));
    p->n_ops++;
    int rc = load_op(op, p->uni, type, json, err, errlen);
    if (!rc) rc = check_order(p, op, type, err, errlen);
    if (rc) return rc;
    if (op->kind == OP_FALLBACK) p->fallback = p->n_ops - 1;
    if (!p->joined) p->n_token_ops = p->n_ops;
    return 0;
}

void tok_decode_finish(struct tok_decode_plan *p)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        tok_component_pattern_finish(&p->ops[i].what);
        tok_component_text_finish(&p->ops[i].content);
    }
    free(p->ops);
    *p = (struct tok_decode_plan){0};
}

/* ---- buffers ------------------------------------------------------------------------------- */

static int put(struct tok_decode_text *t, const char *s, size_t len)
{
    if (t->max && len > t->max - t->len) return TOK_ELIMIT;
    if (ARRAY_ROOM(t->s, t->cap, t->len + len, 32)) return TOK_ENOMEM;
    if (len) memcpy(t->s + t->len, s, len);
    t->len += len;
    return 0;
}

void tok_decode_run_finish(struct tok_decode_run *r)
{
    free(r->work[0].s);
    free(r->work[1].s);
    free(r->out.s);
    for (size_t i = 0; i < TOK_MAX_TEXT_OPS; i++)
        free(r->states[i].match.s);
    tok_regex_scratch_finish(&r->regex);
    *r = (struct tok_decode_run){0};
}

void tok_decode_reset(const struct tok_decode_plan *p, struct tok_decode_run *r)
{
    r->n_bytes = 0;
    r->started = r->in_bytes = r->past_first = false;
    r->out.len = 0;
    for (size_t i = p->n_token_ops; i < p->n_ops; i++) {
        struct tok_decode_state *s = &r->states[i - p->n_token_ops];
        s->leading = p->ops[i].start;
        s->held = 0;
        s->match.len = 0;
    }
}

/* ---- ops on the text ----------------------------------------------------------------------- */

static int send(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t op, const char *s,
                size_t len);

/* Takes characters off the front, and holds back those that may be the last. */
static int send_strip(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t at,
                      const char *s, size_t len)
{
    const struct tok_decode_op *op = &p->ops[at];
    struct tok_decode_state *state = &r->states[at - p->n_token_ops];
    size_t width = strlen(op->ch), n;
    int rc = 0;
    for (size_t i = 0; i < len && !rc; i += n) {
        n = utf8_len((unsigned char)s[i]);
        bool same = n == width && memcmp(s + i, op->ch, n) == 0;
        if (same && state->leading) {
            state->leading--;
            continue;
        }
        state->leading = 0;
        if (same && state->held < op->stop) {
            state->held++;
            continue;
        }
        for (; !same && state->held && !rc; state->held--)
            rc = send(p, r, at + 1, op->ch, width);
        if (!rc) rc = send(p, r, at + 1, s + i, n);
    }
    return rc;
}

/* How many bytes at the end of s may be the beginning of the literal. */
static size_t partial_match(const struct tok_component_text *literal, const char *s, size_t len)
{
    size_t n = len < literal->len ? len : literal->len - 1;
    while (n > 0 && memcmp(s + len - n, literal->s, n) != 0)
        n--;
    return n;
}

/* Replaces a literal. A prefix of it at the end is held back until more text comes. */
static int send_replace(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t at,
                        const char *s, size_t len)
{
    const struct tok_decode_op *op = &p->ops[at];
    const struct tok_component_text *literal = &op->what.literal;
    struct tok_decode_text *match = &r->states[at - p->n_token_ops].match;
    size_t done = 0;
    int rc = put(match, s, len);
    while (!rc) {
        const char *found = memmem(match->s + done, match->len - done, literal->s, literal->len);
        if (!found) break;
        size_t begin = (size_t)(found - match->s);
        rc = send(p, r, at + 1, match->s + done, begin - done);
        if (!rc) rc = send(p, r, at + 1, op->content.s, op->content.len);
        done = begin + literal->len;
    }
    if (rc) return rc;
    size_t keep = partial_match(literal, match->s + done, match->len - done);
    rc = send(p, r, at + 1, match->s + done, match->len - done - keep);
    memmove(match->s, match->s + match->len - keep, keep);
    match->len = keep;
    return rc;
}

/* Gives text to the op with this index, or out after the last. */
static int send(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t op, const char *s,
                size_t len)
{
    if (len == 0) return 0;
    if (op == p->n_ops) return put(&r->out, s, len);
    return p->ops[op].kind == OP_STRIP ? send_strip(p, r, op, s, len)
                                       : send_replace(p, r, op, s, len);
}

static int send_text(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *s,
                     size_t len)
{
    return send(p, r, p->n_token_ops, s, len);
}

/* ---- ops on tokens ------------------------------------------------------------------------- */

static int replace_in(const struct tok_decode_op *op, struct tok_regex_scratch *rs, const char *s,
                      size_t len, struct tok_decode_text *out)
{
    struct tok_pattern_iter it = tok_pattern_iter(&op->what, s, len);
    size_t begin, end, done = 0;
    char unused[128];
    int more = 0, rc = 0;
    if (len == 0) return 0;
    tok_regex_scratch_next(rs, len);
    while (!rc && (more = tok_pattern_next(&it, rs, &begin, &end, unused, sizeof(unused))) == 1) {
        rc = put(out, s + done, begin - done);
        if (!rc) rc = put(out, op->content.s, op->content.len);
        done = end;
    }
    if (more < 0) rc = more;
    return rc ? rc : put(out, s + done, len - done);
}

/* Bytes that up to max repetitions of ch take at the start (or the end) of s. */
static size_t repeated(const char *s, size_t len, const char *ch, uint32_t max, bool at_end)
{
    size_t width = strlen(ch), n = 0;
    for (; max && n + width <= len; max--, n += width)
        if (memcmp(at_end ? s + len - n - width : s + n, ch, width) != 0) break;
    return n;
}

static int strip_token(const struct tok_decode_op *op, const char *s, size_t len,
                       struct tok_decode_text *out)
{
    size_t front = repeated(s, len, op->ch, op->start, false);
    size_t back = repeated(s + front, len - front, op->ch, op->stop, true);
    return put(out, s + front, len - front - back);
}

static int metaspace_token(const struct tok_decode_op *op, bool first, const char *s, size_t len,
                           struct tok_decode_text *out)
{
    size_t width = strlen(op->ch), n;
    int rc = 0;
    for (size_t i = 0; i < len && !rc; i += n) {
        n = utf8_len((unsigned char)s[i]);
        bool mark = n == width && memcmp(s + i, op->ch, n) == 0;
        if (mark && first && op->drop_first) continue;
        rc = mark ? put(out, " ", 1) : put(out, s + i, n);
    }
    return rc;
}

/* Replaces each place of `from` in a text by a text at most as long, from left to right. */
static void shorten(struct tok_decode_text *t, const char *from, const char *to)
{
    size_t from_len = strlen(from), to_len = strlen(to), done = 0, n = 0;
    while (done < t->len) {
        const char *found = memmem(t->s + done, t->len - done, from, from_len);
        size_t begin = found ? (size_t)(found - t->s) : t->len;
        memmove(t->s + n, t->s + done, begin - done);
        n += begin - done;
        if (found) memcpy(t->s + n, to, to_len);
        n += found ? to_len : 0;
        done = found ? begin + from_len : begin;
    }
    t->len = n;
}

/* A blank before each word but the first; clean-up looks at one token, not across two. */
static int wordpiece_token(const struct tok_decode_op *op, bool first, const char *s, size_t len,
                           struct tok_decode_text *out)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    const struct tok_component_text *prefix = &op->content;
    bool more = !first && len >= prefix->len && memcmp(s, prefix->s, prefix->len) == 0;
    int rc = first || more ? 0 : put(out, " ", 1);
    if (!rc) rc = more ? put(out, s + prefix->len, len - prefix->len) : put(out, s, len);
    for (size_t i = 0; !rc && op->cleanup && i < sizeof(pairs) / sizeof(pairs[0]); i++)
        shorten(out, pairs[i][0], pairs[i][1]);
    return rc;
}

/* Runs the token ops [from, to) over *s. The result is in one of the work buffers. */
static int run_token_ops(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t from,
                         size_t to, bool first, const char **s, size_t *len)
{
    for (size_t i = from; i < to; i++) {
        const struct tok_decode_op *op = &p->ops[i];
        struct tok_decode_text *out = &r->work[*s == r->work[0].s];
        int rc = put(out, "", 0); /* its buffer exists */
        out->len = 0;
        if (rc) return rc;
        if (op->kind == OP_REPLACE)
            rc = replace_in(op, &r->regex, *s, *len, out);
        else if (op->kind == OP_STRIP)
            rc = strip_token(op, *s, *len, out);
        else if (op->kind == OP_WORDPIECE)
            rc = wordpiece_token(op, first, *s, *len, out);
        else
            rc = metaspace_token(op, first, *s, *len, out);
        if (rc) return rc;
        *s = out->s;
        *len = out->len;
    }
    return 0;
}

/* ---- growth -------------------------------------------------------------------------------- */

/* Returns true if the op's output may be longer than its input. */
static bool may_grow(const struct tok_decode_op *op)
{
    return op->kind == OP_REPLACE && op->content.len > op->what.literal.len;
}

/* The ops after the join see the stream, in which each literal may come again and again. */
static int check_text_ops(const struct tok_decode_plan *p, char *err, size_t errlen)
{
    double times = 1;
    for (size_t i = p->n_token_ops; i < p->n_ops; i++) {
        const struct tok_decode_op *op = &p->ops[i];
        if (may_grow(op)) times *= (double)op->content.len / (double)op->what.literal.len;
    }
    if (times <= TOK_GROWTH_PER_BYTE) return 0;
    return fail_with(
        TOK_EINVAL, err, errlen,
        "the Replace decoders behind Fuse or ByteLevel make text up to %.0f times as long, "
        "more than %d times",
        times, TOK_GROWTH_PER_BYTE);
}

/* Runs token ops over s with bounded buffers. TOK_EINVAL with a sentence if they are too small. */
static int check_token_ops(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t from,
                           size_t to, bool first, const char **s, size_t *len, size_t max,
                           char *err, size_t errlen)
{
    char shown[48];
    const char *token = *s;
    size_t token_len = *len;
    r->work[0].max = r->work[1].max = max;
    int rc = run_token_ops(p, r, from, to, first, s, len);
    if (rc != TOK_ELIMIT) return rc;
    return fail_with(
        TOK_EINVAL, err, errlen,
        "\"%s\" comes out more than %d times as long, or a regular expression takes too long "
        "on it",
        shown_text(shown, sizeof(shown), token, token_len), TOK_GROWTH_PER_BYTE);
}

static size_t max_of_token(size_t len)
{
    return len * TOK_GROWTH_PER_BYTE + TOKEN_SLACK;
}

/* Characters that byte tokens spell: an op after ByteFallback that may grow replaces just one. */
static int check_characters(const struct tok_decode_plan *p, char *err, size_t errlen)
{
    AUTO(tok_decode_run_finish) struct tok_decode_run run = {0};
    int rc = 0;
    for (size_t i = p->fallback; i < p->n_token_ops && !rc; i++) {
        const char *s = p->ops[i].what.literal.s;
        size_t len = p->ops[i].what.literal.len;
        if (!may_grow(&p->ops[i])) continue;
        rc = check_token_ops(p, &run, p->fallback + 1, p->n_token_ops, false, &s, &len,
                             max_of_token(len), err, errlen);
    }
    return rc;
}

int tok_decode_load(struct tok_decode_plan *p, const struct tok_uni *uni, const json_t *json,
                    char *err, size_t errlen)
{
    bool none = !json || json_is_null(json);
    *p = (struct tok_decode_plan){
        .uni = uni, .fallback = SIZE_MAX, .join = none ? TOK_JOIN_SPACES : TOK_JOIN_PLAIN};
    int rc = tok_component_visit("decoder", "decoders", json, load_decoder, p, err, errlen);
    for (size_t i = 0; i < p->n_token_ops; i++)
        p->by_token |= may_grow(&p->ops[i]) || p->ops[i].what.re;
    if (!rc) rc = check_text_ops(p, err, errlen);
    return rc ? rc : check_characters(p, err, errlen);
}

/* ---- bytes --------------------------------------------------------------------------------- */

/* A complete character of a run of byte tokens goes through the token ops after ByteFallback. */
static int send_fallback_text(const struct tok_decode_plan *p, struct tok_decode_run *r,
                              const char *s, size_t len)
{
    int rc = run_token_ops(p, r, p->fallback + 1, p->n_token_ops, !r->past_first, &s, &len);
    return rc ? rc : send_text(p, r, s, len);
}

/* Gives out bytes that will never be a character. */
static int send_bad(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t n)
{
    size_t marks = p->join == TOK_JOIN_BYTELEVEL ? 1 : n;
    int rc = 0;
    for (size_t i = 0; i < marks && !rc; i++)
        rc = send_text(p, r, REPLACEMENT, 3);
    r->n_bytes -= n;
    memmove(r->bytes, r->bytes + n, r->n_bytes);
    return rc;
}

/* Adds a byte, and outputs every character and every invalid sequence that is complete now. */
static int take_byte(const struct tok_decode_plan *p, struct tok_decode_run *r, unsigned char byte)
{
    int rc = 0;
    r->bytes[r->n_bytes++] = byte;
    while (r->n_bytes && !rc) {
        int n = utf8_classify(r->bytes, r->n_bytes);
        if (n == 0) break;
        if (n < 0) {
            rc = send_bad(p, r, (size_t)-n);
            continue;
        }
        const char *s = (const char *)r->bytes;
        rc = p->join == TOK_JOIN_BYTELEVEL ? send_text(p, r, s, (size_t)n)
                                           : send_fallback_text(p, r, s, (size_t)n);
        r->n_bytes = 0;
    }
    return rc;
}

static int end_bytes(const struct tok_decode_plan *p, struct tok_decode_run *r)
{
    return r->n_bytes ? send_bad(p, r, r->n_bytes) : 0;
}

/* The byte of a token like <0x0A>, or -1. A sign counts as a digit, as in the reference. */
static int byte_of_token(const char *s, size_t len)
{
    int value = 0;
    if (len != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    for (int i = s[3] == '+' ? 4 : 3; i < 5; i++) {
        int digit = hex_value(s[i]);
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* ---- tokens -------------------------------------------------------------------------------- */

/* The bytes of a token in the byte alphabet, into a work buffer; others stand for themselves. */
static int bytes_of_token(struct tok_decode_run *r, const char **s, size_t *len)
{
    struct tok_decode_text *out = &r->work[*s == r->work[0].s];
    out->len = 0;
    int rc = put(out, *s, *len);
    if (rc) return rc;
    ptrdiff_t n = tok_bytelevel_decode(*s, *len, out->s);
    if (n < 0) return 0;
    *s = out->s;
    *len = (size_t)n;
    return 0;
}

static int push_bytelevel(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *s,
                          size_t len)
{
    int rc = bytes_of_token(r, &s, &len);
    for (size_t i = 0; i < len && !rc; i++) {
        if (r->n_bytes == 0 && (unsigned char)s[i] < 0x80) {
            size_t n = utf8_ascii_prefix(s + i, len - i);
            rc = send_text(p, r, s + i, n);
            i += n - 1;
            continue;
        }
        rc = take_byte(p, r, (unsigned char)s[i]);
    }
    return rc;
}

static int push_fallback(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *s,
                         size_t len)
{
    int byte = byte_of_token(s, len), rc = 0;
    if (byte >= 0) {
        r->in_bytes = true;
        return take_byte(p, r, (unsigned char)byte);
    }
    if (r->in_bytes) {
        rc = end_bytes(p, r);
        r->in_bytes = false;
        r->past_first = true;
    }
    if (!rc) rc = run_token_ops(p, r, p->fallback + 1, p->n_token_ops, !r->past_first, &s, &len);
    r->past_first = true;
    return rc ? rc : send_text(p, r, s, len);
}

int tok_decode_check(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *token,
                     size_t len, char *err, size_t errlen)
{
    size_t until = p->fallback < p->n_token_ops ? p->fallback : p->n_token_ops;
    size_t max = max_of_token(len);
    int rc = 0;
    for (int first = 0; first < 2 && !rc; first++) {
        const char *s = token;
        size_t n = len;
        rc = check_token_ops(p, r, 0, until, first, &s, &n, max, err, errlen);
        if (rc || p->fallback == SIZE_MAX || byte_of_token(s, n) >= 0) continue;
        rc = check_token_ops(p, r, until + 1, p->n_token_ops, first, &s, &n, max, err, errlen);
    }
    return rc;
}

int tok_decode_push(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *token,
                    size_t len)
{
    bool first = !r->started;
    size_t until = p->fallback < p->n_token_ops ? p->fallback : p->n_token_ops;
    int rc = 0;
    r->out.len = 0;
    r->started = true;
    if (p->join == TOK_JOIN_SPACES && !first) rc = send_text(p, r, " ", 1);
    if (!rc) rc = run_token_ops(p, r, 0, until, first, &token, &len);
    if (rc) return rc;
    if (p->join == TOK_JOIN_BYTELEVEL) return push_bytelevel(p, r, token, len);
    if (p->fallback != SIZE_MAX) return push_fallback(p, r, token, len);
    return send_text(p, r, token, len);
}

int tok_decode_flush(const struct tok_decode_plan *p, struct tok_decode_run *r)
{
    r->out.len = 0;
    int rc = end_bytes(p, r);
    for (size_t i = p->n_token_ops; i < p->n_ops && !rc; i++) {
        struct tok_decode_text *match = &r->states[i - p->n_token_ops].match;
        rc = send(p, r, i + 1, match->s, match->len);
        match->len = 0;
    }
    return rc;
}

int tok_decode_bytes(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *token,
                     size_t len)
{
    size_t until = p->fallback < p->n_token_ops ? p->fallback : p->n_token_ops;
    int byte, rc;
    tok_decode_reset(p, r);
    rc = run_token_ops(p, r, 0, until, false, &token, &len);
    if (rc) return rc;
    if (p->join == TOK_JOIN_BYTELEVEL) {
        rc = bytes_of_token(r, &token, &len);
    } else if (p->fallback != SIZE_MAX) {
        byte = byte_of_token(token, len);
        if (byte >= 0) return put(&r->out, &(char){(char)byte}, 1);
        rc = run_token_ops(p, r, until + 1, p->n_token_ops, false, &token, &len);
    }
    for (size_t i = p->n_token_ops; i < p->n_ops && !rc; i++) {
        struct tok_decode_text *out = &r->work[token == r->work[0].s];
        if (p->ops[i].kind != OP_REPLACE) continue;
        out->len = 0;
        rc = replace_in(&p->ops[i], &r->regex, token, len, out);
        token = out->s ? out->s : "";
        len = out->len;
    }
    return rc ? rc : put(&r->out, token, len);
}
