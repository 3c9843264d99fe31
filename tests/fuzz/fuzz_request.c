/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes a request from its body to the last byte of its answer: JSON to parameters, prompt and
 * template, tokens to text, stop strings, events of every dialect. The first byte picks the route,
 * the second seeds what the engine and the client do, the rest is the body.
 *
 * The engine is a stand-in (functions wrapped at link time) that gives out drawn ids; queue,
 * engine, and reader take turns on this one thread in a drawn order, so every run repeats. Checked:
 * an answer always comes, whole answers and events are valid JSON, errors have their shape and are
 * short, no request is left over, and with the same ids the streamed text is the whole one.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "engine/engine.h"
#include "server/api/routes.h"
#include "server/grammars/compile_queue.h"
#include "server/config/config.h"
#include "server/models/generation_config.h"
#include "server/http/guard.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/models/app.h"
#include "server/log.h"
#include "server/metrics.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CTX_TOKENS = 96, MAX_JOBS = 4, D_MODEL = 8, N_TOP = 4, STEPS_MAX = 2000000 };

static void check(bool ok)
{
    if (!ok) abort();
}

static uint32_t draw(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* ---- the fake engine ----------------------------------------------------------------------- */

struct eng_job {
    struct eng_job_params params;
    int32_t prompt[CTX_TOKENS], stop_ids[64];
    int64_t at;           /* events of the prompt so far */
    int64_t n_tokens[16]; /* of each choice */
    bool ended[16], stopped[16];
    bool live, cancelled;
    int next_choice;
};

struct eng {
    struct eng_info info;
    int32_t eos_id;
    struct eng_job jobs[MAX_JOBS];
    uint32_t rng;     /* of the order of events and of faults */
    uint32_t id_seed; /* of ids: the same whatever the order */
    bool faulty;      /* jobs may fail or be refused */
};

static struct eng engine;

const struct eng_info *__wrap_eng_info(const struct eng *e);
void __wrap_eng_stats(struct eng *e, struct eng_stats *ret_stats);
int __wrap_eng_job_submit(struct eng *e, const struct eng_job_params *params, struct eng_job **ret,
                          char *err, size_t errlen);
void __wrap_eng_job_cancel(struct eng_job *job);
void __wrap_eng_job_stop_choice(struct eng_job *job, int choice);
void __wrap_eng_job_release(struct eng_job *job);

const struct eng_info *__wrap_eng_info(const struct eng *e)
{
    return &e->info;
}

void __wrap_eng_stats(struct eng *e, struct eng_stats *ret_stats)
{
    *ret_stats = (struct eng_stats){.n_waiting = e->jobs[MAX_JOBS - 1].live};
}

static void check_params(const struct eng_job_params *p)
{
    check(p->n_prompt >= 1 && p->n_prompt <= CTX_TOKENS);
    check(p->n_choices >= 1 && p->n_choices <= 16 && p->max_tokens >= 0 && p->min_tokens >= 0);
    check(p->n_stop_ids >= 0 && p->n_stop_ids <= 64);
    check(p->n_logprobs >= -1 && p->n_logprobs <= ENG_MAX_LOGPROBS);
    check(p->n_prompt_logprobs >= -1 && p->n_prompt_logprobs <= ENG_MAX_LOGPROBS);
#define CHECK_RANGE(name, type, least, most, ...)                                                  \
    check(p->sampling.name >= (type)(least) && p->sampling.name <= (type)(most));
    ENG_SAMPLING_PARAMS(CHECK_RANGE)
    for (int64_t i = 0; i < p->n_prompt; i++)
        check(p->prompt[i] >= 0 && p->prompt[i] < engine.info.vocab_size);
    for (int i = 0; i < p->n_stop_ids; i++)
        check(p->stop_ids[i] >= 0 && p->stop_ids[i] < engine.info.vocab_size);
    for (int i = 0; i < p->sampling.n_bias; i++)
        check(p->sampling.bias[i].id >= 0 && p->sampling.bias[i].id < engine.info.vocab_size);
}

int __wrap_eng_job_submit(struct eng *e, const struct eng_job_params *params, struct eng_job **ret,
                          char *err, size_t errlen)
{
    struct eng_job *job = e->jobs;
    check_params(params);
    while (job < e->jobs + MAX_JOBS && job->live)
        job++;
    if (job == e->jobs + MAX_JOBS || (e->faulty && draw(&e->rng) % 8 == 0)) {
        snprintf(err, errlen, "the queue is full");
        return ENG_EQUEUEFULL;
    }
    *job = (struct eng_job){.params = *params, .live = true};
    memcpy(job->prompt, params->prompt, (size_t)params->n_prompt * sizeof(*job->prompt));
    memcpy(job->stop_ids, params->stop_ids ? params->stop_ids : job->stop_ids,
           (size_t)params->n_stop_ids * sizeof(*job->stop_ids));
    int64_t room = CTX_TOKENS - params->n_prompt + 1;
    if (job->params.max_tokens > room) job->params.max_tokens = room;
    *ret = job;
    return 0;
}

void __wrap_eng_job_cancel(struct eng_job *job)
{
    job->cancelled = true;
}

void __wrap_eng_job_stop_choice(struct eng_job *job, int choice)
{
    job->stopped[choice] = true;
}

void __wrap_eng_job_release(struct eng_job *job)
{
    (void)job;
}

static void emit(struct eng_job *job, struct eng_event ev)
{
    struct eng_usage usage = {.n_prompt_tokens = job->params.n_prompt,
                              .submitted_us = 1,
                              .started_us = 2,
                              .first_token_us = 3,
                              .done_us = 4};
    struct eng_logprob top[N_TOP];
    for (int i = 0; i < N_TOP; i++)
        top[i] = (struct eng_logprob){(ev.id + 7 * i) % engine.info.vocab_size, -0.5f * (float)i};
    float vector[D_MODEL] = {1, 2, 3};
    int width =
        ev.type == ENG_EVENT_PROMPT_TOKEN ? job->params.n_prompt_logprobs : job->params.n_logprobs;
    ev.n_top = width > N_TOP ? N_TOP : width > 0 ? width : 0;
    ev.top = ev.n_top ? top : NULL;
    ev.logprob = -1.5f;
    ev.usage = &usage;
    ev.logits = vector;
    ev.n_logits = D_MODEL;
    job->params.on_event(job->params.ctx, &ev);
}

static void end_choice(struct eng_job *job, int choice, enum eng_finish finish, int32_t stop_id)
{
    job->ended[choice] = true;
    emit(job, (struct eng_event){.type = ENG_EVENT_CHOICE_DONE,
                                 .choice = choice,
                                 .finish = finish,
                                 .stop_id = stop_id});
}

static bool is_stop(const struct eng_job *job, int32_t id)
{
    if (id == engine.eos_id && !job->params.ignore_eos) return true;
    for (int i = 0; i < job->params.n_stop_ids; i++)
        if (job->stop_ids[i] == id) return true;
    return false;
}

/* The id is a function of prompt, choice and index, as with a real model. */
static int32_t token_at(const struct eng_job *job, int choice, int64_t index)
{
    uint32_t state = engine.id_seed + 1 + (uint32_t)choice * 977 + (uint32_t)index * 7919 +
                     (uint32_t)job->prompt[0] * 31;
    for (int i = 0; i < 4; i++)
        draw(&state);
    int32_t id = (int32_t)(draw(&state) % (uint32_t)engine.info.vocab_size);
    if (draw(&state) % 24 == 0) id = engine.eos_id;
    return index < job->params.min_tokens && is_stop(job, id) ? 5 : id;
}

static void step_choice(struct eng_job *job, int choice)
{
    static const enum eng_finish faults[] = {ENG_FINISH_DEADLINE, ENG_FINISH_QUEUE_TIMEOUT,
                                             ENG_FINISH_ERROR};
    int64_t index = job->n_tokens[choice];
    if (job->cancelled) {
        end_choice(job, choice, ENG_FINISH_CANCELLED, -1);
    } else if (engine.faulty && draw(&engine.rng) % 16 == 0) {
        end_choice(job, choice, faults[draw(&engine.rng) % 3], -1);
    } else if (job->stopped[choice]) {
        end_choice(job, choice, ENG_FINISH_STOP, -1);
    } else if (index >= job->params.max_tokens) {
        end_choice(job, choice, ENG_FINISH_LENGTH, -1);
    } else {
        int32_t id = token_at(job, choice, index);
        job->n_tokens[choice]++;
        emit(job, (struct eng_event){
                      .type = ENG_EVENT_TOKEN, .choice = choice, .index = index, .id = id});
        if (is_stop(job, id)) end_choice(job, choice, ENG_FINISH_STOP, id);
    }
}

static void step_job(struct eng_job *job)
{
    int64_t at = job->at++;
    int64_t n_logs = job->params.n_prompt_logprobs >= 0 ? job->params.n_prompt : 1;
    if (at == 0) {
        emit(job, (struct eng_event){.type = ENG_EVENT_STARTED});
        if (job->params.want_progress)
            emit(job,
                 (struct eng_event){.type = ENG_EVENT_PROGRESS, .index = job->params.n_prompt});
    } else if (at < n_logs) {
        emit(job,
             (struct eng_event){
                 .type = ENG_EVENT_PROMPT_TOKEN, .index = at, .id = job->prompt[at], .rank = 1});
    } else if (at == n_logs && job->params.want_pooled) {
        emit(job, (struct eng_event){.type = ENG_EVENT_POOLED});
    } else {
        for (int tried = 0; tried < job->params.n_choices; tried++) {
            int choice = job->next_choice++ % job->params.n_choices;
            if (job->ended[choice]) continue;
            step_choice(job, choice);
            return;
        }
        job->live = false;
        emit(job, (struct eng_event){.type = ENG_EVENT_JOB_DONE});
    }
}

static bool step_engine(void)
{
    int n_live = 0, pick;
    for (int i = 0; i < MAX_JOBS; i++)
        n_live += engine.jobs[i].live;
    if (!n_live) return false;
    pick = (int)(draw(&engine.rng) % (uint32_t)n_live);
    for (int i = 0; i < MAX_JOBS; i++) {
        if (!engine.jobs[i].live || pick-- > 0) continue;
        step_job(&engine.jobs[i]);
        break;
    }
    return true;
}

/* ---- the client -------------------------------------------------------------------------- */

struct client {
    struct srv_request *req; /* NULL once the HTTP side is done */
    bool suspended, cut, leaves;
    int status;
    bool is_stream, whole; /* whole: it has seen the end */
    struct buf got;
};

static void suspend(struct srv_request *req)
{
    struct client *c = req->connection;
    req->suspended = c->suspended = true;
}

static void resume(struct srv_request *req)
{
    struct client *c = req->connection;
    if (req->suspended) req->suspended = c->suspended = false;
}

static void cut(struct srv_request *req)
{
    struct client *c = req->connection;
    if (c) c->cut = true;
}

static const struct srv_transport transport = {suspend, resume, cut};

static void complete(struct client *c, bool finished)
{
    struct srv_request *req = c->req;
    c->req = NULL;
    c->whole = finished;
    srv_request_completed(req, finished);
}

static void read_stream(struct client *c)
{
    char bytes[512];
    ssize_t n = srv_request_read(c->req, bytes, 1 + draw(&engine.rng) % sizeof(bytes));
    if (n > 0) buf_add(&c->got, bytes, (size_t)n);
    if (n == SRV_READ_END || n == SRV_READ_CUT) complete(c, n == SRV_READ_END);
}

/* What the HTTP thread would do next; false where it waits. */
static bool step_client(struct client *c)
{
    if (!c->req) return false;
    if (c->cut || (c->leaves && draw(&engine.rng) % 32 == 0)) {
        complete(c, false);
        return true;
    }
    if (c->suspended) return false;
    if (c->is_stream) {
        read_stream(c);
        return true;
    }
    enum srv_poll poll = srv_request_poll(c->req);
    if (poll == SRV_POLL_GONE) complete(c, false);
    if (poll != SRV_POLL_READY) return poll == SRV_POLL_GONE;
    c->status = c->req->status;
    c->is_stream = c->req->answer == SRV_ANSWER_STREAM;
    if (!c->is_stream) {
        buf_add(&c->got, c->req->reply.data ? c->req->reply.data : "", c->req->reply.len);
        complete(c, true);
    }
    return true;
}

/* ---- one request --------------------------------------------------------------------------- */

static struct srv_server server;

static const char *no_environment(const char *name)
{
    (void)name;
    return NULL;
}

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static void open_server(void)
{
    static const char *const names[] = {"demo", "other", NULL};
    static struct srv_model model;
    static struct srv_config config;
    static char dir[4096];
    const char *root = getenv("HEARTH_SOURCE_ROOT");
    char err[256] = "", name[] = "hearth", serve[] = "serve";
    char *argv[] = {name, serve, NULL};
    const struct tok_chat_params params = {0};
    snprintf(dir, sizeof(dir), "%s/deploy/demo", root ? root : ".");
    static struct srv_app own;
    struct srv_app *app = &own;
    srv_models_init(&app->models);
    if (srv_config_load(&config, 2, argv, no_environment, err, sizeof(err)) ||
        tok_open(&model.tok, dir, err, sizeof(err)) ||
        tok_chat_open(&model.chat, dir, &params, err, sizeof(err)) ||
        compile_queue_create(&app->compiles, never, NULL, err, sizeof(err)) ||
        srv_work_create(&server.work, 0, err, sizeof(err))) {
        fprintf(stderr, "%s: %s\n", dir, err);
        exit(1);
    }
    srv_log_init("text", "error");
    server.config = app->config = &config;
    server.metrics = app->metrics = srv_metrics_create();
    model.config = &config;
    model.engine = &engine;
    model.names = names;
    snprintf(model.fingerprint, sizeof(model.fingerprint), "fingerprint");
    model.defaults = srv_defaults_neutral();
    const struct srv_model_params source = {.dir = dir, .names = {(const char **)names, 2}};
    if (!srv_models_add(&app->models, &config, &source)) exit(1);
    srv_models_publish(&app->models, &model, NULL, &(int){0});
    app->state = SRV_READY;
    server.app = app;
    server.state = &app->state;
    server.gate = &srv_gate;
    engine.eos_id = 2;
    engine.info = (struct eng_info){.n_parallel = 3,
                                    .memory = {.answer_bytes = 64 << 20},
                                    .max_choices = 16,
                                    .ctx_tokens = CTX_TOKENS,
                                    .pooled_width = D_MODEL,
                                    .vocab_size = tok_vocab_size(model.tok),
                                    .eos_ids = &engine.eos_id,
                                    .n_eos_ids = 1,
                                    .architecture = "LlamaForCausalLM",
                                    .numerics = "exact",
                                    .kernels = "ref",
                                    .gemm = "native",
                                    .kv_dtype = "f32",
                                    .weights_dtype = "F32",
                                    .repeatable = true};
}

/* The routes that take a body, numbered from '0'. Append new ones, so that the corpus keeps its
 * meaning. */
static const struct srv_route *route_at(unsigned number)
{
    static const char *const paths[] = {
        "/v1/completions",
        "/completions",
        "/v1/chat/completions",
        "/chat/completions",
        "/tokenize",
        "/v1/tokenize",
        "/detokenize",
        "/v1/detokenize",
        "/apply-template",
        "/v1/apply-template",
        "/v1/responses",
        "/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/embeddings",
        "/embeddings",
        "/v1/chat/completions/input_tokens",
        "/v1/responses/input_tokens",
    };
    struct srv_guard_route found;
    const char *path = paths[(number - '0') % (sizeof(paths) / sizeof(paths[0]))];
    srv_guard_find_route(srv_route_tables, "POST", path, &found);
    check(found.route != NULL);
    return found.route;
}

/* Runs it to its end. The caller finishes c->got. */
static void run_request(struct client *c, const struct srv_route *route, const char *body,
                        size_t len)
{
    buf_init(&c->got, 64 << 20);
    c->req = srv_request_create(&server, &transport, c, route->path);
    if (!c->req) return;
    struct srv_request *req = c->req;
    req->route = route;
    req->facts.arg = route->arg;
    req->path = req->target;
    snprintf(req->method, sizeof(req->method), "POST");
    buf_init(&req->body, 4 << 20);
    buf_add(&req->body, body, len);
    srv_request_dispatch(req);
    for (long i = 0;; i++) {
        uint32_t turn = draw(&engine.rng) % 4;
        bool moved = turn == 0   ? srv_work_run_next(server.work)
                     : turn == 1 ? step_client(c)
                                 : step_engine();
        if (!moved && !srv_work_run_next(server.work) && !step_client(c) && !step_engine() &&
            !c->req)
            break;
        check(i < STEPS_MAX);
    }
    check(server.n_requests == 0);
}

/* ---- what came back ------------------------------------------------------------------------ */

/* The parser takes no U+0000 in keys, where a token may well have one: it becomes U+0001. */
static json_t *parse(const char *text, size_t len)
{
    char *copy = malloc(len + 1);
    check(copy != NULL);
    memcpy(copy, text, len);
    for (size_t i = 0; i + 6 <= len; i += copy[i] == '\\' ? 2 : 1)
        if (!memcmp(copy + i, "\\u0000", 6)) copy[i + 5] = '1';
    json_t *root = json_loadb(copy, len, JSON_REJECT_DUPLICATES, NULL);
    free(copy);
    return root;
}

static void check_error(const struct client *c, const json_t *root)
{
    const json_t *error = json_object_get(root, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    check(message && *message && strlen(message) <= 400 && c->got.len < 2048);
    check(json_is_string(json_object_get(error, "type")));
    check(c->status < 500 || engine.faulty);
}

/* Appends an answer's text, choice by choice: from whole answers and from events alike. */
static void collect(const json_t *root, struct buf texts[16])
{
    size_t i;
    const json_t *choice;
    json_array_foreach(json_object_get(root, "choices"), i, choice)
    {
        const json_t *message = json_object_get(choice, "message");
        if (!message) message = json_object_get(choice, "delta");
        const json_t *text =
            message ? json_object_get(message, "content") : json_object_get(choice, "text");
        json_int_t index = json_integer_value(json_object_get(choice, "index"));
        if (!json_is_string(text) || index < 0 || index >= 16) continue;
        buf_add(&texts[index], json_string_value(text), json_string_length(text));
    }
}

/* Events are lines of "event: " and "data: " with an empty one behind each; data is JSON. */
static void read_events(const struct client *c, struct buf texts[16])
{
    const char *p = c->got.data, *end = p + c->got.len;
    check(c->got.len > 2 && !memcmp(end - 2, "\n\n", 2));
    while (p < end) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)(line_end - p);
        if (len && memcmp(p, "event: ", 7) && p[0] != ':') {
            check(len > 6 && !memcmp(p, "data: ", 6));
            json_t *data =
                len == 12 && !memcmp(p + 6, "[DONE]", 6) ? json_object() : parse(p + 6, len - 6);
            check(json_is_object(data));
            collect(data, texts);
            json_decref(data);
        }
        p = line_end + 1;
    }
}

