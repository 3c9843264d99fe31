/* SPDX-License-Identifier: MIT */
/*
 * hearth-filter accept --model DIR: which texts a schema, regex, choice or grammar accepts, with
 * nothing of the directory but tokenizer.json and the end ids. JSON lines on stdin to JSON lines on
 * stdout, in order, one answer per line, at once:
 *
 *   one of {"schema": S, "json_object": true, "regex", "choice": [...], "grammar"}, "texts": [...],
 *   and if wanted "strict", "whitespace" ("any", "style"), "whitespace_pattern",
 *   "disable_any_whitespace", "disable_additional_properties", "mask_ns",
 *   "shortest"
 *
 *   -> {"compiled": true, "relaxed", "accepted", "by_bytes", "compile_ms", "steps", "bytes",
 *       "masks"}
 *
 * shortest: instead of all that, a short way to complete each text with what gram_rest says of it,
 * its ids and the values in it; null if the text is the beginning of none.
 * accepted: the text as the tokenizer cuts it; by_bytes: one token per byte. What is wrong with a
 * line is its answer: {"error": {"code", "pointer", "keyword", "message"}}, with compile_ms and
 * steps if it was compiled.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "server/config/config.h"
#include "tests/filters/accept_model.h"
#include "tests/filters/filters.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/tokenizer.h"

#define MAX_LINE_BYTES (16u << 20)
#define MAX_ANSWER_BYTES (256u << 20)

/* Deep enough for a schema of the greatest depth inside a line. */
enum { MAX_DEPTH = 200 };

/* ---- a line -------------------------------------------------------------------------------- */

struct span {
    const char *s; /* NULL: not there */
    size_t n;
};

struct request {
    struct span schema, choice, texts;                       /* as they are written */
    char *regex, *grammar, *whitespace_pattern, *whitespace; /* decoded; owned */
    size_t regex_len, grammar_len, pattern_len, whitespace_len;
    bool json_object, strict, no_whitespace, no_additional, mask_ns, shortest;
};

struct error {
    char code[40];
    char message[400];
};

static int fail(struct error *e, const char *code, const char *message)
{
    snprintf(e->code, sizeof(e->code), "%s", code);
    snprintf(e->message, sizeof(e->message), "%s", message);
    return -1;
}

static int read_text(struct jr *r, char **ret, size_t *ret_len)
{
    const char *s;
    int rc = jr_string(r, &s, ret_len);
    if (rc) return rc;
    free(*ret);
    *ret = malloc(*ret_len + 1);
    if (!*ret) return JR_ENOMEM;
    memcpy(*ret, s, *ret_len);
    (*ret)[*ret_len] = '\0';
    return 0;
}

static bool is(const char *key, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(key, name, n) == 0;
}

/* One member; null stands for an absent one. */
static int read_member(struct jr *r, struct request *q, const char *key, size_t n)
{
    struct span ignored, *span = is(key, n, "schema")   ? &q->schema
                                 : is(key, n, "choice") ? &q->choice
                                 : is(key, n, "texts")  ? &q->texts
                                                        : NULL;
    bool *flag = is(key, n, "json_object")                     ? &q->json_object
                 : is(key, n, "strict")                        ? &q->strict
                 : is(key, n, "disable_any_whitespace")        ? &q->no_whitespace
                 : is(key, n, "disable_additional_properties") ? &q->no_additional
                 : is(key, n, "mask_ns")                       ? &q->mask_ns
                 : is(key, n, "shortest")                      ? &q->shortest
                                                               : NULL;
    bool regex = is(key, n, "regex"), grammar = is(key, n, "grammar");
    bool spaces = is(key, n, "whitespace_pattern");

    if (jr_peek(r) == 'n' && !(span == &q->schema)) return jr_skip(r, &ignored.s, &ignored.n);
    if (span) return jr_skip(r, &span->s, &span->n);
    if (flag) {
        char first = jr_scalar(r, &ignored.s, &ignored.n);
        if (first != 't' && first != 'f') jr_refuse(r, JR_EINVAL, "expected true or false");
        *flag = first == 't';
        return r->failed;
    }
    if (regex) return read_text(r, &q->regex, &q->regex_len);
    if (grammar) return read_text(r, &q->grammar, &q->grammar_len);
    if (spaces) return read_text(r, &q->whitespace_pattern, &q->pattern_len);
    if (is(key, n, "whitespace")) return read_text(r, &q->whitespace, &q->whitespace_len);
    return jr_skip(r, &ignored.s, &ignored.n);
}

