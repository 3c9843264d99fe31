/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes forms: the input is a Content-Type up to its first line feed, then a body, which is read
 * whole and in pieces: both times the same parts come out, or the same problem.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The parts of a body, one after the other. */
struct seen {
    char *text;
    size_t n, room;
    int n_parts;
};

static void note(struct seen *s, const char *data, size_t n)
{
    if (n > s->room - s->n) abort(); /* more comes out than went in */
    memcpy(s->text + s->n, data, n);
    s->n += n;
}

static void note_event(struct seen *s, const struct multipart *m, enum multipart_event event)
{
    if (event == MULTIPART_PART) {
        if (++s->n_parts > MULTIPART_PARTS) abort();
        note(s, m->name, strlen(m->name));
        if (m->filename) note(s, m->filename, strlen(m->filename));
    } else {
        if (m->n_data == 0) abort();
        if (m->name) note(s, m->data, m->n_data);
    }
}

/* Returns false if the type is none of a form. */
static bool read_body(struct seen *s, const char *type, const uint8_t *body, size_t n, size_t piece,
                      const char **ret_problem)
{
    static struct multipart m;
    enum multipart_event event = MULTIPART_MORE;
    if (!multipart_init(&m, type)) return false;
    for (size_t at = 0, end = piece; event != MULTIPART_EINVAL && at < n; end += piece) {
        size_t len = end < n ? end - at : n - at, used = 0;
        char *copy = malloc(len); /* of just its size, for the address sanitizer */
        if (!copy) abort();
        memcpy(copy, body + at, len);
        while ((event = multipart_next(&m, copy, len, &used)) > MULTIPART_END &&
               event != MULTIPART_EINVAL)
            note_event(s, &m, event);
        if (used > len || (event == MULTIPART_MORE && len - used > MULTIPART_HEAD)) abort();
        free(copy);
        at += used;
        if (end >= n) break;
    }
    if (event == MULTIPART_EINVAL ? !m.problem : m.problem != NULL) abort();
    *ret_problem = event == MULTIPART_MORE ? "the last boundary is missing" : m.problem;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    size_t n_type = end ? (size_t)(end - data) : size;
    const uint8_t *body = data + n_type + (end != NULL);
    size_t n = size - n_type - (end != NULL), room = 4 * n + 16;
    char *type = strndup((const char *)data, n_type);
    struct seen whole = {.text = malloc(room), .room = room};
    const char *problem, *other;
    if (type && whole.text && read_body(&whole, type, body, n, n ? n : 1, &problem)) {
        for (size_t piece = 1; piece < 8; piece += 3) {
            struct seen cut = {.text = malloc(room), .room = room};
            if (!cut.text || !read_body(&cut, type, body, n, piece, &other)) abort();
            if (problem != other || cut.n != whole.n || cut.n_parts != whole.n_parts ||
                memcmp(cut.text, whole.text, whole.n) != 0)
                abort();
            free(cut.text);
        }
    }
    free(whole.text);
    free(type);
    return 0;
}
