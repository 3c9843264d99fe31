/* SPDX-License-Identifier: MIT */
/* Text to content, reasoning and the openings of calls; see reader.h and tools.h. */
#include "tokenizer/tools/reader.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"

/* Bytes taken into the window at a time. */
enum { PIECE = 4096 };

enum { SPACE = 1, OPENING = 2 };

/* ---- the beginning of an answer ------------------------------------------------------------ */

bool reader_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool reader_is_reasoning(const struct tools_reader *r)
{
    return r->mode == MODE_REASONING || r->mode == MODE_REASONING_START;
}

static unsigned bit(enum mode mode)
{
    return 1u << mode;
}

static void set_opening(struct tools_reader *r, enum opening_index i, const char *text,
                        enum tools_marker marker, unsigned modes)
{
    r->openings[i] = (struct opening){text, strlen(text), marker, modes};
    if (!text[0]) r->openings[i].modes = 0;
}

static void set_marker(struct tools_reader *r, enum opening_index i, enum tools_marker marker,
                       unsigned modes)
{
    set_opening(r, i, tools_marker_text(&r->set->style, marker), marker, modes);
}

/* Returns true if an opening may be found by the bytes of its text. */
static bool is_text(const struct tools_reader *r, const struct opening *o)
{
    return o->marker == TOOLS_N_MARKERS || r->markers.id[o->marker] < 0;
}

/* An opening of one byte may be followed by white space, or by a name's quote in an object. */
static void mark_all_seconds(struct tools_reader *r, int mode, int opening)
{
    for (int byte = 0; byte < 256; byte++)
        r->second[mode][byte] |=
            opening != OPENING_OBJECT || byte == '"' || reader_is_space((char)byte);
}

static void mark_first_bytes(struct tools_reader *r)
{
    static const char spaces[] = " \t\n\r";
    memset(r->first, 0, sizeof(r->first));
    memset(r->second, 0, sizeof(r->second));
    for (int mode = 0; mode < N_MODES; mode++) {
        for (const char *s = spaces; *s; s++)
            r->first[mode][(unsigned char)*s] = SPACE;
        for (int i = 0; i < N_OPENINGS; i++) {
            const struct opening *o = &r->openings[i];
            if (!(o->modes >> mode & 1) || !is_text(r, o)) continue;
            r->first[mode][(unsigned char)o->text[0]] = OPENING;
            if (o->text[1])
                r->second[mode][(unsigned char)o->text[1]] = true;
            else
                mark_all_seconds(r, mode, i);
        }
    }
}

/* A call inside of reasoning is one where models are known to leave the block open. */
static void set_openings(struct tools_reader *r)
{
    const struct tools_style *style = &r->set->style;
    bool in_thought = strcmp(style->think_open, "<think>") == 0;
    unsigned reasoning = bit(MODE_REASONING_START) | bit(MODE_REASONING);
    unsigned text = bit(MODE_START) | bit(MODE_TEXT);
    unsigned calls = r->calls_on ? text | (in_thought ? reasoning : 0) : 0;
    unsigned tags = style->format == TOOLS_QWEN_XML ? calls : 0;
    unsigned objects = style->format == TOOLS_LLAMA3 ? calls : 0;

    set_marker(r, OPENING_THINK, TOOLS_MARK_THINK_OPEN,
               bit(MODE_START) | bit(MODE_REASONING_START));
    set_marker(r, OPENING_THINK_CLOSE, TOOLS_MARK_THINK_CLOSE, reasoning);
    set_marker(r, OPENING_BLOCK, TOOLS_MARK_OPEN, calls);
    set_opening(r, OPENING_FUNCTION, "<function=", TOOLS_N_MARKERS, tags);
    set_opening(r, OPENING_OBJECT, "{", TOOLS_N_MARKERS, objects);
    set_marker(r, OPENING_TAG, TOOLS_MARK_PYTHON_TAG, objects);
    if (!r->set->reads_reasoning) r->openings[OPENING_THINK].modes = 0;
    mark_first_bytes(r);
}

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
    set_openings(r);
    return r;
}

bool tools_reader_reasoning(const struct tools_reader *r)
{
    return reader_is_reasoning(r);
}

uint32_t tools_reader_calls(const struct tools_reader *r)
{
    return r->n_calls + (r->in_call && r->call.live);
}

/* ---- text that goes out -------------------------------------------------------------------- */

size_t reader_whole(const struct tools_reader *r, size_t begin, size_t end)
{
    const unsigned char *s = (const unsigned char *)r->text;
    size_t lead = end;
    while (lead > begin && end - lead < 3) {
        lead--;
        if ((s[lead] & 0xC0) != 0x80) break;
    }
    return lead < end && utf8_classify(s + lead, end - lead) == 0 ? lead : end;
}

