/* SPDX-License-Identifier: MIT */
/* From the fields of a body to one constraint; see guide_fields.h. */
#include "server/api/read/guide_fields.h"

#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/json_tree.h"

/* A field of the body. */
struct field {
    const struct srv_body *body;
    const json_t *value; /* NULL: absent or null */
    char path[PARAM_PATH_MAX];
};

static void note(const struct guide_ask *a, const struct field *f, const char *const *known)
{
    if (a->unknown) param_note_members(a->unknown, f->value, f->path, known);
}

static struct field member(const struct field *of, const char *name)
{
    struct field f = {.body = of->body, .value = json_object_get(of->value, name)};
    snprintf(f.path, sizeof(f.path), "%.50s%s%.40s", of->path, of->path[0] ? "." : "", name);
    if (json_is_null(f.value)) f.value = NULL;
    return f;
}

static struct srv_span text_of(const struct field *f)
{
    return srv_body_span(f->body, f->value);
}

static int missing(const struct field *f)
{
    return param_fail(SRV_ERR_MISSING, f->path, "'%s' is missing.", f->path);
}

/* ---- one constraint ------------------------------------------------------------------------ */

/* A JSON text in one spelling, keys in their order, or NULL: free. */
static char *normalized(struct srv_span text)
{
    const struct jt_params params = {.flags = JT_ANY, .max_values = PARAM_MAX_VALUES};
    struct jt_fault fault;
    json_auto_t *value = NULL;
    if (jt_read(&value, text.text, text.len, &params, &fault)) return NULL;
    return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
}

/* It says what was asked for before, perhaps with other white space or escapes. */
static bool is_asked(const struct guide_ask *a, enum gram_kind kind, struct srv_span text)
{
    if (a->kind != kind) return false;
    if (a->text.len == text.len && !memcmp(a->text.text, text.text, text.len)) return true;
    if (kind != GRAM_SCHEMA && kind != GRAM_CHOICE) return false;
    AUTO_FREE char *x = normalized(a->text), *y = normalized(text);
    return x && y && !strcmp(x, y);
}

static int ask(struct guide_ask *a, const struct field *f, enum gram_kind kind,
               struct srv_span text)
{
    if (a->param && is_asked(a, kind, text)) return 0;
    if (a->param)
        return param_fail(SRV_ERR_INVALID_VALUE, f->path,
                          "'%s' and '%s' both constrain the answer; at most one may.", a->param,
                          f->path);
    snprintf(a->param_text, sizeof(a->param_text), "%s", f->path);
    a->param = a->param_text;
    a->kind = kind;
    a->text = text;
    return 0;
}

static struct srv_span string_of(const json_t *value)
{
    return (struct srv_span){json_string_value(value), json_string_length(value)};
}

static int ask_schema(struct guide_ask *a, const struct field *f)
{
    if (!json_is_object(f->value) && !json_is_boolean(f->value))
        return param_wrong_type(f->path, "a JSON schema: an object or a boolean");
    return ask(a, f, GRAM_SCHEMA, text_of(f));
}

/* The values of a field that constrains the answer. */
enum form {
    FORM_SCHEMA, /* an object or a boolean */
    FORM_JSON,   /* that, or a string of JSON, as vLLM takes it */
    FORM_STRING,
    FORM_CHOICE, /* an array of strings */
    FORM_FLAG,   /* true: any JSON object */
};

struct row {
    const char *name;
    enum form form;
    enum gram_kind kind; /* of FORM_STRING */
};

/* Reads one member that may constrain the answer. */
static int ask_member(struct guide_ask *a, const struct field *of, const struct row *row)
{
    const struct field f = member(of, row->name);
    if (!f.value) return 0;
    switch (row->form) {
    case FORM_JSON:
        if (json_is_string(f.value)) return ask(a, &f, GRAM_SCHEMA, string_of(f.value));
        return ask_schema(a, &f);
    case FORM_SCHEMA: return ask_schema(a, &f);
    case FORM_STRING:
        if (!json_is_string(f.value)) return param_wrong_type(f.path, "a string");
        return ask(a, &f, row->kind, string_of(f.value));
    case FORM_CHOICE:
        if (!json_is_array(f.value)) return param_wrong_type(f.path, "an array of strings");
        return ask(a, &f, GRAM_CHOICE, text_of(&f));
    case FORM_FLAG:
        if (!json_is_boolean(f.value)) return param_wrong_type(f.path, "true or false");
        if (json_is_false(f.value)) return 0;
        return ask(a, &f, GRAM_JSON_OBJECT, (struct srv_span){"", 0});
    }
    return 0;
}

