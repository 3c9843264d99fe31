/* SPDX-License-Identifier: MIT */
/*
 * hearth-filter tokenize --model DIR: text to token ids and back, with nothing of the directory but
 * tokenizer.json. JSON lines on stdin to JSON lines on stdout, in order, one answer per line:
 *
 *   {"text", "add_special": false, "parse_special": true}   -> {"ids"}
 *   {"text", "pair", "parse_special": true}                 -> {"ids", "n_first"}
 *   {"ids", "skip_special": false}                          -> {"text", "pieces", "tail"}
 *
 * A pair gets the special tokens that the model expects; n_first of the ids have token type 0, the
 * others 1. pieces[i] is the output of the streaming decoder after ids[i] (null for nothing), tail
 * that of the last flush. A line that cannot be answered gets {"error": "..."}.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/shown.h"
#include "tests/filters/filter.h"
#include "server/config/config.h"
#include "tests/filters/filters.h"
#include "tokenizer/tokenizer.h"

/* Longest line taken, and largest answer. */
#define MAX_LINE_BYTES (16u << 20)
#define MAX_ANSWER_BYTES (512u << 20)

static int encode(const struct tok *t, const json_t *request, struct jw *w, struct filter_error *e)
{
    const json_t *text = json_object_get(request, "text");
    struct tok_ids ids = {0};
    bool add, parse;

    if (!json_is_string(text)) return filter_fail(e, "text must be a string");
    if (filter_flag(request, "add_special", false, &add, e) ||
        filter_flag(request, "parse_special", true, &parse, e))
        return -1;
    int rc = tok_encode(t, json_string_value(text), json_string_length(text),
                        (add ? TOK_ADD_SPECIAL : 0u) | (parse ? TOK_PARSE_SPECIAL : 0u), &ids,
                        e->text, sizeof(e->text));
    jw_open(w, NULL, '{');
    jw_ints(w, "ids", ids.ids, ids.n);
    jw_close(w);
    tok_ids_finish(&ids);
    return rc ? -1 : 0;
}

static int encode_pair(const struct tok *t, const json_t *request, struct jw *w,
                       struct filter_error *e)
{
    static const char *const names[2] = {"text", "pair"};
    struct tok_ids part[2] = {0}, joined = {0};
    size_t n_first;
    bool parse;

    int rc = filter_flag(request, "parse_special", true, &parse, e);
    if (rc) return rc;
    for (int i = 0; i < 2; i++) {
        const json_t *text = json_object_get(request, names[i]);
        rc = json_is_string(text) ? 0 : filter_fail(e, "text and pair must be strings");
        if (!rc)
            rc = tok_encode(t, json_string_value(text), json_string_length(text),
                            parse ? TOK_PARSE_SPECIAL : 0u, &part[i], e->text, sizeof(e->text));
        if (rc) goto out;
    }
    rc = tok_join(t, &part[0], &part[1], &joined, &n_first, e->text, sizeof(e->text));
    if (rc) goto out;
    jw_open(w, NULL, '{');
    jw_ints(w, "ids", joined.ids, joined.n);
    jw_int(w, "n_first", (int64_t)n_first);
    jw_close(w);
out:
    tok_ids_finish(&joined);
    tok_ids_finish(&part[0]);
    tok_ids_finish(&part[1]);
    return rc ? -1 : 0;
}

static int get_ids(const json_t *list, struct tok_ids *ids, struct filter_error *e)
{
    const json_t *id;
    size_t i;

    if (!json_is_array(list)) return filter_fail(e, "ids must be a list of token ids");
    ids->ids = calloc(json_array_size(list) + 1, sizeof(*ids->ids));
    if (!ids->ids) return filter_fail(e, "no memory");
    json_array_foreach(list, i, id)
    {
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX) {
            return filter_fail(e, "ids must be integers from 0 to 2147483647");
        }
        ids->ids[ids->n++] = (int32_t)value;
    }
    return 0;
}

/* "pieces" and "tail", from the streaming decoder. */
static int write_pieces(const struct tok *t, const struct tok_ids *ids, bool skip, struct jw *w)
{
    struct tok_decoder *d;
    const char *s;
    size_t len;

    int rc = tok_decoder_create(&d, t, skip);
    if (rc) return rc;
    jw_open(w, "pieces", '[');
    for (size_t i = 0; i < ids->n && !rc; i++) {
        rc = tok_decoder_push(d, ids->ids[i], &s, &len);
        if (!rc && len)
            jw_string(w, NULL, s, len);
        else
            jw_null(w, NULL);
    }
    jw_close(w);
    if (!rc) rc = tok_decoder_flush(d, &s, &len);
    if (!rc) jw_string(w, "tail", s, len);
    tok_decoder_destroy(d);
    return rc;
}

static int decode(const struct tok *t, const json_t *request, struct jw *w, struct filter_error *e)
{
    struct tok_ids ids = {0};
    char *text = NULL;
    size_t len = 0;
    bool skip;

    int rc = filter_flag(request, "skip_special", false, &skip, e);
    if (!rc) rc = get_ids(json_object_get(request, "ids"), &ids, e);
    if (rc) goto out;
    rc = tok_decode(t, ids.ids, ids.n, skip, &text, &len);
    if (!rc) {
        jw_open(w, NULL, '{');
        jw_string(w, "text", text, len);
        rc = write_pieces(t, &ids, skip, w);
        jw_close(w);
    }
    if (rc) filter_fail(e, "the ids cannot be decoded");
out:
    free(text);
    tok_ids_finish(&ids);
    return rc;
}

static int answer(void *ctx, const char *line, size_t len, struct jw *w, struct filter_error *e)
{
    const struct tok *t = ctx;
    json_error_t error;
    int rc;

    json_t *request =
        json_loadb(len ? line : "", len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!request) return filter_fail(e, "%s", error.text);
    bool has_ids = json_object_get(request, "ids") != NULL,
         has_text = json_object_get(request, "text") != NULL;
    if (!json_is_object(request))
        rc = filter_fail(e, "the line must be an object");
    else if (has_ids == has_text)
        rc = filter_fail(e, "one of text and ids is needed");
    else
        rc = has_ids                            ? decode(t, request, w, e)
             : json_object_get(request, "pair") ? encode_pair(t, request, w, e)
                                                : encode(t, request, w, e);
    json_decref(request);
    return rc;
}

int filter_tokenize(const struct srv_config *config)
{
    struct tok *t;
    char err[512];

    if (tok_open(&t, config->model, err, sizeof(err))) {
        shown_line(stderr, "hearth: %s", err);
        return EXIT_FAILURE;
    }
    const struct filter filter = {.max_line_bytes = MAX_LINE_BYTES,
                                  .max_answer_bytes = MAX_ANSWER_BYTES,
                                  .answer = answer,
                                  .ctx = t};
    int status = filter_run(&filter);
    tok_close(t);
    return status;
}
