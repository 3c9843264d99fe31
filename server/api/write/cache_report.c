/* SPDX-License-Identifier: MIT */
/* The numbers of the prefix cache in an answer; see openai_json.h. */
#include "server/api/write/openai_json.h"

#include "server/config/config.h"
#include "tokenizer/tokenizer.h"

/* The byte of the prompt at which a token begins. */
static size_t byte_of(const struct srv_gen *g, const int32_t *ids, int64_t n)
{
    size_t byte = 0;
    for (int64_t i = 0; i < n; i++)
        byte += tok_token_bytes(g->served->tok, ids[i], NULL, 0);
    return byte;
}

int64_t srv_cache_created(const struct srv_gen *g, int64_t n_cached, int64_t *ret_hour)
{
    const struct srv_cache_fields *c = &g->cache;
    bool shares = g->params.cache_prompt && g->served->config->prefix_cache;
    *ret_hour = shares && c->n_marked_hour > n_cached ? c->n_marked_hour - n_cached : 0;
    return shares && c->n_marked > n_cached ? c->n_marked - n_cached : 0;
}

/* Between two texts it is the beginning of the next, or the tools: they come before messages. */
static void write_place(const struct srv_gen *g, struct jw *w, const struct gen_prompt *p,
                        int64_t token)
{
    const struct srv_cache_fields *c = &g->cache;
    size_t byte = byte_of(g, p->ids, token);
    int i = 0;
    while (i < c->n_parts && c->parts[i].end <= byte)
        i++;
    const struct cache_part *part = i < c->n_parts ? &c->parts[i] : NULL;
    size_t from = i > 0 ? c->parts[i - 1].end : 0;
    jw_open(w, "diverges", '{');
    if (part && byte >= part->begin) {
        jw_fields(w, "part %s byte %jd", part->path, (int64_t)(byte - part->begin + part->skipped));
    } else if (i <= c->n_front && g->tools.ask.n > 0) {
        jw_fields(w, "part %s byte %jd", "tools", (int64_t)(byte - from));
    } else {
        jw_text(w, "part", part ? part->path : c->n_parts ? "template" : "prompt");
        jw_int(w, "byte", part ? 0 : (int64_t)(byte - from));
    }
    jw_close(w);
}

static void write_report(const struct srv_gen *g, struct jw *w)
{
    const struct gen_prompt *p = &g->prompts[0];
    struct eng_usage u = srv_gen_usage(p);
    bool at_place = u.miss == ENG_MISS_CONTENT || u.miss == ENG_MISS_EVICTED;
    /* More may have been computed by others since the request started. */
    bool missed = u.miss != ENG_MISS_NONE && !(at_place && u.n_known_tokens < u.n_cached_tokens);
    jw_fields(w, "cache_report { matched_tokens %jd prompt_tokens %jd", u.n_cached_tokens,
              p->n_ids);
    if (missed && at_place)
        write_place(g, w, p, u.n_known_tokens);
    else
        jw_null(w, "diverges");
    jw_fields(w, "reason %s }", missed ? eng_miss_names[u.miss] : NULL);
}

void srv_cache_write_report(const struct srv_gen *g, struct jw *w)
{
    if (g->cache.reports) write_report(g, w);
    if (g->n_dropped_items > 0) jw_int(w, "dropped_input_items", g->n_dropped_items);
}
