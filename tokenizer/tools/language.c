/* SPDX-License-Identifier: MIT */
/*
 * The language of an answer with tools, as a tree of parts for tokenizer/grammar: the very texts
 * that the template writes for a past call, with names and schemas of the request in them.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "tokenizer/tools/keyword_scan.h"
#include "tokenizer/tools/param_types.h"
#include "tokenizer/tools/tools.h"

/* The tree, and its memory. */
struct tree {
    const struct tools_request *q;
    const struct tools_markers *markers;
    void **blocks;   /* each begins with the address of the next one */
    bool failed;     /* no memory; what was made since is not to be used */
    size_t n_values; /* of the tool in hand */
};

static void *allocate(struct tree *t, size_t n)
{
    void **block = calloc(1, sizeof(*block) + n);
    t->failed |= !block;
    if (!block) return NULL;
    *block = t->blocks;
    t->blocks = block;
    return block + 1;
}

static void tree_finish(struct tree *t)
{
    for (void **block = t->blocks, **next; block; block = next) {
        next = *block;
        free(block);
    }
}

/* ---- parts --------------------------------------------------------------------------------- */

static struct gram_part with_kids(struct tree *t, enum gram_kind kind, const struct gram_part *kids,
                                  size_t n)
{
    struct gram_part *copy = allocate(t, n * sizeof(*copy));
    if (copy && n > 0) memcpy(copy, kids, n * sizeof(*copy));
    return (struct gram_part){.kind = kind, .kids = copy, .n_kids = copy ? n : 0};
}

#define KIDS(...)                                                                                  \
    (struct gram_part[]){__VA_ARGS__},                                                             \
        sizeof((struct gram_part[]){__VA_ARGS__}) / sizeof(struct gram_part)
#define SEQUENCE(t, ...) with_kids(t, GRAM_SEQUENCE, KIDS(__VA_ARGS__))
#define EITHER(t, ...) with_kids(t, GRAM_EITHER, KIDS(__VA_ARGS__))
#define REPEAT(t, min, max, ...) repeat(with_kids(t, GRAM_REPEAT, KIDS(__VA_ARGS__)), min, max)

static struct gram_part repeat(struct gram_part p, uint32_t min, uint32_t max)
{
    p.min = min;
    p.max = p.n_kids ? max : min;
    return p;
}

static struct gram_part optional(struct tree *t, struct gram_part p)
{
    return REPEAT(t, 0, 1, p);
}

static struct gram_part plain(const char *text, size_t len)
{
    return (struct gram_part){.kind = GRAM_LITERAL, .text = text, .len = len};
}

static struct gram_part plain_text(const char *text)
{
    return plain(text, strlen(text));
}

static struct gram_part regex(const char *text)
{
    return (struct gram_part){.kind = GRAM_REGEX, .text = text, .len = strlen(text)};
}

/* The marker that a text begins with and that is a token of the vocabulary, or NULL. */
static const char *token_at(const struct tree *t, const char *text)
{
    for (int i = 0; i < TOOLS_N_MARKERS; i++) {
        const char *marker = tools_marker_text(t->q->style, (enum tools_marker)i);
        if (t->markers->id[i] >= 0 && marker[0] && !strncmp(text, marker, strlen(marker)))
            return marker;
    }
    return NULL;
}

/* A text of the style, with markers that are tokens spelled as the vocabulary spells them. */
static struct gram_part literal(struct tree *t, const char *text)
{
    char *out = allocate(t, 2 * strlen(text) + 1);
    size_t n = 0;
    while (out && *text) {
        const char *marker = token_at(t, text);
        size_t len = marker ? strlen(marker) : 1;
        if (marker) out[n++] = (char)0xFF;
        memcpy(out + n, text, len);
        n += len;
        text += len;
    }
    return plain(out ? out : "", n);
}

static struct gram_part until(struct tree *t, const char *text)
{
    struct gram_part p = literal(t, text);
    p.kind = GRAM_UNTIL;
    return p;
}

