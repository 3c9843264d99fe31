/* SPDX-License-Identifier: MIT */
/*
 * Character classes and case mappings as Python's str has them; see char_class.h.
 *
 * utf8proc gives categories and the simple mappings. The tables here add what it lacks: which
 * characters SpecialCasing maps to several, and the Other_Lowercase and Other_Uppercase ranges of
 * the Unicode database.
 */
#include "tokenizer/template/char_class.h"

#include <utf8proc.h>

struct span {
    int32_t first, last;
};

/* Their upper case is several characters. */
static const struct span long_upper[] = {
    {0xDF, 0xDF},     {0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},   {0x3B0, 0x3B0},
    {0x587, 0x587},   {0x1E96, 0x1E9A}, {0x1F50, 0x1F50}, {0x1F52, 0x1F52}, {0x1F54, 0x1F54},
    {0x1F56, 0x1F56}, {0x1F80, 0x1FAF}, {0x1FB2, 0x1FB4}, {0x1FB6, 0x1FB7}, {0x1FBC, 0x1FBC},
    {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FC7}, {0x1FCC, 0x1FCC}, {0x1FD2, 0x1FD3}, {0x1FD6, 0x1FD7},
    {0x1FE2, 0x1FE4}, {0x1FE6, 0x1FE7}, {0x1FF2, 0x1FF4}, {0x1FF6, 0x1FF7}, {0x1FFC, 0x1FFC},
    {0xFB00, 0xFB06}, {0xFB13, 0xFB17},
};

static const struct span other_lowercase[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
    {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},
    {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
    {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},
    {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
};

static const struct span other_uppercase[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189},
};

static const struct span spaces[] = {
    {0x09, 0x0D},     {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
};

#define IN_SPANS(cp, table) in_spans((cp), (table), sizeof(table) / sizeof((table)[0]))

static bool in_spans(int32_t cp, const struct span *spans, size_t n)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (cp > spans[mid].last)
            lo = mid + 1;
        else if (cp < spans[mid].first)
            hi = mid;
        else
            return true;
    }
    return false;
}

bool jinja_cp_space(int32_t cp)
{
    return IN_SPANS(cp, spaces);
}

bool jinja_cp_alpha(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool jinja_cp_lower(int32_t cp)
{
    return utf8proc_category(cp) == UTF8PROC_CATEGORY_LL || IN_SPANS(cp, other_lowercase);
}

bool jinja_cp_upper(int32_t cp)
{
    return utf8proc_category(cp) == UTF8PROC_CATEGORY_LU || IN_SPANS(cp, other_uppercase);
}

bool jinja_cp_title(int32_t cp)
{
    return utf8proc_category(cp) == UTF8PROC_CATEGORY_LT;
}

bool jinja_cp_printable(int32_t cp)
{
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return cp == ' ';
    default: return true;
    }
}

bool jinja_cp_ident_start(int32_t cp)
{
    return cp == '_' || jinja_cp_alpha(cp) || utf8proc_category(cp) == UTF8PROC_CATEGORY_NL;
}

bool jinja_cp_ident(int32_t cp)
{
    if (jinja_cp_ident_start(cp)) return true;
    utf8proc_category_t c = utf8proc_category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC ||
           c == UTF8PROC_CATEGORY_PC || cp == 0xB7 || cp == 0x387;
}

bool jinja_cp_case_ignorable(int32_t cp)
{
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default:
        return cp == '\'' || cp == '.' || cp == ':' || cp == 0xB7 || cp == 0x2018 || cp == 0x2019 ||
               cp == 0x2024 || cp == 0x2027;
    }
}

bool jinja_cp_long_upper(int32_t cp)
{
    return IN_SPANS(cp, long_upper);
}
