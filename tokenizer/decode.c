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

static int out_of_order(struct tok_component *c, const char *type, const char *behind)
{
    if (c->rc) return c->rc;
    return fail_with(TOK_EINVAL, c->err, c->errlen, "the decoder %s after %s is not supported",
                     type, behind);
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
                       const char *type, struct tok_component *c)
{
    if (p->joined) {
        bool streams = op->kind == OP_STRIP || (op->kind == OP_REPLACE && op->what.literal.s);
        if (!streams) return out_of_order(c, type, "Fuse or ByteLevel");
        if (p->n_ops - p->n_token_ops == TOK_MAX_TEXT_OPS) return out_of_order(c, type, "so many");
        return 0;
    }
    if (p->fallback != SIZE_MAX && !by_character(op)) return out_of_order(c, type, "ByteFallback");
    return 0;
}

static int load_join(struct tok_decode_plan *p, bool bytelevel, struct tok_component *c)
{
    if (bytelevel && p->joined) return out_of_order(c, "ByteLevel", "Fuse or ByteLevel");
    if (bytelevel && p->fallback != SIZE_MAX) return out_of_order(c, "ByteLevel", "ByteFallback");
    if (!p->joined) p->join = bytelevel ? TOK_JOIN_BYTELEVEL : TOK_JOIN_PLAIN;
    p->joined = true;
    return 0;
}

static void load_op(struct tok_decode_op *op, struct tok_component *c)
{
    const char *scheme = json_string_value(json_object_get(c->json, "prepend_scheme"));
    switch (op->kind) {
    case OP_REPLACE:
        op->content = tok_member_text(c, "content");
        op->what = tok_member_pattern(c);
        break;
    case OP_STRIP:
        tok_member_char(c, "content", op->ch);
        op->start = tok_member_uint(c, "start", MAX_STRIP);
        op->stop = tok_member_uint(c, "stop", MAX_STRIP);
        break;
    case OP_METASPACE:
        op->drop_first = !scheme || strcmp(scheme, "never") != 0;
        if (op->drop_first && scheme && strcmp(scheme, "first") && strcmp(scheme, "always"))
            tok_component_unknown(c, "prepend_scheme", scheme);
        tok_member_char(c, "replacement", op->ch);
        break;
    case OP_WORDPIECE:
        op->cleanup = tok_member_bool(c, "cleanup");
        op->content = tok_member_text(c, "prefix");
        break;
    case OP_FALLBACK: break;
    }
}

