/* SPDX-License-Identifier: MIT */
#include "tokenizer/byte_level.h"

#include "base/utf8.h"

ptrdiff_t tok_bytelevel_decode(const char *token, size_t len, char *out)
{
    const unsigned char *p = (const unsigned char *)token, *end = p + len;
    ptrdiff_t n = 0;
    while (p < end) {
        int byte = tok_bytelevel_byte(utf8_next(&p));
        if (byte < 0) return -1;
        out[n++] = (char)byte;
    }
    return n;
}

size_t tok_bytelevel_encode(const char *bytes, size_t len, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += utf8_put(out + n, tok_bytelevel_char((uint8_t)bytes[i]));
    return n;
}
