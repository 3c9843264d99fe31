/* SPDX-License-Identifier: MIT */
/*
 * One pass from left to right. The output position of the last atom is remembered, because a
 * quantifier may have to be wrapped around it; open groups form a stack of such positions.
 *
 * Sets are emitted as the inside of a class: PCRE2's own property plus the code points its Unicode
 * version lacks. A negated set inside a class cannot be put so and is spelled out as ranges.
 */
#include "tokenizer/pattern.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

#define CALLOUT "(?C1)"
#define MAX_COMPLEMENTS 16 /* each one walks through all code points */

/* A set of characters that an escape names. */
struct char_set {
    uint32_t categories; /* one bit for each general category */
    bool white;          /* White_Space */
    bool word;           /* \w: the categories and some more */
    bool hex;            /* 0-9 A-F a-f */
    const char *script;  /* PCRE2's spelling, or NULL */
    uint32_t script_index;
    bool negated;
};

struct group {
    size_t atom;   /* where the group begins in the output */
    bool caseless; /* as it was outside */
    bool look;     /* an assertion: not repeated */
};

struct translator {
    const struct tok_uni *uni;
    const unsigned char *p, *end;
    char *out;
    size_t n, cap;
    bool oom;
    struct group groups[TOK_PATTERN_MAX_DEPTH];
    int depth;
    bool caseless;
    bool has_atom;        /* something that a quantifier may repeat was just written */
    bool at_start;        /* nothing was written in this group yet */
    size_t atom;          /* its position in the output */
    uint32_t last_literal;
    int n_complements;
    char *err;
    size_t errlen;
};

/* ---- output -------------------------------------------------------------------------------- */

static void put_bytes(struct translator *t, const char *s, size_t len)
{
    if (t->oom) return;
    if (t->cap - t->n < len) {
        size_t cap = (t->n + len) * 2;
        char *p = realloc(t->out, cap);
        if (!p) {
            t->oom = true;
            return;
        }
        t->out = p;
        t->cap = cap;
    }
    memcpy(t->out + t->n, s, len);
    t->n += len;
}

static void put(struct translator *t, const char *s)
{
    put_bytes(t, s, strlen(s));
}