static int read_request(const char *line, size_t len, struct request *q, struct error *e)
{
    struct jr r;
    const char *key;
    size_t n;

    if (!utf8_valid(line, len)) return fail(e, "invalid_json", "the line is not valid UTF-8");
    snprintf(e->code, sizeof(e->code), "invalid_json");
    jr_init(&r, line, len, JR_NUL, e->message, sizeof(e->message));
    r.max_depth = MAX_DEPTH;
    int rc = jr_open(&r, '{');
    while (!rc && (rc = jr_more(&r, '}')) == 1) {
        char name[64];
        rc = jr_key(&r, &key, &n);
        if (rc) break;
        if (n >= sizeof(name)) n = sizeof(name) - 1;
        memcpy(name, key, n); /* the next string takes its place */
        rc = read_member(&r, q, name, n);
    }
    if (!rc) rc = jr_end(&r);
    jr_finish(&r);
    if (!rc) e->code[0] = '\0';
    return rc ? -1 : 0;
}

static void request_finish(struct request *q)
{
    free(q->regex);
    free(q->grammar);
    free(q->whitespace_pattern);
    free(q->whitespace);
}

/* ---- compiling ----------------------------------------------------------------------------- */

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int check_request(const struct request *q, struct error *e)
{
    int n = (q->schema.s != NULL) + (q->choice.s != NULL) + (q->regex != NULL) +
            (q->grammar != NULL) + q->json_object;

    if (n != 1)
        return fail(e, "invalid_value",
                    "Exactly one of schema, json_object, regex, choice and grammar is needed.");
    if (!q->texts.s) return fail(e, "invalid_value", "texts must be a list of strings.");
    if (q->whitespace && strcmp(q->whitespace, "any") && strcmp(q->whitespace, "style"))
        return fail(e, "invalid_value", "whitespace must be \"any\" or \"style\".");
    if (q->no_whitespace && q->whitespace_pattern)
        return fail(e, "invalid_value",
                    "whitespace_pattern and disable_any_whitespace exclude each other.");
    return 0;
}

static int compile(const struct accept_model *m, const struct request *q, struct gram **ret,
                   struct gram_error *err)
{
    struct gram_options options = {.strict = q->strict,
                                   .closed_objects = q->no_additional,
                                   .no_whitespace = q->no_whitespace,
                                   .styled = q->whitespace && !strcmp(q->whitespace, "style"),
                                   .whitespace_pattern = q->whitespace_pattern,
                                   .whitespace_pattern_len = q->pattern_len};
    enum gram_kind kind = q->schema.s   ? GRAM_SCHEMA
                          : q->choice.s ? GRAM_CHOICE
                          : q->regex    ? GRAM_REGEX
                          : q->grammar  ? GRAM_GBNF
                                        : GRAM_JSON_OBJECT;
    struct span text = q->schema.s   ? q->schema
                       : q->choice.s ? q->choice
                       : q->regex    ? (struct span){q->regex, q->regex_len}
                                     : (struct span){q->grammar, q->grammar_len};
    return gram_compile(ret, m->vocab, kind, text.s, text.n, &options, err);
}

/* ---- texts --------------------------------------------------------------------------------- */

/* CPU times of masks. */
struct times {
    double *us;
    size_t n, cap;
};

static void note_time(struct times *t, double us)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 1024;
        double *p = realloc(t->us, cap * sizeof(*p));
        if (!p) return;
        t->us = p;
        t->cap = cap;
    }
    t->us[t->n++] = us;
}

/* Shared by the trials of all texts. */
struct trial {
    const struct accept_model *model;
    const struct gram *g;
    void *memory; /* of a state */
    uint64_t *bits;
    struct times times;
};

