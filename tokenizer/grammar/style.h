/* SPDX-License-Identifier: MIT */
/*
 * White space as programs and people print JSON: in one style, which the model chooses where each
 * part of it first shows, and which holds for the rest of the value.
 *
 *   after { [       nothing, one blank (padded; for objects and for arrays apart), or a newline and
 *                   an indent (broken)
 *   after ,         nothing or one blank; in a broken container a newline and an indent
 *   before } ]      nothing, one blank if padded, a newline and the parent's indent if broken
 *   after :         nothing or one blank
 *   anywhere else   nothing
 *
 * The indent is a unit for each container around: 1 to 8 blanks or one tab, by the first broken
 * container, which is the outermost one, since a container in one that is not broken is not either.
 * Containers that are empty hold no white space.
 *
 * A style is some bits of a container's frame. A container begins with those of the one around it,
 * and hands back what was shown inside.
 */
#pragma once

#include "tokenizer/grammar/machine.h"

/* Parts of a style: two bits each, GRAM_STYLE_OPEN until one shows; the unit has four. */
enum gram_style_part {
    GRAM_STYLE_COMMA = 0,
    GRAM_STYLE_COLON = 2,
    GRAM_STYLE_OBJECT = 4, /* after { and before }; the next one: arrays */
    GRAM_STYLE_ARRAY = 6,
    GRAM_STYLE_UNIT = 8, /* blanks, or GRAM_STYLE_TAB; 0: no container has been broken */
};

enum { GRAM_STYLE_OPEN, GRAM_STYLE_NOTHING, GRAM_STYLE_BLANK, GRAM_STYLE_TAB = 9 };

/* Of one container: it is broken; it may be. */
enum {
    GRAM_STYLE_BROKEN = 1 << 12,
    GRAM_STYLE_MAY_BREAK = 1 << 13,
    GRAM_STYLE_SHOWN = GRAM_STYLE_BROKEN - 1, /* the others: those of the whole value */
};

static inline uint32_t gram_style_of(uint32_t style, enum gram_style_part part)
{
    return style >> part & (part == GRAM_STYLE_UNIT ? 15 : 3);
}

enum gram_style_step {
    GRAM_STYLE_REFUSED,
    GRAM_STYLE_SPACE, /* the byte is white space */
    GRAM_STYLE_TOKEN, /* white space is over, whatever the byte begins */
};

/*
 * The effect of a byte at a place of the given kind on top of frame f. *d: the blanks before
 * it; they and the frame's style are moved on unless the byte is refused.
 */
enum gram_style_step gram_style_step(const struct gram_machine *m, enum gram_config_kind kind,
                                     struct gram_frame *f, uint16_t *d, uint8_t byte);

/* The byte ends the white space on every frame of c and shows nothing new of the style. */
bool gram_style_is_shown(const struct gram_machine *m, const struct gram_config *c, uint8_t byte);

/* The white space that comes next at a place on top of frame f where there was d, in bytes. */
uint32_t gram_style_space(const struct gram_frame *f, enum gram_config_kind kind, uint16_t d);

/* The style that a container on this stack begins with; false if its frames differ in that. */
bool gram_style_inherit(const struct gram_machine *m, uint32_t stack, uint32_t *ret);

/* The frame with what a container of this style, which has just been closed in it, has shown. */
uint32_t gram_style_return(struct gram_machine *m, uint32_t frame, uint32_t style);
