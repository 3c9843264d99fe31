/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes texts of models: the first byte picks a format, the second how it is read, the third the
 * pieces; the rest is text. It reads the same whole and in pieces, what is given out as text stands
 * in the input at the offset that is told, and no call is left open.
 */
#include "grammar_check.h"

#include "tests/unit/tools/read_text.h"

enum { ANY_NAME = 1, REASONS = 2, OPEN = 4, ONE_CALL = 8, GUIDED = 16, SHORT = 32 };

/* Checks each event on its way. */
struct checker {
    const char *text;
    size_t len;
    struct line line;
    uint64_t at; /* text was given out up to here */
    bool in_call;
    uint32_t n_calls;
};

static void on_event(void *ctx, const struct tools_event *e)
{
    struct checker *c = ctx;
    bool text = e->type == TOOLS_CONTENT || e->type == TOOLS_REASONING;
    CHECK(e->type == TOOLS_CALL_END || e->len > 0);
    CHECK(c->in_call == (e->type == TOOLS_CALL_ARGUMENTS || e->type == TOOLS_CALL_END));
    if (text) {
        CHECK(e->offset >= c->at && e->offset + e->len <= c->len);
        CHECK(memcmp(c->text + e->offset, e->text, e->len) == 0);
        c->at = e->offset + e->len;
    } else {
        CHECK(e->index == c->n_calls && c->n_calls < TOOLS_MAX_CALLS);
        c->in_call = e->type != TOOLS_CALL_END;
        c->n_calls += e->type == TOOLS_CALL_END;
    }
    line_add(&c->line, e);
}

static char *read_cut(const struct reading *r, const char *text, size_t len, size_t step)
{
    struct checker c = {.text = text, .len = len};
    struct tools_reader *reader = read_begin(r, on_event, &c);
    buf_init(&c.line.text, 64 << 20);
    for (size_t i = 0; i < len; i += step)
        tools_reader_text(reader, text + i, len - i < step ? len - i : step);
    char *line = read_end(reader, &c.line);
    CHECK(!c.in_call);
    return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reading r;
    if (size < 3) return 0;
    reading_init(&r, (enum tools_format)(data[0] % TOOLS_N_FORMATS), data[1] & REASONS);
    r.request.any_name = data[1] & ANY_NAME;
    if (r.request.any_name) r.request.n_tools = 0;
    r.think_open = data[1] & OPEN;
    r.request.one_call = data[1] & ONE_CALL;
    if (data[1] & SHORT) r.max_held = 40;
    reading_prepare(&r);
    const char *text = (const char *)data + 3;
    char *whole = read_cut(&r, text, size - 3, size);
    char *cut = read_cut(&r, text, size - 3, 1 + data[2] % 16);
    CHECK(strcmp(whole, cut) == 0);
    free(whole);
    free(cut);
    r.guided = data[1] & GUIDED; /* by a guide that lets anything come: no more than no harm */
    if (r.guided) free(read_cut(&r, text, size - 3, 1 + data[2] % 16));
    tools_set_destroy(r.set);
    return 0;
}