/* Callback of tok_component_visit for one component that is not a Sequence. */
static int load_decoder(void *data, const char *type, struct tok_component *c)
{
    static const char *const names[] = {"Replace", "Strip", "Metaspace", "ByteFallback",
                                        "WordPiece"}; /* enum op_kind */
    struct tok_decode_plan *p = data;
    size_t kind = 0;
    if (strcmp(type, "Fuse") == 0) return load_join(p, false, c);
    if (strcmp(type, "ByteLevel") == 0) return load_join(p, true, c);
    while (kind < sizeof(names) / sizeof(names[0]) && strcmp(type, names[kind]) != 0)
        kind++;
    if (kind == sizeof(names) / sizeof(names[0])) return tok_component_unknown(c, "decoder", type);
    struct tok_decode_op *op = realloc(p->ops, (p->n_ops + 1) * sizeof(*op));
    if (!op) return TOK_ENOMEM;
    p->ops = op;
    op += p->n_ops++;
    *op = (struct tok_decode_op){.kind = (enum op_kind)kind};
    load_op(op, c);
    int rc = check_order(p, op, type, c);
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

/* Nothing after a failure. */
static void put(struct tok_decode_run *r, struct tok_decode_text *t, const char *s, size_t len)
{
    if (r->rc) return;
    if (t->max && len > t->max - t->len)
        r->rc = TOK_ELIMIT;
    else if (ARRAY_ROOM(t->s, t->cap, t->len + len, 32))
        r->rc = TOK_ENOMEM;
    if (r->rc || !len) return;
    memcpy(t->s + t->len, s, len);
    t->len += len;
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
    r->rc = 0;
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

static void send(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t op,
                 const char *s, size_t len);

/* Takes characters off the front, and holds back those that may be the last. */
static void send_strip(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t at,
                       const char *s, size_t len)
{
    const struct tok_decode_op *op = &p->ops[at];
    struct tok_decode_state *state = &r->states[at - p->n_token_ops];
    size_t width = strlen(op->ch);
    for (size_t i = 0, n; i < len; i += n) {
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
        for (; !same && state->held; state->held--)
            send(p, r, at + 1, op->ch, width);
        send(p, r, at + 1, s + i, n);
    }
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
static void send_replace(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t at,
                         const char *s, size_t len)
{
    const struct tok_decode_op *op = &p->ops[at];
    const struct tok_component_text *literal = &op->what.literal;
    struct tok_decode_text *match = &r->states[at - p->n_token_ops].match;
    const char *found;
    size_t done = 0;
    put(r, match, s, len);
    if (r->rc) return;
    while ((found = memmem(match->s + done, match->len - done, literal->s, literal->len))) {
        size_t begin = (size_t)(found - match->s);
        send(p, r, at + 1, match->s + done, begin - done);
        send(p, r, at + 1, op->content.s, op->content.len);
        done = begin + literal->len;
    }
    size_t keep = partial_match(literal, match->s + done, match->len - done);
    send(p, r, at + 1, match->s + done, match->len - done - keep);
    memmove(match->s, match->s + match->len - keep, keep);
    match->len = keep;
}

/* Gives text to the op with this index, or out after the last. */
static void send(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t op,
                 const char *s, size_t len)
{
    if (len == 0 || r->rc) return;
    if (op == p->n_ops)
        put(r, &r->out, s, len);
    else if (p->ops[op].kind == OP_STRIP)
        send_strip(p, r, op, s, len);
    else
        send_replace(p, r, op, s, len);
}

static void send_text(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *s,
                      size_t len)
{
    send(p, r, p->n_token_ops, s, len);
}

/* ---- ops on tokens ------------------------------------------------------------------------- */

static void replace_in(const struct tok_decode_op *op, struct tok_decode_run *r, const char *s,
                       size_t len, struct tok_decode_text *out)
{
    struct tok_pattern_iter it = tok_pattern_iter(&op->what, s, len);
    size_t begin, end, done = 0;
    char unused[128];
    int more = 0;
    if (len == 0) return;
    tok_regex_scratch_next(&r->regex, len);
    while (!r->rc &&
           (more = tok_pattern_next(&it, &r->regex, &begin, &end, unused, sizeof(unused))) == 1) {
        put(r, out, s + done, begin - done);
        put(r, out, op->content.s, op->content.len);
        done = end;
    }
    if (more < 0) r->rc = more;
    put(r, out, s + done, len - done);
}

/* Bytes that up to max repetitions of ch take at the start (or the end) of s. */
static size_t repeated(const char *s, size_t len, const char *ch, uint32_t max, bool at_end)
{
    size_t width = strlen(ch), n = 0;
    for (; max && n + width <= len; max--, n += width)
        if (memcmp(at_end ? s + len - n - width : s + n, ch, width) != 0) break;
    return n;
}

static void strip_token(const struct tok_decode_op *op, struct tok_decode_run *r, const char *s,
                        size_t len, struct tok_decode_text *out)
{
    size_t front = repeated(s, len, op->ch, op->start, false);
    size_t back = repeated(s + front, len - front, op->ch, op->stop, true);
    put(r, out, s + front, len - front - back);
}

static void metaspace_token(const struct tok_decode_op *op, struct tok_decode_run *r, bool first,
                            const char *s, size_t len, struct tok_decode_text *out)
{
    size_t width = strlen(op->ch);
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_len((unsigned char)s[i]);
        bool mark = n == width && memcmp(s + i, op->ch, n) == 0;
        if (!mark)
            put(r, out, s + i, n);
        else if (!first || !op->drop_first)
            put(r, out, " ", 1);
    }
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
static void wordpiece_token(const struct tok_decode_op *op, struct tok_decode_run *r, bool first,
                            const char *s, size_t len, struct tok_decode_text *out)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    const struct tok_component_text *prefix = &op->content;
    bool more = !first && len >= prefix->len && memcmp(s, prefix->s, prefix->len) == 0;
    if (!first && !more) put(r, out, " ", 1);
    put(r, out, s + (more ? prefix->len : 0), len - (more ? prefix->len : 0));
    for (size_t i = 0; op->cleanup && i < sizeof(pairs) / sizeof(pairs[0]); i++)
        shorten(out, pairs[i][0], pairs[i][1]);
}

/* Runs the token ops [from, to) over *s. The result is in one of the work buffers. */
static void run_token_ops(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t from,
                          size_t to, bool first, const char **s, size_t *len)
{
    for (size_t i = from; i < to && !r->rc; i++) {
        const struct tok_decode_op *op = &p->ops[i];
        struct tok_decode_text *out = &r->work[*s == r->work[0].s];
        put(r, out, "", 0); /* its buffer exists */
        out->len = 0;
        if (op->kind == OP_REPLACE)
            replace_in(op, r, *s, *len, out);
        else if (op->kind == OP_STRIP)
            strip_token(op, r, *s, *len, out);
        else if (op->kind == OP_WORDPIECE)
            wordpiece_token(op, r, first, *s, *len, out);
        else
            metaspace_token(op, r, first, *s, *len, out);
        *s = out->s;
        *len = out->len;
    }
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
    r->rc = 0;
    run_token_ops(p, r, from, to, first, s, len);
    if (r->rc != TOK_ELIMIT) return r->rc;
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
    *p = (struct tok_decode_plan){.fallback = SIZE_MAX,
                                  .join = none ? TOK_JOIN_SPACES : TOK_JOIN_PLAIN};
    int rc = tok_component_visit("decoder", "decoders", json, uni, load_decoder, p, err, errlen);
    if (p->fallback == SIZE_MAX) p->fallback = p->n_token_ops;
    for (size_t i = 0; i < p->n_token_ops; i++)
        p->by_token |= may_grow(&p->ops[i]) || p->ops[i].what.re;
    if (!rc) rc = check_text_ops(p, err, errlen);
    return rc ? rc : check_characters(p, err, errlen);
}

/* ---- bytes --------------------------------------------------------------------------------- */

/* Gives out bytes that will never be a character. */
static void send_bad(const struct tok_decode_plan *p, struct tok_decode_run *r, size_t n)
{
    size_t marks = p->join == TOK_JOIN_BYTELEVEL ? 1 : n;
    for (size_t i = 0; i < marks; i++)
        send_text(p, r, REPLACEMENT, 3);
    r->n_bytes -= n;
    memmove(r->bytes, r->bytes + n, r->n_bytes);
}

/*
 * Adds a byte, and outputs every character and every invalid sequence that is complete now. The
 * characters of byte tokens go through the token ops after ByteFallback.
 */
static void take_byte(const struct tok_decode_plan *p, struct tok_decode_run *r, unsigned char byte)
{
    int n;
    r->bytes[r->n_bytes++] = byte;
    while (r->n_bytes && (n = utf8_classify(r->bytes, r->n_bytes)) != 0) {
        if (n < 0) {
            send_bad(p, r, (size_t)-n);
            continue;
        }
        const char *s = (const char *)r->bytes;
        size_t len = (size_t)n;
        run_token_ops(p, r, p->fallback + 1, p->n_token_ops, !r->past_first, &s, &len);
        send_text(p, r, s, len);
        r->n_bytes = 0;
    }
}

static void end_bytes(const struct tok_decode_plan *p, struct tok_decode_run *r)
{
    if (r->n_bytes) send_bad(p, r, r->n_bytes);
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
static void bytes_of_token(struct tok_decode_run *r, const char **s, size_t *len)
{
    struct tok_decode_text *out = &r->work[*s == r->work[0].s];
    out->len = 0;
    put(r, out, *s, *len);
    ptrdiff_t n = r->rc ? -1 : tok_bytelevel_decode(*s, *len, out->s);
    if (n < 0) return;
    *s = out->s;
    *len = (size_t)n;
}

static void push_bytelevel(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *s,
                           size_t len)
{
    bytes_of_token(r, &s, &len);
    for (size_t i = 0; i < len && !r->rc; i++) {
        if (r->n_bytes == 0 && (unsigned char)s[i] < 0x80) {
            size_t n = utf8_ascii_prefix(s + i, len - i);
            send_text(p, r, s + i, n);
            i += n - 1;
            continue;
        }
        take_byte(p, r, (unsigned char)s[i]);
    }
}

static void push_fallback(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *s,
                          size_t len)
{
    int byte = byte_of_token(s, len);
    if (byte >= 0) {
        r->in_bytes = true;
        take_byte(p, r, (unsigned char)byte);
        return;
    }
    if (r->in_bytes) {
        end_bytes(p, r);
        r->in_bytes = false;
        r->past_first = true;
    }
    run_token_ops(p, r, p->fallback + 1, p->n_token_ops, !r->past_first, &s, &len);
    r->past_first = true;
    send_text(p, r, s, len);
}

int tok_decode_check(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *token,
                     size_t len, char *err, size_t errlen)
{
    size_t max = max_of_token(len);
    int rc = 0;
    for (int first = 0; first < 2 && !rc; first++) {
        const char *s = token;
        size_t n = len;
        rc = check_token_ops(p, r, 0, p->fallback, first, &s, &n, max, err, errlen);
        if (rc || byte_of_token(s, n) >= 0) continue;
        rc =
            check_token_ops(p, r, p->fallback + 1, p->n_token_ops, first, &s, &n, max, err, errlen);
    }
    return rc;
}

int tok_decode_push(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *token,
                    size_t len)
{
    bool first = !r->started;
    r->rc = 0;
    r->out.len = 0;
    r->started = true;
    if (p->join == TOK_JOIN_SPACES && !first) send_text(p, r, " ", 1);
    run_token_ops(p, r, 0, p->fallback, first, &token, &len);
    if (r->rc) return r->rc;
    if (p->join == TOK_JOIN_BYTELEVEL)
        push_bytelevel(p, r, token, len);
    else if (p->fallback < p->n_token_ops)
        push_fallback(p, r, token, len);
    else
        send_text(p, r, token, len);
    return r->rc;
}

int tok_decode_flush(const struct tok_decode_plan *p, struct tok_decode_run *r)
{
    r->rc = 0;
    r->out.len = 0;
    end_bytes(p, r);
    for (size_t i = p->n_token_ops; i < p->n_ops; i++) {
        struct tok_decode_text *match = &r->states[i - p->n_token_ops].match;
        send(p, r, i + 1, match->s, match->len);
        match->len = 0;
    }
    return r->rc;
}

int tok_decode_bytes(const struct tok_decode_plan *p, struct tok_decode_run *r, const char *token,
                     size_t len)
{
    tok_decode_reset(p, r);
    run_token_ops(p, r, 0, p->fallback, false, &token, &len);
    int byte = p->fallback < p->n_token_ops ? byte_of_token(token, len) : -1;
    if (byte >= 0) {
        put(r, &r->out, &(char){(char)byte}, 1);
        return r->rc;
    }
    if (p->join == TOK_JOIN_BYTELEVEL) bytes_of_token(r, &token, &len);
    run_token_ops(p, r, p->fallback + 1, p->n_token_ops, false, &token, &len);
    for (size_t i = p->n_token_ops; i < p->n_ops; i++) {
        struct tok_decode_text *out = &r->work[token == r->work[0].s];
        if (p->ops[i].kind != OP_REPLACE) continue;
        out->len = 0;
        replace_in(&p->ops[i], r, token, len, out);
        token = out->s ? out->s : "";
        len = out->len;
    }
    put(r, &r->out, token, len);
    return r->rc;
}
