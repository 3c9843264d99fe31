/* SPDX-License-Identifier: MIT */
/* Loading a model; see served_model.h. */
#include "server/models/served_model.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/gguf.h"
#include "base/gguf_names.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "server/models/budget.h"
#include "server/config/config.h"
#include "server/grammars/cache.h"
#include "server/models/kv_bans.h"
#include "server/log.h"
#include "server/models/lookup.h"
#include "server/models/retrieval.h"
#include "server/models/token_facts.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

enum {
    ERROR_BYTES = 512,
    DAY_SECONDS = 86400,
    BACKGROUND_NICE = 10,
    N_TYPES = 64 /* of GGUF */
};

/* A model that is being loaded. */
struct loading {
    const struct srv_model_params *p;
    struct srv_model *model;
    pthread_t text_thread;
    bool text_is_loading, in_parallel;
    int text_rc; /* enum eng_error */
    char text_error[ERROR_BYTES];
    char *err;
    size_t errlen;
};

/* Prefixes an error with the part that was being read, unless it names it. */
static void fail_text(struct loading *l, int rc, const char *what, const char *reason)
{
    l->text_rc = rc == TOK_ENOMEM ? ENG_ENOMEM : ENG_EINVAL;
    snprintf(l->text_error, sizeof(l->text_error), "%s: %s", what, reason);
}

static void *load_text(void *arg)
{
    struct loading *l = arg;
    const struct srv_config *c = l->p->config;
    if (l->p->in_background && nice(BACKGROUND_NICE) < 0)
        errno = 0; /* harmless: loading competes with the server */
    char err[ERROR_BYTES - 64] = "";
    int rc = tok_open_from(&l->model->tok, l->p->dir, c->tokenizer, err, sizeof(err));
    if (rc) {
        fail_text(l, rc, "tokenizer", err);
        return NULL;
    }
    struct tok_chat_params params = {.template_file = c->chat_template_file,
                                     .tokenizer_dir = c->tokenizer};
    rc = tok_chat_open(&l->model->chat, l->p->dir, &params, err, sizeof(err));
    /* A model without a template is fine. */
    if (rc && (rc != TOK_ENOENT || c->chat_template_file)) fail_text(l, rc, "chat template", err);
    rc =
        l->text_rc ? 0 : tok_chat_info_read(&l->model->tokenizer_info, l->p->dir, err, sizeof(err));
    if (rc) fail_text(l, rc, "tokenizer", err);
    if (tools_detect(&l->model->style, l->model->chat, c->tool_format))
        fail_text(l, TOK_ENOMEM, "chat template", "out of memory");
    return NULL;
}

/* The tokenizer and the template are there afterwards, or text_rc says why not. */
static void await_text(struct loading *l)
{
    if (l->text_is_loading && l->in_parallel)
        pthread_join(l->text_thread, NULL);
    else if (l->text_is_loading)
        load_text(l);
    l->text_is_loading = false;
}

static int calibration_ids(void *ctx, int32_t *ret_ids, int max)
{
    struct loading *l = ctx;
    await_text(l);
    int n = l->text_rc ? 0 : srv_calibration_ids(l->model->tok, l->model->chat, ret_ids, max);
    if (n == 0) srv_log(SRV_LOG_WARNING, "int4: weights are not calibrated: a text has no ids");
    return n;
}

static int64_t file_bytes(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    int len = snprintf(path, sizeof(path), "%s/%s", dir, name);
    return len > 0 && len < PATH_MAX && !stat(path, &st) ? st.st_size : 0;
}

/* A tokenizer in memory: 2.3 times its file, for vocabularies of 32,000 to 152,000; one that is
 * built from a GGUF file less than 8 times its header. */
static int64_t tokenizer_bytes(const char *dir)
{
    char err[1];
    struct gguf *g;
    if (gguf_is_path(dir)) {
        size_t n = gguf_open(&g, NULL, dir, 0, err, sizeof(err)) ? 0 : 8 * g->header_bytes;
        gguf_close(g);
        return (int64_t)n;
    }
    return file_bytes(dir, "tokenizer.json") * 5 / 2 + file_bytes(dir, "tokenizer_config.json");
}

