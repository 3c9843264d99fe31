/* SPDX-License-Identifier: MIT */
/*
 * hearth-filter score --model DIR: how likely a model finds token sequences. JSON lines on stdin to
 * JSON lines on stdout, in order, one answer per line:
 *
 *   {"ids": [...]} or {"text": "..."}   -> {"ids", "logprobs", "argmax", "perplexity"}
 *   "logits": FILE    every row of logits to that file, raw f32 [n_tokens, vocab_size]
 *   "greedy": N       also "greedy_ids" and "greedy_margins", past the end of sequence too
 *
 * logprobs[i] is ln p(ids[i + 1] | ids[..i]), argmax[i] the likeliest token after ids[i]. A line
 * that cannot be answered gets {"error": "..."}.
 *
 * Threads: the main thread reads and writes; the engine's scheduler thread hands over the numbers
 * of the one job under way, so its callback may write the file of logits itself.
 */
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/shown.h"
#include "engine/engine.h"
#include "tests/filters/filter.h"
#include "server/config/config.h"
#include "server/models/served_model.h"
#include "tests/filters/filters.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

enum { MAX_GREEDY = 1000000 };
#define MAX_LINE_BYTES (1u << 30)
#define MAX_ANSWER_BYTES (4ull << 30)
#define LORA_BYTES ((int64_t)64 << 20)

/* One line's work. Filled by the callback, read after `done`. */
struct score {
    int64_t n_ids, n_greedy;
    double *logprobs;       /* [n_ids - 1] */
    int32_t *argmax;        /* [n_ids] */
    int32_t *greedy_ids;    /* [n_greedy] */
    double *greedy_margins; /* [n_greedy] */
    int64_t n_generated;
    FILE *logits;
    struct eng_lora_use loras[ENG_MAX_LORAS];
    int n_loras;
    bool write_failed;
    char error[512];
    int rc; /* of the engine; `error` has its reason */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
};

struct scorer {
    const struct srv_config *config;
    struct eng *engine;
    struct tok *tok; /* opened for the first text */
};

/* ---- on the scheduler thread --------------------------------------------------------------- */

static int fail(struct score *s, const char *what)
{
    snprintf(s->error, sizeof(s->error), "%s", what);
    return -1;
}

static void take_row(struct score *s, const struct eng_event *event)
{
    const float *row = event->logits;
    int64_t n = event->n_logits, best = 0, second = -1;
    for (int64_t i = 1; i < n; i++) {
        if (row[i] > row[best]) {
            second = best;
            best = i;
        } else if (second < 0 || row[i] > row[second]) {
            second = i;
        }
    }
    int64_t step = event->index - (s->n_ids - 1); /* the generated token this row decides */
    if (step >= 0 && step < s->n_greedy)
        s->greedy_margins[step] = second < 0 ? 0 : (double)row[best] - (double)row[second];
    if (event->index >= s->n_ids) return;
    s->argmax[event->index] = (int32_t)best;
    if (s->logits && fwrite(row, sizeof(*row), (size_t)n, s->logits) != (size_t)n)
        s->write_failed = true;
}

static void on_event(void *ctx, const struct eng_event *event)
{
    struct score *s = ctx;
    switch (event->type) {
    case ENG_EVENT_LOGITS: take_row(s, event); break;
    case ENG_EVENT_PROMPT_TOKEN: s->logprobs[event->index - 1] = (double)event->logprob; break;
    case ENG_EVENT_TOKEN:
        if (event->index < s->n_greedy) s->greedy_ids[event->index] = event->id;
        s->n_generated = event->index + 1;
        break;
    case ENG_EVENT_CHOICE_DONE:
        if (event->finish == ENG_FINISH_ERROR)
            s->rc = fail(s, event->error ? event->error : "the engine failed");
        break;
    case ENG_EVENT_JOB_DONE:
        pthread_mutex_lock(&s->lock);
        s->done = true;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
        break;
    default: break;
    }
}

/* ---- one line in --------------------------------------------------------------------------- */

