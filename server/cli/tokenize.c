/* SPDX-License-Identifier: MIT */
/*
 * hearth tokenize --model DIR: text to token ids and back, with nothing of the directory but
 * tokenizer.json. JSON lines on stdin to JSON lines on stdout, in order, one answer a line each:
 *
 *   {"text", "add_special": false, "parse_special": true}   -> {"ids"}
 *   {"ids", "skip_special": false}                          -> {"text", "pieces", "tail"}
 *
 * pieces[i] is what the streaming decoder gave out after ids[i] (null for nothing), tail what the
 * last flush gave. What is wrong with a line is its answer: {"error": "..."}.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "tokenizer/tokenizer.h"

/* Longest line taken, and largest answer. */
#define MAX_LINE_BYTES (16u << 20)
#define MAX_ANSWER_BYTES (512u << 20)

struct error {
    char text[512];
};

/* ---- lines --------------------------------------------------------------------------------- */

struct line {
    char *s;
    size_t len, cap;
    bool too_long;
};

/* 1: a line was read; 0: the end of the input; -1: no memory, or the input failed. */
static int read_line(FILE *in, struct line *line)
{
    int c;

    line->len = 0;
    line->too_long = false;
    while ((c = getc_unlocked(in)) != EOF && c != '\n') {
        if (line->len == MAX_LINE_BYTES) {
            line->too_long = true;
            continue;
        }
        if (line->len == line->cap) {
            size_t cap = line->cap ? line->cap * 2 : 4096;
            char *p = realloc(line->s, cap);
            if (!p) return -1;
            line->s = p;
            line->cap = cap;
        }
        line->s[line->len++] = (char)c;
    }
    if (ferror(in)) return -1;
    return c == '\n' || line->len > 0;
}

/* ---- one request --------------------------------------------------------------------------- */

static int fail(struct error *e, const char *what)
{
    snprintf(e->text, sizeof(e->text), "%s", what);
    return -1;
}

/* A member that is true or false; absent and null mean the fallback. */
static int get_flag(const json_t *request, const char *name, bool fallback, bool *ret,
                    struct error *e)
{
    const json_t *v = json_object_get(request, name);

    *ret = v && !json_is_null(v) ? json_is_true(v) : fallback;
    if (!v || json_is_null(v) || json_is_boolean(v)) return 0;
    snprintf(e->text, sizeof(e->text), "%s must be true or false", name);
    return -1;
}

/* "[1,2,...]"; answers are mostly this, so the numbers are written by hand. */
static void put_ids(struct buf *out, const struct tok_ids *ids)
{
    char chunk[4096];
    size_t n = 0;

    chunk[n++] = '[';
    for (size_t i = 0; i < ids->n; i++) {
        char digits[12];
        size_t at = sizeof(digits);
        uint32_t v = (uint32_t)ids->ids[i];
        if (sizeof(chunk) - n < sizeof(digits) + 2) {
            buf_add(out, chunk, n);
            n = 0;
        }
        if (i) chunk[n++] = ',';
        do
            digits[--at] = (char)('0' + v % 10);
        while (v /= 10);
        memcpy(chunk + n, digits + at, sizeof(digits) - at);
        n += sizeof(digits) - at;
    }
    chunk[n++] = ']';
    buf_add(out, chunk, n);
}

static int encode(const struct tok *t, const json_t *request, struct buf *out, struct error *e)
{
    const json_t *text = json_object_get(request, "text");
    struct tok_ids ids = {0};
    bool add = false, parse = true;

    if (!json_is_string(text)) return fail(e, "text must be a string");
    int rc = get_flag(request, "add_special", false, &add, e);
    if (!rc) rc = get_flag(request, "parse_special", true, &parse, e);
    if (rc) return rc;
    rc = tok_encode(t, json_string_value(text), json_string_length(text),
                    (add ? TOK_ADD_SPECIAL : 0u) | (parse ? TOK_PARSE_SPECIAL : 0u), &ids, e->text,
                    sizeof(e->text));
    if (!rc) {
        buf_puts(out, "{\"ids\":");
        put_ids(out, &ids);
        buf_puts(out, "}");
    }
    tok_ids_finish(&ids);
    return rc;
}

