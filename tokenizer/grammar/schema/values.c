/* SPDX-License-Identifier: MIT */
/*
 * const and enum. A scalar is a literal; an object or array is a schema that says the same: its
 * keys and items, all of them required, in the order of the text.
 */
#include <string.h>

#include "tokenizer/grammar/rules.h"
#include "tokenizer/grammar/schema/goals.h"
#include "tokenizer/grammar/vocab.h"

/* ---- scalars ------------------------------------------------------------------------------- */

static void add_string(struct gram_build *b, struct gram_value_draft *d, const struct gram_js *v)
{
    size_t n;
    const char *spelled = gram_json_spell(b, v->text, v->len, &n);
    char *quoted = gram_temp(b, n + 2);
    quoted[0] = quoted[n + 1] = '"';
    memcpy(quoted + 1, spelled, n);
    gram_add_literal(b, d, quoted, n + 2, spelled, n);
}

/*
 * The shortest spelling; an integral value that the schema writes as a fraction has that one too.
 */
static void add_number(struct gram_build *b, struct gram_value_draft *d, const struct gram_js *v)
{
    struct gram_decimal x = gram_decimal_read(b, v->text, v->len);
    const char *text = gram_decimal_print(b, &x);
    gram_add_literal(b, d, text, strlen(text), text, strlen(text));
    bool fraction = memchr(v->text, '.', v->len) && !memchr(v->text, 'e', v->len) &&
                    !memchr(v->text, 'E', v->len);
    if (gram_decimal_is_integer(&x) && fraction && x.n)
        gram_add_literal(b, d, v->text, v->len, text, strlen(text));
}

static void add_scalar(struct gram_build *b, struct gram_value_draft *d, const struct gram_js *v)
{
    switch (v->type) {
    case GRAM_JS_NULL: gram_add_literal(b, d, "null", 4, "null", 4); break;
    case GRAM_JS_TRUE: gram_add_literal(b, d, "true", 4, "true", 4); break;
    case GRAM_JS_FALSE: gram_add_literal(b, d, "false", 5, "false", 5); break;
    case GRAM_JS_STRING: add_string(b, d, v); break;
    default: add_number(b, d, v); break;
    }
}

/* ---- objects and arrays as schemas --------------------------------------------------------- */

static struct gram_js *new_child(struct gram_build *b, struct gram_js *parent,
                                 enum gram_js_type type, const char *key)
{
    struct gram_js *v = gram_js_new(b, type, "", 0);
    v->id = b->schema->n_ids++;
    gram_js_append(parent, v, key, key ? strlen(key) : 0);
    return v;
}

/* {"const": v}; the value keeps its place in the document. */
static void add_const(struct gram_build *b, struct gram_js *parent, const struct gram_js *v,
                      const char *key, size_t key_len)
{
    struct gram_js *schema = gram_js_new(b, GRAM_JS_OBJECT, "", 0);
    struct gram_js *copy = gram_temp(b, sizeof(*copy));
    schema->id = b->schema->n_ids++;
    *copy = *v;
    copy->next = NULL;
    copy->marks = 0;
    copy->id = b->schema->n_ids++;
    gram_js_append(schema, copy, "const", 5);
    gram_js_append(parent, schema, key, key_len);
}

static void describe_object(struct gram_build *b, struct gram_js *schema, const struct gram_js *v)
{
    struct gram_js *properties = new_child(b, schema, GRAM_JS_OBJECT, "properties");
    struct gram_js *required = new_child(b, schema, GRAM_JS_ARRAY, "required");
    for (const struct gram_js *e = v->child; e; e = e->next) {
        struct gram_js *name = gram_js_new(b, GRAM_JS_STRING, e->key, e->key_len);
        add_const(b, properties, e, e->key, e->key_len);
        gram_js_append(required, name, NULL, 0);
    }
    gram_js_index(b, properties);
    new_child(b, schema, GRAM_JS_FALSE, "additionalProperties");
}

static void describe_array(struct gram_build *b, struct gram_js *schema, const struct gram_js *v)
{
    const char *count = gram_text(b, "%u", v->n);
    struct gram_js *min = new_child(b, schema, GRAM_JS_NUMBER, "minItems");
    struct gram_js *max = new_child(b, schema, GRAM_JS_NUMBER, "maxItems");
    min->text = max->text = count;
    min->len = max->len = (uint32_t)strlen(count);
    if (v->n == 0) return;
    struct gram_js *items = new_child(b, schema, GRAM_JS_ARRAY, "prefixItems");
    for (const struct gram_js *e = v->child; e; e = e->next)
        add_const(b, items, e, NULL, 0);
}

static struct gram_js *schema_of(struct gram_build *b, struct gram_js *v)
{
    if (v->stands_for) return v->stands_for;
    struct gram_js *schema = gram_js_new(b, GRAM_JS_OBJECT, "", 0);
    schema->id = b->schema->n_ids++;
    schema->parent = v->parent;
    if (v->type == GRAM_JS_OBJECT)
        describe_object(b, schema, v);
    else
        describe_array(b, schema, v);
    v->stands_for = schema;
    return schema;
}

/* ---- values of an alternative -------------------------------------------------------------- */

/* The value fits everything else that the alternative says; containers are left to their rules. */
static bool value_fits(struct gram_build *b, const struct gram_alt *alt,
                       const struct gram_item *from, const struct gram_js *v)
{
    if (!gram_lists_fit(b, alt, from, v)) return false;
    if (v->type == GRAM_JS_STRING) return gram_string_fits(b, alt, v->text, v->len);
    if (v->type == GRAM_JS_NUMBER) {
        struct gram_decimal x = gram_decimal_read(b, v->text, v->len);
        return gram_number_fits(b, alt, &x);
    }
    return true;
}