/* ---- parameters one by one ----------------------------------------------------------------- */

/* A value must contain neither tag, or it would end there. */
static const char value_close[] = "</parameter>", value_open[] = "<parameter=";

static struct gram_part any_text(struct tree *t)
{
    return with_kids(t, GRAM_UNTIL, KIDS(plain_text(value_close), plain_text(value_open)));
}

static size_t append(char *out, size_t n, const char *text, size_t len)
{
    memcpy(out + n, text, len);
    return n + len;
}

/* The pointer to a parameter's schema in the request. */
static const char *pointer_to(struct tree *t, const struct tools_tool *tool, const struct param *p)
{
    const char *between = p->name ? "/properties/" : "/items";
    size_t n = tool->pointer ? strlen(tool->pointer) : 0;
    char *out = allocate(t, n + strlen(between) + 2 * p->name_len + 1);
    if (!out || !tool->pointer) return tool->pointer;
    n = append(out, append(out, 0, tool->pointer, n), between, strlen(between));
    for (size_t i = 0; i < p->name_len; i++) {
        char c = p->name[i];
        bool escaped = c == '~' || c == '/';
        n = append(out, n, escaped ? "~" : &c, 1);
        if (escaped) n = append(out, n, c == '/' ? "1" : "0", 1);
    }
    return out;
}

/* A parameter's schema on its own: with the definitions that it may refer to. */
static struct gram_part json_value(struct tree *t, const struct tools_tool *tool,
                                   const struct param *p)
{
    static const char *const names[] = {"$defs", "definitions"};
    struct gram_part part = {.kind = GRAM_SCHEMA,
                             .text = p->schema,
                             .len = p->schema_len,
                             .pointer = pointer_to(t, tool, p),
                             .strict = tool->strict};
    if (!memmem(p->schema, p->schema_len, "$ref", 4) || p->schema[0] != '{') return part;
    char *out = allocate(t, p->schema_len + tool->schema_len + 64);
    if (!out) return part;
    size_t n = append(out, 0, p->schema, p->schema_len - 1); /* pointers into it stay as they are */
    for (int i = 0; i < 2; i++) {
        size_t len;
        const char *defs = json_member(tool->schema, tool->schema_len, names[i], &len);
        if (!defs) continue;
        n = append(out, n, ",\"", 2);
        n = append(out, n, names[i], strlen(names[i]));
        n = append(out, n, "\":", 2);
        n = append(out, n, defs, len);
    }
    n = append(out, n, "}", 1);
    part.text = out;
    part.len = n;
    return part;
}

/* A value is a string wherever it may be one; then it has no quotes. */
static struct gram_part xml_value(struct tree *t, const struct tools_tool *tool,
                                  const struct param *p)
{
    static const struct gram_part ends = {
        .kind = GRAM_REGEX, .text = "</parameter>|<parameter=", .len = 24};
    struct gram_part part = json_value(t, tool, p);
    bool known = p->types & PARAM_KNOWN;
    part.optional = !p->required;
    part.bare = !known || p->types & PARAM_STRING;
    part.nullable = part.bare && known && p->types & PARAM_NULL;
    if (!part.bare) return part;
    part.kids = &ends;
    part.n_kids = 1;
    return part;
}

static struct gram_part xml_param(struct tree *t, struct gram_part key, struct gram_part value)
{
    return SEQUENCE(t, plain_text(value_open), key, plain_text(">\n"), value,
                    plain_text("\n</parameter>\n"));
}

/* A name is written as it is, so that it must not end its tag or keyword. */
static bool is_writable(const struct tree *t, const struct param *p)
{
    bool keyword = t->q->style->assign;
    for (size_t i = 0; i < p->name_len; i++) {
        char c = p->name[i];
        if ((unsigned char)c < 0x20 || strchr("<>", c)) return false;
        if (keyword && !keyword_scan_is_name(c)) return false;
    }
    return p->name_len <= KEYWORD_MAX_NAME && (p->name_len || !keyword);
}