/* Reads the members of the rows, which end with one without a name. */
static int ask_members(struct guide_ask *a, const struct field *of, const struct row *rows)
{
    for (; rows->name; rows++)
        if (ask_member(a, of, rows)) return -1;
    return 0;
}

static int read_bool(const struct field *f, bool *ret)
{
    if (!f->value) return 0;
    if (!json_is_boolean(f->value)) return param_wrong_type(f->path, "true or false");
    *ret = json_is_true(f->value);
    return 0;
}

static int read_whitespace(struct guide_ask *a, const struct field *f)
{
    if (!f->value) return 0;
    if (!json_is_string(f->value)) return param_wrong_type(f->path, "a string");
    a->options.whitespace_pattern = json_string_value(f->value);
    a->options.whitespace_pattern_len = json_string_length(f->value);
    return 0;
}

/* ---- format objects ------------------------------------------------------------------------ */

/* The schema is in the member json_schema (TGI: value), or next to the type. */
static int ask_json_schema(struct guide_ask *a, const struct field *format)
{
    struct field nested = member(format, "json_schema"), value = member(format, "value");
    const struct field *holder = nested.value ? &nested : value.value ? &value : format;
    if (!json_is_object(holder->value)) return param_wrong_type(holder->path, "an object");
    struct field schema = member(holder, "schema"), strict = member(holder, "strict");
    if (!schema.value) return missing(holder == format ? &nested : &schema);
    static const char *const known[] = {"schema", "strict", "name", "description", "type", NULL};
    const char *outside[] = {"type", nested.value ? "json_schema" : "value", NULL};
    note(a, holder, known);
    if (holder != format) note(a, format, outside);
    return read_bool(&strict, &a->options.strict) || ask_schema(a, &schema) ? -1 : 0;
}

/* llama-server has the schema in `schema`, TGI and the client of Hugging Face in `value`. */
static int ask_json_object(struct guide_ask *a, const struct field *format)
{
    static const struct row rows[] = {{"schema", FORM_SCHEMA, 0}, {"value", FORM_JSON, 0}, {0}};
    struct field schema = member(format, "schema"), value = member(format, "value");
    note(a, format, (const char *const[]){"type", "schema", "value", NULL});
    if (schema.value || value.value) return ask_members(a, format, rows);
    return ask(a, format, GRAM_JSON_OBJECT, (struct srv_span){"", 0});
}

/* TGI's words with a value. */
static int ask_value(struct guide_ask *a, const struct field *format, bool is_regex)
{
    struct field value = member(format, "value");
    note(a, format, (const char *const[]){"type", "value", NULL});
    if (!value.value) return missing(&value);
    return ask_member(a, format,
                      &(struct row){"value", is_regex ? FORM_STRING : FORM_JSON, GRAM_REGEX});
}

static int ask_format(struct guide_ask *a, const struct field *format)
{
    if (!format->value) return 0;
    if (!json_is_object(format->value))
        return param_wrong_type(format->path, "an object with a type");
    if (json_object_size(format->value) == 0) return 0;
    struct field type = member(format, "type");
    if (!type.value) return missing(&type);
    if (!json_is_string(type.value)) return param_wrong_type(type.path, "a string");
    const char *name = json_string_value(type.value);
    if (!strcmp(name, "text")) {
        note(a, format, (const char *const[]){"type", NULL});
        return 0;
    }
    if (!strcmp(name, "json_object")) return ask_json_object(a, format);
    if (!strcmp(name, "json_schema")) return ask_json_schema(a, format);
    if (!strcmp(name, "json") || !strcmp(name, "regex")) return ask_value(a, format, *name == 'r');
    return param_fail(SRV_ERR_INVALID_VALUE, type.path,
                      "'%s' must be 'text', 'json_object', 'json_schema', 'json' or 'regex'.",
                      type.path);
}

