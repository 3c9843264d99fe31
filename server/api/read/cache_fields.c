/* SPDX-License-Identifier: MIT */
/* See cache_fields.h. */
#include "server/api/read/cache_fields.h"

#include <stdio.h>
#include <string.h>

#include "server/api/run/generation.h"
#include "server/api/read/metadata_lines.h"
#include "server/config/config.h"
#include "tokenizer/tokenizer.h"

enum { MAX_PARTS = 8192, SHORT_TEXT = 8, SEARCH_FACTOR = 64 };

/* A way through the texts of a body, in their order. */
struct walk {
    const struct tok_prompt *prompt; /* NULL: breakpoints are only looked for */
    size_t at;                       /* in the prompt: behind the text found last */
    size_t range;                    /* of its input: the first that ends behind that */
    size_t budget;                   /* bytes that may still be searched */
    struct cache_part *parts;        /* [MAX_PARTS], or NULL */
    int n_parts, n_front;            /* found; of these, of the system prompt */
    char path[64];                   /* empty where it does not fit */
    int n_texts;
    bool marked, tools_marked;
    size_t last, last_hour; /* bytes of the prompt up to the last breakpoint */
};

/* ---- finding texts ------------------------------------------------------------------------- */

/* A text that the template took; it takes most without blanks around them. */
static bool find(struct walk *w, const char *s, size_t len, size_t *ret)
{
    const struct tok_prompt *p = w->prompt;
    bool is_short = len < SHORT_TEXT; /* it would be found by chance inside of others */
    while (w->range < p->n_input && p->input[w->range].end <= w->at)
        w->range++;
    for (size_t i = w->range; i < p->n_input; i++) {
        size_t begin = p->input[i].begin, end = p->input[i].end;
        if (begin < w->at) begin = w->at;
        size_t size = end - begin, cost = is_short ? len : size;
        const char *found = p->text + begin;
        if (w->budget < cost) return false;
        w->budget -= cost;
        if (!is_short)
            found = memmem(found, size, s, len);
        else if (size < len || memcmp(found, s, len) != 0)
            found = NULL;
        if (!found) continue;
        *ret = (size_t)(found - p->text);
        return true;
    }
    return false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void visit_text(struct walk *w, const json_t *text)
{
    const char *s = json_string_value(text);
    size_t len = json_string_length(text), skipped = 0, begin;
    if (w->n_texts++ == 0) skipped = metadata_lines_of_text(text);
    while (len > 0 && is_blank(s[len - 1]))
        len--;
    while (skipped < len && is_blank(s[skipped]))
        skipped++;
    if (!w->prompt || skipped == len || !find(w, s + skipped, len - skipped, &begin)) return;
    w->at = begin + len - skipped;
    if (w->tools_marked && w->last < begin) w->last = begin;
    if (!w->parts || w->n_parts == MAX_PARTS || !w->path[0]) return;
    struct cache_part *part = &w->parts[w->n_parts++];
    *part = (struct cache_part){.begin = begin, .end = w->at, .skipped = skipped};
    memcpy(part->path, w->path, sizeof(part->path));
}

/* ---- the body ------------------------------------------------------------------------------ */

/* Notes the breakpoint of an object; what comes before it is behind us. */
static void visit_mark(struct walk *w, const json_t *object)
{
    const json_t *control = json_object_get(object, "cache_control");
    const json_t *point = json_object_get(object, "prompt_cache_breakpoint");
    const char *ttl = json_string_value(json_object_get(control, "ttl"));
    if (!json_is_object(control) && !json_is_object(point)) return;
    w->marked = true;
    w->last = w->at;
    if (ttl && !strcmp(ttl, "1h")) w->last_hour = w->at;
}

static void visit(struct walk *w, const json_t *value)
{
    static const char *const names[] = {"text",       "thinking", "reasoning_content",
                                        "content",    "output",   "summary",
                                        "tool_calls", "function", "arguments"};
    char path[sizeof(w->path)];
    memcpy(path, w->path, sizeof(path));
    if (json_is_string(value)) visit_text(w, value);
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++) {
        int n = snprintf(w->path, sizeof(w->path), "%s[%zu]", path, i);
        if (!path[0] || n >= (int)sizeof(w->path)) w->path[0] = '\0';
        visit(w, json_array_get(value, i));
    }
    if (json_is_object(value)) {
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            const json_t *member = json_object_get(value, names[i]);
            if (!member) continue;
            int n =
                snprintf(w->path, sizeof(w->path), "%s%s%s", path, i ? "." : "", i ? names[i] : "");
            if (!path[0] || n >= (int)sizeof(w->path)) w->path[0] = '\0';
            visit(w, member);
        }
        visit_mark(w, value);
        const char *role = json_string_value(json_object_get(value, "role"));
        bool first = !strcmp(path, "messages[0]") || !strcmp(path, "input[0]");
        if (first && role && (!strcmp(role, "system") || !strcmp(role, "developer")))
            w->n_front = w->n_parts;
    }
    memcpy(w->path, path, sizeof(path));
}

/* Tools are written into a prompt in a form of the template's: they end before the messages. */
static void visit_body(struct walk *w, const json_t *body)
{
    static const char *const roots[] = {"instructions", "system", "messages", "input", "prompt"};
    const json_t *tools = json_object_get(body, "tools");
    for (size_t i = 0; json_is_array(tools) && i < json_array_size(tools); i++)
        visit_mark(w, json_array_get(tools, i));
    bool tools_marked = w->marked;
    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        snprintf(w->path, sizeof(w->path), "%s", roots[i]);
        if (i >= 2) w->tools_marked = tools_marked;
        visit(w, json_object_get(body, roots[i]));
        if (i < 2) w->n_front = w->n_parts;
    }
    visit_mark(w, body);
}