/* Letters and digits as they are, everything else by number. */
static void put_char(struct translator *t, uint32_t cp)
{
    char buf[16];

    if ((cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || (cp >= '0' && cp <= '9')) {
        snprintf(buf, sizeof(buf), "%c", (int)cp);
    } else {
        snprintf(buf, sizeof(buf), "\\x{%x}", cp);
    }
    put(t, buf);
}

static void put_range(struct translator *t, uint32_t first, uint32_t last)
{
    put_char(t, first);
    if (first == last) return;
    put(t, "-");
    put_char(t, last);
}

static int refuse(struct translator *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int refuse(struct translator *t, const char *format, ...)
{
    char what[128];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    snprintf(t->err, t->errlen, "regular expression: %s is not supported", what);
    return TOK_EINVAL;
}

/* ---- sets ---------------------------------------------------------------------------------- */

#define BIT(category) (1u << (category))
#define CATEGORIES_L (BIT(TOK_UNI_LU) | BIT(TOK_UNI_LL) | BIT(TOK_UNI_LT) | BIT(TOK_UNI_LM) | BIT(TOK_UNI_LO))
#define CATEGORIES_M (BIT(TOK_UNI_MN) | BIT(TOK_UNI_MC) | BIT(TOK_UNI_ME))
#define CATEGORIES_N (BIT(TOK_UNI_ND) | BIT(TOK_UNI_NL) | BIT(TOK_UNI_NO))
#define CATEGORIES_P (BIT(TOK_UNI_PC) | BIT(TOK_UNI_PD) | BIT(TOK_UNI_PS) | BIT(TOK_UNI_PE) | \
                      BIT(TOK_UNI_PI) | BIT(TOK_UNI_PF) | BIT(TOK_UNI_PO))
#define CATEGORIES_S (BIT(TOK_UNI_SM) | BIT(TOK_UNI_SC) | BIT(TOK_UNI_SK) | BIT(TOK_UNI_SO))
#define CATEGORIES_Z (BIT(TOK_UNI_ZS) | BIT(TOK_UNI_ZL) | BIT(TOK_UNI_ZP))
#define CATEGORIES_CASED (BIT(TOK_UNI_LU) | BIT(TOK_UNI_LL) | BIT(TOK_UNI_LT))

static const struct {
    const char *name, *long_name;
    uint32_t categories;
} properties[] = {
    {"L", "Letter", CATEGORIES_L},
    {"M", "Mark", CATEGORIES_M},
    {"N", "Number", CATEGORIES_N},
    {"P", "Punctuation", CATEGORIES_P},
    {"S", "Symbol", CATEGORIES_S},
    {"Z", "Separator", CATEGORIES_Z},
    {"Lu", "UppercaseLetter", BIT(TOK_UNI_LU)},
    {"Ll", "LowercaseLetter", BIT(TOK_UNI_LL)},
    {"Lt", "TitlecaseLetter", BIT(TOK_UNI_LT)},
    {"Lm", "ModifierLetter", BIT(TOK_UNI_LM)},
    {"Lo", "OtherLetter", BIT(TOK_UNI_LO)},
    {"Mn", "NonspacingMark", BIT(TOK_UNI_MN)},
    {"Mc", "SpacingMark", BIT(TOK_UNI_MC)},
    {"Me", "EnclosingMark", BIT(TOK_UNI_ME)},
    {"Nd", "DecimalNumber", BIT(TOK_UNI_ND)},
    {"Nl", "LetterNumber", BIT(TOK_UNI_NL)},
    {"No", "OtherNumber", BIT(TOK_UNI_NO)},
    {"Pc", "ConnectorPunctuation", BIT(TOK_UNI_PC)},
    {"Pd", "DashPunctuation", BIT(TOK_UNI_PD)},
    {"Ps", "OpenPunctuation", BIT(TOK_UNI_PS)},
    {"Pe", "ClosePunctuation", BIT(TOK_UNI_PE)},
    {"Pi", "InitialPunctuation", BIT(TOK_UNI_PI)},
    {"Pf", "FinalPunctuation", BIT(TOK_UNI_PF)},
    {"Po", "OtherPunctuation", BIT(TOK_UNI_PO)},
    {"Sm", "MathSymbol", BIT(TOK_UNI_SM)},
    {"Sc", "CurrencySymbol", BIT(TOK_UNI_SC)},
    {"Sk", "ModifierSymbol", BIT(TOK_UNI_SK)},
    {"So", "OtherSymbol", BIT(TOK_UNI_SO)},
    {"Zs", "SpaceSeparator", BIT(TOK_UNI_ZS)},
    {"Zl", "LineSeparator", BIT(TOK_UNI_ZL)},
    {"Zp", "ParagraphSeparator", BIT(TOK_UNI_ZP)},
    {"Cc", "Control", BIT(TOK_UNI_CC)},
    {"Cf", "Format", BIT(TOK_UNI_CF)},
    {"Co", "PrivateUse", BIT(TOK_UNI_CO)},
};

#define N_PROPERTIES (sizeof(properties) / sizeof(properties[0]))

static bool in_set(const struct translator *t, const struct char_set *set, uint32_t cp)
{
    unsigned props = tok_uni_props(t->uni, cp);
    size_t n;

    if (set->white && props & TOK_UNI_WHITE) return true;
    if (set->categories >> (props & TOK_UNI_CATEGORY) & 1) return true;
    if (set->hex && cp < 0x80 && strchr("0123456789abcdefABCDEF", (int)cp) && cp) return true;
    if (!set->word) return false;
    const struct tok_uni_range *extra = tok_uni_word_extra(&n);
    for (size_t i = 0; i < n; i++) {
        if (cp >= extra[i].first && cp <= extra[i].last) return true;
    }
    return false;
}

/* The complement of a set as ranges: the inside of a class. */
static void put_complement(struct translator *t, const struct char_set *set)
{
    uint32_t first = UINT32_MAX;

    for (uint32_t cp = 0; cp <= 0x110000; cp++) {
        bool surrogate = cp >= 0xD800 && cp <= 0xDFFF;
        bool outside = cp < 0x110000 && !surrogate && !in_set(t, set, cp);
        if (outside && first == UINT32_MAX) first = cp;
        if (!outside && first != UINT32_MAX) {
            put_range(t, first, cp - 1);
            first = UINT32_MAX;
        }
    }
}

static void put_ranges(struct translator *t, const struct tok_uni_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++) put_range(t, ranges[i].first, ranges[i].last);
}

