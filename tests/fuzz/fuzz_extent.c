/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes an extent of KV pages on disk: the input says how a sound file is spoiled. The first byte
 * is the kind: 0 sets bytes (pairs of a 16-bit offset and a byte), 1 puts the input in the place of
 * the header, 2 of the whole file, 3 cuts the file. What is read then must be what was written.
 */
#include <fcntl.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kv/extent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PAGE = 96, N_PAGES = 3, HEADER = 4096, FILE_BYTES = HEADER + N_PAGES * PAGE };

static struct {
    struct extent_store *store;
    char dir[64], path[200];
    uint8_t sound[FILE_BYTES], pages[N_PAGES][PAGE];
    int32_t ids[N_PAGES * KV_PAGE_TOKENS];
    uint8_t scope[EXTENT_DIGEST], parent[EXTENT_DIGEST];
    struct extent x;
} f;

static void require(bool ok)
{
    if (!ok) abort();
}

static void remove_all(void)
{
    char command[100];
    extent_store_close(f.store);
    snprintf(command, sizeof(command), "rm -rf %s", f.dir);
    require(system(command) == 0);
}

static void set_up(void)
{
    const uint8_t *from[N_PAGES], fingerprint[EXTENT_DIGEST] = "fuzz";
    uint8_t name[EXTENT_DIGEST];
    char err[700];
    const char *base = getenv("TMPDIR");
    snprintf(f.dir, sizeof(f.dir), "%.40s/hearth-fuzz-XXXXXX", base ? base : "/tmp");
    require(mkdtemp(f.dir) != NULL);
    require(extent_store_open(&f.store, f.dir, fingerprint, PAGE, "fuzz", err, sizeof(err)) == 0);
    atexit(remove_all);
    for (int i = 0; i < N_PAGES; i++) {
        memset(f.pages[i], 'a' + i, PAGE);
        from[i] = f.pages[i];
    }
    f.x = (struct extent){f.scope, f.parent, f.ids, N_PAGES, false};
    require(extent_write(f.store, &f.x, 0, from) == 0);
    extent_name(f.store, &f.x, name);
    glob_t found;
    int at = snprintf(f.path, sizeof(f.path), "%s/v1/*/", f.dir);
    for (int i = 0; i < EXTENT_DIGEST; i++)
        at += snprintf(f.path + at, sizeof(f.path) - (size_t)at, "%02x", name[i]);
    require(glob(f.path, 0, NULL, &found) == 0);
    snprintf(f.path, sizeof(f.path), "%s", found.gl_pathv[0]);
    globfree(&found);
    int fd = open(f.path, O_RDONLY);
    require(fd >= 0 && read(fd, f.sound, FILE_BYTES) == FILE_BYTES);
    close(fd);
}

/* Writes a file of the extent's name that is spoiled as the input says. */
static void spoil(const uint8_t *data, size_t size)
{
    uint8_t bytes[2 * FILE_BYTES];
    size_t n = FILE_BYTES, most = size < sizeof(bytes) ? size : sizeof(bytes);
    memcpy(bytes, f.sound, FILE_BYTES);
    switch (data[0] % 4) {
    case 0:
        for (size_t i = 1; i + 3 <= size; i += 3)
            bytes[(data[i] | data[i + 1] << 8) % FILE_BYTES] = data[i + 2];
        break;
    case 1: memcpy(bytes, data + 1, most - 1 < HEADER ? most - 1 : HEADER); break;
    case 2:
        n = most - 1;
        memcpy(bytes, data + 1, n);
        break;
    default: n = most > 2 ? (size_t)(data[1] | data[2] << 8) % FILE_BYTES : 0;
    }
    int fd = open(f.path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    require(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t out[N_PAGES][PAGE], *to[N_PAGES];
    if (!f.store) set_up();
    if (size < 1) return 0;
    for (int i = 0; i < N_PAGES; i++)
        to[i] = out[i];
    spoil(data, size);
    enum extent_result r = extent_read(f.store, &f.x, 0, to);
    require(r < EXTENT_N_RESULTS && r != EXTENT_ABSENT && r != EXTENT_UNREADABLE);
    if (r == EXTENT_READ) require(memcmp(out, f.pages, sizeof(out)) == 0);
    require((access(f.path, F_OK) == 0) == (r == EXTENT_READ)); /* what is bad is removed */
    return 0;
}
