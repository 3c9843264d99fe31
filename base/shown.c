/* SPDX-License-Identifier: MIT */
/* Text of strangers where people read it; see shown.h. */
#include "base/shown.h"

#include <string.h>

#include "base/fail.h"
#include "base/utf8.h"

size_t shown_char(char out[SHOWN_CHAR_BYTES], const char *s, size_t len, size_t *ret_taken)
{
    const unsigned char *p = (const unsigned char *)s;
    int n = utf8_classify(p, len);
    uint32_t c = n > 0 ? utf8_next(&p) : *p;
    *ret_taken = n > 0 ? (size_t)n : 1;
    if (n <= 0 || shown_is_unsafe(c))
        return (size_t)snprintf(out, SHOWN_CHAR_BYTES, c < 0x100 ? "\\x%02x" : "\\u%04x",
                                (unsigned)c & 0xFFFF);
    memcpy(out, s, (size_t)n);
    return (size_t)n;
}

const char *shown_text(char *out, size_t size, const char *s, size_t len)
{
    char one[SHOWN_CHAR_BYTES];
    size_t n = 0;
    for (size_t taken; len; s += taken, len -= taken) {
        size_t k = shown_char(one, s, len, &taken);
        if (n + k >= size) break;
        memcpy(out + n, one, k);
        n += k;
    }
    out[n] = '\0';
    return out;
}

bool shown_write(FILE *f, const char *s, size_t len)
{
    char one[SHOWN_CHAR_BYTES];
    for (size_t taken; len; s += taken, len -= taken) {
        size_t k = shown_char(one, s, len, &taken);
        bool stays = *s == '\n' || *s == '\t';
        if (fwrite(stays ? s : one, 1, stays ? 1 : k, f) != (stays ? 1 : k)) return false;
    }
    return true;
}

void shown_line(FILE *f, const char *format, ...)
{
    char text[SHOWN_LINE_BYTES], line[2 * SHOWN_LINE_BYTES];
    FORMAT_REST(text, sizeof(text), format);
    fprintf(f, "%s\n", shown_text(line, sizeof(line), text, strlen(text)));
}