static void read_answer(const struct client *c, struct buf texts[16])
{
    for (int i = 0; i < 16; i++)
        buf_init(&texts[i], 16 << 20);
    if (!c->whole) return;
    if (c->is_stream) {
        read_events(c, texts);
        return;
    }
    json_t *root = parse(c->got.data, c->got.len);
    check(root != NULL);
    if (c->status == 200)
        collect(root, texts);
    else
        check_error(c, root);
    json_decref(root);
}

static void free_texts(struct buf texts[16])
{
    for (int i = 0; i < 16; i++)
        buf_finish(&texts[i]);
}

/* The same body once more with "stream" turned round: the same text. */
static void compare_other_way(const struct srv_route *route, const struct client *first,
                              const char *body, size_t len, struct buf texts[16])
{
    json_t *root = json_loadb(body, len, JSON_ALLOW_NUL, NULL);
    if (!root) return; /* an integer beyond 64 bits, which jansson alone does not read */
    json_object_set_new(root, "stream", json_boolean(!first->is_stream));
    json_object_del(root, "stream_options");
    char *text = json_dumps(root, JSON_COMPACT);
    struct buf others[16];
    struct client c = {0};
    run_request(&c, route, text, strlen(text));
    read_answer(&c, others);
    check(c.whole);
    for (int i = 0; c.status == 200 && i < 16; i++) {
        check(texts[i].len == others[i].len);
        check(!texts[i].len || !memcmp(texts[i].data, others[i].data, texts[i].len));
    }
    buf_finish(&c.got);
    free_texts(others);
    free(text);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool opened;
    if (size < 2) return 0;
    if (!opened) open_server();
    opened = true;
    engine.rng = 2463534242u + data[1];
    engine.id_seed = data[1];
    engine.faulty = data[1] % 4 == 1;
    struct client c = {.leaves = data[1] % 4 == 2};
    struct buf texts[16];
    const struct srv_route *route = route_at(data[0]);
    const char *body = (const char *)data + 2;
    run_request(&c, route, body, size - 2);
    read_answer(&c, texts);
    check(c.whole || c.leaves);
    bool has_choices = strstr(route->path, "completions") != NULL;
    if (has_choices && c.whole && c.status == 200 && !engine.faulty)
        compare_other_way(route, &c, body, size - 2, texts);
    buf_finish(&c.got);
    free_texts(texts);
    return 0;
}
