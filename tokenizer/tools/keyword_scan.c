/* SPDX-License-Identifier: MIT */
/* Keyword arguments as JSON; see keyword_scan.h. */
#include "tokenizer/tools/keyword_scan.h"

#include <string.h>

#include "base/utf8.h"

enum state {
    KEYWORD, /* a keyword or the end; the same of a dictionary */
    NAME,
    EQUALS,
    VALUE, /* a value must come */
    ITEM,  /* of a list, or its end */
    COLON,
    AFTER,   /* after a value */
    OPENING, /* in the text before a string */
    QUOTED,  /* up to that text */
    STRING,
    ESCAPE,
    DIGITS,
    WORD,
    NUMBER,
    DONE,
};

/* ---- JSON that goes out -------------------------------------------------------------------- */

/* Gives out all but the beginning of a character. */
static void flush(struct keyword_scan *s)
{
    size_t lead = s->n_out, n = s->n_out;
    while (lead && n - lead < 3) {
        lead--;
        if ((s->out[lead] & 0xC0) != 0x80) break;
    }
    if (lead < n && utf8_classify((const unsigned char *)s->out + lead, n - lead) == 0) n = lead;
    if (n) s->give(s->ctx, s->out, n);
    s->n_out = (uint8_t)(s->n_out - n);
    memmove(s->out, s->out + n, s->n_out);
}

static void put(struct keyword_scan *s, const char *text, size_t len)
{
    for (size_t i = 0; s->give && i < len; i++) {
        if (s->n_out == KEYWORD_OUT_BYTES) flush(s);
        s->out[s->n_out++] = text[i];
    }
}

static void put_text(struct keyword_scan *s, const char *text)
{
    put(s, text, strlen(text));
}

/* A character of a string. */
static void put_char(struct keyword_scan *s, char c)
{
    char escape[8];
    size_t n = json_escape(c, escape);
    put(s, n ? escape : &c, n ? n : 1);
}

/* An item begins: what stands between it and the one before. */
static void separate(struct keyword_scan *s)
{
    if (!s->first) put_text(s, ", ");
    s->first = false;
}

/* ---- values -------------------------------------------------------------------------------- */

bool keyword_scan_is_name(char c)
{
    return (unsigned char)c > 0x20 && !strchr("=,:()[]{}<>'\"\\", c);
}

static bool open_container(struct keyword_scan *s, bool object)
{
    if (!json_nest(&s->nesting, object)) return false;
    s->first = true;
    s->state = object ? KEYWORD : ITEM;
    put_text(s, object ? "{" : "[");
    return true;
}

/* The end of a container, or of all arguments. */
static bool close_container(struct keyword_scan *s, char c)
{
    bool top = !s->nesting.depth;
    char wanted = top && !s->form ? ')' : top || json_in_object(&s->nesting) ? '}' : ']';
    if (c != wanted) return false;
    s->state = top ? DONE : AFTER;
    s->nesting.depth -= !top;
    s->first = false;
    put_text(s, c == ']' ? "]" : "}");
    return true;
}

/* False: no string begins so. */
static bool begin_string(struct keyword_scan *s, char c, bool key)
{
    bool formed = s->form && c == *s->form;
    if (!formed && c != '"' && c != '\'') return false;
    s->quote = c;
    s->key = key;
    s->state = formed ? OPENING : STRING;
    s->n_match = 1;
    put_text(s, "\"");
    return true;
}

static void end_string(struct keyword_scan *s)
{
    put_text(s, "\"");
    s->state = s->key ? COLON : AFTER;
}

static bool begin_word(struct keyword_scan *s, char c)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (words[i][0][0] != c) continue;
        s->literal = words[i][0] + 1;
        s->json = words[i][1];
        s->state = WORD;
        return true;
    }
    return false;
}

/* Takes a byte of a number. *again: the byte ended it and is still to be taken. */
static bool in_number(struct keyword_scan *s, char c, bool *again)
{
    const char *end;
    enum json_scan_result rc = json_scan(&s->number, &c, &c + 1, &end);
    *again = rc == JSON_SCAN_DONE;
    if (*again)
        s->state = AFTER;
    else if (rc == JSON_SCAN_MORE)
        put(s, &c, 1);
    return rc != JSON_SCAN_FAIL;
}

static bool begin_value(struct keyword_scan *s, char c)
{
    bool again;
    if (c == '{' || c == '[') return open_container(s, c == '{');
    if (begin_string(s, c, false)) return true;
    if (c != '-' && (c < '0' || c > '9')) return begin_word(s, c);
    s->state = NUMBER;
    json_scan_begin(&s->number);
    return in_number(s, c, &again);
}

static bool begin_item(struct keyword_scan *s, char c)
{
    if (c == ']') return close_container(s, c);
    separate(s);
    return begin_value(s, c);
}

static bool after_value(struct keyword_scan *s, char c)
{
    if (c != ',') return close_container(s, c);
    s->state = !s->nesting.depth || json_in_object(&s->nesting) ? KEYWORD : ITEM;
    return true;
}

static bool in_word(struct keyword_scan *s, char c)
{
    if (c != *s->literal++) return false;
    if (*s->literal) return true;
    put_text(s, s->json);
    s->state = AFTER;
    return true;
}