static void put_categories(struct translator *t, uint32_t categories)
{
    uint32_t left = categories;
    char buf[16];
    size_t n;

    for (size_t i = 0; i < N_PROPERTIES; i++) { /* the wide ones come first */
        uint32_t own = properties[i].categories;
        if ((left & own) != own) continue;
        snprintf(buf, sizeof(buf), "\\p{%s}", properties[i].name);
        put(t, buf);
        left &= ~own;
    }
    const struct tok_uni_range *newer = tok_uni_newer(&n);
    for (size_t i = 0; i < n; i++) {
        if (categories >> newer[i].value & 1) put_range(t, newer[i].first, newer[i].last);
    }
}

static void put_script(struct translator *t, const struct char_set *set)
{
    char buf[48];
    size_t n;

    snprintf(buf, sizeof(buf), "\\p{sc:%s}", set->script);
    put(t, buf);
    const struct tok_uni_range *newer = tok_uni_newer_script(&n);
    for (size_t i = 0; i < n; i++) {
        if (newer[i].value == set->script_index) put_range(t, newer[i].first, newer[i].last);
    }
}

/* The members of a set, not negated: the inside of a class. */
static void put_members(struct translator *t, const struct char_set *set)
{
    size_t n;

    if (set->white) {
        const struct tok_uni_range *white = tok_uni_white(&n);
        put_ranges(t, white, n);
    }
    if (set->hex) put(t, "0-9A-Fa-f");
    if (set->categories) put_categories(t, set->categories);
    if (set->script) put_script(t, set);
    if (set->word) {
        const struct tok_uni_range *extra = tok_uni_word_extra(&n);
        put_ranges(t, extra, n);
    }
}

/* A set as an item of a class. */
static int put_class_item(struct translator *t, const struct char_set *set)
{
    if (!set->negated) {
        put_members(t, set);
        return 0;
    }
    if (set->script) return refuse(t, "\\P{%s} inside [...]", set->script);
    if (t->n_complements++ == MAX_COMPLEMENTS) return refuse(t, "so many negated sets inside [...]");
    put_complement(t, set);
    return 0;
}

/* A set that stands alone. */
static void put_alone(struct translator *t, const struct char_set *set)
{
    put(t, set->negated ? "[^" : "[");
    put_members(t, set);
    put(t, "]");
}

/* ---- escapes ------------------------------------------------------------------------------- */

/* Compares names as the reference does: case, blanks, '-' and '_' do not count. */
static bool same_name(const char *known, const unsigned char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (s[i] == ' ' || s[i] == '-' || s[i] == '_') continue;
        if (!*known || strncasecmp(known++, (const char *)s + i, 1) != 0) return false;
    }
    return !*known;
}

static int find_property(struct translator *t, const unsigned char *s, size_t len, struct char_set *set)
{
    for (size_t i = 0; i < N_PROPERTIES; i++) {
        if (same_name(properties[i].name, s, len) || same_name(properties[i].long_name, s, len)) {
            set->categories = properties[i].categories;
            if (t->caseless && set->categories & CATEGORIES_CASED && set->categories != CATEGORIES_L) {
                return refuse(t, "\\p{%s} inside (?i)", properties[i].name);
            }
            return 0;
        }
    }
    if (tok_uni_script((const char *)s, len, &set->script_index, &set->script)) return 0;
    return refuse(t, "the property \\p{%.*s}", (int)(len < 40 ? len : 40), (const char *)s);
}

