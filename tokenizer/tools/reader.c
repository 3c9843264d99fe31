/* SPDX-License-Identifier: MIT */
/* Text to content, reasoning and the openings of calls; see reader.h and tools.h. */
#include "tokenizer/tools/reader.h"

#include <assert.h>
#include <string.h>

/* Bytes taken into the window at a time. */
enum { PIECE = 4096 };

/* ---- the beginning of an answer ------------------------------------------------------------ */

size_t tools_reader_bytes(size_t max_held)
{
    return sizeof(struct tools_reader) + 2 * max_held + 3 * PIECE;
}

struct tools_reader *tools_reader_init(void *memory, const struct tools_reader_params *params)
{
    struct tools_reader *r = memory;
    memset(r, 0, sizeof(*r));
    r->set = params->set;
    r->markers = *params->markers;
    r->guided = params->guided;
    r->max_held = params->max_held;
    r->on_event = params->on_event;
    r->ctx = params->ctx;
    r->calls_on = r->set->reads_calls;
    r->space = r->match = NOWHERE;
    r->size = 2 * params->max_held + 3 * PIECE;
    r->mode = params->begun ? MODE_TEXT : MODE_START;
    r->shown = params->begun;
    if (params->think_open && r->set->reads_reasoning) {
        r->mode = MODE_REASONING_START;
        r->after_close = true;
    }
    reader_set_openings(r);
    return r;
}

/* ---- text that comes in -------------------------------------------------------------------- */

/* Returns true if white space with a newline, or nothing but that, comes before the opening. */
static bool begins_line(const struct tools_reader *r, size_t at)
{
    if (r->mode == MODE_START || r->after_close) return true;
    return r->space != NOWHERE && memchr(r->text + r->space, '\n', at - r->space);
}

static void take_opening(struct tools_reader *r, enum opening_index i)
{
    size_t begin = r->match;
    r->match = NOWHERE;
    bool begins = r->mode == MODE_START || r->after_close;
    if ((i == OPENING_RESULT && !begins_line(r, begin)) || (i == OPENING_CALL && !begins)) {
        reader_decide_space(r, begin);
    } else if (i == OPENING_LABEL) {
        reader_begin_text(r, MODE_REASONING);
    } else if (i == OPENING_THINK) {
        reader_begin_text(r, r->mode == MODE_START ? MODE_REASONING_START : MODE_REASONING);
    } else if (i == OPENING_THINK_CLOSE) {
        reader_send_text(r, r->space == NOWHERE ? begin : r->space, true);
        reader_begin_text(r, MODE_TEXT);
    } else {
        r->held = begin;
        r->in_call = true;
        call_open(r, i);
    }
}

static void begin_match(struct tools_reader *r)
{
    r->match = r->pos;
    r->alive = 0;
    for (int i = 0; i < N_OPENINGS; i++)
        if (r->openings[i].modes >> r->mode & 1 && reader_opening_is_text(r, &r->openings[i]))
            r->alive |= 1u << i;
}

/* The opening that [match, pos] completes, or -1. Drops those that do not fit. */
static int match_byte(struct tools_reader *r)
{
    size_t k = r->pos - r->match;
    for (unsigned left = r->alive; left; left &= left - 1) {
        int i = __builtin_ctz(left);
        const struct opening *o = &r->openings[i];
        if (o->text[k] != r->text[r->pos])
            r->alive &= ~(1u << i);
        else if (k + 1 == o->len)
            return i;
    }
    return -1;
}

/* The bytes in hand are not an opening; one may still begin after their first. */
static void fail_match(struct tools_reader *r)
{
    reader_decide_space(r, r->match);
    r->pos = r->match + 1;
    r->match = NOWHERE;
}

static void read_match(struct tools_reader *r)
{
    int i = match_byte(r);
    if (i >= 0) {
        r->pos++;
        take_opening(r, (enum opening_index)i);
    } else if (r->alive) {
        r->pos++;
    } else {
        fail_match(r);
    }
}

static void read_space(struct tools_reader *r)
{
    if (r->space == NOWHERE) r->space = r->pos;
    if (r->pos - r->space >= r->max_held) reader_decide_space(r, r->pos);
    r->pos++;
}