/* The keywords that parameters one by one do not follow; they are named. */
static struct gram_part relaxed(struct tree *t, const struct tools_tool *tool, unsigned rules)
{
    struct gram_part kids[8 * sizeof(rules)];
    size_t n = 0;
    for (int i = 0; param_rules[i]; i++)
        if (rules >> i & 1)
            kids[n++] = (struct gram_part){.kind = GRAM_RELAXED,
                                           .text = param_rules[i],
                                           .len = strlen(param_rules[i]),
                                           .pointer = tool->pointer,
                                           .strict = tool->strict};
    return with_kids(t, GRAM_SEQUENCE, kids, n);
}

/* A value of pythonic: Python's words for what the schema only calls boolean, else JSON. */
static struct gram_part keyword_value(struct tree *t, const struct tools_tool *tool,
                                      const struct param *p)
{
    static const char *const more[] = {"\"const\"", "\"enum\"", "\"not\"",
                                       "Of\"",      "\"if\"",   "$ref"};
    struct gram_part part = json_value(t, tool, p);
    part.optional = !p->required;
    if ((p->types & ~(unsigned)PARAM_NULL) != (PARAM_KNOWN | PARAM_BOOLEAN)) return part;
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
        if (memmem(p->schema, p->schema_len, more[i], strlen(more[i]))) return part;
    if (!(p->types & PARAM_NULL)) return EITHER(t, plain_text("True"), plain_text("False"));
    return EITHER(t, plain_text("True"), plain_text("False"), plain_text("None"));
}

static struct gram_part parameters(struct tree *t, const struct tools_tool *tool, int room);
static struct gram_part quoted_value(struct tree *t, const struct tools_tool *tool,
                                     const struct param *p, int room);

/* Room for containers in each other, which one that is not described takes more of; values of a
 * tool. Containers without room are JSON, which is read too. */
enum { MAX_ROOM = 12, UNDESCRIBED = 4, MAX_VALUES = 2000 };

/* The part of a parameter's schema that is about a type of container, in the place of a tool's. */
static struct tools_tool container(struct tree *t, const struct tools_tool *tool,
                                   const struct param *p, enum param_type type)
{
    struct param branch = *p;
    struct tools_tool inner = *tool;
    struct gram_part whole = json_value(t, tool, p);
    inner.schema = whole.text;
    inner.schema_len = whole.len;
    branch.schema = param_branch(whole.text, whole.len, type, &branch.schema_len);
    struct gram_part part = json_value(t, &inner, &branch);
    inner.schema = part.text;
    inner.schema_len = part.len;
    inner.pointer = whole.pointer;
    return inner;
}

static uint32_t count_of(const struct tools_tool *tool, const char *keyword, uint32_t otherwise)
{
    size_t len;
    const char *text = json_member(tool->schema, tool->schema_len, keyword, &len);
    double n = text ? strtod(text, NULL) : otherwise;
    return n < 0 ? 0 : n < GRAM_INFINITE ? (uint32_t)n : GRAM_INFINITE;
}

static int room_in(const struct param *p, int room)
{
    return room - (p->schema_len > 2 ? 1 : UNDESCRIBED);
}

static struct gram_part list_value(struct tree *t, const struct tools_tool *tool, int room)
{
    struct param item = param_of(tool->schema, tool->schema_len, "items");
    uint32_t min = count_of(tool, "minItems", 0), max = count_of(tool, "maxItems", GRAM_INFINITE);
    unsigned rules = param_rules_of(tool->schema, tool->schema_len, NULL, 0);
    size_t len;
    if (json_member(tool->schema, tool->schema_len, "allOf", &len) ||
        json_member(tool->schema, tool->schema_len, "$ref", &len))
        rules |= PARAM_RULE_ALL_OF;
    if (min > max) return with_kids(t, GRAM_EITHER, NULL, 0);
    return SEQUENCE(t, relaxed(t, tool, rules), plain_text("["),
                    REPEAT(t, min, max, quoted_value(t, tool, &item, room_in(&item, room)),
                           plain_text(t->q->style->comma)),
                    plain_text("]"));
}