/* Behind \p or \P: {Name} or {^Name}. */
static int parse_property(struct translator *t, struct char_set *set)
{
    const unsigned char *close;

    if (t->p == t->end || *t->p != '{') return refuse(t, "\\p without braces");
    close = memchr(t->p, '}', (size_t)(t->end - t->p));
    if (!close) return refuse(t, "\\p{ without a closing brace");
    t->p++;
    if (*t->p == '^') {
        set->negated = !set->negated;
        t->p++;
    }
    int rc = find_property(t, t->p, (size_t)(close - t->p), set);
    t->p = close + 1;
    return rc;
}

/* Whether the escape names a set; then it is parsed. c is the letter behind the backslash. */
static int parse_set(struct translator *t, unsigned char c, struct char_set *set, bool *ret_is_set)
{
    *set = (struct char_set){.negated = c >= 'A' && c <= 'Z'};
    *ret_is_set = true;
    switch (c | 0x20) {
    case 's':
        set->white = true;
        return 0;
    case 'd':
        set->categories = BIT(TOK_UNI_ND);
        return 0;
    case 'w':
        set->categories = CATEGORIES_L | CATEGORIES_M | BIT(TOK_UNI_ND) | BIT(TOK_UNI_NL) | BIT(TOK_UNI_PC);
        set->word = true;
        return 0;
    case 'h':
        set->hex = true;
        return 0;
    case 'p':
        return parse_property(t, set);
    default:
        *ret_is_set = false;
        return 0;
    }
}

