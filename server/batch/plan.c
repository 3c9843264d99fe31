/* SPDX-License-Identifier: MIT */
/* See plan.h. */
#include "server/batch/plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "server/batch/line.h"

enum { MAX_ERRORS = 100 };

/* The state of reading an input. */
struct reading {
    struct plan *plan;
    const struct plan_rules *rules;
    void *ids;
    int64_t n_inputs;
    bool failed; /* no memory */
};

__attribute__((format(printf, 4, 5))) static void add_error(struct reading *r, const char *code,
                                                            int64_t line, const char *format, ...)
{
    char message[500];
    json_t *errors = r->plan->errors;
    FORMAT_REST(message, sizeof(message), format);
    if (json_array_size(errors) == MAX_ERRORS) return;
    r->failed |= json_array_append_new(errors, json_pack("{s:s,s:o,s:s,s:n}", "code", code, "line",
                                                         line ? json_integer(line) : json_null(),
                                                         "message", message, "param")) != 0;
}

/* ---- order --------------------------------------------------------------------------------- */

/* Those of its model, and of the first 64, 128 ... 4096 bytes from the prompt on. */
static void find_keys(struct plan_line *l, const struct batch_line *p)
{
    static const uint64_t key[2] = {0x6873756f65727073, 0x6b6579736f667072};
    l->keys[0] = sha256_64(key, p->model, strlen(p->model));
    for (int i = 1; i < PLAN_KEYS; i++)
        l->keys[i] = sha256_64(key, p->key, p->n_key < 32u << i ? p->n_key : 32u << i);
}

static int compare(const void *a, const void *b)
{
    const struct plan_line *x = a, *y = b;
    for (int i = 0; i < PLAN_KEYS; i++)
        if (x->keys[i] != y->keys[i]) return x->keys[i] < y->keys[i] ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* ---- reading ------------------------------------------------------------------------------- */

static int read_line(struct reading *r, struct plan_line *l, const struct buf *text, int64_t number)
{
    struct batch_line p;
    struct batch_refusal why;
    int64_t most = r->rules->max_inputs;
    if (text->too_large) {
        add_error(r, "invalid_json_line", number, "the line is longer than %zu bytes.", text->max);
        return 0;
    }
    if (batch_line_read(&p, text->data, text->len, r->rules->routes, &r->ids, &why)) return -1;
    if (!why.code && strcmp(p.url, r->rules->url) != 0)
        why = (struct batch_refusal){"url_mismatch", "'url' must be the batch's endpoint."};
    if (!why.code) {
        find_keys(l, &p);
        if (*p.model && !r->rules->has_model(r->rules, p.model))
            add_error(r, "model_not_found", number, "The model '%.64s' does not exist.", p.model);
        if (r->n_inputs <= most && (r->n_inputs += (int64_t)p.n_inputs) > most)
            add_error(r, "too_many_inputs", number,
                      "With this line there are %lld inputs, and a batch may have %lld.",
                      (long long)r->n_inputs, (long long)most);
        if (r->plan->n_lines == 1) memcpy(r->plan->model, p.model, sizeof(p.model));
    }
    if (why.code) add_error(r, why.code, number, "%s", why.message);
    return 0;
}

static int read_all(struct reading *r, FILE *in, struct buf *text)
{
    struct plan *p = r->plan;
    struct sha256 h;
    uint8_t digest[SHA256_BYTES];
    int64_t at = 0, number = 0;
    int more;
    sha256_init(&h);
    while ((more = batch_line_next(in, text)) == 1) {
        struct plan_line l = {.at = at, .bytes = (uint32_t)text->len};
        number++;
        at += (int64_t)text->len + 1;
        sha256_update(&h, text->len ? text->data : "", text->len);
        sha256_update(&h, "\n", 1);
        if (!batch_line_trim(text, number == 1)) continue;
        if ((int64_t)p->n_lines == r->rules->max_lines) {
            add_error(r, "too_many_lines", 0, "There are more than %lld lines: make more batches.",
                      (long long)r->rules->max_lines);
            break;
        }
        l.number = (uint32_t)p->n_lines;
        if (ARRAY_ROOM(p->lines, p->room, p->n_lines + 1, 64u)) return -1;
        p->n_lines++;
        if (read_line(r, &l, text, number)) return -1;
        p->lines[l.number] = l;
    }
    sha256_final(&h, digest);
    hex_write(p->hash, digest, sizeof(digest));
    if (!p->n_lines && more >= 0) add_error(r, "empty_file", 0, "There is no line.");
    return more < 0 || r->failed ? -1 : 0;
}

int plan_read(struct plan *p, int fd, const struct plan_rules *rules)
{
    struct reading r = {.plan = p, .rules = rules};
    AUTO(buf_finish) struct buf text;
    buf_init(&text, rules->max_line_bytes);
    *p = (struct plan){.errors = json_array()};
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *in = own < 0 ? NULL : fdopen(own, "r");
    int rc = in && p->errors && !fseeko(in, 0, SEEK_SET) ? read_all(&r, in, &text) : -1;
    batch_line_forget(&r.ids);
    if (in) fclose(in);
    if (!in && own >= 0) close(own);
    if (!rc && p->n_lines) qsort(p->lines, p->n_lines, sizeof(*p->lines), compare);
    return rc;
}

void plan_finish(struct plan *p)
{
    free(p->lines);
    json_decref(p->errors);
    *p = (struct plan){0};
}

int plan_line_text(const struct plan_line *l, int fd, struct buf *text)
{
    AUTO_FREE char *bytes = malloc(l->bytes);
    if (!bytes || file_pread(fd, bytes, l->bytes, l->at)) return -1;
    buf_clear(text);
    buf_add(text, bytes, l->bytes);
    if (text->failed) return -1;
    batch_line_trim(text, l->at == 0);
    return 0;
}
