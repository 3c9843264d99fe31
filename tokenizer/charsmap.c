/* SPDX-License-Identifier: MIT */
/*
 * A unit of the double array has a label in the low 8 bits (bit 31 is not set), bit 8 if a key ends
 * there, and an offset from bit 10 on, times 256 with bit 9. The child under byte c is at
 * place ^ offset ^ c, the value of a key at place ^ offset. The array is read from a file, so every
 * place is checked.
 */
#include "tokenizer/charsmap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <nettle/base64.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "tokenizer/tok_types.h"

#define WHOLE_BYTES 6 /* clusters below are looked up as a whole */

struct tok_charsmap {
    unsigned char *data; /* owned: all of it, decoded */
    uint32_t *units;     /* owned: [n_units] */
    uint32_t n_units;
    const char *values; /* in data: [n_values], valid UTF-8 */
    size_t n_values;
    bool plain[128]; /* ASCII characters that are never replaced nor joined to the next */
};

/* ---- loading ------------------------------------------------------------------------------- */

static uint32_t unit_at(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Takes the decoded bytes apart. TOK_EINVAL if they are not a map. */
static int parse(struct tok_charsmap *m, size_t size)
{
    uint32_t bytes = size >= 4 ? unit_at(m->data) : UINT32_MAX;
    if (size < 4 || bytes > size - 4 || bytes < 4) return TOK_EINVAL;
    m->n_units = bytes / 4;
    m->units = malloc(m->n_units * sizeof(*m->units));
    if (!m->units) return TOK_ENOMEM;
    for (uint32_t i = 0; i < m->n_units; i++)
        m->units[i] = unit_at(m->data + 4 + 4 * (size_t)i);
    m->values = (const char *)m->data + 4 + 4 * (size_t)m->n_units;
    m->n_values = size - 4 - 4 * (size_t)m->n_units;
    return utf8_valid(m->values, m->n_values) ? 0 : TOK_EINVAL;
}

static bool lookup(const struct tok_charsmap *m, const unsigned char *s, size_t len,
                   const char **ret, size_t *ret_len);

int tok_charsmap_load(struct tok_charsmap **ret, const json_t *json, char *err, size_t errlen)
{
    const json_t *text = json_object_get(json, "precompiled_charsmap");
    struct tok_charsmap *m = calloc(1, sizeof(*m));
    const char *value;
    size_t size = 0, len = json_string_length(text);
    struct base64_decode_ctx base64;
    base64_decode_init(&base64);
    if (m) m->data = malloc(BASE64_DECODE_LENGTH(len) + 1);
    int rc = !m || !m->data ? TOK_ENOMEM : !json_is_string(text) ? TOK_EINVAL : 0;
    if (!rc && (!base64_decode_update(&base64, &size, m->data, len, json_string_value(text)) ||
                !base64_decode_final(&base64)))
        rc = TOK_EINVAL;
    if (!rc) rc = parse(m, size);
    if (rc == TOK_EINVAL)
        snprintf(err, errlen, "Precompiled: \"precompiled_charsmap\" is not a map in base64");
    for (unsigned char c = 0; !rc && c < 128; c++)
        m->plain[c] = c != '\r' && !lookup(m, &c, 1, &value, &len);
    if (rc) {
        tok_charsmap_destroy(m);
        return rc;
    }
    *ret = m;
    return 0;
}

void tok_charsmap_destroy(struct tok_charsmap *m)
{
    if (!m) return;
    free(m->data);
    free(m->units);
    free(m);
}

/* ---- looking up ---------------------------------------------------------------------------- */

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << (unit >> 6 & 8);
}

/* The text at a place of the values. False if no character begins there. */
static bool value_at(const struct tok_charsmap *m, uint32_t place, const char **ret,
                     size_t *ret_len)
{
    if (place > m->n_values) return false;
    if (place < m->n_values && ((unsigned char)m->values[place] & 0xC0) == 0x80) return false;
    *ret = m->values + place;
    const char *end = memchr(*ret, 0, m->n_values - place);
    *ret_len = end ? (size_t)(end - *ret) : m->n_values - place;
    return true;
}

/* The value of the shortest key that s begins with. */
static bool lookup(const struct tok_charsmap *m, const unsigned char *s, size_t len,
                   const char **ret, size_t *ret_len)
{
    uint32_t place = offset_of(m->units[0]);
    for (size_t i = 0; i < len && s[i]; i++) {
        place ^= s[i];
        if (place >= m->n_units) return false;
        uint32_t unit = m->units[place];
        if ((unit & 0x800000FFu) != s[i]) return false;
        place ^= offset_of(unit);
        if (!(unit >> 8 & 1)) continue;
        return place < m->n_units && value_at(m, m->units[place] & 0x7FFFFFFFu, ret, ret_len);
    }
    return false;
}

/* A mark that utf8proc knows, in place of one that is newer than it. */
static int32_t known(const struct tok_uni *uni, uint32_t cp)
{
    if (cp < 0x300) return (int32_t)cp;
    if (utf8proc_category((utf8proc_int32_t)cp) != UTF8PROC_CATEGORY_CN) return (int32_t)cp;
    unsigned category = tok_uni_props(uni, cp) & TOK_UNI_CATEGORY;
    return category == UTF8PROC_CATEGORY_MN   ? 0x300
           : category == UTF8PROC_CATEGORY_MC ? 0x903
                                              : (int32_t)cp;
}

/* The end of the cluster that begins at pos. */
static size_t cluster_end(const struct tok_charsmap_iter *it, size_t pos)
{
    const unsigned char *p = it->text + pos, *end = it->text + it->len;
    int32_t before = known(it->uni, utf8_next(&p)), state = 0;
    while (p < end) {
        const unsigned char *ch = p;
        if (before < 0x80 && *p < 0x80 && !(before == '\r' && *p == '\n')) break;
        int32_t cp = known(it->uni, utf8_next(&p));
        if (utf8proc_grapheme_break_stateful(before, cp, &state)) return (size_t)(ch - it->text);
        before = cp;
    }
    return (size_t)(p - it->text);
}

struct tok_charsmap_iter tok_charsmap_iter(const struct tok_charsmap *m, const struct tok_uni *uni,
                                           const char *text, size_t len)
{
    return (struct tok_charsmap_iter){m, uni, (const unsigned char *)text, len, 0, 0};
}

/* Passes over ASCII that stays as it is. The last character before another script may be joined. */
static void skip_plain(struct tok_charsmap_iter *it)
{
    const unsigned char *p = it->text + it->pos, *last = it->text + it->len - 1;
    while (p < last && p[0] < 0x80 && p[1] < 0x80 && it->m->plain[p[0]])
        p++;
    it->pos = (size_t)(p - it->text);
}

bool tok_charsmap_next(struct tok_charsmap_iter *it, size_t *ret_begin, size_t *ret_end,
                       const char **ret, size_t *ret_len)
{
    while (it->pos < it->len) {
        if (it->pos >= it->by_char) {
            skip_plain(it);
            *ret_begin = it->pos;
            *ret_end = it->by_char = cluster_end(it, it->pos);
            if (*ret_end - *ret_begin < WHOLE_BYTES &&
                lookup(it->m, it->text + *ret_begin, *ret_end - *ret_begin, ret, ret_len)) {
                it->pos = *ret_end;
                return true;
            }
        }
        *ret_begin = it->pos;
        *ret_end = it->pos += utf8_len(it->text[it->pos]);
        if (lookup(it->m, it->text + *ret_begin, *ret_end - *ret_begin, ret, ret_len)) return true;
    }
    return false;
}