static bool allowed(const uint64_t *bits, int32_t id)
{
    return bits[id / 64] >> id % 64 & 1;
}

/* Every id is in the mask before it, and the answer is complete behind the last. */
static bool try_ids(struct trial *t, const int32_t *ids, size_t n, bool timed)
{
    struct gram_state *s = gram_state_init(t->memory, t->g, NULL, NULL);

    for (size_t i = 0; i <= n; i++) {
        double begin = timed ? cpu_us() : 0;
        enum gram_next next = gram_mask(s, t->bits);
        if (timed) note_time(&t->times, cpu_us() - begin);
        if (i == n) return next == GRAM_NEXT_END || gram_accepting(s);
        if (next != GRAM_NEXT_MASK || !allowed(t->bits, ids[i])) return false;
        if (!gram_take(s, ids[i])) return false;
    }
    return false;
}

/* 1: accepted, 0: not, -1: some byte has no token of its own. */
static int try_bytes(struct trial *t, const char *text, size_t n)
{
    int32_t *ids = calloc(n + 1, sizeof(*ids));
    int verdict = -1;

    for (size_t i = 0; ids && i < n; i++)
        if ((ids[i] = gram_vocab_byte_id(t->model->vocab, (uint8_t)text[i])) < 0) goto out;
    if (ids) verdict = try_ids(t, ids, n, false);
out:
    free(ids);
    return verdict;
}

static int try_text(struct trial *t, const char *text, size_t n, bool *ret, struct error *e)
{
    struct tok_ids ids = {0};
    char err[256] = "no memory";
    int rc = accept_model_encode(t->model, text, n, &ids, err, sizeof(err));

    if (!rc) *ret = try_ids(t, ids.ids, ids.n, true);
    tok_ids_finish(&ids);
    return rc ? fail(e, "invalid_value", err) : 0;
}

/* Tries all texts. Both lists get a letter per text: yes, no, or unknown. */
static int try_texts(struct trial *t, struct span texts, struct buf *accepted, struct buf *by_bytes,
                     struct error *e)
{
    struct jr r;
    bool verdict = false;
    const char *s;
    size_t n;

    jr_init(&r, texts.s, texts.n, JR_NUL, e->message, sizeof(e->message));
    int rc = jr_open(&r, '[');
    while (!rc && (rc = jr_more(&r, ']')) == 1) {
        rc = jr_string(&r, &s, &n);
        if (!rc) rc = try_text(t, s, n, &verdict, e);
        if (rc) break;
        buf_add(accepted, verdict ? "y" : "n", 1);
        int bytes = try_bytes(t, s, n);
        buf_add(by_bytes, bytes < 0 ? "u" : bytes ? "y" : "n", 1);
    }
    jr_finish(&r);
    if (rc && !e->code[0]) snprintf(e->code, sizeof(e->code), "invalid_value");
    return rc ? -1 : 0;
}

/* ---- answers ------------------------------------------------------------------------------- */

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double percentile(const struct times *t, size_t percent)
{
    return t->n ? t->us[percent == 100 ? t->n - 1 : t->n * percent / 100] : 0;
}

static void put_times(struct jw *w, struct times *t, bool all)
{
    double sum = 0;

    if (all) jw_open(w, "mask_ns", '[');
    for (size_t i = 0; i < t->n; i++) {
        if (all) jw_int(w, NULL, (int64_t)(t->us[i] * 1e3));
        sum += t->us[i];
    }
    if (all) jw_close(w);
    if (t->n) qsort(t->us, t->n, sizeof(*t->us), by_value);
    jw_open(w, "masks", '{');
    jw_int(w, "n", (int64_t)t->n);
    jw_fixed(w, "avg_us", t->n ? sum / (double)t->n : 0, 3);
    jw_fixed(w, "p50_us", percentile(t, 50), 3);
    jw_fixed(w, "p99_us", percentile(t, 99), 3);
    jw_fixed(w, "max_us", percentile(t, 100), 3);
    jw_close(w);
}

