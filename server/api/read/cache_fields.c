/* SPDX-License-Identifier: MIT */
#include "server/api/read/cache_fields.h"

#include <stdio.h>
#include <string.h>

#include "server/api/read/metadata_lines.h"
#include "tokenizer/tokenizer.h"

enum { MAX_PARTS = 8192, SHORT_TEXT = 8, SEARCH_FACTOR = 64, MINUTE = 60 };

/* A way through the texts of a body, in their order. */
struct walk {
    const struct tok_prompt *prompt; /* NULL: breakpoints are only looked for */
    size_t at;                       /* in the prompt: behind the text found last */
    size_t range;                    /* of its input: the first that ends behind that */
    size_t budget;                   /* bytes that may still be searched */
    const bool *dropped;             /* of the list of messages or items, or NULL */
    struct cache_part *parts;        /* [MAX_PARTS], or NULL */
    int n_parts, n_front;            /* found; of these, of the system prompt */
    char path[64];                   /* empty where it does not fit */
    int n_texts;
    bool marked, tools_marked;
    bool pointed;           /* by prompt_cache_breakpoint, whose ttl is 30 minutes */
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
    while (len > skipped && is_blank(s[len - 1]))
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
    w->pointed |= json_is_object(point);
    w->last = w->at;
    if (ttl && !strcmp(ttl, "1h")) w->last_hour = w->at;
}

static void visit(struct walk *w, const json_t *value)
{
    static const char *const names[] = {"text",       "thinking", "reasoning_content",
                                        "content",    "output",   "summary",
                                        "tool_calls", "function", "arguments"};
    char path[sizeof(w->path)];
    int before = w->n_parts;
    memcpy(path, w->path, sizeof(path));
    bool items = !strcmp(path, "messages") || !strcmp(path, "input");
    if (json_is_string(value)) visit_text(w, value);
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++) {
        if (items && w->dropped && w->dropped[i]) continue;
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
        bool leads = w->n_front == before; /* of several instructions each */
        if (leads && role && (!strcmp(role, "system") || !strcmp(role, "developer")))
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
static int64_t tokens_before(const struct tok *tok, const int32_t *ids, int64_t n_ids, size_t byte)
{
    int64_t n = 0;
    for (size_t end = 0; n < n_ids; n++) {
        end += tok_token_bytes(tok, ids[n], NULL, 0);
        if (end > byte) break;
    }
    return n;
}

/* ---- fields -------------------------------------------------------------------------------- */

/* An absent or null value, or one of the words. */
static int check_word(const json_t *object, const char *key, const char *path,
                      const char *const *words)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value) || param_find_word(words, json_string_value(value)) >= 0)
        return 0;
    return param_fail(json_is_string(value) ? SRV_ERR_INVALID_VALUE : SRV_ERR_INVALID_TYPE, path,
                      "'%s' must be '%s'%s%s%s.", path, words[0], words[1] ? " or '" : "",
                      words[1] ? words[1] : "", words[1] ? "'" : "");
}

int srv_cache_fields_read(struct srv_cache_fields *c, struct srv_request *req,
                          const struct srv_body *body, struct srv_gen_params *params)
{
    /* Both spellings of the first are in use. */
    static const char *const retentions[] = {"in_memory", "24h", "in-memory", NULL},
                             *const modes[] = {"implicit", "explicit", NULL},
                             *const ttls[] = {"30m", NULL};
    static const char options_name[] = "prompt_cache_options";
    const json_t *options = json_object_get(body->root, options_name);
    const char *retention =
        json_string_value(json_object_get(body->root, "prompt_cache_retention"));
    const char *betas = srv_request_header(req, "anthropic-beta");
    struct walk w = {0};
    if (check_word(body->root, "prompt_cache_retention", "prompt_cache_retention", retentions))
        return -1;
    if (options && !json_is_null(options) && !json_is_object(options))
        return param_wrong_type(options_name, "an object");
    if (check_word(options, "mode", "prompt_cache_options.mode", modes) ||
        check_word(options, "ttl", "prompt_cache_options.ttl", ttls))
        return -1;
    c->body = body;
    visit_body(&w, body->root);
    c->has_breakpoints = w.marked;
    c->reports = params->return_cache_report ||
                 (betas && strstr(betas, "cache-diagnosis-2026-04-07") != NULL);
    const char *mode = json_string_value(json_object_get(options, "mode"));
    bool is_explicit = mode && !strcmp(mode, "explicit");
    if (is_explicit && !w.marked) params->cache_prompt = false;
    c->keeps_all = !is_explicit && json_is_string(json_object_get(options, "ttl"));
    c->marked_seconds = w.pointed || c->keeps_all ? 30 * MINUTE : 5 * MINUTE;
    if (retention) c->disk = !strcmp(retention, "24h") ? ENG_DISK_DAY : ENG_DISK_NEVER;
    return 0;
}

int srv_cache_fields_place(struct srv_cache_fields *c, struct srv_request *req,
                           const struct tok_prompt *prompt, const int32_t *ids, int64_t n_ids)
{
    const struct tok *tok = srv_facts(req)->model->tok;
    struct walk w = {
        .prompt = prompt, .budget = SEARCH_FACTOR * (prompt->len + 4096), .dropped = c->dropped};
    if (!c->reports && !c->has_breakpoints) return 0;
    if (c->reports) {
        w.parts = srv_request_alloc(req, MAX_PARTS * sizeof(*w.parts));
        if (!w.parts) return -1;
    }
    visit_body(&w, c->body->root);
    c->parts = w.parts;
    c->n_parts = w.n_parts;
    c->n_front = w.n_front;
    if (w.last > 0) c->n_marked = tokens_before(tok, ids, n_ids, w.last);
    if (w.last_hour > 0) c->n_marked_hour = tokens_before(tok, ids, n_ids, w.last_hour);
    return 0;
}