/* A value of Gemma's: one form for each type that the schema allows. The first part is empty, so
 * that a form which nothing fits leaves the others. */
static struct gram_part quoted_value(struct tree *t, const struct tools_tool *tool,
                                     const struct param *p, int room)
{
    static const struct gram_part ends = {
        .kind = GRAM_REGEX, .text = "<\\|\"\\|>|<escape>", .len = 16};
    unsigned scalars = p->types & (PARAM_NULL | PARAM_BOOLEAN | PARAM_NUMBER);
    struct gram_part kids[6], empty = plain("", 0), quote = literal(t, t->q->style->quote);
    struct gram_part text = json_value(t, tool, p), other;
    size_t n = 0;
    text.optional = true; /* what nothing fits is found by the schema of the tool */
    bool none = *text.text == 'f', full = room <= 0 || t->n_values++ > MAX_VALUES;
    if (none || !(p->types & (PARAM_STRING | PARAM_ARRAY | PARAM_OBJECT))) return text;
    other = text;
    other.types = full ? "[\"number\",\"boolean\",\"null\",\"array\",\"object\"]"
                       : "[\"number\",\"boolean\",\"null\"]";
    text.bare = true;
    text.kids = &ends;
    text.n_kids = 1;
    if (p->types & PARAM_STRING) kids[n++] = SEQUENCE(t, empty, quote, text, quote);
    if (scalars == PARAM_NULL) kids[n++] = plain_text("null");
    if (scalars == PARAM_NULL) kids[n++] = plain_text("None"); /* as templates write it */
    if (full || (scalars & ~(unsigned)PARAM_NULL)) kids[n++] = other;
    for (unsigned type = PARAM_ARRAY; type <= PARAM_OBJECT && !full; type *= 2) {
        if (!(p->types & type)) continue;
        struct tools_tool inner = container(t, tool, p, (enum param_type)type);
        kids[n++] = type == PARAM_ARRAY ? list_value(t, &inner, room)
                                        : SEQUENCE(t, empty, plain_text("{"),
                                                   parameters(t, &inner, room), plain_text("}"));
    }
    return n == 1 ? kids[0] : with_kids(t, GRAM_EITHER, kids, n);
}

static struct gram_part parameter(struct tree *t, const struct tools_tool *tool,
                                  const struct param *p, int room)
{
    char *name = allocate(t, p->name_len);
    struct gram_part key = plain(name ? name : "", name ? p->name_len : 0);
    if (name) memcpy(name, p->name, p->name_len);
    if (!t->q->style->assign) return xml_param(t, key, xml_value(t, tool, p));
    return SEQUENCE(t, key, plain_text(t->q->style->assign),
                    t->q->style->quote ? quoted_value(t, tool, p, room_in(p, room))
                                       : keyword_value(t, tool, p));
}

/* Parts in their order; the ones that are not required may be left out. */
struct params {
    struct gram_part *parts;
    bool *required;
    size_t n;
};

/* The arguments that may follow a keyword: of the others, from i on. */
static struct gram_part followers(struct tree *t, const struct params *p, size_t i, size_t end)
{
    struct gram_part *kids = allocate(t, (end - i) * sizeof(*kids));
    size_t n = 0;
    for (; kids && i < end; i++) {
        struct gram_part next = SEQUENCE(t, plain_text(t->q->style->comma), p->parts[i]);
        kids[n++] = p->required[i] ? next : optional(t, next);
    }
    return with_kids(t, GRAM_SEQUENCE, kids, n);
}

/* At least one keyword of [begin, end), none of which is required. Halved, so that the tree has
 * n log n parts. */
