/* SPDX-License-Identifier: MIT */
/*
 * The API's routes: a table for each endpoint file, ended by a row with a NULL method, and the list
 * of all tables, ended by NULL, const; and an answer that is written at once.
 */
#pragma once

#include "base/buf.h"
#include "base/json_writer.h"
#include "server/api/read/json_fields.h"
#include "server/http/endpoint.h"

struct srv_gate;

extern const struct srv_route srv_routes_completions[];
extern const struct srv_route srv_routes_chat[];
extern const struct srv_route srv_routes_models[];
extern const struct srv_route srv_routes_tokenize[];
extern const struct srv_route srv_routes_props[];
extern const struct srv_route srv_routes_health[];
extern const struct srv_route srv_routes_responses[];
extern const struct srv_route srv_routes_messages[];
extern const struct srv_route srv_routes_ollama[];
extern const struct srv_route srv_routes_ollama_models[];
extern const struct srv_route srv_routes_embeddings[];
extern const struct srv_route srv_routes_choose[];
extern const struct srv_route srv_routes_classify[];
extern const struct srv_route srv_routes_rerank[];
extern const struct srv_route srv_routes_openapi[];
extern const struct srv_route srv_routes_page[];
extern const struct srv_route srv_routes_swap[];
extern const struct srv_route srv_routes_lora[];
extern const struct srv_route srv_routes_files[], srv_routes_batches[];

/* The first SRV_BATCH_TABLES are those of files and batches, which are served with --batch-dir. */
enum { SRV_BATCH_TABLES = 2 };
extern const struct srv_route *const srv_route_tables[];

extern const struct srv_gate srv_gate;

/* The fields of bodies, ended by a row without a name; those of the first seven besides the common
 * ones (generation_fields.h). */
extern const struct param_field srv_fields_completions[];
extern const struct param_field srv_fields_native[]; /* /completion, /infill */
extern const struct param_field srv_fields_chat[];
extern const struct param_field srv_fields_responses[];
extern const struct param_field srv_fields_messages[];
extern const struct param_field srv_fields_ollama_chat[];
extern const struct param_field srv_fields_ollama_generate[];
extern const struct param_field srv_fields_ollama_model[]; /* /api/show, /api/pull */
extern const struct param_field srv_fields_tokens[];       /* /tokenize, /detokenize */
extern const struct param_field srv_fields_embeddings[];
extern const struct param_field srv_fields_choose[];
extern const struct param_field srv_fields_classify[];
extern const struct param_field srv_fields_rerank[];
extern const struct param_field srv_fields_swap[], srv_fields_unload[];
extern const struct param_field srv_fields_batches[];
extern const struct param_field srv_fields_load_lora[], srv_fields_unload_lora[];

/* The JSON object of an answer while it is written. */
struct srv_object {
    struct buf text;
    struct jw w;
};

/* Opens the object, of at most so many bytes. Returns its writer. */
static inline struct jw *srv_object_open(struct srv_object *a, size_t max_bytes)
{
    buf_init(&a->text, max_bytes);
    jw_init(&a->w, &a->text);
    jw_open(&a->w, NULL, '{');
    return &a->w;
}

/* Closes the object and answers with it. */
static inline void srv_object_reply(struct srv_request *req, int status, struct srv_object *a)
{
    jw_close(&a->w);
    srv_reply(req, status, NULL, jw_end(&a->w));
}

/* A date in seconds as "2026-11-27T01:02:03Z". */
void srv_write_date(struct jw *w, const char *name, int64_t seconds);

/* There is none of this name, for this key at least. */
void srv_reply_no_model(struct srv_request *req, const char *name);

struct srv_lora_ask;

/*
 * Reads a list of adapters, [{"id", "scale"}], into `ret` in the order of their ids. entry: that
 * they must be of; -1: any. Returns their number, or -1 after param_fail.
 */
int srv_lora_read(struct srv_request *req, const json_t *list, int entry, struct srv_lora_ask *ret);
