/* SPDX-License-Identifier: MIT */
/* Text of strangers on a terminal; see chat_screen.h. */
#include "server/cli/chat_screen.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/fail.h"
#include "base/shown.h"
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

/* Puts the first character of text[0..len) and returns its bytes. */
static size_t put_char(struct screen *s, const char *text, size_t len)
{
    char spelled[SHOWN_CHAR_BYTES];
    size_t taken, n = shown_char(spelled, text, len, &taken);
    const unsigned char *p = (const unsigned char *)text;
    if (*text == '\n') {
        begin_line(s);
    } else if (*text == ' ' || *text == '\t') {
        put_blank(s, *text == ' ' ? 1 : TAB - s->column % TAB);
    } else if (memcmp(spelled, text, taken) == 0) {
        int width = wcwidth((wchar_t)utf8_next(&p));
        put(s, text, taken, width < 0 ? 1 : width);
    } else {
        for (size_t i = 0; i < n; i++)
            put(s, spelled + i, 1, 1);
    }
    return taken;
}

bool screen_text(struct screen *s, const char *text, size_t len)
{
    if (s->has_progress) screen_progress(s, "");
    measure(s);
    for (size_t i = 0; s->tty && i < len;)
        i += put_char(s, text + i, len - i);
    if (!s->tty) fwrite(text, 1, len, s->out);
    return fflush(s->out) == 0 && !ferror(s->out);
}

void screen_say(struct screen *s, const char *format, ...)
{
    char text[SAY_MAX_BYTES];
    int n = FORMAT_REST(text, sizeof(text) - 1, format);
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
