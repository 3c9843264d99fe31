/* SPDX-License-Identifier: MIT */
/*
 * UTF-8 as the Unicode standard's table of well-formed byte sequences has it: the first byte alone
 * decides the length and the range of the second; every further byte is 80..BF.
 */
#include "base/utf8.h"

#include <string.h>

/* Length and range of the second byte for a first byte; length 0: no character begins so. */
static size_t first_byte(unsigned char b, unsigned char *ret_low, unsigned char *ret_high)
{
    *ret_low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    *ret_high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    if (b < 0x80) return 1;
    if (b < 0xC2 || b > 0xF4) return 0;
    return utf8_len(b);
}

int utf8_classify(const unsigned char *s, size_t len)
{
    unsigned char low, high;
    size_t want = first_byte(s[0], &low, &high);
    if (want == 0) return -1;
    for (size_t i = 1; i < want; i++) {
        if (i == len) return 0;
        if (s[i] < low || s[i] > high) return -(int)i;
        low = 0x80;
        high = 0xBF;
    }
    return (int)want;
}

size_t utf8_ascii_prefix(const char *text, size_t len)
{
    size_t i = 0;
    uint64_t word;
    for (; i + sizeof(word) <= len; i += sizeof(word)) {
        memcpy(&word, text + i, sizeof(word));
        if (word & 0x8080808080808080u) break;
    }
    while (i < len && (unsigned char)text[i] < 0x80)
        i++;
    return i;
}

bool utf8_valid(const char *text, size_t len)
{
    size_t i = 0;
    while (i < len) {
        if ((unsigned char)text[i] < 0x80) {
            i += utf8_ascii_prefix(text + i, len - i);
            continue;
        }
        int n = utf8_classify((const unsigned char *)text + i, len - i);
        if (n <= 0) return false;
        i += (size_t)n;
    }
    return true;
}

bool utf8_ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), n = strlen(end);
    return len >= n && strcmp(text + len - n, end) == 0;
}

size_t utf8_put(char *out, uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)(0xF00 >> n | cp);
    return n;
}
