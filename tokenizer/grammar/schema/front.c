/* SPDX-License-Identifier: MIT */
/* The front end of JSON schemas: reads the document and builds the goals that it asks for. */
#include "tokenizer/grammar/schema/goals.h"

#include <string.h>

#include "base/fail.h"
#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/vocab.h"

/* Forgets what a walk that was left remembered in the document. */
static void forget(struct gram_js *v)
{
    v->active[0] = v->active[1] = 0;
    v->marks &= GRAM_MARK_RESOURCE | GRAM_MARK_RELAXED | GRAM_MARK_CHECKED;
    for (struct gram_js *child = v->child; child; child = child->next)
        forget(child);
}

/* After a keyword was left out. */
static void begin_again(struct gram_build *b)
{
    struct gram_schema *s = b->schema;
    gram_steps(b, 1 + s->n_ids / 8);
    forget(s->root);
    s->depth = s->quiet = 0;
    s->level = 1;
    s->checked = NULL;
    b->keep_nothing = false;
}
void gram_leave_out(struct gram_build *b, struct gram_js *at, const char *keyword,
                    const char *format, ...)
{
    struct gram_schema *s = b->schema;
    char problem[400];
    FORMAT_REST(problem, sizeof(problem), format);
    if (s->strict || !b->may_begin) gram_fail_at(b, at, keyword, "%s", problem);
    s->level = 1;
    gram_relax(b, at, "");
    at->keyword = GRAM_KW_LEFT_OUT;
    longjmp(b->again, 1);
}
static void build_goal(struct gram_build *b, const struct gram_goal_entry e)
{
    if (setjmp(b->again)) begin_again(b);
    b->may_begin = true;
    struct gram_value_draft d = {.value = e.value};
    b->rules->reasons[e.value] =
        (struct gram_reason){.at = e.n ? e.members[0].schema : NULL, .because = GRAM_NONE};
    struct gram_alts alts = gram_expand(b, e.members, e.n);
    if (alts.n == 0) gram_note_reason(b, e.value, NULL, "nothing fits all that it says");
    for (uint32_t i = 0; i < alts.n; i++)
        gram_build_alt(b, &d, &alts.alts[i]);
    gram_finish_draft(b, &d);
    b->may_begin = false;
}

static int draft_of(const struct gram_js *root)
{
    static const struct {
        const char *part;
        int draft;
    } drafts[] = {{"draft-03", 3}, {"draft-04", 4},   {"draft-06", 6},
                  {"draft-07", 7}, {"2019-09", 2019}, {"2020-12", 2020}};
    const struct gram_js *v = gram_js_get(root, "$schema");
    char uri[200];
    if (!v || v->type != GRAM_JS_STRING || v->len >= sizeof(uri)) return 2020;
    memcpy(uri, v->text, v->len);
    uri[v->len] = '\0';
    for (size_t i = 0; i < sizeof(drafts) / sizeof(drafts[0]); i++)
        if (strstr(uri, drafts[i].part)) return drafts[i].draft;
    return 2020;
}

/* uniqueItems is used anywhere in the document. */
static bool uses_unique(const struct gram_js *v)
{
    if (v->type == GRAM_JS_TRUE && v->key && gram_js_key_is(v, "uniqueItems")) return true;
    for (const struct gram_js *child = v->child; child; child = child->next)
        if (uses_unique(child)) return true;
    return false;
}

/* The document's root, and a schema for some types if only those are wanted. */
static uint32_t root_goal(struct gram_build *b, const char *types)
{
    struct gram_schema *s = b->schema;
    struct gram_member members[2] = {{.schema = s->root}};
    const char *text = types ? gram_text(b, "{\"type\":%s}", types) : "";
    if (types)
        members[1].schema =
            gram_js_parse(b, text, strlen(text), 4, GRAM_EINVAL, "schema", &s->n_ids);
    return gram_goal(b, members, types ? 2 : 1);
}

/* Patterns and strings are shared with the schema before. */
static void begin_schema(struct gram_build *b, bool strict)
{
    const struct gram_schema *before = b->schema;
    struct gram_schema *s = gram_temp(b, sizeof(*s));
    if (before) {
        s->patterns = before->patterns;
        s->strings = before->strings;
    }
    s->strict = strict;
    s->level = 1;
    s->n_ids = 1;
    b->schema = s;
}

static void read_schema(struct gram_build *b, const char *text, size_t len)
{
    struct gram_schema *s = b->schema;
    if (len > GRAM_MAX_SCHEMA_BYTES)
        gram_fail_at(b, NULL, NULL, "the schema has %zu bytes; at most %d.", len,
                     GRAM_MAX_SCHEMA_BYTES);
    s->root = gram_js_parse(b, text, len, GRAM_MAX_SCHEMA_DEPTH, GRAM_EINVAL, "schema", &s->n_ids);
    if (!gram_js_is_schema(s->root))
        gram_fail_at(b, NULL, NULL, "the schema must be an object or a boolean, is %s.",
                     gram_js_type_name(s->root));
    s->draft = draft_of(s->root);
    s->siblings = s->draft >= 2019;
    s->has_unique = uses_unique(s->root);
    gram_find_resources(b);
}

uint32_t gram_schema_node(struct gram_build *b, const char *text, size_t len, bool strict,
                          const char *types)
{
    uint8_t missing;
    if (!gram_vocab_spells_json(b->vocab, &missing))
        gram_fail(b, GRAM_EUNSUPPORTED,
                  "JSON cannot be written with this tokenizer: no token is '%c'.", missing);
    begin_schema(b, strict);
    read_schema(b, text, len);
    b->schema->value = root_goal(b, types);
    for (uint32_t i = 0; i < b->schema->n_goals; i++)
        build_goal(b, b->schema->goals[i]);
    uint32_t node = gram_add_node(b, GRAM_NODE_VALUE);
    b->rules->nodes[node].ref = b->schema->value;
    return node;
}

uint32_t gram_schema_text_node(struct gram_build *b, const struct gram_part *part, bool strict)
{
    begin_schema(b, strict);
    read_schema(b, part->text, part->len);
    b->schema->value = gram_add_value(b);
    gram_note_reason(b, b->schema->value, b->schema->root, "no text fits all that it says");
    if (setjmp(b->again)) begin_again(b);
    b->may_begin = true;
    struct gram_member root = {.schema = b->schema->root};
    struct gram_alts alts = gram_expand(b, &root, 1);
    uint32_t node = gram_build_texts(b, &alts, part);
    b->may_begin = false;
    return node;
}

/* Follows the reasons from the root to the rule where the trouble begins. */
void gram_schema_empty(struct gram_build *b, const struct gram_schema *s)
{
    const struct gram_reason *why = &b->rules->reasons[s->value];
    for (int i = 0; i < 1000 && !why->text && why->because != GRAM_NONE; i++)
        why = &b->rules->reasons[why->because];
    gram_fail_at(b, why->at, NULL, "no value is possible: %s.",
                 why->text ? why->text : "it refers to itself without an end");
}