/* Returns true if an opening could begin at p, but not with the byte after it. */
static bool begins_nothing(const struct tools_reader *r, const char *p, const char *end)
{
    return r->first[r->mode][(unsigned char)*p] == BYTE_OPENING && p + 1 < end &&
           !r->second[r->mode][(unsigned char)p[1]];
}

static void read_text(struct tools_reader *r)
{
    const uint8_t *first = r->first[r->mode];
    const char *p = r->text + r->pos, *end = r->text + r->len;
    while (p < end && (!first[(unsigned char)*p] || begins_nothing(r, p, end)))
        p++;
    if (p > r->text + r->pos) {
        reader_decide_space(r, r->pos);
        r->pos = (size_t)(p - r->text);
    } else if (first[(unsigned char)*p] == BYTE_SPACE) {
        read_space(r);
    } else {
        begin_match(r);
    }
}

/* Reads the window to its end and gives out the decided part. */
static void read_window(struct tools_reader *r)
{
    while (r->pos < r->len) {
        if (r->in_call)
            call_read(r);
        else if (r->match != NOWHERE)
            read_match(r);
        else
            read_text(r);
    }
    if (r->in_call && r->call.live) return;
    size_t held = r->in_call ? r->held : r->match, end = r->space < held ? r->space : held;
    reader_send_text(r, end < r->len ? end : r->len, false);
}

static void move_place(size_t *place, size_t by)
{
    if (*place != NOWHERE) *place -= by;
}

/* Drops what was given out, if no place before it is needed. */
static void move_window(struct tools_reader *r)
{
    size_t by = r->sent;
    if (!by || (r->in_call && !r->call.live)) return;
    memmove(r->text, r->text + by, r->len - by);
    r->pos -= by;
    r->len -= by;
    r->base += by;
    r->sent = 0;
    move_place(&r->space, by);
    move_place(&r->match, by);
    move_place(&r->call.match, by);
    move_place(&r->call.param.key.begin, by);
    move_place(&r->call.param.value.begin, by);
}

static void append(struct tools_reader *r, const char *text, size_t len)
{
    move_window(r);
    assert(len <= r->size - r->len);
    memcpy(r->text + r->len, text, len);
    r->len += len;
}

void tools_reader_text(struct tools_reader *r, const char *text, size_t len)
{
    while (len) {
        size_t n = len < PIECE ? len : PIECE;
        append(r, text, n);
        read_window(r);
        text += n;
        len -= n;
    }
}

/* Reads the text before `end`: no opening goes on in another token. */
static void settle(struct tools_reader *r, size_t end)
{
    size_t len = r->len;
    r->len = end;
    do {
        if (r->match != NOWHERE) fail_match(r);
        read_window(r);
    } while (r->match != NOWHERE);
    r->len = len;
}

static void take_marker(struct tools_reader *r, enum tools_marker marker)
{
    for (int i = 0; i < N_OPENINGS; i++) {
        const struct opening *o = &r->openings[i];
        if (o->marker != marker || !(o->modes >> r->mode & 1)) continue;
        r->match = r->pos;
        r->pos = r->len;
        take_opening(r, (enum opening_index)i);
        return;
    }
    reader_decide_space(r, r->pos);
    r->pos = r->len;
    read_window(r);
}

void tools_reader_marker(struct tools_reader *r, enum tools_marker marker)
{
    const char *text = tools_marker_text(&r->set->style, marker);
    append(r, text, strlen(text));
    for (;;) {
        settle(r, r->len - strlen(text));
        if (!r->in_call) break;
        if (call_marker(r, marker)) return;
    }
    take_marker(r, marker);
}

void tools_reader_end(struct tools_reader *r)
{
    if (r->in_call) call_end(r);
    if (r->match != NOWHERE) reader_decide_space(r, r->match);
    bool drop = r->space != NOWHERE && (r->after_close || tools_reader_reasoning(r));
    reader_send_text(r, drop ? r->space : r->len, true);
    r->sent = r->pos = r->len;
    r->space = r->match = NOWHERE;
}
