/* SPDX-License-Identifier: MIT */
/*
 * Template source to tokens, by the rules of the reference's lexer with trim_blocks and
 * lstrip_blocks on:
 *
 * - one newline at the very end of the source is dropped, and all newlines become \n;
 * - the first newline after a statement or comment is dropped, "%}" or "#}" permitting no blank;
 * - blanks between the start of a line and a statement or comment are dropped; "{%+" keeps them;
 * - "-" next to a delimiter drops all white space on that side.
 *
 * Positions are bytes. White space is Unicode's, as in the reference's regular expressions.
 */
#include "tokenizer/template/lexer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/utf8.h"
#include "tokenizer/template/text_ops.h"

enum { MAX_BRACKETS = 1000 };

struct lexer {
    struct jinja_run *r;
    struct jinja_str src;
    size_t at;
    int line;
    bool line_starting; /* the last thing read ended a line (or nothing was read) */
    struct jinja_cursor *out;
    char brackets[MAX_BRACKETS]; /* closers wanted, innermost last */
    size_t n_brackets;
};

#define fail(lx, ...) jinja_raise_at((lx)->r, (lx)->line, __VA_ARGS__)

static struct jinja_token *emit(struct lexer *lx, int type)
{
    struct jinja_cursor *out = lx->out;
    out->tokens = jinja_room(lx->r, out->tokens, out->n, &out->cap, sizeof(*out->tokens));
    out->tokens[out->n] = (struct jinja_token){.type = type, .line = lx->line};
    return &out->tokens[out->n++];
}

static void emit_data(struct lexer *lx, size_t begin, size_t end)
{
    if (end > begin)
        emit(lx, JINJA_T_DATA)->text = jinja_str_part(lx->r, &lx->src, begin, end - begin);
}

static bool at_text(const struct lexer *lx, size_t at, const char *text)
{
    size_t n = strlen(text);
    return lx->src.len - at >= n && memcmp(lx->src.s + at, text, n) == 0;
}

static int char_at(const struct lexer *lx, size_t at)
{
    return at < lx->src.len ? (unsigned char)lx->src.s[at] : -1;
}

static size_t skip_space(const struct lexer *lx, size_t at)
{
    return jinja_str_skip(&lx->src, at, jinja_cp_space);
}

/* Moves on to `to`, counting lines. */
static void move_to(struct lexer *lx, size_t to)
{
    assert(to >= lx->at && to <= lx->src.len);
    for (size_t i = lx->at; i < to; i++)
        lx->line += lx->src.s[i] == '\n';
    if (to > lx->at) lx->line_starting = lx->src.s[to - 1] == '\n';
    lx->at = to;
}

/* ---- text between tags --------------------------------------------------------------------- */

/*
 * The end of text [begin, end) once the tag after it has had its say: sign '-' strips all white
 * space, and blanks at the start of the tag's line go unless the sign is '+' or it is a variable.
 */
static size_t strip_before_tag(const struct lexer *lx, size_t begin, size_t end, int sign,
                               bool variable)
{
    struct jinja_str text = lx->src;
    text.s += begin;
    text.len = end - begin;
    if (sign == '-') return begin + jinja_str_strip(lx->r, &text, NULL, JINJA_RIGHT).u.str->len;
    if (sign == '+' || variable) return end;
    const char *nl = text.len ? memrchr(text.s, '\n', text.len) : NULL;
    size_t line = nl ? begin + (size_t)(nl - text.s) + 1 : begin;
    if (!nl && !lx->line_starting) return end;
    return skip_space(lx, line) >= end ? line : end;
}

/* "{% raw %}" in any of its spellings at `at`. */
static bool is_raw(const struct lexer *lx, size_t at)
{
    at += 2;
    if (char_at(lx, at) == '-' || char_at(lx, at) == '+') at++;
    at = skip_space(lx, at);
    if (!at_text(lx, at, "raw")) return false;
    at = skip_space(lx, at + 3);
    return at_text(lx, at, "-%}") || at_text(lx, at, "%}");
}

/* The end of a statement or comment: returns where the text goes on, 0 if `at` is none. */
static size_t match_end(const struct lexer *lx, size_t at, const char *closer)
{
    if (char_at(lx, at) == '-' && at_text(lx, at + 1, closer)) return skip_space(lx, at + 3);
    if (char_at(lx, at) == '+' && at_text(lx, at + 1, closer)) return at + 3;
    if (!at_text(lx, at, closer)) return 0;
    return at + 2 + (char_at(lx, at + 2) == '\n');
}