static struct gram_part some_of(struct tree *t, const struct params *p, size_t begin, size_t end)
{
    size_t middle = begin + (end - begin) / 2;
    if (end - begin == 1) return p->parts[begin];
    struct gram_part first = SEQUENCE(t, some_of(t, p, begin, middle), //
                                      followers(t, p, middle, end));
    return EITHER(t, first, some_of(t, p, middle, end));
}

/* Keywords with commas between them: the first required one has none. */
static struct gram_part keyword_list(struct tree *t, const struct params *p)
{
    size_t first = 0, n = 0;
    while (first < p->n && !p->required[first])
        first++;
    if (p->n && first == p->n) return optional(t, some_of(t, p, 0, p->n));
    struct gram_part *kids = allocate(t, (first + 2) * sizeof(*kids));
    for (size_t i = 0; kids && p->n && i < first; i++)
        kids[n++] = optional(t, SEQUENCE(t, p->parts[i], plain_text(t->q->style->comma)));
    if (kids && p->n) kids[n++] = p->parts[first];
    if (kids && p->n) kids[n++] = followers(t, p, first + 1, p->n);
    return with_kids(t, GRAM_SEQUENCE, kids, n);
}

static struct gram_part tag_list(struct tree *t, const struct params *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (!p->required[i]) p->parts[i] = optional(t, p->parts[i]);
    return with_kids(t, GRAM_SEQUENCE, p->parts, p->n);
}

/* Any keys; their values are parameters like this one. */
static struct gram_part any_parameters(struct tree *t, const struct tools_tool *tool,
                                       const struct param *p, int room)
{
    const struct tools_style *style = t->q->style;
    struct gram_part name = regex("[A-Za-z0-9_.-]{1,64}");
    if (!style->assign) return REPEAT(t, 0, 64, xml_param(t, name, any_text(t)));
    struct gram_part value =
        style->quote ? quoted_value(t, tool, p, room_in(p, room)) : keyword_value(t, tool, p);
    return REPEAT(t, 0, 64, SEQUENCE(t, name, plain_text(style->assign), value),
                  plain_text(style->comma));
}

/* As Gemma's templates sort keys. */
static int compare_names(const void *x, const void *y)
{
    const struct param *a = x, *b = y;
    size_t n = a->name_len < b->name_len ? a->name_len : b->name_len;
    int order = strncasecmp(a->name, b->name, n);
    if (!order) order = (a->name_len > b->name_len) - (a->name_len < b->name_len);
    return order ? order : (a->schema > b->schema) - (a->schema < b->schema);
}

/* The arguments of formats that write them one by one. */
static struct gram_part parameters(struct tree *t, const struct tools_tool *tool, int room)
{
    static const struct param any = {.types = PARAM_ANY, .schema = "{}", .schema_len = 2};
    const struct tools_style *style = t->q->style;
    struct param *params = NULL;
    size_t n = 0, len;
    if (!tool->schema) return any_parameters(t, tool, &any, room);
    t->failed |= param_types(tool->schema, tool->schema_len, &params, &n) != 0;
    unsigned rules = param_rules_of(tool->schema, tool->schema_len, params, n);
    if (style->quote && !n && !json_member(tool->schema, tool->schema_len, "properties", &len)) {
        struct param p = param_of(tool->schema, tool->schema_len, "additionalProperties");
        return SEQUENCE(t, relaxed(t, tool, rules), any_parameters(t, tool, &p, room));
    }
    if (style->quote && n) qsort(params, n, sizeof(*params), compare_names);
    for (size_t i = 0; i < n; i++)
        if (params[i].required && !is_writable(t, &params[i])) rules |= PARAM_RULE_REQUIRED;
    struct params p = {.parts = allocate(t, n * sizeof(*p.parts)), .required = allocate(t, n)};
    for (size_t i = 0; !t->failed && i < n; i++) {
        if (!is_writable(t, &params[i])) continue;
        p.required[p.n] = params[i].required;
        p.parts[p.n++] = parameter(t, tool, &params[i], room);
    }
    struct gram_part list = style->assign ? keyword_list(t, &p) : tag_list(t, &p);
    param_types_free(params, n);
    return SEQUENCE(t, relaxed(t, tool, rules), list);
}

