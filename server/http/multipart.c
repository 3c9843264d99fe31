/* SPDX-License-Identifier: MIT */
/* See multipart.h. */
#include "server/http/multipart.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int refuse(struct multipart *m, const char *problem)
{
    m->problem = problem;
    return MULTIPART_EINVAL;
}

/* ---- parameters of a header ---------------------------------------------------------------- */

/* The next "; key=value" of *p, its value without quotes into value. False: there is none, or it
 * does not fit; value is "" then. */
static bool next_param(const char **p, char key[32], char *value, size_t size)
{
    size_t n = 0;
    const char *s = *p + strspn(*p, "; \t");
    size_t len = strcspn(s, "=; \t");
    value[0] = '\0';
    if (!len || len >= 32 || s[len] != '=') return false;
    snprintf(key, 32, "%.*s", (int)len, s);
    s += len + 1;
    bool quoted = *s == '"';
    for (s += quoted; *s && (quoted ? *s != '"' : !strchr("; \t", *s)) && n < size; s++) {
        if (quoted && *s == '\\' && (s[1] == '"' || s[1] == '\\')) s++;
        value[n++] = *s;
    }
    bool good = n < size && (!quoted || *s == '"');
    value[good ? n : 0] = '\0';
    *p = s + (quoted && good);
    return good;
}

bool multipart_init(struct multipart *m, const char *content_type,
                    const struct multipart_sink *sink)
{
    static const char type[] = "multipart/form-data", chars[] = "'()+_,-./:=? ";
    char key[32], value[MULTIPART_BOUNDARY + 1] = "";
    *m = (struct multipart){.sink = *sink, .n_matched = 2, .at_start = true};
    if (!content_type || strncasecmp(content_type, type, sizeof(type) - 1)) return false;
    const char *p = content_type + sizeof(type) - 1;
    while (next_param(&p, key, value, sizeof(value)) && strcasecmp(key, "boundary"))
        value[0] = '\0';
    for (const char *c = value; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(chars, *c)) return false;
    m->n_delimiter = (size_t)snprintf(m->delimiter, sizeof(m->delimiter), "\r\n--%s", value);
    return *value;
}

/* ---- heads of parts ------------------------------------------------------------------------ */

static int take_header(struct multipart *m)
{
    static const char disposition[] = "content-disposition:";
    char key[32], value[MULTIPART_LINE + 1];
    if (++m->n_headers > MULTIPART_HEADERS) return refuse(m, "a part has too many headers");
    for (size_t i = 0; i < m->n_line; i++)
        if ((unsigned char)m->line[i] < ' ' && m->line[i] != '\t')
            return refuse(m, "a part's header has control characters");
    if (strncasecmp(m->line, disposition, sizeof(disposition) - 1)) return 0;
    const char *p = m->line + sizeof(disposition) - 1;
    p += strcspn(p, ";");
    while (next_param(&p, key, value, sizeof(value))) {
        if (!strcasecmp(key, "name")) {
            m->has_name = true;
            memcpy(m->name, value, sizeof(value));
        } else if (!m->has_filename && (!strcasecmp(key, "filename") ||
                                        !strcasecmp(key, "filename*"))) { /* not for forms */
            m->has_filename = true;
            memcpy(m->filename, value, sizeof(value));
        }
    }
    return 0;
}

static int begin_part(struct multipart *m)
{
    if (!m->has_name) return refuse(m, "a part has no name in its Content-Disposition");
    if (++m->n_parts > MULTIPART_PARTS) return refuse(m, "there are too many parts");
    m->state = MULTIPART_DATA;
    m->in_part = m->at_start = true;
    m->n_matched = 2; /* the CR LF of the head: a part may be empty */
    return m->sink.begin(m->sink.ctx, m->name, m->has_filename ? m->filename : NULL);
}

/* A line after a delimiter or of a head, without its end. */
static int take_line(struct multipart *m)
{
    int rc = 0;
    m->line[m->n_line] = '\0';
    if (m->state == MULTIPART_DELIMITED) {
        if (strspn(m->line, " \t") != m->n_line)
            return refuse(m, "a boundary is followed by other bytes");
        m->state = MULTIPART_HEAD;
        m->has_name = m->has_filename = false;
        m->n_headers = 0;
    } else {
        rc = m->n_line ? take_header(m) : begin_part(m);
    }
    m->n_line = 0;
    return rc;
}

static int take_line_byte(struct multipart *m, char c)
{
    if (c == '\n' && m->n_line > 0 && m->line[m->n_line - 1] == '\r') {
        m->n_line--;
        return take_line(m);
    }
    if (m->n_line == MULTIPART_LINE) return refuse(m, "a line of a part's head is too long");
    m->line[m->n_line++] = c;
    if (m->state == MULTIPART_DELIMITED && m->n_line == 2 && !memcmp(m->line, "--", 2))
        m->state = MULTIPART_END; /* what follows does not count */
    return 0;
}

/* ---- bytes of parts ------------------------------------------------------------------------ */

static int emit(struct multipart *m, const char *data, size_t n)
{
    return m->in_part && n > 0 ? m->sink.data(m->sink.ctx, data, n) : 0;
}

/*
 * Bytes up to the delimiter, which begins with a CR and has no other: where it stops matching, only
 * a CR can begin another. Sets *ret_n to those that were read. The start of the body and the end of
 * a head count as the CR LF of a delimiter that may follow, and are not emitted.
 */
static int take_data(struct multipart *m, const char *data, size_t n, size_t *ret_n)
{
    size_t i = 0;
    int rc = 0;
    while (i < n && !rc && m->n_matched < m->n_delimiter) {
        if (data[i] == m->delimiter[m->n_matched]) {
            m->n_matched++;
            i++;
        } else if (m->n_matched > 0) {
            size_t skipped = m->at_start ? 2 : 0;
            rc = emit(m, m->delimiter + skipped, m->n_matched - skipped);
            m->n_matched = 0;
            m->at_start = false;
        } else {
            const char *cr = memchr(data + i, '\r', n - i);
            size_t len = cr ? (size_t)(cr - data) - i : n - i;
            rc = emit(m, data + i, len);
            i += len;
        }
    }
    *ret_n = i;
    if (rc || m->n_matched < m->n_delimiter) return rc;
    m->n_matched = 0;
    m->at_start = m->in_part = false;
    m->state = MULTIPART_DELIMITED;
    return 0;
}

int multipart_add(struct multipart *m, const char *data, size_t n)
{
    int rc = 0;
    for (size_t i = 0, step = 1; i < n && !rc && m->state != MULTIPART_END; i += step) {
        step = 1;
        if (m->state == MULTIPART_DATA)
            rc = take_data(m, data + i, n - i, &step);
        else
            rc = take_line_byte(m, data[i]);
    }
    return rc;
}

int multipart_end(struct multipart *m)
{
    return m->state == MULTIPART_END ? 0 : refuse(m, "the last boundary is missing");
}
