/* SPDX-License-Identifier: MIT */
/* For tests of reading: tools, and a text as one line that says what it was read as. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "tests/filters/markers_by_text.h"
#include "tokenizer/tools/tools.h"

#define READ_TOOL(name_, schema_)                                                                  \
    {                                                                                              \
        .name = name_, .name_len = sizeof(name_) - 1, .schema = schema_,                           \
        .schema_len = sizeof(schema_) - 1                                                          \
    }

static const struct tools_tool read_tools[] = {
    READ_TOOL("ping", "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"),
    READ_TOOL("ping_all", "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}}}"),
    READ_TOOL("write",
              "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},"
              "\"mode\":{\"enum\":[\"new\",\"append\"]},\"v\":{\"const\":\"1\"},\"tags\":{\"type\":"
              "\"array\","
              "\"items\":{\"type\":\"string\"}},\"note\":{\"type\":[\"string\",\"null\"]}},"
              "\"required\":[\"path\"],\"additionalProperties\":false}"),
    {.name = "any", .name_len = 3},
};
enum { N_READ_TOOLS = sizeof(read_tools) / sizeof(read_tools[0]) };

/* How a text is read. */
struct reading {
    struct tools_style style;
    struct tools_request request;
    struct tools_markers markers;
    struct tools_set *set;
    bool guided, think_open, begun;
    size_t max_held;
};

/* The tools above, calls by choice of the model, reasoning between <think> markers if wanted. */
static inline void reading_init(struct reading *r, enum tools_format format, bool reasons)
{
    *r = (struct reading){.max_held = TOOLS_GUIDED_HELD};
    if (!tools_style_of(&r->style, format, reasons ? "<think>" : NULL, reasons ? "</think>" : NULL))
        abort();
    r->request = (struct tools_request){.style = &r->style,
                                        .tools = read_tools,
                                        .n_tools = N_READ_TOOLS,
                                        .choice = TOOLS_CHOICE_AUTO};
    markers_by_text(&r->style, &r->markers);
}

static inline void reading_prepare(struct reading *r)
{
    tools_set_destroy(r->set);
    if (tools_set_create(&r->set, &r->request)) abort();
}

struct line {
    struct buf text;
    enum tools_event_type last;
    bool open;
};

/* Adds an event: C(content) R(reasoning) name[id](arguments) and ! behind a call that was cut. */
static inline void line_add(void *ctx, const struct tools_event *e)
{
    static const char *const begins[] = {"R(", "C("};
    struct line *l = ctx;
    bool text = e->type == TOOLS_REASONING || e->type == TOOLS_CONTENT;
    if (l->open && (!text || l->last != e->type)) {
        buf_puts(&l->text, ")");
        l->open = false;
    }
    if (text && !l->open) buf_puts(&l->text, begins[e->type]);
    l->open |= text;
    l->last = e->type;
    if (e->type != TOOLS_CALL_END) buf_add(&l->text, e->text, e->len);
    if (e->type == TOOLS_CALL_BEGIN && e->id) buf_puts(&l->text, "[");
    if (e->type == TOOLS_CALL_BEGIN && e->id) buf_add(&l->text, e->id, e->id_len);
    if (e->type == TOOLS_CALL_BEGIN) buf_puts(&l->text, e->id ? "](" : "(");
    if (e->type == TOOLS_CALL_END) buf_puts(&l->text, e->complete ? ")" : ")!");
}

/* Begins to read into memory that is kept for all calls. */
static inline struct tools_reader *read_begin(const struct reading *r, tools_event_fn on_event,
                                              void *ctx)
{
    static void *memory;
    static size_t size;
    struct tools_reader_params params = {.set = r->set,
                                         .markers = &r->markers,
                                         .guided = r->guided,
                                         .think_open = r->think_open,
                                         .begun = r->begun,
                                         .max_held = r->max_held,
                                         .on_event = on_event,
                                         .ctx = ctx};
    if (size < tools_reader_bytes(r->max_held)) {
        free(memory);
        size = tools_reader_bytes(r->max_held);
        memory = malloc(size);
        if (!memory) abort();
    }
    return tools_reader_init(memory, &params);
}

static inline struct tools_reader *read_line(const struct reading *r, struct line *l)
{
    *l = (struct line){.open = false};
    buf_init(&l->text, 64 << 20);
    return read_begin(r, line_add, l);
}

/* Returns owned. */
static inline char *read_end(struct tools_reader *reader, struct line *l)
{
    tools_reader_end(reader);
    if (l->open) buf_puts(&l->text, ")");
    buf_puts(&l->text, "");
    if (l->text.failed) abort();
    return l->text.data ? l->text.data : strdup("");
}

/* Reads a text in pieces: cuts are n ascending offsets. Returns the line, owned. */
static inline char *read_pieces(const struct reading *r, const char *text, size_t len,
                                const size_t *cuts, size_t n)
{
    struct line l;
    struct tools_reader *reader = read_line(r, &l);
    size_t at = 0;
    for (size_t i = 0; i <= n; i++) {
        size_t end = i < n ? cuts[i] : len;
        tools_reader_text(reader, text + at, end - at);
        at = end;
    }
    return read_end(reader, &l);
}

static inline char *read_whole(const struct reading *r, const char *text, size_t len)
{
    return read_pieces(r, text, len, NULL, 0);
}

/* One byte at a time. */
static inline char *read_bytes(const struct reading *r, const char *text, size_t len)
{
    struct line l;
    struct tools_reader *reader = read_line(r, &l);
    for (size_t i = 0; i < len; i++)
        tools_reader_text(reader, text + i, 1);
    return read_end(reader, &l);
}