static enum eng_speculate speculate_of(const char *name)
{
    return !strcmp(name, "off")      ? ENG_SPECULATE_OFF
           : !strcmp(name, "always") ? ENG_SPECULATE_ALWAYS
           : !strcmp(name, "lookup") ? ENG_SPECULATE_LOOKUP
                                     : ENG_SPECULATE_AUTO;
}

struct eng_params srv_engine_params(const struct srv_config *config)
{
    return (struct eng_params){
        .model_dir = config->model,
        .draft_dir = config->draft_model,
        .numerics = config->numerics,
        .gemm = config->gemm,
        .kernels = config->kernels,
        .weight_coding = config->weight_coding,
        .kv_dtype = config->kv_dtype,
        .n_threads = config->threads,
        .n_parallel = 1,
        .ctx_tokens = config->ctx_size,
        .chunk_tokens = config->chunk,
        .memory_bytes = config->memory_bytes,
        .kv_bytes = config->kv_memory_bytes,
        .caller_bytes = SRV_PROGRAM_BYTES,
        .kv_disk = {.dir = config->kv_disk,
                    .bytes = config->kv_disk_bytes,
                    .seconds = (int64_t)config->kv_disk_age * DAY_SECONDS},
        .speculate = speculate_of(config->speculate),
    };
}

static struct eng_params engine_params(const struct srv_model_params *p)
{
    const struct srv_config *c = p->config;
    struct eng_params params = srv_engine_params(c);
    params.model_dir = p->dir;
    params.draft_dir = p->draft_dir;
    params.kv_disk.model = p->names.n > 0 ? p->names.items[0] : NULL;
    params.kv_disk.is_banned = p->kv_bans ? srv_kv_is_banned : NULL;
    params.kv_disk.bans = p->kv_bans;
    params.n_parallel = c->parallel;
    params.caller_bytes = tokenizer_bytes(p->dir) + (p->entry ? 0 : SRV_PROGRAM_BYTES);
    params.request_bytes = (p->entry ? 0 : srv_budget_bytes(c)) + (c->grammar_cache_mb << 20);
    params.caller_bytes_per_id = GRAM_VOCAB_BYTES_PER_ID;
    params.answer_bytes = c->answer_memory_bytes  ? c->answer_memory_bytes
                          : p->share.answer_bytes ? p->share.answer_bytes
                                                  : -1;
    params.lora_bytes = c->lora.n || c->lora_dir ? c->lora_memory_bytes : 0;
    params.lora_rank = c->lora_max_rank;
    params.no_prefix_cache = !c->prefix_cache;
    params.max_queued_jobs = c->max_queue;
    params.max_queued_tokens = c->max_queue_tokens;
    params.n_batch_choices = c->max_choices;
    params.global_priority = strcmp(c->priority_policy, "global") == 0;
    params.reserved_bytes = p->share.memory_bytes ? 0 : c->swap_memory_bytes;
    if (p->share.memory_bytes) params.memory_bytes = p->share.memory_bytes;
    params.cores = p->cores;
    params.share = c->share;
    params.reads_only = true;
    params.in_background = p->in_background;
    params.beside_others = p->beside_others;
    params.stop = p->stop;
    params.on_self_test = p->on_self_test;
    params.on_self_test_ctx = p->on_self_test_ctx;
    return params;
}

void srv_name_mend(char *text)
{
    unsigned char *s = (unsigned char *)text;
    for (size_t len = strlen(text); len > 0;) {
        int n = utf8_classify(s, len);
        size_t taken = n > 0 ? (size_t)n : n < 0 ? (size_t)-n : len;
        if (n <= 0) memset(s, '?', taken);
        s += taken;
        len -= taken;
    }
}

static bool has_name(const struct srv_list *names, const char *name)
{
    int i = 0;
    while (i < names->n && strcmp(names->items[i], name) != 0)
        i++;
    return i < names->n;
}

