/* SPDX-License-Identifier: MIT */
/* A set is put as PCRE2's own property plus the code points that its Unicode version lacks. */
#include "tokenizer/regex_class.h"

#include <string.h>
#include <strings.h>
#include <utf8proc.h>

/* ---- output -------------------------------------------------------------------------------- */

/* Letters and digits as they are, everything else by number. */
static void put_char(struct buf *o, uint32_t cp)
{
    bool plain = (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || (cp >= '0' && cp <= '9');
    buf_printf(o, plain ? "%c" : "\\x{%x}", cp);
}

void tok_pattern_put_range(struct buf *o, uint32_t first, uint32_t last)
{
    put_char(o, first);
    if (first == last) return;
    buf_puts(o, "-");
    put_char(o, last);
}

/* ---- sets ---------------------------------------------------------------------------------- */

#define BIT(category) (1u << UTF8PROC_CATEGORY_##category)
#define CATEGORIES_L (BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO))
#define CATEGORIES_M (BIT(MN) | BIT(MC) | BIT(ME))
#define CATEGORIES_N (BIT(ND) | BIT(NL) | BIT(NO))
#define CATEGORIES_P (BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO))
#define CATEGORIES_S (BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO))
#define CATEGORIES_Z (BIT(ZS) | BIT(ZL) | BIT(ZP))
#define CATEGORIES_CASED (BIT(LU) | BIT(LL) | BIT(LT))

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
    {"Lu", "UppercaseLetter", BIT(LU)},
    {"Ll", "LowercaseLetter", BIT(LL)},
    {"Lt", "TitlecaseLetter", BIT(LT)},
    {"Lm", "ModifierLetter", BIT(LM)},
    {"Lo", "OtherLetter", BIT(LO)},
    {"Mn", "NonspacingMark", BIT(MN)},
    {"Mc", "SpacingMark", BIT(MC)},
    {"Me", "EnclosingMark", BIT(ME)},
    {"Nd", "DecimalNumber", BIT(ND)},
    {"Nl", "LetterNumber", BIT(NL)},
    {"No", "OtherNumber", BIT(NO)},
    {"Pc", "ConnectorPunctuation", BIT(PC)},
    {"Pd", "DashPunctuation", BIT(PD)},
    {"Ps", "OpenPunctuation", BIT(PS)},
    {"Pe", "ClosePunctuation", BIT(PE)},
    {"Pi", "InitialPunctuation", BIT(PI)},
    {"Pf", "FinalPunctuation", BIT(PF)},
    {"Po", "OtherPunctuation", BIT(PO)},
    {"Sm", "MathSymbol", BIT(SM)},
    {"Sc", "CurrencySymbol", BIT(SC)},
    {"Sk", "ModifierSymbol", BIT(SK)},
    {"So", "OtherSymbol", BIT(SO)},
    {"Zs", "SpaceSeparator", BIT(ZS)},
    {"Zl", "LineSeparator", BIT(ZL)},
    {"Zp", "ParagraphSeparator", BIT(ZP)},
    {"Cc", "Control", BIT(CC)},
    {"Cf", "Format", BIT(CF)},
    {"Co", "PrivateUse", BIT(CO)},
};

#define N_PROPERTIES (sizeof(properties) / sizeof(properties[0]))

/*
 * Characters of \w besides its categories. Inside a class the reference has none of it below
 * U+0100.
 */
static const struct tok_uni_range *word_extra(const struct tok_char_set *set, size_t *ret_n)
{
    const struct tok_uni_range *extra = tok_uni_ranges(TOK_UNI_WORD_EXTRA, ret_n);
    while (set->in_class && *ret_n && extra->first < 0x100) {
        extra++;
        --*ret_n;
    }
    return extra;
}

static bool in_set(const struct tok_uni *uni, const struct tok_char_set *set, uint32_t cp)
{
    unsigned props = tok_uni_props(uni, cp);
    size_t n;
    if (set->white && props & TOK_UNI_WHITE) return true;
    if (set->categories >> (props & TOK_UNI_CATEGORY) & 1) return true;
    if (set->hex && cp < 0x80 && strchr("0123456789abcdefABCDEF", (int)cp) && cp) return true;
    if (!set->word) return false;
    const struct tok_uni_range *extra = word_extra(set, &n);
    for (size_t i = 0; i < n; i++)
        if (cp >= extra[i].first && cp <= extra[i].last) return true;
    return false;
}