static int get_ids(const json_t *list, struct tok_ids *ids, struct error *e)
{
    const json_t *id;
    size_t i;

    if (!json_is_array(list)) return fail(e, "ids must be a list of token ids");
    ids->ids = calloc(json_array_size(list) + 1, sizeof(*ids->ids));
    if (!ids->ids) return fail(e, "no memory");
    json_array_foreach(list, i, id)
    {
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX) {
            return fail(e, "ids must be whole numbers from 0 to 2147483647");
        }
        ids->ids[ids->n++] = (int32_t)value;
    }
    return 0;
}

/* "pieces" and "tail", from the streaming decoder. */
static int put_pieces(const struct tok *t, const struct tok_ids *ids, bool skip, struct buf *out)
{
    struct tok_decoder *d;
    const char *s;
    size_t len;

    int rc = tok_decoder_create(&d, t, skip);
    if (rc) return rc;
    buf_puts(out, ",\"pieces\":[");
    for (size_t i = 0; i < ids->n && !rc; i++) {
        rc = tok_decoder_push(d, ids->ids[i], &s, &len);
        if (rc) break;
        if (i) buf_puts(out, ",");
        if (len)
            buf_json_string(out, s, len);
        else
            buf_puts(out, "null");
    }
    if (!rc) rc = tok_decoder_flush(d, &s, &len);
    if (!rc) {
        buf_puts(out, "],\"tail\":");
        buf_json_string(out, s, len);
    }
    tok_decoder_destroy(d);
    return rc;
}

static int decode(const struct tok *t, const json_t *request, struct buf *out, struct error *e)
{
    struct tok_ids ids = {0};
    char *text = NULL;
    size_t len = 0;
    bool skip = false;

    int rc = get_flag(request, "skip_special", false, &skip, e);
    if (!rc) rc = get_ids(json_object_get(request, "ids"), &ids, e);
    if (rc) goto out;
    rc = tok_decode(t, ids.ids, ids.n, skip, &text, &len);
    if (!rc) {
        buf_puts(out, "{\"text\":");
        buf_json_string(out, text, len);
        rc = put_pieces(t, &ids, skip, out);
        buf_puts(out, "}");
    }
    if (rc) fail(e, "the ids cannot be decoded");
out:
    free(text);
    tok_ids_finish(&ids);
    return rc;
}

static int answer(const struct tok *t, const struct line *line, struct buf *out, struct error *e)
{
    json_error_t error;
    int rc;

    if (line->too_long) return fail(e, "the line is longer than 16777216 bytes");
    json_t *request = json_loadb(line->s ? line->s : "", line->len,
                                 JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!request) return fail(e, error.text);
    bool has_ids = json_object_get(request, "ids") != NULL,
         has_text = json_object_get(request, "text") != NULL;
    if (!json_is_object(request))
        rc = fail(e, "the line must be an object");
    else if (has_ids == has_text)
        rc = fail(e, "one of text and ids is needed");
    else
        rc = has_ids ? decode(t, request, out, e) : encode(t, request, out, e);
    json_decref(request);
    return rc;
}

/* ---- the filter ---------------------------------------------------------------------------- */

/* Answers every line; -1 when one cannot be read or an answer not be written. */
static int run_filter(const struct tok *t, FILE *in, FILE *to)
{
    struct line line = {0};
    struct buf out;
    int more, rc = 0;

    buf_init(&out, MAX_ANSWER_BYTES);
    while (!rc && (more = read_line(in, &line)) == 1) {
        struct error e = {""};
        buf_clear(&out);
        if (answer(t, &line, &out, &e) || out.failed) {
            buf_clear(&out);
            buf_puts(&out, "{\"error\":");
            if (!e.text[0]) fail(&e, "no memory for the answer");
            buf_json_string(&out, e.text, strlen(e.text));
            buf_puts(&out, "}");
        }
        buf_puts(&out, "\n");
        if (fwrite(out.data, 1, out.len, to) != out.len || fflush(to) != 0) rc = -1;
    }
    if (more < 0) rc = -1;
    buf_finish(&out);
    free(line.s);
    return rc;
}

int srv_cmd_tokenize(const struct srv_config *config)
{
    struct tok *t;
    char err[512];

    if (tok_open(&t, config->model, err, sizeof(err))) {
        fprintf(stderr, "hearth: %s\n", err);
        return 1;
    }
    int rc = run_filter(t, stdin, stdout);
    if (rc) fprintf(stderr, "hearth: the lines cannot be read or the answers not be written\n");
    tok_close(t);
    return rc ? 1 : 0;
}
