/* SPDX-License-Identifier: MIT */
/*
 * One run of the template machinery, be it parsing a template or rendering one: its memory, its
 * budgets and its way out.
 *
 * Memory comes from an arena that is freed at once, so nothing below has an owner of its own. An
 * error unwinds by longjmp to the setjmp in jinja_guard; that is sound because a run holds
 * nothing but its arena. Functions that take a `struct jinja_run *` therefore return only on
 * success; they say so nowhere else.
 *
 * A run is bounded three ways. Steps are the bound that counts: whatever takes time is paid for in
 * steps, at a price that makes each take about as long (some 20 to 100 ns), so whether a template
 * is refused depends on the template and its input alone, never on the machine or its load. Memory
 * is counted likewise. The thread's processor time is looked at every few thousand steps as a last
 * resort: it ends a run on a much slower machine, or one whose price we got wrong.
 *
 * Threads: a run belongs to one thread. The result of a parse is only read.
 */
#pragma once

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are those of enum tok_error, so that a caller may pass them on. */
enum jinja_error {
    JINJA_EINVAL = -1, /* the template or its input is wrong */
    JINJA_ENOMEM = -2,
    JINJA_ELIMIT = -5, /* steps, memory, depth, output or processor time ran out */
    JINJA_ERAISE = -7, /* the template called raise_exception */
};

enum {
    JINJA_MAX_NESTING = 200, /* of a template's syntax tree */
    JINJA_MAX_CALLS = 100,   /* of macros in each other, of a loop in itself */
    JINJA_MAX_EVAL = 3000,   /* of evaluations in each other: bounds the C stack at about 2 MiB */
    JINJA_MAX_VALUE_DEPTH = 500, /* of lists and dicts in each other */
    JINJA_ERR_BYTES = 1024,
};

struct jinja_block;
struct jinja_dict;
struct jinja_sb;
struct jinja_str;
struct tm;

struct jinja_run {
    struct jinja_block *blocks; /* newest first */
    char *free_at;              /* the unused rest of the newest block */
    size_t free_bytes;
    size_t memory_bytes;
    size_t max_memory_bytes;
    size_t max_output_bytes;
    uint64_t max_steps;
    uint64_t steps_left;
    unsigned max_cpu_ms; /* 0: no bound */
    uint64_t cpu_end_ns; /* on the clock of the thread's processor time */
    uint64_t clock_at;   /* the clock is looked at when fewer steps are left; 0: never */
    int n_eval;          /* evaluations in each other just now */
    int n_calls;         /* macro calls in each other just now */
    int line;            /* of the template, for the error; 0: none */
    int rc;              /* enum jinja_error once failed */
    char err[JINJA_ERR_BYTES];
    jmp_buf *unwind; /* of the innermost guard */
    /* rendering only */
    const struct jinja_dict *context;   /* the template's variables and globals */
    struct jinja_sb *out;               /* where output goes just now */
    const struct jinja_str *block_text; /* the subject of a filter block */
    const struct tm *now;               /* the clock of strftime_now */
};

/* No memory is taken yet, and processor time is not bounded. */
void jinja_run_init(struct jinja_run *r, size_t max_memory_bytes, uint64_t max_steps);

/* Bounds the processor time that this thread spends from now on until the run ends. */
void jinja_run_bound_cpu(struct jinja_run *r, unsigned max_cpu_ms);
void jinja_run_finish(struct jinja_run *r);

/*
 * Calls body(r, arg); returns 0, or the enum jinja_error with which it failed (r->err has the
 * sentence). Guards may nest: an error ends the innermost, and what it had allocated stays.
 */
int jinja_guard(struct jinja_run *r, void (*body)(struct jinja_run *r, void *arg), void *arg);

/* Ends the run with an error; the line of the template is put before the sentence. */
_Noreturn void jinja_fail(struct jinja_run *r, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Ends the run with the error that a guard inside it has just returned. */
_Noreturn void jinja_fail_again(struct jinja_run *r);

/* Copies a sentence; where it does not fit it is cut between characters. */
void jinja_copy_sentence(char *to, size_t size, const char *from);

/* As jinja_fail with JINJA_EINVAL: what would be an exception in the reference. */
#define jinja_raise(r, ...) jinja_fail((r), JINJA_EINVAL, __VA_ARGS__)
/* The same, of something in line l of the template. */
#define jinja_raise_at(r, l, ...) ((r)->line = (l), jinja_raise((r), __VA_ARGS__))

/* n objects of `size` bytes, zeroed, aligned for anything. */
void *jinja_alloc(struct jinja_run *r, size_t n, size_t size);

/* The same bytes with room for new_bytes >= old_bytes; the old place must not be used any more. */
void *jinja_grow(struct jinja_run *r, void *old, size_t old_bytes, size_t new_bytes);

/* An array of n elements with room for one more; *cap is its capacity. */
void *jinja_room(struct jinja_run *r, void *array, size_t n, size_t *cap, size_t size);

/* Copies bytes, NUL-terminated for convenience. */
char *jinja_copy(struct jinja_run *r, const char *bytes, size_t len);

/* Takes n from the step budget. */
void jinja_spend(struct jinja_run *r, uint64_t n);

/*
 * The step price of text, so that every step takes about as long: of copying or comparing bytes, of
 * searching them, of looking at each character.
 */
void jinja_spend_bytes(struct jinja_run *r, size_t bytes);
void jinja_spend_search(struct jinja_run *r, size_t bytes);
void jinja_spend_chars(struct jinja_run *r, size_t bytes);

/* The step price of printing or reading a float as n digits. */
void jinja_spend_digits(struct jinja_run *r, size_t n);

/* Counts one more evaluation inside another; jinja_leave takes it back. */
void jinja_enter(struct jinja_run *r);
void jinja_leave(struct jinja_run *r);

/* Pays a step for a walk into a container; fails deeper than JINJA_MAX_VALUE_DEPTH. */
void jinja_check_depth(struct jinja_run *r, int depth);

#define JINJA_NEW(r, type) ((type *)jinja_alloc((r), 1, sizeof(type)))
#define JINJA_NEW_N(r, n, type) ((type *)jinja_alloc((r), (n), sizeof(type)))