/* Up to max hexadecimal digits; returns how many. */
static int parse_hex(struct translator *t, int max, uint32_t *ret)
{
    int n = 0;
    uint32_t v = 0;

    for (; n < max && t->p < t->end; n++, t->p++) {
        unsigned char c = *t->p;
        if (c >= '0' && c <= '9') v = v << 4 | (uint32_t)(c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') v = v << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
        else break;
    }
    *ret = v;
    return n;
}

/* \xHH, \x{H...}, \uHHHH: the code point. */
static int parse_code_point(struct translator *t, unsigned char kind, uint32_t *ret)
{
    bool braces = kind == 'x' && t->p < t->end && *t->p == '{';
    int n;

    if (braces) t->p++;
    n = parse_hex(t, braces ? 6 : kind == 'x' ? 2 : 4, ret);
    if (braces && (t->p == t->end || *t->p++ != '}')) n = 0;
    if (n == 0 || (kind == 'u' && n != 4)) return refuse(t, "a broken \\%c escape", kind);
    if (*ret > 0x10FFFF || (*ret >= 0xD800 && *ret <= 0xDFFF)) {
        return refuse(t, "\\%c{%x}, which is no character,", kind, *ret);
    }
    if (kind == 'x' && !braces && *ret > 0x7F) return refuse(t, "\\x%02X (a lone byte)", *ret);
    return 0;
}

/* An escape that stands for one character; c is the letter behind the backslash. */
static int parse_char_escape(struct translator *t, unsigned char c, uint32_t *ret)
{
    static const char from[] = "tnrfvae", to[] = "\t\n\r\f\v\a\033";
    const char *p = c ? strchr(from, c) : NULL;

    if (p) {
        *ret = (uint32_t)(unsigned char)to[p - from];
        return 0;
    }
    if (c == 'x' || c == 'u') return parse_code_point(t, c, ret);
    if (c >= 0x80 || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')) {
        return refuse(t, "the escape \\%c", c < 0x80 ? c : '?');
    }
    *ret = c;
    return 0;
}

/* ---- atoms --------------------------------------------------------------------------------- */

static void begin_atom(struct translator *t)
{
    t->atom = t->n;
    t->has_atom = true;
    t->at_start = false;
}

/*
 * The reference folds some pairs of letters into one character when case does not count ("ss" and
 * the sharp s); PCRE2 does not.
 */
static int literal(struct translator *t, uint32_t cp)
{
    static const char *const folding[] = {"ss", "ff", "fi", "fl", "st"};

    if (t->caseless && cp >= 0x80) return refuse(t, "U+%04X inside (?i)", cp);
    for (size_t i = 0; t->caseless && i < sizeof(folding) / sizeof(folding[0]); i++) {
        if ((t->last_literal | 0x20) == (uint32_t)folding[i][0] && (cp | 0x20) == (uint32_t)folding[i][1]) {
            return refuse(t, "\"%s\" inside (?i)", folding[i]);
        }
    }
    begin_atom(t);
    put_char(t, cp);
    t->last_literal = cp;
    return 0;
}

/* \b and \B by the reference's notion of a word. */
static void word_boundary(struct translator *t, bool negated)
{
    struct char_set word;
    bool is_set;
    static const char *const parts[2][5] = {
        {"(?:(?<=", ")(?!", ")|(?<!", ")(?=", "))"},
        {"(?:(?<=", ")(?=", ")|(?<!", ")(?!", "))"},
    };

    parse_set(t, 'w', &word, &is_set);
    for (int i = 0; i < 5; i++) {
        put(t, parts[negated][i]);
        if (i < 4) put_alone(t, &word);
    }
}

static int escape(struct translator *t)
{
    struct char_set set;
    bool is_set;
    uint32_t cp;

    if (t->p == t->end) return refuse(t, "a backslash at the end");
    unsigned char c = *t->p++;
    int rc = parse_set(t, c, &set, &is_set);
    if (rc) return rc;
    if (is_set) {
        begin_atom(t);
        put_alone(t, &set);
        t->last_literal = 0;
        return 0;
    }
    if (c == 'b' || c == 'B' || c == 'A' || c == 'z' || c == 'Z') {
        if ((c | 0x20) == 'b') word_boundary(t, c == 'B');
        else put_bytes(t, (const char *)t->p - 2, 2);
        t->has_atom = t->at_start = false;
        t->last_literal = 0;
        return 0;
    }
    rc = parse_char_escape(t, c, &cp);
    return rc ? rc : literal(t, cp);
}

/* One end of a range or a single character of a class; *ret_is_set when it was a set. */
static int class_atom(struct translator *t, uint32_t *ret, bool *ret_is_set)
{
    struct char_set set;

    *ret_is_set = false;
    if (*t->p != '\\') {
        *ret = tok_utf8_next(&t->p);
        return 0;
    }
    t->p++;
    if (t->p == t->end) return refuse(t, "a backslash at the end");
    unsigned char c = *t->p++;
    int rc = parse_set(t, c, &set, ret_is_set);
    if (rc) return rc;
    if (*ret_is_set) return put_class_item(t, &set);
    if (c == 'b') {
        *ret = '\b';
        return 0;
    }
    return parse_char_escape(t, c, ret);
}

static int class_item(struct translator *t)
{
    uint32_t first, last;
    bool is_set;

    if (*t->p == '[') {
        return refuse(t, t->p + 1 < t->end && t->p[1] == ':' ? "[: :] inside [...]" : "[ inside [...]");
    }
    if (*t->p == '&' && t->p + 1 < t->end && t->p[1] == '&') return refuse(t, "class intersection &&");
    int rc = class_atom(t, &first, &is_set);
    if (rc || is_set) return rc;
    last = first;
    if (t->end - t->p >= 2 && t->p[0] == '-' && t->p[1] != ']') {
        t->p++;
        rc = class_atom(t, &last, &is_set);
        if (rc) return rc;
        if (is_set || last < first) return refuse(t, "a range of [...] whose ends are out of order");
    }
    if (t->caseless && last >= 0x80) return refuse(t, "U+%04X inside (?i)", last);
    put_range(t, first, last);
    return 0;
}

static int class_expression(struct translator *t)
{
    begin_atom(t);
    put(t, "[");
    if (t->p < t->end && *t->p == '^') {
        put(t, "^");
        t->p++;
    }
    if (t->p < t->end && *t->p == ']') return refuse(t, "] at the front of [...]");
    while (t->p < t->end && *t->p != ']') {
        int rc = class_item(t);
        if (rc) return rc;
    }
    if (t->p == t->end) return refuse(t, "[ without ]");
    t->p++;
    put(t, "]");
    t->last_literal = 0;
    return 0;
}

/* ---- groups -------------------------------------------------------------------------------- */

static int push_group(struct translator *t, const char *open, bool look)
{
    if (t->depth == TOK_PATTERN_MAX_DEPTH) return refuse(t, "nesting deeper than %d", TOK_PATTERN_MAX_DEPTH);
    t->groups[t->depth++] = (struct group){t->n, t->caseless, look};
    put(t, open);
    t->has_atom = false;
    t->at_start = true;
    t->last_literal = 0;
    return 0;
}

/* (?i:...), (?m-i:...), (?i): options for a group, or for the rest of the enclosing one. */
static int option_group(struct translator *t)
{
    bool on = true, caseless = t->caseless;
    char open[16] = "(?";

    for (; t->p < t->end && *t->p != ':' && *t->p != ')'; t->p++) {
        char letter[2] = {*t->p == 'm' ? 's' : (char)*t->p, 0}; /* Ruby's m lets the dot match all */
        if (!strchr("im-", *t->p) || !*t->p || strlen(open) > 8) {
            return refuse(t, "the group (?%.8s", (const char *)t->p);
        }
        if (*t->p == '-') on = false;
        if (*t->p == 'i') caseless = on;
        strncat(open, letter, sizeof(open) - strlen(open) - 1);
    }
    if (t->p == t->end) return refuse(t, "( without )");
    bool whole = *t->p++ == ')';
    if (whole && !t->at_start) return refuse(t, "an option in the middle, such as a(?i)b,");
    if (whole) {
        put(t, open);
        put(t, ")");
        t->caseless = caseless;
        return 0;
    }
    strncat(open, ":", sizeof(open) - strlen(open) - 1);
    int rc = push_group(t, open, false);
    t->caseless = caseless;
    return rc;
}

static int open_group(struct translator *t)
{
    static const struct {
        const char *open;
        bool look;
    } known[] = {{"?:", false}, {"?=", true}, {"?!", true}, {"?<=", true}, {"?<!", true}, {"?>", false}};
    size_t left = (size_t)(t->end - t->p);
    char open[8];

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        size_t n = strlen(known[i].open);
        if (left < n || memcmp(t->p, known[i].open, n) != 0) continue;
        t->p += n;
        snprintf(open, sizeof(open), "(%s", known[i].open);
        return push_group(t, open, known[i].look);
    }
    if (left > 1 && t->p[0] == '?' && strchr("im-", t->p[1]) && t->p[1]) {
        t->p++;
        return option_group(t);
    }
    if (left && (t->p[0] == '?' || t->p[0] == '*')) {
        return refuse(t, "the group (%.*s", (int)(left < 6 ? left : 6), (const char *)t->p);
    }
    return push_group(t, "(?:", false); /* what a group captured is of no use here */
}