/* ---- calls --------------------------------------------------------------------------------- */

static struct gram_part arguments(struct tree *t, const struct tools_tool *tool)
{
    struct gram_part whole = {.kind = tool->schema ? GRAM_SCHEMA : GRAM_JSON_OBJECT,
                              .text = tool->schema,
                              .len = tool->schema_len,
                              .pointer = tool->pointer,
                              .strict = tool->strict,
                              .types = "\"object\""};
    bool one_by_one = t->q->style->format == TOOLS_QWEN_XML || t->q->style->assign;
    if (!one_by_one) return whole;
    t->n_values = 0;
    struct gram_part list = parameters(t, tool, MAX_ROOM);
    /* the schema is checked as a whole, though it is not written as one */
    return t->q->style->quote ? SEQUENCE(t, REPEAT(t, 0, 0, whole), list) : list;
}

/* The id that the template writes; the model may leave it out. */
static struct gram_part id(struct tree *t)
{
    const struct tools_style *style = t->q->style;
    if (!style->writes_id) return plain("", 0);
    return optional(t, SEQUENCE(t, literal(t, style->id_open),
                                regex(style->short_ids ? "[A-Za-z0-9]{9}" : "[A-Za-z0-9_-]{1,64}"),
                                literal(t, style->id_close)));
}

/* A call without what stands around it in its block. */
static struct gram_part call(struct tree *t)
{
    const struct tools_style *style = t->q->style;
    bool id_first = style->format == TOOLS_MISTRAL_ARGS;
    struct gram_part early = id_first ? id(t) : plain("", 0);
    struct gram_part late = id_first ? plain("", 0) : id(t);
    struct gram_part *kids = allocate(t, t->q->n_tools * sizeof(*kids));
    size_t n = 0;
    for (size_t i = 0; kids && i < t->q->n_tools; i++) {
        const struct tools_tool *tool = &t->q->tools[i];
        if (tool->excluded) continue;
        kids[n++] = SEQUENCE(t, plain(tool->name, tool->name_len), early,
                             literal(t, style->name_close), arguments(t, tool));
    }
    return SEQUENCE(t, literal(t, style->call_open), with_kids(t, GRAM_EITHER, kids, n), late,
                    literal(t, style->call_close));
}

/* One block, with all calls that it may hold. */
static struct gram_part block(struct tree *t, bool one_call)
{
    const struct tools_style *style = t->q->style;
    struct gram_part calls = call(t);
    if (!one_call && !style->one_per_block)
        calls = REPEAT(t, 1, TOOLS_MAX_CALLS, calls, literal(t, style->call_sep));
    return SEQUENCE(t, literal(t, style->block_open), calls, literal(t, style->block_close));
}

/* One call or more and nothing else. */
static struct gram_part calls_alone(struct tree *t)
{
    const struct tools_style *style = t->q->style;
    struct gram_part one = block(t, t->q->once);
    if (t->q->once || !style->one_per_block) return one;
    if (!style->block_sep[0]) return REPEAT(t, 1, TOOLS_MAX_CALLS, one);
    return REPEAT(t, 1, TOOLS_MAX_CALLS, one, literal(t, style->block_sep));
}

/* Bytes of the heads of all calls together, so that the automaton of text stays small. */
enum { MAX_HEADS = 4096 };

/* Any text in which no call begins. Without a marker, the head of a call serves as one: up to the
 * end of its name, or of the part of the name that all tools have room for. */