struct srv_list srv_names_copy(const struct srv_list *from)
{
    size_t bytes = ((size_t)from->n + 1) * sizeof(char *);
    for (int i = 0; i < from->n; i++)
        bytes += strlen(from->items[i]) + 1;
    struct srv_list names = {malloc(bytes), 0};
    if (!names.items) return names;
    char *text = (char *)(names.items + from->n + 1);
    for (int i = 0; i < from->n; i++) {
        char *end = stpcpy(text, from->items[i]);
        srv_name_mend(text);
        if (has_name(&names, text)) {
            srv_log(SRV_LOG_WARNING, "models: %s has the name '%s' twice; one is enough",
                    names.items[0], text);
            continue;
        }
        names.items[names.n++] = text;
        text = end + 1;
    }
    names.items[names.n] = NULL;
    return names;
}

/*
 * b<version>-<weights and tokenizer>-<path>[.<revision>][-kv8b]-<kernels>-<gemm>-draw<n>: all that
 * decides the bits and, with the rule of the draw, the tokens of a seed.
 */
static void make_fingerprint(struct srv_model *m)
{
    const struct eng_info *info = eng_info(m->engine);
    const uint8_t *text = tok_fingerprint(m->tok);
    char weights[2 * 6 + 1];
    for (int i = 0; i < 6; i++)
        snprintf(weights + 2 * i, 3, "%02x", info->fingerprint[i] ^ text[i]);
    const char *kv = strcmp(info->kv_dtype, "int8") == 0 ? "-kv8b" : "";
    const char *revision = strcmp(info->numerics, "int4") == 0 ? ".2" : "";
    snprintf(m->fingerprint, sizeof(m->fingerprint), "b%s-%s-%s%s%s-%s-%s-draw%d", HEARTH_VERSION,
             weights, info->numerics, revision, kv, info->kernels, info->gemm, ENG_DRAW_RULE);
}

static void check_vocabulary(const struct loading *l)
{
    int32_t n_rows = eng_info(l->model->engine)->vocab_size, n_ids = tok_vocab_size(l->model->tok);
    if (n_ids > n_rows)
        srv_log(SRV_LOG_WARNING, "the tokenizer has %d ids, the model %d: larger ids are refused",
                n_ids, n_rows);
}

/* The ids that close a reasoning block: the marker's, or those of its text, before which a
 * tokenizer may put a blank. */
static void find_think_close(const struct tok *tok, const char *text, struct tools_markers *markers)
{
    AUTO(tok_ids_finish) struct tok_ids ids = {0};
    char err[64];
    if (markers->id[TOOLS_MARK_THINK_CLOSE] >= 0) {
        markers->think_close_ids[0] = markers->id[TOOLS_MARK_THINK_CLOSE];
        markers->n_think_close_ids = 1;
    } else if (*text && !tok_encode(tok, text, strlen(text), 0, &ids, err, sizeof(err)) &&
               ids.n <= TOOLS_TEXT_BYTES) {
        memcpy(markers->think_close_ids, ids.ids, ids.n * sizeof(*ids.ids));
        markers->n_think_close_ids = (int)ids.n;
    }
}

/* The markers of calls and reasoning that the vocabulary has as tokens. One that begins a result
 * ends an answer, whether the model's files say so or not. */
static void find_markers(struct loading *l)
{
    struct tools_markers *markers = &l->model->markers;
    const char *result = l->model->style.result_open;
    if (result)
        eng_add_end_id(l->model->engine, tok_token_id(l->model->tok, result, strlen(result)));
    for (int m = 0; m < TOOLS_N_MARKERS; m++) {
        const char *text = tools_marker_text(&l->model->style, (enum tools_marker)m);
        markers->id[m] = *text ? tok_token_id(l->model->tok, text, strlen(text)) : -1;
        markers->control[m] = tok_is_special(l->model->tok, markers->id[m]);
    }
    find_think_close(l->model->tok, tools_marker_text(&l->model->style, TOOLS_MARK_THINK_CLOSE),
                     markers);
}

