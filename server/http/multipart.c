/* SPDX-License-Identifier: MIT */
/* See multipart.h. */
#include "server/http/multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static enum multipart_event refuse(struct multipart *m, const char *problem)
{
    m->problem = problem;
    return MULTIPART_EINVAL;
}

/* Takes the next "; key=value" of *p apart, in place. False: there is none. */
static bool next_param(char **p, const char **key, const char **value)
{
    char *s = *p + strspn(*p, "; \t");
    size_t len = strcspn(s, "=; \t");
    if (!len || s[len] != '=') return false;
    *key = s;
    s[len] = '\0';
    s += len + 1;
    bool quoted = *s == '"';
    char *to = s += quoted;
    *value = to;
    for (; *s && (quoted ? *s != '"' : !strchr("; \t", *s)); s++) {
        if (quoted && *s == '\\' && (s[1] == '"' || s[1] == '\\')) s++;
        *to++ = *s;
    }
    *p = *s ? s + 1 : s;
    *to = '\0';
    return !quoted || *p > s;
}

bool multipart_init(struct multipart *m, const char *content_type)
{
    static const char type[] = "multipart/form-data";
    const char *key, *value, *boundary = "";
    *m = (struct multipart){.at_start = true};
    if (!content_type || strncasecmp(content_type, type, sizeof(type) - 1)) return false;
    snprintf(m->head, sizeof(m->head), "%s", content_type + sizeof(type) - 1);
    for (char *p = m->head; !*boundary && next_param(&p, &key, &value);)
        if (!strcasecmp(key, "boundary")) boundary = value;
    m->n_delimiter = (size_t)snprintf(m->delimiter, sizeof(m->delimiter), "\r\n--%s", boundary);
    return *boundary && m->n_delimiter < sizeof(m->delimiter);
}

/* The lines of a part's head, the first one what follows the boundary. */
static enum multipart_event begin_part(struct multipart *m)
{
    static const char disposition[] = "content-disposition:";
    const char *key, *value;
    m->name = m->filename = NULL;
    if (m->head[strspn(m->head, " \t")] != '\r')
        return refuse(m, "a boundary is followed by other bytes");
    for (char *line = m->head, *end; (end = strstr(line, "\r\n")); line = end + 2) {
        *end = '\0';
        if (strncasecmp(line, disposition, sizeof(disposition) - 1)) continue;
        for (char *p = line + strcspn(line, ";"); next_param(&p, &key, &value);)
            if (!strcasecmp(key, "name"))
                m->name = value;
            else if (!m->filename && (!strcasecmp(key, "filename") ||
                                      !strcasecmp(key, "filename*"))) /* not for forms */
                m->filename = value;
    }
    if (!m->name) return refuse(m, "a part has no name in its Content-Disposition");
    if (++m->n_parts > MULTIPART_PARTS) return refuse(m, "there are too many parts");
    m->state = MULTIPART_IN_DATA;
    m->at_start = true;
    return MULTIPART_PART;
}

static enum multipart_event read_head(struct multipart *m, const char *s, size_t n, size_t *at)
{
    if (n >= 2 && !memcmp(s, "--", 2)) {
        m->state = MULTIPART_ENDED;
        *at += n;
        return MULTIPART_END;
    }
    const char *end = memmem(s, n, "\r\n\r\n", 4);
    size_t len = end ? (size_t)(end - s) + 2 : n; /* with the end of its last line */
    if (len > MULTIPART_HEAD) return refuse(m, "a part's head is too long");
    if (!end) return MULTIPART_MORE;
    for (size_t i = 0; i < len; i++) {
        bool ends_line = s[i] == '\r' && s[i + 1] == '\n';
        if ((unsigned char)s[i] < ' ' && s[i] != '\t' && !ends_line)
            return refuse(m, "a part's header has control characters");
        i += ends_line;
    }
    memcpy(m->head, s, len);
    m->head[len] = '\0';
    *at += len + 2;
    return begin_part(m);
}

/* Bytes up to a delimiter, or all but those that may be the first ones of one. */
static enum multipart_event read_data(struct multipart *m, const char *s, size_t n, size_t *at)
{
    size_t skipped = m->at_start ? 2 : 0, rest = m->n_delimiter - skipped;
    if (n < rest) return MULTIPART_MORE;
    m->at_start = false;
    if (!memcmp(s, m->delimiter + skipped, rest)) {
        m->state = MULTIPART_IN_HEAD;
        *at += rest;
        return read_head(m, s + rest, n - rest, at);
    }
    const char *found = memmem(s, n, m->delimiter, m->n_delimiter);
    if (found == s) return read_data(m, s, n, at); /* of an empty part: it has a CR LF of its own */
    m->n_data = found ? (size_t)(found - s) : n < m->n_delimiter ? 0 : n - m->n_delimiter + 1;
    m->data = s;
    *at += m->n_data;
    return m->n_data ? MULTIPART_DATA : MULTIPART_MORE;
}

enum multipart_event multipart_next(struct multipart *m, const char *body, size_t n, size_t *at)
{
    const char *s = body + *at;
    if (m->state == MULTIPART_IN_DATA) return read_data(m, s, n - *at, at);
    if (m->state == MULTIPART_IN_HEAD) return read_head(m, s, n - *at, at);
    *at = n;
    return MULTIPART_END;
}
