/* SPDX-License-Identifier: MIT */
/* White space in one style; see style.h. */
#include "tokenizer/grammar/style.h"

#include "tokenizer/grammar/compiled.h"
#include "tokenizer/grammar/grammar.h"

/* Values of d: nothing yet, after a blank, after a newline and so many characters of indent. */
enum { START, BLANK, NEWLINE };

enum { MAX_UNIT = 8, SHOWN = GRAM_STYLE_SHOWN };

static void set_part(uint32_t *style, enum gram_style_part part, uint32_t value)
{
    *style = (*style & ~((part == GRAM_STYLE_UNIT ? 15u : 3u) << part)) | value << part;
}

static enum gram_style_step go_on(uint16_t *d, uint16_t to)
{
    *d = to;
    return GRAM_STYLE_SPACE;
}

/* Nothing or one blank, as at the first such place. */
static enum gram_style_step step_blank(uint32_t *style, enum gram_style_part part, uint16_t *d,
                                       uint8_t byte)
{
    uint32_t shown = gram_style_of(*style, part);
    if (byte == '\n' || byte == '\t') return GRAM_STYLE_REFUSED;
    if (*d == BLANK) return byte == ' ' ? GRAM_STYLE_REFUSED : GRAM_STYLE_TOKEN;
    if (shown == (byte == ' ' ? GRAM_STYLE_NOTHING : GRAM_STYLE_BLANK)) return GRAM_STYLE_REFUSED;
    set_part(style, part, byte == ' ' ? GRAM_STYLE_BLANK : GRAM_STYLE_NOTHING);
    return byte == ' ' ? go_on(d, BLANK) : GRAM_STYLE_TOKEN;
}

/* A newline and the indent of so many containers. */
static enum gram_style_step step_line(uint32_t style, uint32_t containers, uint16_t *d,
                                      uint8_t byte)
{
    uint32_t unit = gram_style_of(style, GRAM_STYLE_UNIT);
    uint32_t width = unit == GRAM_STYLE_TAB ? containers : containers * unit;
    if (*d == START) return byte == '\n' ? go_on(d, NEWLINE) : GRAM_STYLE_REFUSED;
    bool space = byte == ' ' || byte == '\t';
    if (*d - NEWLINE == (int)width) return space ? GRAM_STYLE_REFUSED : GRAM_STYLE_TOKEN;
    if (byte != (unit == GRAM_STYLE_TAB ? '\t' : ' ')) return GRAM_STYLE_REFUSED;
    return go_on(d, (uint16_t)(*d + 1));
}

/* The indent that chooses the unit. */
static enum gram_style_step step_unit(uint32_t *style, uint16_t *d, uint8_t byte)
{
    int width = *d - NEWLINE;
    if (byte != ' ' && byte != '\t') return width ? GRAM_STYLE_TOKEN : GRAM_STYLE_REFUSED;
    if (gram_style_of(*style, GRAM_STYLE_UNIT) == GRAM_STYLE_TAB) return GRAM_STYLE_REFUSED;
    if (byte == '\t' ? width > 0 : width == MAX_UNIT) return GRAM_STYLE_REFUSED;
    set_part(style, GRAM_STYLE_UNIT, byte == '\t' ? GRAM_STYLE_TAB : (uint32_t)width + 1);
    return go_on(d, (uint16_t)(*d + 1));
}

static bool is_broken(const struct gram_frame *f)
{
    return f->style & GRAM_STYLE_BROKEN;
}

static enum gram_style_part padding_of(const struct gram_frame *f)
{
    return f->kind == GRAM_FRAME_OBJECT ? GRAM_STYLE_OBJECT : GRAM_STYLE_ARRAY;
}

/* After { or [. */
static enum gram_style_step step_inside(const struct gram_machine *m, struct gram_frame *f,
                                        uint16_t *d, uint8_t byte)
{
    if (byte == '}' || byte == ']') return *d == START ? GRAM_STYLE_TOKEN : GRAM_STYLE_REFUSED;
    if (*d == START && byte == '\n') {
        bool indents =
            gram_vocab_byte_id(m->g->vocab, ' ') >= 0 || gram_vocab_byte_id(m->g->vocab, '\t') >= 0;
        if (!(f->style & GRAM_STYLE_MAY_BREAK) || !indents) return GRAM_STYLE_REFUSED;
        f->style |= GRAM_STYLE_BROKEN;
    }
    if (!is_broken(f)) return step_blank(&f->style, padding_of(f), d, byte);
    if (f->containers == 1 && *d >= NEWLINE) return step_unit(&f->style, d, byte);
    return step_line(f->style, f->containers, d, byte);
}