/* Structured output needs tokens that spell bytes; a model without them serves the rest. */
static int make_grammars(struct loading *l)
{
    const struct eng_info *info = eng_info(l->model->engine);
    const struct grammar_cache_params params = {
        .tok = l->model->tok,
        .n_ids = info->vocab_size,
        .end_ids = info->eos_ids,
        .n_end_ids = (size_t)info->n_eos_ids,
        .max_bytes = l->p->config->grammar_cache_mb << 20,
        .style = &l->model->style,
        .markers = &l->model->markers,
        .open_objects = !strcmp(l->p->config->schema_objects, "open"),
        .any_whitespace = !strcmp(l->p->config->json_whitespace, "any"),
    };
    int rc = grammar_cache_create(&l->model->grammars, &params);
    if (rc == GRAM_ENOMEM)
        return fail_with(ENG_ENOMEM, l->err, l->errlen, "no memory for structured output");
    return 0;
}

static void warn_of_kv_disk(const struct loading *l)
{
    struct eng_stats stats;
    if (!l->p->config->kv_disk) return;
    eng_stats(l->model->engine, &stats);
    if (!stats.kv_disk.on)
        srv_log(
            SRV_LOG_WARNING,
            "kv-disk is not used with this model: it has no KV cache, or the prefix cache is off, "
            "or OpenBLAS does not repeat bits");
}

unsigned srv_abilities(const struct tools_style *style, const struct tok_chat *chat,
                       const struct tok_fim *fim)
{
    bool calls = chat && style->format != TOOLS_NONE && style->format != TOOLS_UNKNOWN;
    return (calls ? SRV_CAN_CALL : 0u) | (fim->id[TOK_FIM_PREFIX] >= 0 ? SRV_CAN_INSERT : 0u) |
           (style->think_open[0] ? SRV_CAN_THINK : 0u);
}

/*
 * The directory of generation_config.json and its like: the model's, or for one in GGUF that of
 * --tokenizer or the folder that goes with the file. Returns it, perhaps in buf, or NULL.
 */
static const char *model_folder(const struct srv_config *c, const char *dir, char *buf, size_t size)
{
    if (!gguf_is_path(dir)) return dir;
    return c->tokenizer ? c->tokenizer : gguf_folder_of(dir, buf, size);
}

/* Adds the matrices of a file to the counts of their types; takes the first architecture. */
static void count_types(const char *path, int counts[N_TYPES], char *ret_arch, size_t size)
{
    const char *arch;
    char err[1];
    struct gguf *g;
    if (gguf_open(&g, NULL, path, 0, err, sizeof(err))) return;
    if (!*ret_arch && gguf_string(g, "general.architecture", &arch, err, sizeof(err)) == 1)
        snprintf(ret_arch, size, "%s", arch);
    for (size_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].n_dims > 1 && g->tensors[i].type < N_TYPES) counts[g->tensors[i].type]++;
    gguf_close(g);
}

const char *srv_gguf_types(const char *path, char *buf, size_t size)
{
    int counts[N_TYPES] = {0}, n_files;
    char name[PATH_MAX];
    gguf_split(path, &n_files);
    *buf = '\0';
    for (int i = 1; i <= n_files; i++)
        if (!gguf_split_name(path, i, name, sizeof(name))) count_types(name, counts, buf, size);
    for (int i = 0, n = 0; i < N_TYPES; i++) {
        size_t at = strlen(buf);
        if (counts[i])
            snprintf(buf + at, size - at, ", %s (%d%s)", gguf_block_type(i)->name, counts[i],
                     n++ ? "" : " matrices");
    }
    return buf;
}

static void log_gguf(const struct loading *l)
{
    char types[300];
    const struct eng_info *info = eng_info(l->model->engine);
    if (!l->model->is_gguf) return;
    srv_log(SRV_LOG_INFO, "gguf: %s; tokenizer by %s; numerics %s",
            srv_gguf_types(l->p->dir, types, sizeof(types)), tok_source(l->model->tok),
            info->numerics);
    if (info->n_rounded_mats)
        srv_log(SRV_LOG_INFO, "gguf: matrices that are int8, as their rows have several types: %d",
                info->n_rounded_mats);
}