static void put_verdicts(struct jw *w, const char *name, const struct buf *letters)
{
    jw_open(w, name, '[');
    for (size_t i = 0; i < letters->len; i++) {
        if (letters->data[i] == 'u')
            jw_null(w, NULL);
        else
            jw_bool(w, NULL, letters->data[i] == 'y');
    }
    jw_close(w);
}

/* The cost of a compilation. */
struct cost {
    double ms;
    uint64_t steps;
};

static void put_cost(struct jw *w, const struct cost *cost)
{
    jw_fixed(w, "compile_ms", cost->ms, 3);
    jw_int(w, "steps", (int64_t)cost->steps);
}

/* cost: NULL if nothing was compiled. */
static void put_error(struct buf *out, const char *code, const char *pointer, const char *keyword,
                      const char *message, const struct cost *cost)
{
    struct jw w;

    buf_clear(out);
    jw_init(&w, out);
    jw_open(&w, NULL, '{');
    jw_open(&w, "error", '{');
    jw_text(&w, "code", code);
    jw_text(&w, "pointer", pointer);
    jw_text(&w, "keyword", keyword);
    jw_text(&w, "message", message);
    jw_close(&w);
    if (cost) put_cost(&w, cost);
    jw_close(&w);
    jw_end(&w);
}

static void put_compile_error(struct buf *out, const struct gram_error *err,
                              const struct cost *cost)
{
    const char *code = err->code == GRAM_EINVAL         ? "invalid_json_schema"
                       : err->code == GRAM_EGRAMMAR     ? "invalid_grammar"
                       : err->code == GRAM_EUNSUPPORTED ? "unsupported_parameter"
                                                        : "internal_error";
    put_error(out, code, err->has_pointer ? err->pointer : NULL,
              err->keyword[0] ? err->keyword : NULL, err->message, cost);
}

static void put_answer(struct buf *out, struct trial *t, const struct request *q,
                       const struct cost *cost, const struct buf *accepted,
                       const struct buf *by_bytes)
{
    struct jw w;

    jw_init(&w, out);
    jw_open(&w, NULL, '{');
    jw_bool(&w, "compiled", true);
    jw_open(&w, "relaxed", '[');
    for (size_t i = 0; i < gram_n_relaxed(t->g); i++)
        jw_text(&w, NULL, gram_relaxed(t->g, i));
    jw_close(&w);
    put_verdicts(&w, "accepted", accepted);
    put_verdicts(&w, "by_bytes", by_bytes);
    put_cost(&w, cost);
    jw_int(&w, "bytes", (int64_t)gram_bytes(t->g));
    put_times(&w, &t->times, q->mask_ns);
    jw_close(&w);
    jw_end(&w);
}

/* The shortest end of each text, the result of gram_rest and the ids that gram_close counts. */
static int complete_texts(struct trial *t, struct span texts, struct buf *out, struct error *e)
{
    static char text[1 << 20];
    static int32_t ids[1 << 18];
    struct jr r;
    struct jw w;
    const char *s;
    size_t n;

    jr_init(&r, texts.s, texts.n, JR_NUL, e->message, sizeof(e->message));
    jw_init(&w, out);
    jw_open(&w, NULL, '{');
    jw_open(&w, "shortest", '[');
    int rc = jr_open(&r, '[');
    while (!rc && (rc = jr_more(&r, ']')) == 1) {
        rc = jr_string(&r, &s, &n);
        if (rc) break;
        struct gram_state *state = gram_state_init(t->memory, t->g, NULL, NULL);
        uint32_t values = 0;
        bool begins = gram_take_bytes(state, s, n);
        size_t n_ids = SIZE_MAX, len = 0;
        if (begins)
            n_ids = gram_close(state, sizeof(ids) / sizeof(*ids), NULL, ids,
                               sizeof(ids) / sizeof(*ids), &values);
        for (size_t i = 0; n_ids != SIZE_MAX && i < n_ids && len < sizeof(text); i++)
            len += tok_token_bytes(t->model->tok, ids[i], text + len, sizeof(text) - len);
        if (n_ids == SIZE_MAX) {
            jw_text(&w, NULL, begins ? "none is found" : NULL);
            continue;
        }
        jw_open(&w, NULL, '[');
        jw_string(&w, NULL, text, len);
        jw_int(&w, NULL, (int64_t)gram_rest(state));
        jw_int(&w, NULL, (int64_t)n_ids);
        jw_int(&w, NULL, values);
        jw_close(&w);
    }
    jr_finish(&r);
    jw_close(&w);
    jw_close(&w);
    jw_end(&w);
    return rc ? fail(e, "invalid_value", "texts must be a list of strings.") : 0;
}