/* After a value in a container. */
static enum gram_style_step step_after(const struct gram_frame *f, uint16_t *d, uint8_t byte)
{
    if (*d == START && byte == ',') return GRAM_STYLE_TOKEN;
    if (is_broken(f)) {
        enum gram_style_step step = step_line(f->style, f->containers - 1u, d, byte);
        return step == GRAM_STYLE_TOKEN && byte == ',' ? GRAM_STYLE_REFUSED : step;
    }
    bool padded = gram_style_of(f->style, padding_of(f)) == GRAM_STYLE_BLANK;
    if (padded && *d == START) return byte == ' ' ? go_on(d, BLANK) : GRAM_STYLE_REFUSED;
    return byte == '}' || byte == ']' ? GRAM_STYLE_TOKEN : GRAM_STYLE_REFUSED;
}

enum gram_style_step gram_style_step(const struct gram_machine *m, enum gram_config_kind kind,
                                     struct gram_frame *f, uint16_t *d, uint8_t byte)
{
    bool space = byte == ' ' || byte == '\n' || byte == '\t';
    if (space && gram_vocab_byte_id(m->g->vocab, byte) < 0) return GRAM_STYLE_REFUSED;
    if (f->kind > GRAM_FRAME_ARRAY || kind == GRAM_AT_COLON)
        return space ? GRAM_STYLE_REFUSED : GRAM_STYLE_TOKEN;
    if (kind == GRAM_AT_NEXT) return step_after(f, d, byte);
    if (kind == GRAM_AT_OBJECT || kind == GRAM_AT_ARRAY) return step_inside(m, f, d, byte);
    if (kind == GRAM_AT_VALUE && f->kind == GRAM_FRAME_OBJECT)
        return step_blank(&f->style, GRAM_STYLE_COLON, d, byte);
    if (is_broken(f)) return step_line(f->style, f->containers, d, byte);
    return step_blank(&f->style, GRAM_STYLE_COMMA, d, byte);
}

uint32_t gram_style_space(const struct gram_frame *f, enum gram_config_kind kind, uint16_t d)
{
    bool colon = kind == GRAM_AT_VALUE && f->kind == GRAM_FRAME_OBJECT,
         after = kind == GRAM_AT_NEXT;
    bool inside = kind == GRAM_AT_OBJECT || kind == GRAM_AT_ARRAY;
    uint32_t unit = gram_style_of(f->style, GRAM_STYLE_UNIT);
    if (!f->style || kind == GRAM_AT_COLON) return 0;
    if (!colon && is_broken(f)) {
        uint32_t width = (f->containers - after) * (unit == GRAM_STYLE_TAB || !unit ? 1 : unit);
        return d == START ? 1 + width : width + NEWLINE - d;
    }
    enum gram_style_part part = colon             ? GRAM_STYLE_COLON
                                : after || inside ? padding_of(f)
                                                  : GRAM_STYLE_COMMA;
    return d == START && gram_style_of(f->style, part) == GRAM_STYLE_BLANK;
}

/* ---- stacks -------------------------------------------------------------------------------- */

bool gram_style_is_shown(const struct gram_machine *m, const struct gram_config *c, uint8_t byte)
{
    uint32_t stack = c->stack, frame;
    while (gram_next_frame(m->cells, &stack, &frame)) {
        struct gram_frame f = *gram_frame_at(m->cells, frame);
        uint32_t style = f.style;
        uint16_t d = c->d;
        if (gram_style_step(m, c->kind, &f, &d, byte) != GRAM_STYLE_TOKEN) return false;
        if (f.style != style) return false;
    }
    return true;
}

static uint32_t inherited(const struct gram_machine *m, uint32_t frame)
{
    const struct gram_frame *f = gram_frame_at(m->cells, frame);
    if (!frame || f->kind > GRAM_FRAME_ARRAY) return GRAM_STYLE_MAY_BREAK;
    return (f->style & SHOWN) | (is_broken(f) ? GRAM_STYLE_MAY_BREAK : 0u);
}

bool gram_style_inherit(const struct gram_machine *m, uint32_t stack, uint32_t *ret)
{
    uint32_t frame;
    if (!m->g->spaces.styled) return true;
    gram_next_frame(m->cells, &stack, &frame);
    *ret = inherited(m, frame);
    while (gram_next_frame(m->cells, &stack, &frame))
        if (inherited(m, frame) != *ret) return false;
    return true;
}

uint32_t gram_style_return(struct gram_machine *m, uint32_t frame, uint32_t style)
{
    struct gram_frame f = *gram_frame_at(m->cells, frame);
    if (f.kind > GRAM_FRAME_ARRAY || (f.style & SHOWN) == (style & SHOWN)) return frame;
    f.style = (f.style & ~(uint32_t)SHOWN) | (style & SHOWN);
    return gram_frame_add(m->cells, &f);
}
