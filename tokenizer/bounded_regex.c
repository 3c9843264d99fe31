/* SPDX-License-Identifier: MIT */
/*
 * PCRE2, called with patterns of the translator. The translator puts a callout after every
 * repetition. The callout adds up the distance matched since the last callout, which bounds both
 * backtracking and rescanning: by the same count on every machine, with and without JIT.
 */
#include "tokenizer/bounded_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/utf8.h"
#include "tokenizer/regex_translate.h"
#include "tokenizer/tok_types.h"

#define WORK_BASE 10000000u /* work units that any call may use: some tenths of a second */
#define WORK_BASE_SHORT 4096u
#define WORK_PER_BYTE 256u /* and those for each byte of its text; ordinary patterns take 2 to 10 */
#define MATCH_LIMIT 50000000u
#define HEAP_LIMIT_KIB (64 * 1024)
#define JIT_STACK_START ((size_t)32 << 10)
#define JIT_STACK_MAX ((size_t)1 << 20)

struct tok_regex {
    pcre2_code *code;
    bool jit; /* false where the system forbids writable and executable memory: slower, the same */
};

static int compile(struct tok_regex *re, const char *pattern, size_t len, char *err, size_t errlen)
{
    int code, rc = TOK_EINVAL;
    PCRE2_SIZE offset;
    PCRE2_UCHAR message[128];
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return TOK_ENOMEM;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    re->code = pcre2_compile((PCRE2_SPTR)pattern, len,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &code, &offset, context);
    if (re->code) {
        re->jit = pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0;
        rc = 0;
    } else {
        pcre2_get_error_message(code, message, sizeof(message));
        snprintf(err, errlen, "regular expression: %s", (const char *)message);
    }
    pcre2_compile_context_free(context);
    return rc;
}

int tok_regex_create(struct tok_regex **ret, const struct tok_uni *uni, const char *pattern,
                     size_t len, char *err, size_t errlen)
{
    char *translated = NULL;
    size_t translated_len;
    struct tok_regex *re = calloc(1, sizeof(*re));
    if (!re) return TOK_ENOMEM;
    int rc = tok_pattern_translate(uni, pattern, len, &translated, &translated_len, err, errlen);
    if (!rc) rc = compile(re, translated, translated_len, err, errlen);
    free(translated);
    if (rc)
        tok_regex_destroy(re);
    else
        *ret = re;
    return rc;
}

void tok_regex_destroy(struct tok_regex *re)
{
    if (!re) return;
    pcre2_code_free(re->code);
    free(re);
}

void tok_regex_scratch_init(struct tok_regex_scratch *s, size_t text_len)
{
    *s = (struct tok_regex_scratch){.budget = WORK_BASE + (uint64_t)text_len * WORK_PER_BYTE};
}

void tok_regex_scratch_next(struct tok_regex_scratch *s, size_t text_len)
{
    s->budget = WORK_BASE_SHORT + (uint64_t)text_len * WORK_PER_BYTE;
}

void tok_regex_scratch_finish(struct tok_regex_scratch *s)
{
    pcre2_match_data_free(s->match_data);
    pcre2_match_context_free(s->match_context);
    pcre2_jit_stack_free(s->jit_stack);
    *s = (struct tok_regex_scratch){0};
}

/* Called by PCRE2 after every repetition. */
static int count_work(pcre2_callout_block *block, void *data)
{
    struct tok_regex_scratch *s = data;
    size_t position = block->current_position, way;
    way = position > s->last_position ? position - s->last_position : s->last_position - position;
    s->last_position = position;
    if (way >= s->budget) {
        s->budget = 0;
        return PCRE2_ERROR_CALLOUT;
    }
    s->budget -= way + 1;
    return 0;
}

/* Makes what a first search needs. */
static int prepare(struct tok_regex_scratch *s, const struct tok_regex *re)
{
    if (!s->match_data) s->match_data = pcre2_match_data_create(1, NULL);
    if (!s->match_context) {
        s->match_context = pcre2_match_context_create(NULL);
        if (!s->match_context) return TOK_ENOMEM;
        pcre2_set_match_limit(s->match_context, MATCH_LIMIT);
        pcre2_set_heap_limit(s->match_context, HEAP_LIMIT_KIB);
        pcre2_set_callout(s->match_context, count_work, s);
    }
    if (re->jit && !s->jit_stack) {
        s->jit_stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
        if (s->jit_stack) pcre2_jit_stack_assign(s->match_context, NULL, s->jit_stack);
    }
    return s->match_data ? 0 : TOK_ENOMEM;
}

static int search(const struct tok_regex_iter *it, struct tok_regex_scratch *s)
{
    PCRE2_SPTR text = (PCRE2_SPTR)it->text;
    int n = PCRE2_ERROR_JIT_STACKLIMIT;
    s->last_position = it->pos;
    if (it->re->jit)
        n = pcre2_jit_match(it->re->code, text, it->len, it->pos, PCRE2_NO_UTF_CHECK, s->match_data,
                            s->match_context);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT) { /* the interpreter keeps its state on the heap */
        s->last_position = it->pos;
        n = pcre2_match(it->re->code, text, it->len, it->pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        s->match_data, s->match_context);
    }
    return n;
}

/* An empty match right after the last one does not count: the search continues one character on. */
int tok_regex_next(struct tok_regex_iter *it, struct tok_regex_scratch *s, size_t *ret_begin,
                   size_t *ret_end, char *err, size_t errlen)
{
    int rc = prepare(s, it->re);
    if (rc) return rc;
    while (it->pos <= it->len) {
        int n = search(it, s);
        if (n == PCRE2_ERROR_NOMATCH) return 0;
        if (n < 0)
            return fail_with(TOK_ELIMIT, err, errlen,
                             "a regular expression of the tokenizer takes too long on this text");
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->match_data);
        if (span[0] != span[1] || span[1] != it->last_end) {
            *ret_begin = span[0];
            *ret_end = it->pos = it->last_end = span[1];
            return 1;
        }
        it->pos += it->pos < it->len ? utf8_len((unsigned char)it->text[it->pos]) : 1;
    }
    return 0;
}