/* ---- one line ------------------------------------------------------------------------------ */

static int answer_request(const struct accept_model *m, const struct request *q, struct gram *g,
                          const struct cost *cost, struct buf *out, struct error *e)
{
    struct trial t = {.model = m, .g = g};
    struct buf accepted, by_bytes;

    buf_init(&accepted, MAX_ANSWER_BYTES);
    buf_init(&by_bytes, MAX_ANSWER_BYTES);
    t.memory = aligned_alloc(64, gram_state_bytes());
    t.bits = calloc(gram_vocab_mask_words(m->vocab), sizeof(*t.bits));
    int rc = t.memory && t.bits ? 0 : fail(e, "internal_error", "no memory");
    if (!rc && q->shortest) rc = complete_texts(&t, q->texts, out, e);
    if (!rc && !q->shortest) rc = try_texts(&t, q->texts, &accepted, &by_bytes, e);
    if (!rc && (accepted.failed || by_bytes.failed))
        rc = fail(e, "internal_error", "no memory for the answer");
    if (!rc && !q->shortest) put_answer(out, &t, q, cost, &accepted, &by_bytes);
    buf_finish(&accepted);
    buf_finish(&by_bytes);
    free(t.memory);
    free(t.bits);
    free(t.times.us);
    return rc;
}

static void answer(const struct accept_model *m, const char *line, size_t len, struct buf *out)
{
    struct request q = {.json_object = false};
    struct error e = {"", ""};
    struct gram_error err;
    struct gram *g = NULL;

    int rc = len > MAX_LINE_BYTES
                 ? fail(&e, "invalid_value", "the line is longer than 16777216 bytes")
                 : read_request(line, len, &q, &e);
    if (!rc) rc = check_request(&q, &e);
    if (rc) {
        put_error(out, e.code, NULL, NULL, e.message, NULL);
        request_finish(&q);
        return;
    }
    double begin = cpu_us();
    rc = compile(m, &q, &g, &err);
    struct cost cost = {(cpu_us() - begin) / 1e3, err.steps};
    if (rc) {
        put_compile_error(out, &err, &cost);
    } else if (answer_request(m, &q, g, &cost, out, &e)) {
        put_error(out, e.code, NULL, NULL, e.message, NULL);
    }
    gram_release(g);
    request_finish(&q);
}

/* Answers every line; -1 if one cannot be read or an answer not be written. */
static int run_filter(const struct accept_model *m)
{
    struct buf out;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;

    buf_init(&out, MAX_ANSWER_BYTES);
    while (!rc && (n = getline(&line, &cap, stdin)) >= 0) {
        buf_clear(&out);
        answer(m, line, (size_t)n, &out);
        if (out.failed) {
            put_error(&out, "internal_error", NULL, NULL, "no memory for the answer", NULL);
        }
        buf_puts(&out, "\n");
        if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0) rc = -1;
    }
    if (ferror(stdin)) rc = -1;
    buf_finish(&out);
    free(line);
    return rc;
}

int filter_accept(const struct srv_config *config)
{
    struct accept_model m;
    char err[512];

    if (accept_model_open(&m, config->model, err, sizeof(err))) {
        shown_line(stderr, "hearth: %s", err);
        return 1;
    }
    int rc = run_filter(&m);
    if (rc) shown_line(stderr, "hearth: the lines cannot be read or the answers not be written");
    accept_model_close(&m);
    return rc ? 1 : 0;
}
