/* SPDX-License-Identifier: MIT */
/* The inside of JSON strings; see lexer.h. */
#include "tokenizer/grammar/lexer.h"

#include <string.h>

#include "base/hex.h"
#include "base/utf8.h"
#include "tokenizer/grammar/decoder.h"

static void set_range(uint8_t *row, int lo, int hi, uint8_t to)
{
    for (int byte = lo; byte <= hi; byte++)
        row[byte] = to;
}

static void set_hex(uint8_t *row, uint8_t to)
{
    set_range(row, '0', '9', to);
    set_range(row, 'a', 'f', to);
    set_range(row, 'A', 'F', to);
}

/* Characters that are not escaped. */
static void fill_plain(uint8_t (*next)[256])
{
    set_range(next[GRAM_LEX_BODY], 0x20, 0x7F, GRAM_LEX_BODY);
    set_range(next[GRAM_LEX_BODY], 0xC2, 0xDF, GRAM_LEX_CONT1);
    set_range(next[GRAM_LEX_BODY], 0xE0, 0xEF, GRAM_LEX_CONT2);
    set_range(next[GRAM_LEX_BODY], 0xF0, 0xF4, GRAM_LEX_CONT3);
    next[GRAM_LEX_BODY][0xE0] = GRAM_LEX_E0;
    next[GRAM_LEX_BODY][0xED] = GRAM_LEX_ED;
    next[GRAM_LEX_BODY][0xF0] = GRAM_LEX_F0;
    next[GRAM_LEX_BODY][0xF4] = GRAM_LEX_F4;
    next[GRAM_LEX_BODY]['"'] = GRAM_LEX_QUOTE;
    next[GRAM_LEX_BODY]['\\'] = GRAM_LEX_ESCAPE;
    set_range(next[GRAM_LEX_CONT1], 0x80, 0xBF, GRAM_LEX_BODY);
    set_range(next[GRAM_LEX_CONT2], 0x80, 0xBF, GRAM_LEX_CONT1);
    set_range(next[GRAM_LEX_CONT3], 0x80, 0xBF, GRAM_LEX_CONT2);
    set_range(next[GRAM_LEX_E0], 0xA0, 0xBF, GRAM_LEX_CONT1);
    set_range(next[GRAM_LEX_ED], 0x80, 0x9F, GRAM_LEX_CONT1);
    set_range(next[GRAM_LEX_F0], 0x90, 0xBF, GRAM_LEX_CONT2);
    set_range(next[GRAM_LEX_F4], 0x80, 0x8F, GRAM_LEX_CONT2);
    for (const char *p = "\"\\bfnrt"; *p; p++)
        next[GRAM_LEX_ESCAPE][(uint8_t)*p] = GRAM_LEX_BODY;
}

/* All of \u, surrogates in pairs only. */
static void fill_free_escapes(uint8_t (*next)[256])
{
    next[GRAM_LEX_ESCAPE]['/'] = GRAM_LEX_BODY;
    next[GRAM_LEX_ESCAPE]['u'] = GRAM_LEX_HEX4;
    set_hex(next[GRAM_LEX_HEX4], GRAM_LEX_HEX3);
    next[GRAM_LEX_HEX4]['d'] = next[GRAM_LEX_HEX4]['D'] = GRAM_LEX_D;
    set_hex(next[GRAM_LEX_HEX3], GRAM_LEX_HEX2);
    set_hex(next[GRAM_LEX_HEX2], GRAM_LEX_HEX1);
    set_hex(next[GRAM_LEX_HEX1], GRAM_LEX_BODY);
    set_range(next[GRAM_LEX_D], '0', '7', GRAM_LEX_HEX2);
    for (const char *p = "89abAB"; *p; p++)
        next[GRAM_LEX_D][(uint8_t)*p] = GRAM_LEX_HIGH2;
    set_hex(next[GRAM_LEX_HIGH2], GRAM_LEX_HIGH1);
    set_hex(next[GRAM_LEX_HIGH1], GRAM_LEX_PAIR);
    next[GRAM_LEX_PAIR]['\\'] = GRAM_LEX_PAIR_U;
    next[GRAM_LEX_PAIR_U]['u'] = GRAM_LEX_PAIR_D;
    next[GRAM_LEX_PAIR_D]['d'] = next[GRAM_LEX_PAIR_D]['D'] = GRAM_LEX_LOW3;
    for (const char *p = "cdefCDEF"; *p; p++)
        next[GRAM_LEX_LOW3][(uint8_t)*p] = GRAM_LEX_LOW2;
    set_hex(next[GRAM_LEX_LOW2], GRAM_LEX_LOW1);
    set_hex(next[GRAM_LEX_LOW1], GRAM_LEX_BODY);
}

