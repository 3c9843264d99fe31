/* SPDX-License-Identifier: MIT */
/* Properties of characters, against those that tokenizers 0.22.1 itself answered. */
#include "test.h"

#include <utf8proc.h>

#include "base/sha256.h"
#include "tokenizer/unicode.h"

static struct tok_uni uni;

static int set_up(void **state)
{
    (void)state;
    return tok_uni_init(&uni);
}

static int tear_down(void **state)
{
    (void)state;
    tok_uni_finish(&uni);
    return 0;
}

/* One of each kind of range in unicode_data.h. */
static void test_differences(void **state)
{
    static const struct {
        uint32_t cp;
        unsigned category, flags;
    } cases[] = {
        {'a', UTF8PROC_CATEGORY_LL, TOK_UNI_LETTER | TOK_UNI_WORD},
        {'$', UTF8PROC_CATEGORY_SC, TOK_UNI_PUNCT},
        {'\n', UTF8PROC_CATEGORY_CC, TOK_UNI_WHITE},
        {0xB2, UTF8PROC_CATEGORY_NO, TOK_UNI_NUMBER},
        {0x897, UTF8PROC_CATEGORY_MN, TOK_UNI_WORD},
        {0x9BE, UTF8PROC_CATEGORY_MC, TOK_UNI_WORD | TOK_UNI_NFC_CARE},
        {0x9FE, UTF8PROC_CATEGORY_MN, TOK_UNI_WORD},
        {0x166D, UTF8PROC_CATEGORY_SO, TOK_UNI_PUNCT},
        {0x200D, UTF8PROC_CATEGORY_CF, TOK_UNI_WORD | TOK_UNI_BERT_DROP},
        {0x24B6, UTF8PROC_CATEGORY_SO, TOK_UNI_WORD},
        {0x2E43, UTF8PROC_CATEGORY_PO, 0},
        {0x212B, UTF8PROC_CATEGORY_LU, TOK_UNI_LETTER | TOK_UNI_WORD | TOK_UNI_NFC_CARE},
        {0xFFFD, UTF8PROC_CATEGORY_SO, TOK_UNI_BERT_DROP},
        {0x323AF, UTF8PROC_CATEGORY_LO, TOK_UNI_LETTER | TOK_UNI_WORD},
        {0x10FFFF, UTF8PROC_CATEGORY_CN, 0},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        unsigned props = tok_uni_props(&uni, cases[i].cp);
        REQUIRE_MSG(props == (cases[i].category | cases[i].flags), "U+%04X: %x", cases[i].cp,
                    props);
    }
}

static void test_all(void **state)
{
    static const uint8_t wanted[32] = {0x9e, 0xfa, 0x7b, 0x6a, 0xd3, 0x13, 0xaf, 0x3f,
                                       0x12, 0xaf, 0x2f, 0x39, 0x0e, 0x1b, 0x26, 0x6b,
                                       0x09, 0x59, 0xa0, 0x5e, 0x0e, 0x00, 0x4b, 0x95,
                                       0x2d, 0x09, 0x2f, 0xb2, 0x86, 0x50, 0xad, 0xd1};
    static uint8_t props[0x110000][2];
    uint8_t got[32];
    (void)state;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        props[cp][0] = (uint8_t)tok_uni_props(&uni, cp);
        props[cp][1] = (uint8_t)(tok_uni_props(&uni, cp) >> 8);
    }
    sha256(got, props, sizeof(props));
    REQUIRE(memcmp(got, wanted, sizeof(got)) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_all),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