static int ids_of_list(const struct scorer *f, const json_t *list, struct tok_ids *ids,
                       struct score *s)
{
    if (!json_is_array(list)) return fail(s, "ids must be a list of token ids");
    ids->n = json_array_size(list);
    ids->ids = calloc(ids->n + 1, sizeof(*ids->ids));
    if (!ids->ids) return fail(s, "no memory");
    int32_t vocab = eng_info(f->engine)->vocab_size;
    for (size_t i = 0; i < ids->n; i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= vocab)
            return fail(s, "ids must lie within the vocabulary");
        ids->ids[i] = (int32_t)value;
    }
    return 0;
}

static int ids_of_text(struct scorer *f, const json_t *text, struct tok_ids *ids, struct score *s)
{
    if (!json_is_string(text)) return fail(s, "one of ids and text is needed");
    if (!f->tok && tok_open(&f->tok, f->config->model, s->error, sizeof(s->error))) return -1;
    return tok_encode(f->tok, json_string_value(text), json_string_length(text),
                      TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, ids, s->error, sizeof(s->error));
}

/* Room for the answer, and the file that was asked for. */
static int prepare(struct score *s, const json_t *request, const struct tok_ids *ids)
{
    const json_t *greedy = json_object_get(request, "greedy");
    const json_t *file = json_object_get(request, "logits");
    json_int_t n_greedy = json_integer_value(greedy);
    if (ids->n == 0) return fail(s, "there are no tokens to score");
    if (greedy && (!json_is_integer(greedy) || n_greedy < 0 || n_greedy > MAX_GREEDY))
        return fail(s, "greedy must be a number of tokens");
    if (file && !json_is_string(file)) return fail(s, "logits must be the name of a file");
    s->n_ids = (int64_t)ids->n;
    s->n_greedy = n_greedy;
    s->logprobs = calloc(ids->n, sizeof(*s->logprobs));
    s->argmax = calloc(ids->n, sizeof(*s->argmax));
    s->greedy_ids = calloc((size_t)n_greedy + 1, sizeof(*s->greedy_ids));
    s->greedy_margins = calloc((size_t)n_greedy + 1, sizeof(*s->greedy_margins));
    if (!s->logprobs || !s->argmax || !s->greedy_ids || !s->greedy_margins)
        return fail(s, "no memory");
    if (file && !(s->logits = fopen(json_string_value(file), "wb")))
        return fail(s, "the file for the logits cannot be opened");
    return 0;
}

/* Opens the adapters that were asked for: {directory: scale}. */
static int open_loras(const struct scorer *f, struct score *s, json_t *loras)
{
    const char *dir;
    json_t *scale;
    json_object_foreach(loras, dir, scale)
    {
        if (s->n_loras == ENG_MAX_LORAS) return fail(s, "too many adapters");
        struct eng_lora_use *use = &s->loras[s->n_loras];
        use->scale = (float)json_number_value(scale);
        if (eng_lora_open(f->engine, dir, &use->lora, s->error, sizeof(s->error))) return -1;
        s->n_loras++;
    }
    return 0;
}

static int run(const struct scorer *f, struct score *s, const struct tok_ids *ids)
{
    struct eng_job_params params = {
        .prompt = ids->ids,
        .n_prompt = (int64_t)ids->n,
        .n_choices = 1,
        .max_tokens = s->n_greedy,
        .sampling = eng_sampling_default(),
        .ignore_eos = true,
        .n_logprobs = -1,
        .n_prompt_logprobs = 0,
        .want_logits = true,
        .no_cache = true,
        .on_event = on_event,
        .ctx = s,
    };
    params.sampling.temperature = 0;
    params.n_loras = s->n_loras;
    memcpy(params.loras, s->loras, sizeof(params.loras));
    struct eng_job *job = NULL;
    if (eng_job_submit(f->engine, &params, &job, s->error, sizeof(s->error))) return -1;
    pthread_mutex_lock(&s->lock);
    while (!s->done)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    eng_job_release(job);
    if (s->write_failed) return fail(s, "the file of logits cannot be written");
    return s->rc;
}

/* ---- one line out -------------------------------------------------------------------------- */

static void write_reals(struct jw *w, const char *name, const double *values, int64_t n)
{
    jw_open(w, name, '[');
    for (int64_t i = 0; i < n; i++)
        jw_number(w, NULL, values[i]);
    jw_close(w);
}