static void lex_comment(struct lexer *lx)
{
    for (size_t at = lx->at; at < lx->src.len; at++) {
        size_t end = match_end(lx, at, "#}");
        if (!end) continue;
        move_to(lx, end);
        return;
    }
    fail(lx, "Missing end of comment tag");
}

/* ---- inside a tag -------------------------------------------------------------------------- */

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static size_t skip_digits(const struct lexer *lx, size_t at)
{
    while (is_digit(char_at(lx, at)))
        at++;
    return at;
}

/* The end of a float at the current position, or 0. */
static size_t match_float(const struct lexer *lx)
{
    if (lx->at > 0 && lx->src.s[lx->at - 1] == '.') return 0; /* a.0.1: two items */
    size_t at = skip_digits(lx, lx->at), end = 0;
    if (char_at(lx, at) == '.' && is_digit(char_at(lx, at + 1))) end = at = skip_digits(lx, at + 1);
    if (char_at(lx, at) != 'e' && char_at(lx, at) != 'E') return end;
    at += 1 + (char_at(lx, at + 1) == '+' || char_at(lx, at + 1) == '-');
    return is_digit(char_at(lx, at)) ? skip_digits(lx, at) : end;
}

static void lex_number(struct lexer *lx)
{
    const char *digits = lx->src.s + lx->at;
    size_t end = match_float(lx);
    struct jinja_value v;
    if (end) {
        jinja_spend_digits(lx->r, end - lx->at);
        v = jinja_float(strtod(jinja_copy(lx->r, digits, end - lx->at), NULL));
    } else {
        end = skip_digits(lx, lx->at);
        for (size_t at = lx->at; *digits == '0' && at < end; at++)
            if (lx->src.s[at] != '0') end = at; /* 012 is two numbers */
        lx->r->line = lx->line;
        if (!jinja_int_parse(lx->r, digits, end - lx->at, false, &v))
            fail(lx, "an integer with too many digits");
    }
    emit(lx, JINJA_T_NUMBER)->number = v;
    move_to(lx, end);
}

static bool is_name_char(int c)
{
    return c == '_' || is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

/* Letters, digits and underscores. Returns false if there is none here. */
static bool lex_name(struct lexer *lx)
{
    size_t at = lx->at;
    while (is_name_char(char_at(lx, at)))
        at++;
    if (at == lx->at) return false;
    struct jinja_token *t = emit(lx, JINJA_T_NAME);
    t->text = jinja_str_new(lx->r, lx->src.s + lx->at, at - lx->at, JINJA_TRUSTED);
    move_to(lx, at);
    return true;
}

/* n hexadecimal digits at `at`. */
static size_t unescape_hex(struct lexer *lx, struct jinja_sb *sb, size_t at, size_t end, size_t n)
{
    int32_t cp = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = at + i < end ? hex_value(char_at(lx, at + i)) : -1;
        if (digit < 0) fail(lx, "truncated escape in a string");
        cp = (cp << 4 | digit) & 0xFFFFFFF;
    }
    if (cp > 0x10FFFF) fail(lx, "illegal Unicode character in a string");
    if (cp >= 0xD800 && cp <= 0xDFFF) fail(lx, "half of a surrogate pair in a string");
    jinja_sb_add_cp(sb, cp, JINJA_TRUSTED);
    return at + n;
}

/* The escape after a backslash, at `at`; returns the position after it. */
static size_t unescape(struct lexer *lx, struct jinja_sb *sb, size_t at, size_t end)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    int c = char_at(lx, at);
    const char *p = c > 0 && c < 0x80 ? strchr(from, c) : NULL;
    if (p) {
        jinja_sb_add_bytes(sb, to + (p - from), 1, JINJA_TRUSTED);
        return at + 1;
    }
    switch (c) {
    case '\n': return at + 1;
    case 'x': return unescape_hex(lx, sb, at + 1, end, 2);
    case 'u': return unescape_hex(lx, sb, at + 1, end, 4);
    case 'U': return unescape_hex(lx, sb, at + 1, end, 8);
    case 'N': fail(lx, "characters by name (\\N{...}) are not supported");
    default: break;
    }
    if ((c >= '0' && c <= '7') || c >= 0x80)
        fail(
            lx,
            "an escape in octal or of a character beyond ASCII is not supported in chat templates");
    jinja_sb_add_lit(sb, "\\"); /* no escape after all: the character follows as it is */
    return at;
}