int guide_ask_read_format(struct guide_ask *a, const struct srv_body *body, const char *path)
{
    char first[PARAM_PATH_MAX];
    snprintf(first, sizeof(first), "%s", path);
    char *dot = strchr(first, '.');
    if (dot) *dot++ = '\0';
    const struct field root = {.body = body, .value = body->root};
    struct field f = member(&root, first);
    if (dot && f.value) {
        if (!json_is_object(f.value)) return param_wrong_type(f.path, "an object");
        f = member(&f, dot);
    }
    if (f.value) a->format = text_of(&f);
    return ask_format(a, &f);
}

int guide_ask_read_ollama(struct guide_ask *a, const struct srv_body *body)
{
    const struct field root = {.body = body, .value = body->root};
    struct field f = member(&root, "format");
    const char *word = json_string_value(f.value);
    if (!f.value || (word && !*word)) return 0;
    if (word && !strcmp(word, "json"))
        return ask(a, &f, GRAM_JSON_OBJECT, (struct srv_span){"", 0});
    return json_is_object(f.value) ? ask_schema(a, &f)
                                   : param_wrong_type(f.path, "\"json\" or a JSON schema");
}

/* ---- vLLM ---------------------------------------------------------------------------------- */

static int check_one(const struct guide_ask *a, const struct field *f)
{
    if (a->param) return 0;
    return param_fail(SRV_ERR_INVALID_VALUE, f->path,
                      "'%s' must hold one of json, regex, choice, grammar and json_object.",
                      f->path);
}

static int ask_structured(struct guide_ask *a, const struct field *f)
{
    static const struct row rows[] = {
        {"json", FORM_JSON, 0},        {"regex", FORM_STRING, GRAM_REGEX},
        {"choice", FORM_CHOICE, 0},    {"grammar", FORM_STRING, GRAM_GBNF},
        {"json_object", FORM_FLAG, 0}, {0}};
    bool closes = true;
    if (!json_is_object(f->value)) return param_wrong_type(f->path, "an object");
    struct field tag = member(f, "structural_tag"), spaces = member(f, "whitespace_pattern"),
                 none = member(f, "disable_any_whitespace"), any = member(f, "any_whitespace"),
                 close = member(f, "close"), closed = member(f, "disable_additional_properties");
    note(a, f,
         (const char *const[]){"json", "regex", "choice", "grammar", "json_object",
                               "whitespace_pattern", "disable_any_whitespace", "any_whitespace",
                               "close", "disable_additional_properties", NULL});
    if (tag.value)
        return param_fail(SRV_ERR_UNSUPPORTED, tag.path, "'%s' is not supported.", tag.path);
    if (ask_members(a, f, rows) || (!close.value && !any.value && check_one(a, f)) ||
        read_whitespace(a, &spaces) || read_bool(&none, &a->options.no_whitespace) ||
        read_bool(&any, &a->any_whitespace) || read_bool(&close, &closes) ||
        read_bool(&closed, &a->options.closed_objects))
        return -1;
    a->stays_cut = !closes;
    if (none.value && a->options.no_whitespace && spaces.value)
        return param_fail(SRV_ERR_INVALID_VALUE, none.path, "'%s' and '%s' exclude each other.",
                          spaces.path, none.path);
    return 0;
}

int guide_ask_read(struct guide_ask *a, const struct srv_body *body)
{
    static const struct row guided[] = {
        {"guided_json", FORM_JSON, 0},        {"guided_regex", FORM_STRING, GRAM_REGEX},
        {"guided_choice", FORM_CHOICE, 0},    {"guided_grammar", FORM_STRING, GRAM_GBNF},
        {"guided_json_object", FORM_FLAG, 0}, {0}};
    static const struct row others[] = {{"regex", FORM_STRING, GRAM_REGEX},
                                        {"ebnf", FORM_STRING, GRAM_GBNF},
                                        {"grammar", FORM_STRING, GRAM_GBNF},
                                        {"json_schema", FORM_SCHEMA, 0},
                                        {0}};
    const struct field root = {.body = body, .value = body->root};
    struct field format = member(&root, "response_format"),
                 structured = member(&root, "structured_outputs"),
                 spaces = member(&root, "guided_whitespace_pattern");
    return ask_format(a, &format) || (structured.value && ask_structured(a, &structured)) ||
                   ask_members(a, &root, guided) || (spaces.value && read_whitespace(a, &spaces)) ||
                   ask_members(a, &root, others)
               ? -1
               : 0;
}