/* \u00XX for control characters that have no letter. */
static void fill_plain_escapes(uint8_t (*next)[256])
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    next[GRAM_LEX_ESCAPE]['u'] = GRAM_LEX_U0;
    next[GRAM_LEX_U0]['0'] = GRAM_LEX_U00;
    next[GRAM_LEX_U00]['0'] = GRAM_LEX_U000;
    next[GRAM_LEX_U000]['0'] = GRAM_LEX_U0000;
    next[GRAM_LEX_U000]['1'] = GRAM_LEX_U0010;
    for (uint8_t i = 0; i < 32; i++) {
        if (!gram_escape_letter(i % 16)) next[GRAM_LEX_U0000][(uint8_t)digits[i]] = GRAM_LEX_BODY;
        next[GRAM_LEX_U0010][(uint8_t)digits[i]] = GRAM_LEX_BODY;
    }
}

static void find_rest(struct gram_lexer *l)
{
    enum { LONGEST = 16 };
    memset(l->rest, LONGEST, sizeof(l->rest));
    for (int i = 0; i < 2 * LONGEST; i++) {
        uint8_t *rest = l->rest[i % 2];
        rest[GRAM_LEX_BODY] = 0;
        for (int at = 0; at < GRAM_LEX_STATES * 256; at++) {
            uint8_t to = l->next[i % 2][at / 256][at % 256];
            if (to < GRAM_LEX_STATES && rest[to] + 1 < rest[at / 256])
                rest[at / 256] = (uint8_t)(rest[to] + 1);
        }
    }
}

void gram_lexer_build(struct gram_lexer *l, const uint64_t spellable[4])
{
    memset(l->next, GRAM_LEX_DEAD, sizeof(l->next));
    for (int dialect = 0; dialect < 2; dialect++)
        fill_plain(l->next[dialect]);
    fill_free_escapes(l->next[GRAM_LEX_FREE]);
    fill_plain_escapes(l->next[GRAM_LEX_PLAIN]);
    for (int dialect = 0; dialect < 2; dialect++)
        for (int state = 0; state < GRAM_LEX_STATES; state++)
            for (int byte = 0; byte < 256; byte++)
                if (!(spellable[byte / 64] >> byte % 64 & 1))
                    l->next[dialect][state][byte] = GRAM_LEX_DEAD;
    find_rest(l);
}

/* ---- groups of characters ------------------------------------------------------------------ */

int gram_char_group(uint8_t byte)
{
    static const char alone[] = " -_./:,@#+=$%&*()[]<>?!"; /* groups 5 to 27; 28: all others */
    const char *p = byte ? strchr(alone, byte) : NULL;
    if (byte >= 0x80) return GRAM_CHAR_BEYOND;
    if (byte < 0x20 || byte == '"' || byte == '\\') return GRAM_CHAR_OTHER;
    if (byte >= '0' && byte <= '9') return 0;
    if (byte >= 'a' && byte <= 'z') return byte <= 'f' ? 1 : 2;
    if (byte >= 'A' && byte <= 'Z') return byte <= 'F' ? 3 : 4;
    return p ? 5 + (int)(p - alone) : 28;
}

/* ---- hashes -------------------------------------------------------------------------------- */

uint64_t gram_hash_bytes(uint64_t h, const char *text, uint64_t len)
{
    for (uint64_t i = 0; i < len; i++)
        h = gram_hash_byte(h, (uint8_t)text[i]);
    return h;
}

/* One character as the plain dialect spells it, control characters in lower case. */
static uint64_t hash_char(uint64_t h, uint32_t cp)
{
    static const char digits[] = "0123456789abcdef";
    char utf8[4];
    uint8_t letter = cp < 0x80 ? gram_escape_letter((uint8_t)cp) : 0;
    if (letter) return gram_hash_byte(gram_hash_byte(h, '\\'), letter);
    if (cp >= 0x20) return gram_hash_bytes(h, utf8, utf8_put(utf8, cp));
    h = gram_hash_bytes(h, "\\u00", 4);
    h = gram_hash_byte(h, cp < 0x10 ? '0' : '1');
    return gram_hash_byte(h, (uint8_t)digits[cp % 16]);
}

uint64_t gram_hash_free(uint64_t h, uint8_t from, uint8_t to, uint8_t byte, uint32_t *escape)
{
    if (from == GRAM_LEX_BODY && to == GRAM_LEX_ESCAPE) return h;
    if (from < GRAM_LEX_HEX4 && from != GRAM_LEX_ESCAPE) return gram_hash_byte(h, byte);
    if (from == GRAM_LEX_ESCAPE && to == GRAM_LEX_BODY)
        return hash_char(h, byte == '/' ? '/' : gram_escape_char(byte));
    if (from >= GRAM_LEX_HEX4 && from != GRAM_LEX_PAIR && from != GRAM_LEX_PAIR_U)
        *escape = *escape << 4 | (uint32_t)hex_value(byte);
    if (to != GRAM_LEX_BODY) return h;
    uint32_t high = *escape >> 16, low = *escape & 0xFFFF;
    if (high >= 0xD800) low = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    h = hash_char(h, low);
    *escape = 0;
    return h;
}