/* ---- keywords ------------------------------------------------------------------------------ */

static bool begin_keyword(struct keyword_scan *s, char c)
{
    if (c == ')' || c == '}') return close_container(s, c);
    separate(s);
    if ((s->form || s->nesting.depth) && begin_string(s, c, true)) return true;
    if ((!s->form && s->nesting.depth) || !keyword_scan_is_name(c)) return false;
    put_text(s, "\"");
    put(s, &c, 1);
    s->n_name = 1;
    s->state = NAME;
    return true;
}

static bool equals(struct keyword_scan *s, char c)
{
    put_text(s, "\": ");
    s->state = VALUE;
    return c == (s->form ? ':' : '=');
}

static bool in_name(struct keyword_scan *s, char c)
{
    if (json_is_space(c)) {
        s->state = EQUALS;
        return true;
    }
    if (c == (s->form ? ':' : '=')) return equals(s, c);
    if (!keyword_scan_is_name(c) || ++s->n_name > KEYWORD_MAX_NAME) return false;
    put(s, &c, 1);
    return true;
}

/* ---- strings ------------------------------------------------------------------------------- */

static bool in_string(struct keyword_scan *s, char c)
{
    if (c == '\\') {
        s->state = ESCAPE;
    } else if (c == s->quote) {
        end_string(s);
    } else {
        put_char(s, c);
    }
    return true;
}

static bool in_opening(struct keyword_scan *s, char c)
{
    if (c != s->form[s->n_match++]) return false;
    if (s->form[s->n_match]) return true;
    s->n_match = 0;
    s->state = QUOTED;
    return true;
}

/* No beginning of the text around strings is an end of it too. */
static bool in_quoted(struct keyword_scan *s, char c)
{
    if (c == s->form[s->n_match]) {
        if (!s->form[++s->n_match]) end_string(s);
        return true;
    }
    for (uint8_t i = 0; i < s->n_match; i++)
        put_char(s, s->form[i]);
    s->n_match = c == *s->form;
    if (!s->n_match) put_char(s, c);
    return true;
}

static bool in_escape(struct keyword_scan *s, char c)
{
    static const char letters[] = "\"'\\/bfnrt", plain[] = "\"'\\/\b\f\n\r\t";
    const char *at = c ? strchr(letters, c) : NULL;
    s->state = STRING;
    if (c == 'u' || c == 'x') {
        s->state = DIGITS;
        s->n_digits = 0;
        s->max_digits = c == 'u' ? 4 : 2;
    } else if (at) {
        put_char(s, plain[at - letters]);
    } else if (c != '\n') { /* which joins two lines */
        put_char(s, '\\');
        put_char(s, c);
    }
    return true;
}

static bool in_digits(struct keyword_scan *s, char c)
{
    char lower = (char)(c | 0x20);
    if (!(c >= '0' && c <= '9') && !(lower >= 'a' && lower <= 'f')) return false;
    s->digits[s->n_digits++] = c;
    if (s->n_digits == s->max_digits) {
        put_text(s, s->max_digits == 4 ? "\\u" : "\\u00");
        put(s, s->digits, s->max_digits);
        s->state = STRING;
    }
    return true;
}

/* ---- all states ---------------------------------------------------------------------------- */

void keyword_scan_begin(struct keyword_scan *s, const char *form, keyword_scan_fn give, void *ctx)
{
    memset(s, 0, sizeof(*s));
    s->first = true;
    s->form = form;
    s->give = give;
    s->ctx = ctx;
    put_text(s, "{");
    if (give) flush(s);
}

/* Takes a byte. *again: the byte ended a number and is still to be taken. */
static bool take(struct keyword_scan *s, char c, bool *again)
{
    *again = false;
    if ((s->state <= AFTER && s->state != NAME) && json_is_space(c)) return true;
    switch ((enum state)s->state) {
    case KEYWORD: return begin_keyword(s, c);
    case NAME: return in_name(s, c);
    case EQUALS: return equals(s, c);
    case VALUE: return begin_value(s, c);
    case ITEM: return begin_item(s, c);
    case COLON:
        put_text(s, ": ");
        s->state = VALUE;
        return c == ':';
    case AFTER: return after_value(s, c);
    case OPENING: return in_opening(s, c);
    case QUOTED: return in_quoted(s, c);
    case STRING: return in_string(s, c);
    case ESCAPE: return in_escape(s, c);
    case DIGITS: return in_digits(s, c);
    case WORD: return in_word(s, c);
    case NUMBER: return in_number(s, c, again);
    case DONE: break;
    }
    return false;
}

enum json_scan_result keyword_scan(struct keyword_scan *s, const char *p, const char *end,
                                   const char **ret)
{
    enum json_scan_result rc = JSON_SCAN_MORE;
    while (rc == JSON_SCAN_MORE && p < end && s->state != DONE) {
        bool again;
        if (!take(s, *p, &again))
            rc = JSON_SCAN_FAIL;
        else
            p += !again;
    }
    if (s->give && s->n_out) flush(s);
    *ret = p;
    return rc == JSON_SCAN_FAIL ? rc : s->state == DONE ? JSON_SCAN_DONE : JSON_SCAN_MORE;
}
