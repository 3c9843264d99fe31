/* SPDX-License-Identifier: MIT */
/* Text of strangers on a terminal; see chat_screen.h. */
#include "server/cli/chat_screen.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/utf8.h"

enum { TAB = 8, SAY_MAX_BYTES = 4096 };

static const char answer_colour[] = "\033[36m", no_colour[] = "\033[0m";

void screen_init(struct screen *s, FILE *out)
{
    const char *term = getenv("TERM"), *without = getenv("NO_COLOR");
    *s = (struct screen){.out = out, .tty = isatty(fileno(out)) != 0};
    s->moves = s->tty && term && *term && strcmp(term, "dumb") != 0;
    s->colours = s->moves && (!without || !*without);
}

/* The last column stays empty: terminals differ in where the cursor is after it. */
static void measure(struct screen *s)
{
    struct winsize size;
    bool known = s->moves && ioctl(fileno(s->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    s->width = known ? size.ws_col - 1 : s->moves ? 79 : 0;
}

static void begin_line(struct screen *s)
{
    fputc('\n', s->out);
    s->column = s->word_width = 0;
    s->word_len = 0;
}

/* Goes to the next line and takes the word there that has begun, if it began on this line. */
static void wrap(struct screen *s)
{
    size_t len = s->word_len;
    int width = s->word_width;
    bool moved = len > 0 && width < s->column;
    if (moved) fprintf(s->out, "\033[%dD\033[K", width);
    begin_line(s);
    if (!moved) return;
    fwrite(s->word, 1, len, s->out);
    s->word_len = len;
    s->column = s->word_width = width;
}

static void put(struct screen *s, const char *text, size_t len, int width)
{
    if (s->width && s->column + width > s->width) wrap(s);
    fwrite(text, 1, len, s->out);
    s->column += width;
    bool is_mark = width == 0 && !s->word_len; /* on what is not moved */
    if (width > 1 || is_mark ||
        s->word_len + len > sizeof(s->word)) { /* ideographs have no blanks */
        s->word_len = 0;
        s->word_width = 0;
    } else {
        memcpy(s->word + s->word_len, text, len);
        s->word_len += len;
        s->word_width += width;
    }
}

static void put_blank(struct screen *s, int n)
{
    s->word_len = 0;
    s->word_width = 0;
    if (s->width && s->column + n > s->width) {
        begin_line(s);
        return;
    }
    fprintf(s->out, "%*s", n, "");
    s->column += n;
}

/* Controls, and what reorders or hides the text around it. */
static bool is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069) || (c >= 0xFFF9 && c <= 0xFFFB);
}

static void put_escaped(struct screen *s, uint32_t c)
{
    char text[8];
    int n = snprintf(text, sizeof(text), c < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)c & 0xFFFF);
    for (int i = 0; i < n; i++)
        put(s, text + i, 1, 1);
}

static void put_char(struct screen *s, const unsigned char *text, int n)
{
    const unsigned char *p = text;
    uint32_t c = n > 0 ? utf8_next(&p) : *text;
    int width = wcwidth((wchar_t)c);
    if (n <= 0) {
        put_escaped(s, c);
    } else if (c == '\n') {
        begin_line(s);
    } else if (c == ' ' || c == '\t') {
        put_blank(s, c == ' ' ? 1 : TAB - s->column % TAB);
    } else if (is_unsafe(c)) {
        put_escaped(s, c);
    } else {
        put(s, (const char *)text, (size_t)n, width < 0 ? 1 : width);
    }
}

bool screen_text(struct screen *s, const char *text, size_t len)
{
    if (s->has_progress) screen_progress(s, "");
    measure(s);
    for (size_t i = 0; s->tty && i < len;) {
        int n = utf8_classify((const unsigned char *)text + i, len - i);
        put_char(s, (const unsigned char *)text + i, n);
        i += n > 0 ? (size_t)n : 1;
    }
    if (!s->tty) fwrite(text, 1, len, s->out);
    return fflush(s->out) == 0 && !ferror(s->out);
}

void screen_say(struct screen *s, const char *format, ...)
{
    char text[SAY_MAX_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text) - 1, format, args);
    va_end(args);
    if (n < 0) return;
    size_t len = strlen(text);
    text[len++] = '\n';
    if (s->column) begin_line(s);
    screen_text(s, text, len);
}

void screen_progress(struct screen *s, const char *text)
{
    if (!s->moves) return;
    fprintf(s->out, "\r\033[K%s", text);
    fflush(s->out);
    s->has_progress = *text != '\0';
}

void screen_begin_answer(struct screen *s)
{
    s->column = s->word_width = 0;
    s->word_len = 0;
    if (s->colours) fputs(answer_colour, s->out);
}

void screen_end_answer(struct screen *s)
{
    if (s->has_progress) screen_progress(s, "");
    if (s->colours) fputs(no_colour, s->out);
    if (s->column) begin_line(s);
    fflush(s->out);
}