/* The alternative without const and enum, and with the schema of one container. */
static void build_container(struct gram_build *b, struct gram_value_draft *d,
                            const struct gram_alt *alt, struct gram_js *v)
{
    struct gram_alts one = {0};
    struct gram_alt plain = {.types = v->type == GRAM_JS_OBJECT ? GRAM_T_OBJECT : GRAM_T_ARRAY};
    const struct gram_item **items = gram_items(b, alt);
    gram_alts_push(b, &one, plain);
    one = gram_apply(b, one, schema_of(b, v), false);
    for (uint32_t i = 0; i < alt->n; i++)
        if (!gram_is_values(items[i])) one = gram_assert(b, one, *items[i], GRAM_T_ALL);
    for (uint32_t i = 0; i < one.n; i++)
        gram_build_alt(b, d, &one.alts[i]);
}

/* The first const or enum of an alternative; NULL: it has none. */
static const struct gram_item *values_of(const struct gram_alt *alt)
{
    const struct gram_item *from = NULL;
    for (const struct gram_item *i = alt->last; i; i = i->before)
        if (gram_is_values(i) && !i->negated) from = i;
    return from;
}

static void build_values(struct gram_build *b, struct gram_value_draft *d,
                         const struct gram_alt *alt)
{
    const struct gram_item *from = values_of(alt);
    uint32_t n = 0;
    for (const struct gram_js *v = NULL; (v = gram_next_listed(from, v));) {
        gram_steps(b, 1 + alt->n);
        if (!value_fits(b, alt, from, v)) continue;
        n++;
        if (v->type < GRAM_JS_ARRAY)
            add_scalar(b, d, v);
        else
            build_container(b, d, alt, (struct gram_js *)v);
    }
    if (n == 0)
        gram_note_reason(b, d->value, from->value,
                         from->value->type == GRAM_JS_ARRAY && from->kw == GRAM_KW_ENUM &&
                                 from->value->n == 0
                             ? "enum is empty"
                             : "no listed value fits the other keywords");
}

/* ---- alternatives -------------------------------------------------------------------------- */

/* null, true or false. */
static bool allows(struct gram_build *b, const struct gram_alt *alt, enum gram_js_type type)
{
    gram_steps(b, 1 + alt->n / 8);
    return gram_lists_fit(b, alt, NULL, &(struct gram_js){.type = type});
}

void gram_build_alt(struct gram_build *b, struct gram_value_draft *d, const struct gram_alt *alt)
{
    gram_steps(b, 1);
    if (values_of(alt)) {
        build_values(b, d, alt);
        return;
    }
    if (allows(b, alt, GRAM_JS_NULL)) gram_add_literal(b, d, "null", 4, "null", 4);
    if (allows(b, alt, GRAM_JS_TRUE)) gram_add_literal(b, d, "true", 4, "true", 4);
    if (allows(b, alt, GRAM_JS_FALSE)) gram_add_literal(b, d, "false", 5, "false", 5);
    if (alt->types & GRAM_T_NUMBER) gram_build_number(b, d, alt);
    if (alt->types & GRAM_T_STRING) gram_build_string(b, d, alt);
    if (alt->types & GRAM_T_ARRAY) gram_build_array(b, d, alt);
    if (alt->types & GRAM_T_OBJECT) gram_build_object(b, d, alt);
}

/* ---- texts of strings ---------------------------------------------------------------------- */

/* The strings that an alternative lists, as far as they can be written. */
static void add_texts(struct gram_build *b, struct gram_trie_builder *texts,
                      const struct gram_alt *alt, const struct gram_part *part)
{
    const struct gram_item *from = values_of(alt);
    const struct gram_part *end = part->kids;
    for (const struct gram_js *v = NULL; (v = gram_next_listed(from, v));) {
        gram_steps(b, 1 + alt->n);
        if (v->type != GRAM_JS_STRING || !value_fits(b, alt, from, v)) continue;
        if (part->nullable && v->len == 4 && !memcmp(v->text, "null", 4)) continue;
        if (gram_pattern_matches(b, v, NULL, end->text, (uint32_t)end->len, v->text, v->len))
            continue;
        if (gram_vocab_spells(b->vocab, v->text, v->len))
            gram_trie_add(b, texts, v->text, v->len, false, 0);
    }
}

uint32_t gram_build_texts(struct gram_build *b, const struct gram_alts *alts,
                          const struct gram_part *part)
{
    uint32_t *nodes = gram_temp_array(b, alts->n + 1, sizeof(*nodes)), n = 0;
    struct gram_trie_builder texts = {0};
    bool null = false;
    for (uint32_t i = 0; i < alts->n; i++) {
        const struct gram_alt *alt = &alts->alts[i];
        null |= part->nullable && allows(b, alt, GRAM_JS_NULL);
        if (values_of(alt))
            add_texts(b, &texts, alt, part);
        else if (alt->types & GRAM_T_STRING)
            nodes[n++] = gram_string_text_node(b, alt, part);
    }
    if (null) gram_trie_add(b, &texts, "null", 4, false, 0);
    if (texts.n_strings) nodes[n++] = gram_node_texts(b, &texts, 0, NULL);
    return n == 1 ? nodes[0] : gram_node_with(b, GRAM_NODE_ALT, n, nodes);
}
