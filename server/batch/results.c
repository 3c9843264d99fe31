/* SPDX-License-Identifier: MIT */
/* See results.h. */
#include "server/batch/results.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/sha256.h"

struct record {
    uint64_t sum; /* of all after it */
    uint32_t bytes, line, kind, tokens[RESULTS_TOKENS];
};
_Static_assert(sizeof(struct record) == 32, "records are packed");

/* A record as it is in the file. */
union image {
    struct record head;
    char bytes[sizeof(struct record)];
};

static uint64_t sum_of(const char *image, size_t bytes)
{
    static const uint64_t key[2] = {0x6873756f65727073,
                                    0x73746c75736572}; /* against faults alone */
    return sha256_64(key, image + sizeof(uint64_t), bytes - sizeof(uint64_t));
}

static void note(struct results *r, const struct record *head)
{
    struct results_line *l = &r->lines[head->line];
    int64_t at = r->bytes + (int64_t)sizeof(*head);
    r->bytes = at + head->bytes;
    if (l->kind) return;
    *l = (struct results_line){at, head->bytes, (enum results_kind)head->kind};
    r->n_of[l->kind]++;
    for (int i = 0; i < RESULTS_TOKENS; i++)
        r->tokens[i] += head->tokens[i];
}

/* Notes the record at r->bytes. Returns 1, 0 if it is not whole, or -1 with errno. */
static int read_record(struct results *r, int64_t size, char **image, size_t *room)
{
    union image i;
    int64_t most = size - r->bytes - (int64_t)sizeof(i);
    if (most < 0) return 0;
    if (file_pread(r->fd, i.bytes, sizeof(i), r->bytes)) return -1;
    if (i.head.bytes > most || i.head.bytes > RESULTS_MAX_BYTES || i.head.line >= r->n_lines ||
        !i.head.kind || i.head.kind >= RESULTS_KINDS)
        return 0;
    size_t bytes = sizeof(i) + i.head.bytes;
    if (ARRAY_ROOM(*image, *room, bytes, 4096u) || file_pread(r->fd, *image, bytes, r->bytes))
        return -1;
    if (sum_of(*image, bytes) != i.head.sum) return 0;
    note(r, &i.head);
    return 1;
}

int results_open(struct results *r, int dir_fd, const char *name, int64_t n_lines, char *err,
                 size_t errlen)
{
    struct stat st;
    AUTO_FREE char *image = NULL;
    size_t room = 0;
    int more;
    *r = (struct results){.n_lines = n_lines};
    r->lines = calloc((size_t)n_lines + 1, sizeof(*r->lines));
    r->fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (!r->lines)
        return fail_with(-1, err, errlen, "no memory for %lld lines", (long long)n_lines);
    if (r->fd < 0 || fsync(dir_fd) || fstat(r->fd, &st))
        return fail_with(-1, err, errlen, "%s cannot be opened: %s", name, strerror(errno));
    while ((more = read_record(r, st.st_size, &image, &room)) == 1)
        ;
    if (more == 0 && r->bytes < st.st_size) more = ftruncate(r->fd, r->bytes);
    if (more)
        return fail_with(-1, err, errlen, "%s cannot be read or cut: %s", name, strerror(errno));
    return 0;
}

void results_close(struct results *r)
{
    file_close(&r->fd);
    free(r->lines);
    *r = (struct results){.fd = -1};
}

int results_add(struct results *r, int64_t line, enum results_kind kind, const char *text,
                size_t bytes, const uint32_t tokens[RESULTS_TOKENS])
{
    union image i = {{.bytes = (uint32_t)bytes, .line = (uint32_t)line, .kind = kind}};
    AUTO(buf_finish) struct buf image;
    buf_init(&image, sizeof(i) + RESULTS_MAX_BYTES);
    if (tokens) memcpy(i.head.tokens, tokens, sizeof(i.head.tokens));
    assert(line < r->n_lines && kind > RESULTS_NONE && kind < RESULTS_KINDS);
    assert(!r->lines[line].kind && bytes <= RESULTS_MAX_BYTES);
    buf_add(&image, i.bytes, sizeof(i));
    buf_add(&image, text, bytes);
    if (image.failed) return errno = ENOMEM, -1;
    i.head.sum = sum_of(image.data, image.len);
    memcpy(image.data, i.bytes, sizeof(i));
    ssize_t n = pwrite(r->fd, image.data, image.len, r->bytes);
    if (n == (ssize_t)image.len) {
        r->unsynced = true;
        note(r, &i.head);
        return 0;
    }
    if (n >= 0) errno = ENOSPC;
    return -1; /* the next record comes in its place, or the next opening cuts it off */
}

int results_sync(struct results *r)
{
    int rc = r->unsynced ? fdatasync(r->fd) : 0;
    r->unsynced = rc != 0;
    return rc;
}

int results_write(const struct results *r, bool good, int fd)
{
    AUTO_FREE char *text = NULL;
    size_t room = 0;
    for (int64_t i = 0; i < r->n_lines; i++) {
        const struct results_line *l = &r->lines[i];
        if (!l->kind || (l->kind == RESULTS_GOOD) != good) continue;
        if (ARRAY_ROOM(text, room, l->bytes, 4096u) || file_pread(r->fd, text, l->bytes, l->at) ||
            file_write_all(fd, text, l->bytes))
            return -1;
    }
    return 0;
}

json_t *results_members(const struct results *r)
{
    const int64_t *t = r->tokens;
    return json_pack("{s:{s:I,s:I,s:I},s:{s:I,s:{s:I},s:I,s:{s:i},s:I}}", "request_counts", "total",
                     (json_int_t)r->n_lines, "completed", (json_int_t)r->n_of[RESULTS_GOOD],
                     "failed", (json_int_t)(r->n_of[RESULTS_FAILED] + r->n_of[RESULTS_UNRUN]),
                     "usage", "input_tokens", (json_int_t)t[RESULTS_PROMPT], "input_tokens_details",
                     "cached_tokens", (json_int_t)t[RESULTS_CACHED], "output_tokens",
                     (json_int_t)t[RESULTS_GENERATED], "output_tokens_details", "reasoning_tokens",
                     0, "total_tokens", (json_int_t)(t[RESULTS_PROMPT] + t[RESULTS_GENERATED]));
}