static const struct jinja_str *unescape_string(struct lexer *lx, size_t begin, size_t end)
{
    struct jinja_sb sb = {.r = lx->r};
    for (size_t at = begin; at < end;) {
        size_t plain = at;
        while (plain < end && lx->src.s[plain] != '\\')
            plain++;
        jinja_sb_add_part(&sb, &lx->src, at, plain - at);
        at = plain < end ? unescape(lx, &sb, plain + 1, end) : end;
    }
    return jinja_sb_str(&sb);
}

/* Returns false if the string has no end. */
static bool lex_string(struct lexer *lx)
{
    char quote = lx->src.s[lx->at];
    size_t end = lx->at + 1;
    while (end < lx->src.len && lx->src.s[end] != quote)
        end += lx->src.s[end] == '\\' ? 2 : 1;
    if (end >= lx->src.len) return false;
    const struct jinja_str *text = unescape_string(lx, lx->at + 1, end);
    emit(lx, JINJA_T_STRING)->text = text;
    move_to(lx, end + 1);
    return true;
}

/* The ends of tags are recognised only where no bracket is open. */
static void balance(struct lexer *lx, char c)
{
    static const char open[] = "([{", close[] = ")]}";
    const char *p = strchr(open, c);
    if (p) {
        if (lx->n_brackets == MAX_BRACKETS) fail(lx, "too many open brackets");
        lx->brackets[lx->n_brackets++] = close[p - open];
        return;
    }
    if (!strchr(close, c)) return;
    if (lx->n_brackets == 0) fail(lx, "unexpected '%c'", c);
    char wanted = lx->brackets[--lx->n_brackets];
    if (wanted != c) fail(lx, "unexpected '%c', expected '%c'", c, wanted);
}

static bool lex_operator(struct lexer *lx)
{
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    int type = char_at(lx, lx->at);
    size_t n = 1;
    for (size_t i = 0; i < sizeof(two) / sizeof(two[0]) && n == 1; i++)
        n += at_text(lx, lx->at, two[i]);
    if (n == 1 && (type <= 0 || !strchr("+-/*%~[](){}><=.:|,;", type))) return false;
    if (n == 1) balance(lx, (char)type);
    emit(lx, n == 1 ? type : type << 8 | char_at(lx, lx->at + 1));
    move_to(lx, lx->at + n);
    return true;
}

static void lex_one(struct lexer *lx)
{
    int c = char_at(lx, lx->at);
    size_t space = skip_space(lx, lx->at);
    if (space > lx->at) {
        move_to(lx, space);
        return;
    }
    if (is_digit(c)) {
        lex_number(lx);
        return;
    }
    if (lex_name(lx)) return;
    if ((c == '\'' || c == '"') && lex_string(lx)) return;
    if (lex_operator(lx)) return;
    size_t next = lx->at;
    jinja_str_next(&lx->src, &next);
    fail(lx, "unexpected char '%.*s'", (int)(next - lx->at), lx->src.s + lx->at);
}

/* "-}}" and "}}" end a variable; "+}}" does not exist. */
static size_t match_variable_end(const struct lexer *lx)
{
    if (at_text(lx, lx->at, "-}}")) return skip_space(lx, lx->at + 3);
    return at_text(lx, lx->at, "}}") ? lx->at + 2 : 0;
}