static int close_group(struct translator *t)
{
    if (t->depth == 0) return refuse(t, ") without (");
    const struct group *g = &t->groups[--t->depth];
    put(t, ")");
    t->atom = g->atom;
    t->has_atom = !g->look;
    t->caseless = g->caseless;
    t->at_start = false;
    t->last_literal = 0;
    return 0;
}

/* ---- quantifiers --------------------------------------------------------------------------- */

struct repeat {
    bool interval;
    bool exact; /* {n} */
    char text[32];
};

static bool parse_count(const unsigned char **p, const unsigned char *end, unsigned *ret)
{
    const unsigned char *begin = *p;
    unsigned v = 0;

    for (; *p < end && **p >= '0' && **p <= '9' && v < 100000; ++*p) v = v * 10 + (**p - '0');
    *ret = v;
    return *p > begin;
}

/* {n}, {n,}, {n,m}, {,m} behind the brace at t->p[-1]; false: the brace is a plain character. */
static bool parse_interval(struct translator *t, struct repeat *ret)
{
    const unsigned char *p = t->p;
    unsigned low, high = 0;
    bool has_low = parse_count(&p, t->end, &low), comma = p < t->end && *p == ',', has_high = false;

    if (comma) {
        p++;
        has_high = parse_count(&p, t->end, &high);
    }
    if ((!has_low && !has_high) || p == t->end || *p != '}') return false;
    t->p = p + 1;
    *ret = (struct repeat){.interval = true, .exact = !comma};
    if (!comma) snprintf(ret->text, sizeof(ret->text), "{%u}", low);
    else if (!has_high) snprintf(ret->text, sizeof(ret->text), "{%u,}", low);
    else snprintf(ret->text, sizeof(ret->text), "{%u,%u}", has_low ? low : 0, high);
    return true;
}

