/* SPDX-License-Identifier: MIT */
/* The modes of a reader: the openings each looks for, and the text that goes out; see reader.h. */
#include "tokenizer/tools/reader.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"

/* ---- modes and their openings -------------------------------------------------------------- */

bool tools_reader_reasoning(const struct tools_reader *r)
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

bool reader_opening_is_text(const struct tools_reader *r, const struct opening *o)
{
    return o->marker == TOOLS_N_MARKERS || r->markers.id[o->marker] < 0;
}

/* An opening of one byte may be followed by white space, or by a name's quote in an object. */
static void mark_all_seconds(struct tools_reader *r, int mode, int opening)
{
    for (int byte = 0; byte < 256; byte++)
        r->second[mode][byte] |=
            opening != OPENING_OBJECT || byte == '"' || json_is_space((char)byte);
}

static void mark_first_bytes(struct tools_reader *r)
{
    static const char spaces[] = " \t\n\r";
    memset(r->first, 0, sizeof(r->first));
    memset(r->second, 0, sizeof(r->second));
    for (int mode = 0; mode < N_MODES; mode++) {
        for (const char *s = spaces; *s; s++)
            r->first[mode][(unsigned char)*s] = BYTE_SPACE;
        for (int i = 0; i < N_OPENINGS; i++) {
            const struct opening *o = &r->openings[i];
            if (!(o->modes >> mode & 1) || !reader_opening_is_text(r, o)) continue;
            r->first[mode][(unsigned char)o->text[0]] = BYTE_OPENING;
            if (o->text[1])
                r->second[mode][(unsigned char)o->text[1]] = true;
            else
                mark_all_seconds(r, mode, i);
        }
    }
}

/* A call inside of reasoning is one where models are known to leave the block open. */
void reader_set_openings(struct tools_reader *r)
{
    const struct tools_style *style = &r->set->style;
    bool in_thought = strcmp(style->think_open, "<think>") == 0;
    unsigned reasoning = bit(MODE_REASONING_START) | bit(MODE_REASONING);
    unsigned text = bit(MODE_START) | bit(MODE_TEXT);
    unsigned calls = r->calls_on ? text | (in_thought ? reasoning : 0) : 0;
    unsigned tags = style->format == TOOLS_QWEN_XML ? calls : 0;
    unsigned objects = style->format == TOOLS_LLAMA3 ? calls : 0;
    bool channel = strcmp(style->think_open, TOOLS_CHANNEL) == 0;

    set_marker(r, OPENING_THINK, TOOLS_MARK_THINK_OPEN,
               bit(MODE_START) | bit(MODE_REASONING_START));
    set_marker(r, OPENING_THINK_CLOSE, TOOLS_MARK_THINK_CLOSE, reasoning);
    set_marker(r, OPENING_BLOCK, TOOLS_MARK_OPEN, calls);
    set_opening(r, OPENING_FUNCTION, "<function=", TOOLS_N_MARKERS, tags);
    set_opening(r, OPENING_OBJECT, "{", TOOLS_N_MARKERS, objects);
    set_marker(r, OPENING_TAG, TOOLS_MARK_PYTHON_TAG, objects);
    set_opening(r, OPENING_CALL, "call:", TOOLS_N_MARKERS, style->quote ? calls : 0);
    set_opening(r, OPENING_LABEL, "thought\n", TOOLS_N_MARKERS,
                channel ? bit(MODE_REASONING_START) : 0);
    set_opening(r, OPENING_RESULT, "<tool_response>", TOOLS_N_MARKERS,
                r->set->own_results ? text : 0);
    if (!r->set->reads_reasoning) r->openings[OPENING_THINK].modes = 0;
    mark_first_bytes(r);
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

void reader_send_text(struct tools_reader *r, size_t end, bool final)
{
    assert(end >= r->sent && end <= r->len);
    size_t whole = reader_whole(r, r->sent, end);
    if (whole > r->sent) {
        struct tools_event e = {.type = tools_reader_reasoning(r) ? TOOLS_REASONING : TOOLS_CONTENT,
                                .text = r->text + r->sent,
                                .len = whole - r->sent,
                                .offset = r->base + r->sent};
        r->on_event(r->ctx, &e);
    }
    r->sent = final ? end : whole;
}

void reader_decide_space(struct tools_reader *r, size_t at)
{
    bool drop = r->after_close && (tools_reader_reasoning(r) || !r->shown);
    if (drop && r->space != NOWHERE) r->sent = at;
    if (r->mode == MODE_START) r->mode = MODE_TEXT;
    if (r->mode == MODE_REASONING_START) r->mode = MODE_REASONING;
    if (r->mode == MODE_TEXT) r->shown = true;
    r->space = NOWHERE;
    r->after_close = false;
}

void reader_confirm(struct tools_reader *r)
{
    reader_send_text(r, r->space == NOWHERE ? r->held : r->space, true);
    r->mode = MODE_TEXT;
    r->space = NOWHERE;
}

void reader_begin_text(struct tools_reader *r, enum mode mode)
{
    r->mode = mode;
    r->in_call = false;
    r->sent = r->pos;
    r->space = r->match = NOWHERE;
    r->after_close = true;
}

void reader_block_done(struct tools_reader *r)
{
    reader_begin_text(r, MODE_TEXT);
    if (r->n_calls < r->set->max_calls) return;
    r->calls_on = false;
    reader_set_openings(r);
}

/* The opening was a control token: it is dropped with the white space after it. */
static size_t drop_control(struct tools_reader *r, size_t end)
{
    bool drop = r->after_close && (tools_reader_reasoning(r) || !r->shown);
    reader_send_text(r, drop && r->space != NOWHERE ? r->space : r->held, true);
    r->space = NOWHERE;
    r->sent = r->call.opened < end ? r->call.opened : end;
    return r->sent;
}

void reader_fail(struct tools_reader *r, size_t end)
{
    size_t begin = r->held, tail = end;
    if (!r->call.first) { /* after a call of this block */
        reader_begin_text(r, MODE_TEXT);
        r->sent = begin;
        while (begin < end && json_is_space(r->text[begin]))
            begin++;
        if (begin > r->held) r->space = r->held;
        if (r->n_calls >= r->set->max_calls) r->calls_on = false, reader_set_openings(r);
    } else if (r->call.control) {
        begin = drop_control(r, end);
    }
    r->in_call = false;
    r->match = NOWHERE;
    r->pos = end;
    if (begin == end) return;
    reader_decide_space(r, begin);
    while (tail > begin && json_is_space(r->text[tail - 1]))
        tail--;
    if (tail < end) r->space = tail;
}
