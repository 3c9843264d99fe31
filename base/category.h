/* SPDX-License-Identifier: MIT */
/*
 * The general categories of Unicode, by their names in patterns: \p{Lu}, \p{Uppercase_Letter}. A
 * set of them has a bit for each, at utf8proc's number, whose header the user includes.
 */
#pragma once

#include <stdint.h>

#define CATEGORY(name) (1u << UTF8PROC_CATEGORY_##name)
#define CATEGORY_CASED (CATEGORY(LU) | CATEGORY(LL) | CATEGORY(LT))
#define CATEGORY_L (CATEGORY_CASED | CATEGORY(LM) | CATEGORY(LO))
#define CATEGORY_M (CATEGORY(MN) | CATEGORY(MC) | CATEGORY(ME))
#define CATEGORY_N (CATEGORY(ND) | CATEGORY(NL) | CATEGORY(NO))
#define CATEGORY_P                                                                                 \
    (CATEGORY(PC) | CATEGORY(PD) | CATEGORY(PS) | CATEGORY(PE) | CATEGORY(PI) | CATEGORY(PF) |     \
     CATEGORY(PO))
#define CATEGORY_S (CATEGORY(SM) | CATEGORY(SC) | CATEGORY(SK) | CATEGORY(SO))
#define CATEGORY_Z (CATEGORY(ZS) | CATEGORY(ZL) | CATEGORY(ZP))

/* The wide ones come first. */
static const struct category {
    const char *name, *long_name;
    uint32_t set;
} categories[] = {
    {"L", "Letter", CATEGORY_L},
    {"M", "Mark", CATEGORY_M},
    {"N", "Number", CATEGORY_N},
    {"P", "Punctuation", CATEGORY_P},
    {"S", "Symbol", CATEGORY_S},
    {"Z", "Separator", CATEGORY_Z},
    {"Lu", "Uppercase_Letter", CATEGORY(LU)},
    {"Ll", "Lowercase_Letter", CATEGORY(LL)},
    {"Lt", "Titlecase_Letter", CATEGORY(LT)},
    {"Lm", "Modifier_Letter", CATEGORY(LM)},
    {"Lo", "Other_Letter", CATEGORY(LO)},
    {"Mn", "Nonspacing_Mark", CATEGORY(MN)},
    {"Mc", "Spacing_Mark", CATEGORY(MC)},
    {"Me", "Enclosing_Mark", CATEGORY(ME)},
    {"Nd", "Decimal_Number", CATEGORY(ND)},
    {"Nl", "Letter_Number", CATEGORY(NL)},
    {"No", "Other_Number", CATEGORY(NO)},
    {"Pc", "Connector_Punctuation", CATEGORY(PC)},
    {"Pd", "Dash_Punctuation", CATEGORY(PD)},
    {"Ps", "Open_Punctuation", CATEGORY(PS)},
    {"Pe", "Close_Punctuation", CATEGORY(PE)},
    {"Pi", "Initial_Punctuation", CATEGORY(PI)},
    {"Pf", "Final_Punctuation", CATEGORY(PF)},
    {"Po", "Other_Punctuation", CATEGORY(PO)},
    {"Sm", "Math_Symbol", CATEGORY(SM)},
    {"Sc", "Currency_Symbol", CATEGORY(SC)},
    {"Sk", "Modifier_Symbol", CATEGORY(SK)},
    {"So", "Other_Symbol", CATEGORY(SO)},
    {"Zs", "Space_Separator", CATEGORY(ZS)},
    {"Zl", "Line_Separator", CATEGORY(ZL)},
    {"Zp", "Paragraph_Separator", CATEGORY(ZP)},
    {"Cc", "Control", CATEGORY(CC)},
    {"Cf", "Format", CATEGORY(CF)},
    {"Co", "Private_Use", CATEGORY(CO)},
};