/* "(?:" before the last atom. */
static void wrap_atom(struct translator *t)
{
    put(t, "(?:");
    if (t->oom) return;
    memmove(t->out + t->atom + 3, t->out + t->atom, t->n - 3 - t->atom);
    memcpy(t->out + t->atom, "(?:", 3);
}

/* Writes a quantifier with its suffix. In Ruby {n,m}+ repeats the interval, elsewhere + is possessive. */
static int repeat(struct translator *t, const struct repeat *r)
{
    char suffix = t->p < t->end && (*t->p == '?' || *t->p == '+') ? (char)*t->p : 0;

    if (!t->has_atom) return refuse(t, "a quantifier with nothing to repeat");
    if (suffix) t->p++;
    if (r->exact && suffix == '?') return refuse(t, "{n}?");
    if (r->interval && suffix == '+') {
        wrap_atom(t);
        put(t, r->text);
        put(t, ")+");
    } else {
        put(t, r->text);
        put_bytes(t, &suffix, suffix != 0);
    }
    if (t->p < t->end && (*t->p == '*' || *t->p == '+' || *t->p == '?')) {
        return refuse(t, "a quantifier behind a quantifier");
    }
    put(t, CALLOUT);
    t->has_atom = false;
    t->last_literal = 0;
    return 0;
}

/* ---- the pass ------------------------------------------------------------------------------ */

static int quantifier(struct translator *t, unsigned char c)
{
    struct repeat r = {.interval = false};

    if (c == '{' && !parse_interval(t, &r)) return literal(t, '{');
    if (c != '{') r.text[0] = (char)c;
    return repeat(t, &r);
}

static int step(struct translator *t)
{
    unsigned char c = *t->p;

    if (c >= 0x80) return literal(t, tok_utf8_next(&t->p));
    t->p++;
    switch (c) {
    case '\\': return escape(t);
    case '[': return class_expression(t);
    case '(': return open_group(t);
    case ')': return close_group(t);
    case '*':
    case '+':
    case '?':
    case '{': return quantifier(t, c);
    case '.':
        begin_atom(t);
        put(t, ".");
        t->last_literal = 0;
        return 0;
    case '|':
    case '^':
    case '$':
        put_bytes(t, (const char *)&c, 1);
        t->has_atom = t->at_start = false;
        t->last_literal = 0;
        return 0;
    default: return literal(t, c);
    }
}

int tok_pattern_translate(const struct tok_uni *uni, const char *pattern, size_t len, char **ret,
                          size_t *ret_len, char *err, size_t errlen)
{
    struct translator t = {.uni = uni, .p = (const unsigned char *)pattern, .err = err,
                           .errlen = errlen, .at_start = true};
    int rc = 0;

    t.end = t.p + len;
    if (len > TOK_PATTERN_MAX_BYTES) rc = refuse(&t, "a pattern of more than %d bytes", TOK_PATTERN_MAX_BYTES);
    while (!rc && t.p < t.end) rc = step(&t);
    if (!rc && t.depth > 0) rc = refuse(&t, "( without )");
    put_bytes(&t, "", 1);
    if (!rc && t.oom) rc = TOK_ENOMEM;
    if (rc) {
        free(t.out);
        return rc;
    }
    *ret = t.out;
    *ret_len = t.n - 1;
    return 0;
}
