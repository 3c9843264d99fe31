/* SPDX-License-Identifier: MIT */
/*
 * Linked into a build of the program by tests/trace_run.py: writes the address of each function that
 * is entered, with a number of its thread above it, and each text that a JSON reader goes over, to
 * the file that HEARTH_TRACE names. The file is mapped, so that the script can read it while the
 * program runs.
 */
#include "base/json_reader.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_ENTRIES = 1 << 22, TEXT_BYTES = 1 << 24, ADDRESS_BITS = 48 };

struct record {
    _Atomic uint64_t n_entries, text_len;
    uint64_t anchor; /* the address of trace_anchor: the program may be loaded anywhere */
    uint64_t entries[N_ENTRIES];
    char texts[TEXT_BYTES]; /* kind, 8 bytes of length, the text, ... */
};

static struct record *record;

void trace_anchor(void);

__attribute__((constructor)) void trace_anchor(void)
{
    const char *path = getenv("HEARTH_TRACE");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
    if (fd < 0 || ftruncate(fd, sizeof(struct record))) return;
    void *p = mmap(NULL, sizeof(struct record), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED) return;
    record = p;
    record->anchor = (uint64_t)(uintptr_t)trace_anchor;
}

void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);

void __cyg_profile_func_enter(void *function, void *caller)
{
    if (!record) return;
    static _Atomic uint64_t n_threads;
    static _Thread_local uint64_t thread;
    if (!thread) thread = atomic_fetch_add(&n_threads, 1) + 1;
    uint64_t n = atomic_fetch_add(&record->n_entries, 1);
    if (n < N_ENTRIES) record->entries[n] = thread << ADDRESS_BITS | (uint64_t)(uintptr_t)function;
}

void __cyg_profile_func_exit(void *function, void *caller)
{
}

static void keep_text(char kind, const char *text, uint64_t len)
{
    if (!record) return;
    uint64_t at = atomic_fetch_add(&record->text_len, 1 + sizeof(len) + len);
    if (at + 1 + sizeof(len) + len > TEXT_BYTES) return;
    record->texts[at] = kind;
    memcpy(record->texts + at + 1, &len, sizeof(len));
    if (len) memcpy(record->texts + at + 1 + sizeof(len), text, len);
}

/* The linker sends calls of NAME here (--wrap=NAME); weak, for Meson's own test programs. */
#pragma weak __real_jr_finish
#pragma weak __real_json_loadb
#pragma weak json_loadb
void __real_jr_finish(struct jr *r);
void __wrap_jr_finish(struct jr *r);
json_t *__real_json_loadb(const char *text, size_t len, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *text, size_t len, size_t flags, json_error_t *error);

void __wrap_jr_finish(struct jr *r)
{
    keep_text('r', r->text, r->pos);
    __real_jr_finish(r);
}

json_t *__wrap_json_loadb(const char *text, size_t len, size_t flags, json_error_t *error)
{
    keep_text('j', text, len);
    return __real_json_loadb(text, len, flags, error);
}