/* Everything from the files of the directory. Returns 0 or an enum eng_error. */
static int load_files(struct loading *l)
{
    char buf[PATH_MAX], base[200];
    l->text_is_loading = true;
    l->in_parallel = thread_start(&l->text_thread, "hearth-load", 0, load_text, l) == 0;
    const char *folder = model_folder(l->p->config, l->p->dir, buf, sizeof(buf));
    struct eng_params params = engine_params(l->p);
    params.calibration = calibration_ids;
    params.calibration_ctx = l;
    int rc = eng_open(&l->model->engine, &params, l->err, l->errlen);
    await_text(l);
    if (rc) return rc;
    warn_of_kv_disk(l);
    if (srv_hub_has_adapter(l->p->dir, base, sizeof(base)))
        srv_log(SRV_LOG_WARNING, "the adapter of %s beside the model is not applied", base);
    if (l->text_rc) {
        snprintf(l->err, l->errlen, "%s", l->text_error);
        return l->text_rc;
    }
    check_vocabulary(l);
    srv_token_facts(l->model->engine, l->model->tok, l->model->tokenizer_info,
                    folder ? folder : l->p->dir);
    log_gguf(l);
    if (l->model->chat && tok_chat_has_another(l->model->chat))
        srv_log(SRV_LOG_WARNING, "chat_template.jinja is used; the chat_template of "
                                 "tokenizer_config.json is another one");
    if (srv_draft_ids(&l->model->draft_ids, l->model->engine, l->model->tok, l->p->draft_dir,
                      l->err, l->errlen))
        return ENG_EINVAL;
    find_markers(l);
    if (l->p->draft_dir && !(l->model->draft_name = strdup(l->p->draft_name)))
        return fail_with(ENG_ENOMEM, l->err, l->errlen, "out of memory");
    rc = make_grammars(l);
    l->model->defaults = srv_defaults_neutral();
    if (rc == 0 && l->p->config->generation_config && folder)
        rc = srv_defaults_read(&l->model->defaults, folder, l->err, l->errlen);
    srv_defaults_override(&l->model->defaults, l->p->config);
    if (rc) return rc;
    const struct eng_info *info = eng_info(l->model->engine);
    if (srv_retrieval_read(&l->model->retrieval, l->p->dir, info->n_labels, l->err, l->errlen) ||
        srv_text_check_case(&l->model->retrieval, l->model->tok, l->err, l->errlen) ||
        srv_pairs_open(&l->model->pairs, l->model->tok, info, &l->model->retrieval, l->p->config,
                       l->err, l->errlen) ||
        tok_fim_find(&l->model->fim, l->model->tok, info->vocab_size, l->p->config->fim_marks,
                     l->err, l->errlen))
        return ENG_EINVAL;
    l->model->names = srv_names_copy(&l->p->names).items;
    return l->model->names ? 0 : fail_with(ENG_ENOMEM, l->err, l->errlen, "out of memory");
}

int srv_model_open(struct srv_model **ret, const struct srv_model_params *params, char *err,
                   size_t errlen)
{
    struct srv_model *m = calloc(1, sizeof(*m));
    if (!m) return fail_with(ENG_ENOMEM, err, errlen, "out of memory");
    m->config = params->config;
    m->is_demo = params->is_demo;
    m->is_gguf = gguf_is_path(params->dir);
    m->entry = params->entry;
    struct loading l = {.p = params, .model = m, .err = err, .errlen = errlen};
    if (srv_model_source(params->dir, params->draft_dir, m->source))
        memset(m->source, 0, sizeof(m->source));
    int rc = load_files(&l);
    if (rc) {
        srv_model_close(m);
        return rc;
    }
    make_fingerprint(m);
    *ret = m;
    return 0;
}

int64_t srv_model_longest(const struct srv_model *m)
{
    const struct eng_info *info = eng_info(m->engine);
    return info->generates ? info->ctx_tokens : srv_text_longest(&m->retrieval, info);
}

int srv_model_plan(struct eng_memory *ret, const struct srv_model_params *params,
                   int64_t memory_bytes, char *err, size_t errlen)
{
    struct eng_params p = engine_params(params);
    if (memory_bytes) p.memory_bytes = memory_bytes;
    return eng_plan(ret, &p, err, errlen);
}