/* ---- tokens -------------------------------------------------------------------------------- */

/* The tokens that end at or before a byte of the prompt. */
static int64_t tokens_before(const struct srv_gen *g, const int32_t *ids, int64_t n_ids,
                             size_t byte)
{
    int64_t n = 0;
    for (size_t end = 0; n < n_ids; n++) {
        end += tok_token_bytes(g->served->tok, ids[n], NULL, 0);
        if (end > byte) break;
    }
    return n;
}

/* The byte of the prompt at which a token begins. */
static size_t byte_of(const struct srv_gen *g, const int32_t *ids, int64_t n)
{
    size_t byte = 0;
    for (int64_t i = 0; i < n; i++)
        byte += tok_token_bytes(g->served->tok, ids[i], NULL, 0);
    return byte;
}

/* ---- fields -------------------------------------------------------------------------------- */

static bool is_one_of(const char *word, const char *const *words)
{
    while (*words && (!word || strcmp(word, *words) != 0))
        words++;
    return *words != NULL;
}

/* An absent or null value, or one of the words. */
static int check_word(const json_t *object, const char *key, const char *path,
                      const char *const *words, struct param_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value) || is_one_of(json_string_value(value), words)) return 0;
    return param_fail(err, json_is_string(value) ? SRV_ERR_INVALID_VALUE : SRV_ERR_INVALID_TYPE,
                      path, "'%s' must be '%s'%s%s%s.", path, words[0], words[1] ? " or '" : "",
                      words[1] ? words[1] : "", words[1] ? "'" : "");
}

int srv_cache_fields_read(struct srv_gen *g, struct param_error *err)
{
    /* Both spellings of the first are in use. */
    static const char *const retentions[] = {"in_memory", "24h", "in-memory", NULL},
                             *const modes[] = {"implicit", "explicit", NULL},
                             *const ttls[] = {"30m", NULL};
    static const char options_name[] = "prompt_cache_options";
    const json_t *options = json_object_get(g->body.root, options_name);
    const char *betas = srv_request_header(g->req, "anthropic-beta");
    struct walk w = {0};
    if (check_word(g->body.root, "prompt_cache_retention", "prompt_cache_retention", retentions,
                   err))
        return -1;
    if (options && !json_is_null(options) && !json_is_object(options))
        return param_fail(err, SRV_ERR_INVALID_TYPE, options_name, "'%s' must be an object.",
                          options_name);
    if (check_word(options, "mode", "prompt_cache_options.mode", modes, err) ||
        check_word(options, "ttl", "prompt_cache_options.ttl", ttls, err))
        return -1;
    visit_body(&w, g->body.root);
    g->cache.has_breakpoints = w.marked;
    g->cache.reports = g->params.return_cache_report ||
                       (betas && strstr(betas, "cache-diagnosis-2026-04-07") != NULL);
    const char *mode = json_string_value(json_object_get(options, "mode"));
    if (mode && !strcmp(mode, "explicit") && !w.marked) g->params.cache_prompt = false;
    return 0;
}

int srv_cache_fields_place(struct srv_gen *g, const struct tok_prompt *prompt, const int32_t *ids,
                           int64_t n_ids)
{
    struct walk w = {.prompt = prompt, .budget = SEARCH_FACTOR * (prompt->len + 4096)};
    if (!g->cache.reports && !g->cache.has_breakpoints) return 0;
    if (g->cache.reports) {
        w.parts = srv_request_alloc(g->req, MAX_PARTS * sizeof(*w.parts));
        if (!w.parts) return -1;
    }
    visit_body(&w, g->body.root);
    g->cache.parts = w.parts;
    g->cache.n_parts = w.n_parts;
    g->cache.n_front = w.n_front;
    if (w.last > 0) g->cache.n_marked = tokens_before(g, ids, n_ids, w.last);
    if (w.last_hour > 0) g->cache.n_marked_hour = tokens_before(g, ids, n_ids, w.last_hour);
    return 0;
}

/* ---- the answer ---------------------------------------------------------------------------- */

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
        jw_text(w, "part", part->path);
        jw_int(w, "byte", (int64_t)(byte - part->begin + part->skipped));
    } else if (i <= c->n_front && g->tools.ask.n > 0) {
        jw_text(w, "part", "tools");
        jw_int(w, "byte", (int64_t)(byte - from));
    } else {
        jw_text(w, "part", part ? part->path : c->n_parts ? "template" : "prompt");
        jw_int(w, "byte", part ? 0 : (int64_t)(byte - from));
    }
    jw_close(w);
}

void srv_cache_write_report(const struct srv_gen *g, struct jw *w)
{
    if (!g->cache.reports) return;
    const struct gen_prompt *p = &g->prompts[0];
    struct eng_usage u = srv_gen_usage(p);
    bool at_place = u.miss == ENG_MISS_CONTENT || u.miss == ENG_MISS_EVICTED;
    /* More may have been computed by others since the request started. */
    bool missed = u.miss != ENG_MISS_NONE && !(at_place && u.n_known_tokens < u.n_cached_tokens);
    jw_open(w, "cache_report", '{');
    jw_int(w, "matched_tokens", u.n_cached_tokens);
    jw_int(w, "prompt_tokens", p->n_ids);
    if (missed && at_place)
        write_place(g, w, p, u.n_known_tokens);
    else
        jw_null(w, "diverges");
    if (missed)
        jw_text(w, "reason", eng_miss_name(u.miss));
    else
        jw_null(w, "reason");
    jw_close(w);
}
