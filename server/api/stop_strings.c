/* SPDX-License-Identifier: MIT */
/* Stop strings and hold-back; see stop_strings.h. Called on text workers. */
#include "server/api/stop_strings.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void fill_failure(const char *text, size_t len, unsigned short *failure)
{
    failure[0] = 0;
    size_t k = 0;
    for (size_t i = 1; i < len; i++) {
        while (k > 0 && text[i] != text[k])
            k = failure[k - 1];
        if (text[i] == text[k]) k++;
        failure[i] = (unsigned short)k;
    }
}

int textout_stops_init(struct textout_stops *s, const char *const *texts, const size_t *lens, int n)
{
    assert(n >= 0 && n <= TEXTOUT_MAX_STOPS);
    memset(s, 0, sizeof(*s));
    for (int i = 0; i < n; i++) {
        assert(lens[i] > 0 && lens[i] <= TEXTOUT_MAX_STOP_BYTES);
        unsigned short *failure = malloc(lens[i] * sizeof(*failure));
        if (!failure) {
            textout_stops_finish(s);
            return -1;
        }
        fill_failure(texts[i], lens[i], failure);
        s->stop[i].text = texts[i];
        s->stop[i].len = lens[i];
        s->stop[i].failure = failure;
        s->n = i + 1;
    }
    return 0;
}

void textout_stops_finish(struct textout_stops *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->stop[i].failure);
    s->n = 0;
}

void textout_init(struct textout *t, const struct textout_stops *stops, bool include_stop,
                  size_t max_bytes)
{
    memset(t, 0, sizeof(*t));
    t->stops = stops;
    t->include_stop = include_stop;
    t->stop_index = -1;
    buf_init(&t->text, max_bytes);
}

void textout_finish(struct textout *t)
{
    buf_finish(&t->text);
}

/* Feeds one byte to every automaton; returns the longest stop that it completes, or -1. */
static int match_byte(struct textout *t, char byte)
{
    int found = -1;
    for (int i = 0; i < t->stops->n; i++) {
        size_t k = t->matched[i];
        assert(k < t->stops->stop[i].len);
        const char *text = t->stops->stop[i].text;
        while (k > 0 && text[k] != byte)
            k = t->stops->stop[i].failure[k - 1];
        if (text[k] == byte) k++;
        t->matched[i] = (unsigned short)k;
        if (k == t->stops->stop[i].len) {
            if (found < 0 || k > t->stops->stop[found].len) found = i;
            t->matched[i] = 0;
        }
    }
    return found;
}

static size_t longest_match(const struct textout *t)
{
    size_t longest = 0;
    for (int i = 0; i < t->stops->n; i++)
        if (t->matched[i] > longest) longest = t->matched[i];
    return longest;
}

/* Back to the start of the character that byte `at` lies in. */
static size_t character_start(const struct textout *t, size_t at)
{
    while (at > t->n_released && at < t->text.len &&
           ((unsigned char)t->text.data[at] & 0xC0) == 0x80)
        at--;
    return at;
}

bool textout_push(struct textout *t, const char *piece, size_t len, bool armed)
{
    size_t before = t->text.len;
    buf_add(&t->text, piece, len);
    if (t->text.failed) return false;
    for (size_t i = 0; armed && i < len; i++) {
        int found = match_byte(t, piece[i]);
        if (found < 0) continue;
        size_t end = before + i + 1;
        size_t cut = t->include_stop ? end : end - t->stops->stop[found].len;
        if (cut < t->n_released) cut = t->n_released;
        assert(cut <= t->text.len);
        t->text.len = cut;
        t->text.data[cut] = '\0';
        t->n_released = cut;
        t->stop_index = found;
        return true;
    }
    assert(longest_match(t) <= t->text.len && t->n_released <= t->text.len);
    size_t free_to_go = t->text.len - longest_match(t);
    if (free_to_go > t->n_released) t->n_released = character_start(t, free_to_go);
    return false;
}

void textout_flush(struct textout *t)
{
    assert(t->n_released <= t->text.len);
    t->n_released = t->text.len;
}