static void lex_tag(struct lexer *lx, bool variable)
{
    emit(lx, variable ? JINJA_T_VARIABLE_BEGIN : JINJA_T_BLOCK_BEGIN);
    lx->n_brackets = 0;
    while (lx->at < lx->src.len) {
        size_t end = 0;
        if (lx->n_brackets == 0)
            end = variable ? match_variable_end(lx) : match_end(lx, lx->at, "%}");
        if (end) {
            emit(lx, variable ? JINJA_T_VARIABLE_END : JINJA_T_BLOCK_END);
            move_to(lx, end);
            return;
        }
        lex_one(lx);
    }
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* The next "{%", "{{" or "{#", or the end of the source. */
static size_t find_tag(const struct lexer *lx, size_t at)
{
    while (at + 1 < lx->src.len) {
        const char *p = memchr(lx->src.s + at, '{', lx->src.len - at - 1);
        if (!p) break;
        at = (size_t)(p - lx->src.s);
        if (p[1] == '%' || p[1] == '{' || p[1] == '#') return at;
        at++;
    }
    return lx->src.len;
}

static void lex_root(struct lexer *lx)
{
    while (lx->at < lx->src.len) {
        size_t begin = lx->at, tag = find_tag(lx, begin);
        if (tag == lx->src.len) {
            emit_data(lx, begin, tag);
            move_to(lx, tag);
            break;
        }
        char kind = lx->src.s[tag + 1];
        int sign = char_at(lx, tag + 2);
        if (kind == '%' && is_raw(lx, tag)) fail(lx, "'raw' is not supported in chat templates");
        emit_data(lx, begin, strip_before_tag(lx, begin, tag, sign, kind == '{'));
        move_to(lx, tag + 2 + (sign == '-' || sign == '+'));
        if (kind == '#')
            lex_comment(lx);
        else
            lex_tag(lx, kind == '{');
    }
}

/* All line ends become \n, and the last one of the source goes. */
static struct jinja_str normalize_newlines(struct jinja_run *r, const char *source, size_t len)
{
    char *text = jinja_alloc(r, len + 1, 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n') continue;
        text[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n > 0 && text[n - 1] == '\n') n--;
    return (struct jinja_str){.s = text, .len = n, .origin = JINJA_TRUSTED};
}

void jinja_lex(struct jinja_run *r, const char *source, size_t len, struct jinja_cursor *ret)
{
    struct lexer *lx = JINJA_NEW(r, struct lexer);
    *ret = (struct jinja_cursor){.r = r};
    if (!utf8_valid(source, len)) jinja_raise(r, "the template is not valid UTF-8");
    lx->r = r;
    lx->src = normalize_newlines(r, source, len);
    lx->line = 1;
    lx->line_starting = true;
    lx->out = ret;
    lex_root(lx);
    emit(lx, JINJA_T_EOF);
    r->line = 0;
}

/* ---- the cursor ---------------------------------------------------------------------------- */

const char *jinja_token_name(const struct jinja_token *t, struct jinja_run *r)
{
    const char op[] = {(char)(t->type >> 8), (char)t->type};
    switch (t->type) {
    case JINJA_T_EOF: return "end of template";
    case JINJA_T_DATA: return "template data / text";
    case JINJA_T_VARIABLE_BEGIN: return "begin of print statement";
    case JINJA_T_VARIABLE_END: return "end of print statement";
    case JINJA_T_BLOCK_BEGIN: return "begin of statement block";
    case JINJA_T_BLOCK_END: return "end of statement block";
    case JINJA_T_NAME: return jinja_copy(r, t->text->s, t->text->len);
    case JINJA_T_STRING: return "string";
    case JINJA_T_NUMBER: return "number";
    default: return jinja_copy(r, op + (t->type < 256), t->type < 256 ? 1 : 2);
    }
}

const struct jinja_token *jinja_peek(const struct jinja_cursor *c)
{
    assert(c->at < c->n);
    return &c->tokens[c->at];
}

const struct jinja_token *jinja_look(const struct jinja_cursor *c)
{
    return &c->tokens[c->at + 1 < c->n ? c->at + 1 : c->at];
}

const struct jinja_token *jinja_advance(struct jinja_cursor *c)
{
    const struct jinja_token *t = jinja_peek(c);
    if (t->type != JINJA_T_EOF) c->at++;
    return t;
}

bool jinja_at_name(const struct jinja_cursor *c, const char *name)
{
    const struct jinja_token *t = jinja_peek(c);
    return t->type == JINJA_T_NAME && jinja_str_is(t->text, name);
}

bool jinja_skip_name(struct jinja_cursor *c, const char *name)
{
    if (!jinja_at_name(c, name)) return false;
    jinja_advance(c);
    return true;
}

bool jinja_skip(struct jinja_cursor *c, int type)
{
    if (jinja_peek(c)->type != type) return false;
    jinja_advance(c);
    return true;
}

const struct jinja_token *jinja_expect(struct jinja_cursor *c, int type, const char *what)
{
    const struct jinja_token *t = jinja_peek(c);
    if (t->type == type) return jinja_advance(c);
    if (t->type == JINJA_T_EOF)
        jinja_raise_at(c->r, t->line, "unexpected end of template, expected '%s'.", what);
    jinja_raise_at(c->r, t->line, "expected token '%s', got '%s'", what, jinja_token_name(t, c->r));
}

void jinja_descend(struct jinja_cursor *c)
{
    if (++c->depth > JINJA_MAX_NESTING)
        jinja_raise_at(c->r, jinja_peek(c)->line, "nested deeper than %d", JINJA_MAX_NESTING);
}

void jinja_ascend(struct jinja_cursor *c)
{
    assert(c->depth > 0);
    c->depth--;
}