/* Bytes [sent, end) are content or reasoning; final: the half of a character is dropped. */
static void send_text(struct tools_reader *r, size_t end, bool final)
{
    assert(end >= r->sent && end <= r->len);
    size_t whole = reader_whole(r, r->sent, end);
    if (whole > r->sent) {
        struct tools_event e = {.type = reader_is_reasoning(r) ? TOOLS_REASONING : TOOLS_CONTENT,
                                .text = r->text + r->sent,
                                .len = whole - r->sent,
                                .offset = r->base + r->sent};
        r->on_event(r->ctx, &e);
    }
    r->sent = final ? end : whole;
}

/* The byte at `at` is text, and not white space: what that means for white space before it. */
static void decide_space(struct tools_reader *r, size_t at)
{
    bool drop = r->after_close && (reader_is_reasoning(r) || !r->shown);
    if (drop && r->space != NOWHERE) r->sent = at;
    if (r->mode == MODE_START) r->mode = MODE_TEXT;
    if (r->mode == MODE_REASONING_START) r->mode = MODE_REASONING;
    if (r->mode == MODE_TEXT) r->shown = true;
    r->space = NOWHERE;
    r->after_close = false;
}

void reader_confirm(struct tools_reader *r)
{
    send_text(r, r->space == NOWHERE ? r->held : r->space, true);
    r->mode = MODE_TEXT;
    r->space = NOWHERE;
}

/* Text begins at pos, behind a closing marker. */
static void begin_text(struct tools_reader *r, enum mode mode)
{
    r->mode = mode;
    r->in_call = false;
    r->sent = r->pos;
    r->space = r->match = NOWHERE;
    r->after_close = true;
}

void reader_block_done(struct tools_reader *r)
{
    begin_text(r, MODE_TEXT);
    if (r->n_calls < r->set->max_calls) return;
    r->calls_on = false;
    set_openings(r);
}

/* The opening was a control token: it is dropped with the white space behind it. */
static size_t drop_control(struct tools_reader *r, size_t end)
{
    bool drop = r->after_close && (reader_is_reasoning(r) || !r->shown);
    send_text(r, drop && r->space != NOWHERE ? r->space : r->held, true);
    r->space = NOWHERE;
    r->sent = r->call.opened < end ? r->call.opened : end;
    return r->sent;
}

void reader_fail(struct tools_reader *r, size_t end)
{
    size_t begin = r->held, tail = end;
    if (!r->call.first) { /* what follows a call of this block */
        begin_text(r, MODE_TEXT);
        r->sent = begin;
        while (begin < end && reader_is_space(r->text[begin]))
            begin++;
        if (begin > r->held) r->space = r->held;
        if (r->n_calls >= r->set->max_calls) r->calls_on = false, set_openings(r);
    } else if (r->call.control) {
        begin = drop_control(r, end);
    }
    r->in_call = false;
    r->match = NOWHERE;
    r->pos = end;
    if (begin == end) return;
    decide_space(r, begin);
    while (tail > begin && reader_is_space(r->text[tail - 1]))
        tail--;
    if (tail < end) r->space = tail;
}

/* ---- text that comes in -------------------------------------------------------------------- */

static void take_opening(struct tools_reader *r, enum opening_index i)
{
    size_t begin = r->match;
    r->match = NOWHERE;
    if (i == OPENING_THINK) {
        begin_text(r, r->mode == MODE_START ? MODE_REASONING_START : MODE_REASONING);
    } else if (i == OPENING_THINK_CLOSE) {
        send_text(r, r->space == NOWHERE ? begin : r->space, true);
        begin_text(r, MODE_TEXT);
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
        if (r->openings[i].modes >> r->mode & 1 && is_text(r, &r->openings[i])) r->alive |= 1u << i;
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

/* The bytes in hand are not an opening; one may still begin behind their first. */
static void fail_match(struct tools_reader *r)
{
    decide_space(r, r->match);
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
    if (r->pos - r->space >= r->max_held) decide_space(r, r->pos);
    r->pos++;
}

/* Returns true if an opening could begin at p, but not with the byte behind it. */
static bool begins_nothing(const struct tools_reader *r, const char *p, const char *end)
{
    return r->first[r->mode][(unsigned char)*p] == OPENING && p + 1 < end &&
           !r->second[r->mode][(unsigned char)p[1]];
}

static void read_text(struct tools_reader *r)
{
    const uint8_t *first = r->first[r->mode];
    const char *p = r->text + r->pos, *end = r->text + r->len;
    while (p < end && (!first[(unsigned char)*p] || begins_nothing(r, p, end)))
        p++;
    if (p > r->text + r->pos) {
        decide_space(r, r->pos);
        r->pos = (size_t)(p - r->text);
    } else if (first[(unsigned char)*p] == SPACE) {
        read_space(r);
    } else {
        begin_match(r);
    }
}

/* Reads the window to its end and gives out what is decided. */
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
    send_text(r, end < r->len ? end : r->len, false);
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
    decide_space(r, r->pos);
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
    if (r->match != NOWHERE) decide_space(r, r->match);
    bool drop = r->space != NOWHERE && (r->after_close || reader_is_reasoning(r));
    send_text(r, drop ? r->space : r->len, true);
    r->sent = r->pos = r->len;
    r->space = r->match = NOWHERE;
}