int64_t srv_process_bytes(const struct srv_config *c, int entry)
{
    return entry ? 0 : SRV_PROGRAM_BYTES + srv_budget_bytes(c);
}

int64_t srv_plan_bytes(const struct eng_memory *m)
{
    return m->weights_bytes + m->kv_bytes + m->state_bytes + m->scratch_bytes + m->logits_bytes +
           m->answer_bytes + m->request_bytes + m->other_bytes + m->draft_bytes;
}

int srv_model_try_text(const struct srv_model *m, char *err, size_t errlen)
{
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"Hello\"}]";
    const struct tok_chat_input in = {.messages = messages, .add_generation_prompt = true};
    AUTO(tok_prompt_finish) struct tok_prompt prompt = {0};
    AUTO(tok_ids_finish) struct tok_ids ids = {0};
    char why[256] = "";
    if (m->chat && tok_chat_render(m->chat, &in, &prompt, why, sizeof(why)))
        return fail_with(-1, err, errlen, "chat template: %s", why);
    int32_t n_rows = eng_info(m->engine)->vocab_size, most = -1;
    const char *text = prompt.text ? prompt.text : "Hello";
    int rc = tok_encode(m->tok, text, strlen(text), TOK_PARSE_SPECIAL, &ids, why, sizeof(why));
    for (size_t i = 0; !rc && i < ids.n; i++)
        if (ids.ids[i] > most) most = ids.ids[i];
    if (rc || most < 0)
        return fail_with(-1, err, errlen, "tokenizer: %s", rc ? why : "a sentence gives no tokens");
    if (most < n_rows) return 0;
    return fail_with(-1, err, errlen, "tokenizer: a sentence gives id %d, but the model has %d ids",
                     (int)most, (int)n_rows);
}

/* One line per entry, in the order of their names. dir NULL: name is the path. */
static void add_entry(struct sha256 *hash, const char *dir, const char *name)
{
    char path[PATH_MAX], line[PATH_MAX + 200];
    struct stat st;
    int len = snprintf(path, sizeof(path), "%s%s%s", dir ? dir : "", dir ? "/" : "", name);
    if (len < 0 || (size_t)len >= sizeof(path) || stat(path, &st)) return;
    len = snprintf(line, sizeof(line), "%s %llu %llu %lld %lld.%09ld %lld.%09ld\n", name,
                   (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
                   (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                   (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    sha256_update(hash, line, (size_t)len);
}

static int add_directory(struct sha256 *hash, const char *dir)
{
    AUTO_FREE struct dirent **entries = NULL;
    int n = scandir(dir, &entries, NULL, alphasort);
    if (n < 0) return -1;
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') add_entry(hash, dir, entries[i]->d_name);
        free(entries[i]);
    }
    return 0;
}

/* Of a GGUF file all that are there of its set. */
static int add_model(struct sha256 *hash, const char *path)
{
    char name[PATH_MAX];
    int count;
    if (!gguf_is_path(path)) return add_directory(hash, path);
    gguf_split(path, &count);
    for (int i = 1; i <= count; i++)
        if (!gguf_split_name(path, i, name, sizeof(name))) add_entry(hash, NULL, name);
    return 0;
}

int srv_model_source(const char *dir, const char *draft_dir, uint8_t ret[32])
{
    struct sha256 hash;
    sha256_init(&hash);
    if (add_model(&hash, dir) || (draft_dir && add_model(&hash, draft_dir))) return -1;
    sha256_final(&hash, ret);
    return 0;
}

void srv_model_empty(struct srv_model *m)
{
    assert(m->n_refs == 0);
    eng_close(m->engine);
    free(m->draft_ids);
    free((void *)m->draft_name);
    grammar_cache_destroy(m->grammars);
    tok_chat_close(m->chat);
    free(m->tokenizer_info);
    tok_close(m->tok);
    srv_retrieval_finish(&m->retrieval);
    free(m->pairs.template);
    free((void *)m->names);
}

void srv_model_close(struct srv_model *m)
{
    if (m) srv_model_empty(m);
    free(m);
}