void tok_char_set_put_complement(struct buf *o, const struct tok_uni *uni,
                                 const struct tok_char_set *set)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t cp = 0; cp <= 0x110000; cp++) {
        bool surrogate = cp >= 0xD800 && cp <= 0xDFFF;
        bool outside = cp < 0x110000 && !surrogate && !in_set(uni, set, cp);
        if (outside && first == UINT32_MAX) first = cp;
        if (!outside && first != UINT32_MAX) {
            tok_pattern_put_range(o, first, cp - 1);
            first = UINT32_MAX;
        }
    }
}

static void put_ranges(struct buf *o, const struct tok_uni_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tok_pattern_put_range(o, ranges[i].first, ranges[i].last);
}

static void put_categories(struct buf *o, uint32_t categories)
{
    uint32_t left = categories;
    size_t n;
    for (size_t i = 0; i < N_PROPERTIES; i++) { /* the wide ones come first */
        uint32_t own = properties[i].categories;
        if ((left & own) != own) continue;
        buf_printf(o, "\\p{%s}", properties[i].name);
        left &= ~own;
    }
    const struct tok_uni_range *newer = tok_uni_ranges(TOK_UNI_NEWER, &n);
    for (size_t i = 0; i < n; i++)
        if (categories >> newer[i].value & 1)
            tok_pattern_put_range(o, newer[i].first, newer[i].last);
}

static void put_script(struct buf *o, const struct tok_char_set *set)
{
    size_t n;
    buf_printf(o, "\\p{sc:%s}", set->script);
    const struct tok_uni_range *newer = tok_uni_ranges(TOK_UNI_NEWER_SCRIPT, &n);
    for (size_t i = 0; i < n; i++)
        if (newer[i].value == set->script_index)
            tok_pattern_put_range(o, newer[i].first, newer[i].last);
}

void tok_char_set_put(struct buf *o, const struct tok_char_set *set)
{
    size_t n;
    if (set->white) {
        const struct tok_uni_range *white = tok_uni_ranges(TOK_UNI_WHITE_SPACE, &n);
        put_ranges(o, white, n);
    }
    if (set->hex) buf_puts(o, "0-9A-Fa-f");
    if (set->categories) put_categories(o, set->categories);
    if (set->folded && set->categories == CATEGORIES_L) tok_pattern_put_range(o, 0x345, 0x345);
    if (set->script) put_script(o, set);
    if (set->word) {
        const struct tok_uni_range *extra = word_extra(set, &n);
        put_ranges(o, extra, n);
    }
}

/* ---- names --------------------------------------------------------------------------------- */

/* Compares names as the reference does: case, blanks, '-' and '_' do not count. */
static bool same_name(const char *known, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (s[i] == ' ' || s[i] == '-' || s[i] == '_') continue;
        if (!*known || strncasecmp(known++, s + i, 1) != 0) return false;
    }
    return !*known;
}

bool tok_char_set_find(const char *name, size_t len, struct tok_char_set *set)
{
    for (size_t i = 0; i < N_PROPERTIES; i++)
        if (same_name(properties[i].name, name, len) ||
            same_name(properties[i].long_name, name, len)) {
            set->categories = properties[i].categories;
            return true;
        }
    return tok_uni_script(name, len, &set->script_index, &set->script);
}

bool tok_char_set_escape(unsigned char c, struct tok_char_set *set)
{
    *set = (struct tok_char_set){.negated = c >= 'A' && c <= 'Z'};
    switch (c | 0x20) {
    case 's': set->white = true; return true;
    case 'd': set->categories = BIT(ND); return true;
    case 'h': set->hex = true; return true;
    case 'w':
        set->categories = CATEGORIES_L | CATEGORIES_M | BIT(ND) | BIT(NL) | BIT(PC);
        set->word = true;
        return true;
    default: return false;
    }
}

bool tok_char_set_is_cased(const struct tok_char_set *set)
{
    return set->categories & CATEGORIES_CASED && set->categories != CATEGORIES_L;
}

bool tok_char_set_folds(const struct tok_uni *uni, const struct tok_char_set *set,
                        bool class_negated)
{
    bool sharp_s = in_set(uni, set, 0xDF) != set->negated;
    if (set->script || (sharp_s && !class_negated)) return true;
    if (set->word) return false;
    return set->categories & CATEGORIES_M || (set->categories & CATEGORIES_L && set->negated);
}