static void write_score(struct jw *w, const struct score *s, const struct tok_ids *ids)
{
    double sum = 0;
    int64_t n = s->n_ids - 1;
    for (int64_t i = 0; i < n; i++)
        sum += s->logprobs[i];
    jw_open(w, NULL, '{');
    jw_ints(w, "ids", ids->ids, (size_t)s->n_ids);
    write_reals(w, "logprobs", s->logprobs, n);
    jw_ints(w, "argmax", s->argmax, (size_t)s->n_ids);
    if (n)
        jw_number(w, "perplexity", exp(-sum / (double)n));
    else
        jw_null(w, "perplexity");
    if (s->n_greedy > 0) {
        jw_ints(w, "greedy_ids", s->greedy_ids, (size_t)s->n_generated);
        write_reals(w, "greedy_margins", s->greedy_margins, s->n_generated);
    }
    jw_close(w);
}

static int score_request(struct scorer *f, const json_t *request, struct jw *w,
                         struct filter_error *e)
{
    struct score s = {.n_ids = 0};
    struct tok_ids ids = {0};
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.changed, NULL);
    const json_t *list = json_object_get(request, "ids");
    int rc = list ? ids_of_list(f, list, &ids, &s)
                  : ids_of_text(f, json_object_get(request, "text"), &ids, &s);
    if (rc == 0) rc = prepare(&s, request, &ids);
    if (rc == 0) rc = open_loras(f, &s, json_object_get(request, "lora"));
    if (rc == 0) rc = run(f, &s, &ids);
    for (int i = 0; i < s.n_loras; i++)
        eng_lora_close(s.loras[i].lora);
    if (s.logits && fclose(s.logits) != 0 && rc == 0)
        rc = fail(&s, "the file of logits cannot be written");
    if (rc)
        filter_fail(e, "%s", s.error);
    else
        write_score(w, &s, &ids);
    pthread_cond_destroy(&s.changed);
    pthread_mutex_destroy(&s.lock);
    tok_ids_finish(&ids);
    free(s.logprobs);
    free(s.argmax);
    free(s.greedy_ids);
    free(s.greedy_margins);
    return rc;
}

static int answer(void *ctx, const char *line, size_t len, struct jw *w, struct filter_error *e)
{
    json_error_t error;
    json_t *request = json_loadb(len ? line : "", len, JSON_REJECT_DUPLICATES, &error);
    int rc = json_is_object(request) ? score_request(ctx, request, w, e)
             : request               ? filter_fail(e, "a line must be a JSON object")
                                     : filter_fail(e, "%s", error.text);
    json_decref(request);
    return rc;
}

/* The server's, so that the numbers are the server's. */
static int calibration_ids(void *ctx, int32_t *ret_ids, int max)
{
    struct scorer *f = ctx;
    const struct tok_chat_params params = {.tokenizer_dir = f->config->tokenizer};
    struct tok_chat *chat = NULL;
    char err[200];
    if (!f->tok && tok_open_from(&f->tok, f->config->model, f->config->tokenizer, err, sizeof(err)))
        return 0;
    if (tok_chat_open(&chat, f->config->model, &params, err, sizeof(err))) chat = NULL;
    int n = srv_calibration_ids(f->tok, chat, ret_ids, max);
    tok_chat_close(chat);
    return n;
}

int filter_score(const struct srv_config *config)
{
    struct scorer f = {.config = config};
    const struct filter filter = {.max_line_bytes = MAX_LINE_BYTES,
                                  .max_answer_bytes = MAX_ANSWER_BYTES,
                                  .answer = answer,
                                  .ctx = &f};
    char err[1024] = "";
    struct eng_params params = srv_engine_params(config);
    params.calibration = calibration_ids;
    params.calibration_ctx = &f;
    params.kv_bytes = 0; /* the option is not for this subcommand */
    params.no_prefix_cache = true;
    params.lora_bytes = LORA_BYTES;
    params.speculate = ENG_SPECULATE_OFF;
    int status = EXIT_FAILURE;
    if (eng_open(&f.engine, &params, err, sizeof(err)))
        shown_line(stderr, "hearth: %s", err);
    else
        status = filter_run(&filter);
    eng_close(f.engine);
    tok_close(f.tok);
    return status;
}