static struct gram_part text_alone(struct tree *t)
{
    const struct tools_request *q = t->q;
    size_t n = 0;
    if (q->style->open[0]) return until(t, q->style->open);
    const char *open = q->style->call_open;
    size_t n_open = strlen(open), each = MAX_HEADS / (q->n_tools + 1);
    size_t room = each > n_open + 1 ? each - n_open : 1;
    struct gram_part *heads = allocate(t, q->n_tools * sizeof(*heads));
    for (size_t i = 0; heads && i < q->n_tools; i++) {
        size_t n_name = q->tools[i].name_len;
        bool whole = n_name < room;
        if (!whole) n_name = room;
        char *head = q->tools[i].excluded ? NULL : allocate(t, n_open + n_name + 1);
        if (!head) continue;
        memcpy(head, open, n_open);
        memcpy(head + n_open, q->tools[i].name, n_name);
        if (whole) head[n_open + n_name] = q->style->name_close[0];
        heads[n++] = plain(head, n_open + n_name + whole);
    }
    return with_kids(t, GRAM_UNTIL, heads, n);
}

/* Text, with calls in it. Where a call has no marker, each is a block of its own. */
static struct gram_part text_and_calls(struct tree *t)
{
    struct gram_part text = text_alone(t);
    struct gram_part one = block(t, t->q->once || !t->q->style->open[0]);
    struct gram_part calls =
        t->q->once ? optional(t, one) : REPEAT(t, 0, TOOLS_MAX_CALLS, SEQUENCE(t, one, text));
    return SEQUENCE(t, text, calls);
}

/* ---- answers ------------------------------------------------------------------------------- */

/* The text after reasoning. */
static struct gram_part answer(struct tree *t, const struct gram_part *content)
{
    bool calls = false;
    for (size_t i = 0; i < t->q->n_tools; i++)
        calls |= !t->q->tools[i].excluded;
    if (!calls) return content ? *content : regex("[\\s\\S]*");
    if (t->q->choice == TOOLS_CHOICE_REQUIRED) return calls_alone(t);
    if (!content) return text_and_calls(t);
    return EITHER(t, SEQUENCE(t, *content, optional(t, calls_alone(t))), calls_alone(t));
}

/* The answer after a reasoning block, which may stay open if the answer is free text. White space
 * may follow the block. */
static struct gram_part after_reasoning(struct tree *t, struct gram_part rest, bool free)
{
    const struct tools_style *style = t->q->style;
    struct gram_part thought = until(t, style->think_close);
    thought.capture = TOOLS_CAPTURE_THOUGHT;
    struct gram_part close = literal(t, style->think_close);
    if (free) return SEQUENCE(t, thought, optional(t, SEQUENCE(t, close, rest)));
    return SEQUENCE(t, thought, close, regex("[ \\t\\r\\n]{0,8}"), rest);
}

static struct gram_part language(struct tree *t, bool think_open, const struct gram_part *content)
{
    const struct tools_style *style = t->q->style;
    bool free = t->q->choice == TOOLS_CHOICE_AUTO && !content;
    bool reasons = style->think_open[0] && style->think_close[0];
    struct gram_part rest = answer(t, content);
    if (!reasons || (t->q->no_reasoning && free)) return rest;
    if (t->q->answer_begun && !free && !think_open) return rest;
    struct gram_part thought = after_reasoning(t, rest, free);
    if (think_open) return thought;
    return EITHER(t, SEQUENCE(t, literal(t, style->think_open), thought), rest);
}

int tools_compile(struct gram **ret, const struct gram_vocab *vocab,
                  const struct tools_request *request, const struct tools_markers *markers,
                  bool think_open, const struct gram_part *content,
                  const struct gram_options *options, struct gram_error *err)
{
    AUTO(tree_finish) struct tree t = {.q = request, .markers = markers};
    struct gram_part root = language(&t, think_open, content);
    if (!t.failed) return gram_compile_parts(ret, vocab, &root, options, err);
    *err = (struct gram_error){.code = GRAM_ENOMEM, .message = "Out of memory."};
    return GRAM_ENOMEM;
}
