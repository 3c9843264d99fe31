/* SPDX-License-Identifier: MIT */
/* See print_api.h. */
#include "print_api.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/read/generation_fields.h"
#include "server/api/routes.h"

enum { COLUMNS = 120, MAX_TEXT = 1024 };

/* The fields of a schema: names of rows, or NULL for all that are described. */
static const struct request {
    const char *schema;
    const struct param_field *own;
    const char *own_names, *common_names;
} requests[] = {
    {"CompletionRequest", srv_fields_completions, NULL, NULL},
    {"NativeRequest", srv_fields_native, NULL, ""},
    {"ChatRequest", srv_fields_chat, NULL, NULL},
    {"ResponsesRequest", srv_fields_responses, NULL,
     "model stream temperature top_p timings return_progress speculate"},
    {"MessagesRequest", srv_fields_messages, NULL,
     "max_tokens temperature top_p top_k stream model"},
    {"CountRequest", srv_fields_messages, "messages system", "model"},
    {"EmbeddingsRequest", srv_fields_embeddings, NULL, ""},
    {"RerankRequest", srv_fields_rerank, NULL, ""},
    {"ClassifyRequest", srv_fields_classify, NULL, ""},
    {"ChooseRequest", srv_fields_choose, NULL, ""},
    {"OllamaChatRequest", srv_fields_ollama_chat, NULL, "model"},
    {"OllamaGenerateRequest", srv_fields_ollama_generate, NULL, "model"},
    {"TokenizeRequest", srv_fields_tokens,
     "content prompt inputs messages add_special parse_special with_pieces add_special_tokens "
     "return_token_strs model add_generation_prompt continue_final_message chat_template_kwargs",
     ""},
    {"DetokenizeRequest", srv_fields_tokens, "tokens model", ""},
    {"ApplyTemplateRequest", srv_fields_tokens,
     "messages add_generation_prompt chat_template_kwargs", ""},
    {"LoadRequest", srv_fields_swap, NULL, ""},
    {"UnloadRequest", srv_fields_unload, NULL, ""},
    {"LoadLoraRequest", srv_fields_load_lora, NULL, ""},
    {"UnloadLoraRequest", srv_fields_unload_lora, NULL, ""},
    {"BatchRequest", srv_fields_batches, NULL, ""},
};

/* The statuses that "x-errors" stands for. */
static const char *const error_statuses[] = {"400", "401", "403", "404", "405", "408", "413",
                                             "415", "429", "431", "500", "503", "504"};

static json_t *document;

static json_t *schema_of(const char *name)
{
    json_t *components = json_object_get(document, "components");
    return json_object_get(json_object_get(components, "schemas"), name);
}

/* Returns true if the word is one of the text, which are separated by spaces. */
static bool has_word(const char *text, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = text; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        if (n == len && memcmp(p, word, n) == 0) return true;
        p += n;
    }
    return false;
}

static bool is_shown(const struct param_field *f, const char *names)
{
    return f->meaning && (!names || has_word(names, f->name));
}

/* ---- properties ---------------------------------------------------------------------------- */

/* The text without the targets of its links, which lead from a page of docs/. */
static json_t *without_links(const char *text)
{
    char plain[MAX_TEXT];
    size_t n = 0;
    for (const char *p = text; *p && n < sizeof(plain) - 1; p++) {
        if (*p == '[' && strstr(p, "](")) continue;
        if (strncmp(p, "](", 2) == 0)
            p = strchr(p, ')');
        else
            plain[n++] = *p;
    }
    return json_stringn(plain, n);
}

static json_t *number(double value)
{
    return value == (double)(json_int_t)value ? json_integer((json_int_t)value) : json_real(value);
}

static bool is_required(const json_t *schema, const char *name)
{
    size_t i;
    const json_t *word;
    json_array_foreach(json_object_get(schema, "required"), i, word)
    {
        if (strcmp(json_string_value(word), name) == 0) return true;
    }
    return false;
}

/* The type and range of a row; an optional field may be null. */
static json_t *property_of(const struct param_field *f, bool required)
{
    static const char *const types[] = {[PARAM_BOOL] = "boolean",
                                        [PARAM_INT] = "integer",
                                        [PARAM_NUMBER] = "number",
                                        [PARAM_STRING] = "string"};
    const double limit = 9007199254740992.0; /* integers beyond are as good as unbounded */
    json_t *p = json_object();
    if (f->type <= PARAM_STRING) {
        const char *type = types[f->type];
        json_object_set_new(p, "type",
                            required ? json_string(type) : json_pack("[s,s]", type, "null"));
    }
    if (f->type == PARAM_INT || f->type == PARAM_NUMBER) {
        if (f->min > -limit) json_object_set_new(p, "minimum", number(f->min));
        if (f->max < 1e15) json_object_set_new(p, "maximum", number(f->max));
    }
    json_object_set_new(p, "description", without_links(f->meaning));
    return p;
}

/* The properties of an object with these members. */
static json_t *members_of(const struct param_field *fields)
{
    json_t *properties = json_object();
    for (const struct param_field *f = fields; f->name; f++)
        if (f->meaning) json_object_set_new(properties, f->name, property_of(f, false));
    return properties;
}

static void add_properties(json_t *schema, json_t *properties, const struct param_field *fields,
                           const char *names)
{
    const json_t *by_hand = json_object_get(schema, "properties");
    const json_t *more = json_object_get(document, "fields");
    for (const struct param_field *f = fields; f->name; f++) {
        if (!is_shown(f, names) || json_object_get(properties, f->name)) continue;
        json_t *p = property_of(f, is_required(schema, f->name));
        json_object_update(p, json_object_get(more, f->name));
        json_object_update(p, json_object_get(by_hand, f->name));
        if (strcmp(f->name, "stream_options") == 0)
            json_object_set_new(p, "properties", members_of(srv_fields_stream_options));
        json_object_set_new(properties, f->name, p);
    }
}

static int fill_schema(const struct request *r)
{
    json_t *schema = schema_of(r->schema), *properties = json_object();
    const char *name;
    json_t *value;
    if (!schema) {
        fprintf(stderr, "openapi.json.in: no schema %s\n", r->schema);
        return -1;
    }
    add_properties(schema, properties, r->own, r->own_names);
    add_properties(schema, properties, srv_fields_common, r->common_names);
    json_object_foreach(json_object_get(schema, "properties"), name, value)
    {
        if (json_object_get(properties, name)) continue;
        fprintf(stderr, "openapi.json.in: %s: no row is called %s\n", r->schema, name);
        return -1;
    }
    json_object_set_new(schema, "properties", properties);
    return 0;
}

/* Writes out the answers that "x-errors" stands for, but those that the operation has itself. */
static void fill_errors(json_t *operation)
{
    const json_t *errors = json_object_get(operation, "x-errors");
    json_t *responses = json_object_get(operation, "responses");
    for (size_t i = 0; errors && i < sizeof(error_statuses) / sizeof(error_statuses[0]); i++) {
        if (json_object_get(responses, error_statuses[i])) continue;
        json_object_set_new(
            responses, error_statuses[i],
            json_pack("{s:o}", "$ref",
                      json_sprintf("#/components/responses/%s", json_string_value(errors))));
    }
    json_object_del(operation, "x-errors");
}

int api_open(const char *frame_path)
{
    json_error_t error;
    const char *name, *method;
    json_t *path, *operation;
    document = json_load_file(frame_path, JSON_REJECT_DUPLICATES, &error);
    if (!document) {
        fprintf(stderr, "%s:%d: %s\n", frame_path, error.line, error.text);
        return -1;
    }
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        if (fill_schema(&requests[i])) return -1;
    json_object_foreach(json_object_get(document, "paths"), name, path)
    {
        json_object_foreach(path, method, operation) fill_errors(operation);
    }
    json_object_del(document, "fields");
    return 0;
}

void api_close(void)
{
    json_decref(document);
    document = NULL;
}

/* ---- the document -------------------------------------------------------------------------- */

/* A value on one line if it fits there, else a member or element per line. */
static void print_value(FILE *out, const json_t *value, int depth, size_t used)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    bool is_object = json_is_object(value);
    size_t i;
    const char *name, *comma = "";
    json_t *member;
    if (!text) exit(EXIT_FAILURE);
    if ((size_t)depth + used + strlen(text) < COLUMNS || !(is_object || json_is_array(value))) {
        fputs(text, out);
        free(text);
        return;
    }
    free(text);
    fputc(is_object ? '{' : '[', out);
    json_object_foreach((json_t *)value, name, member)
    {
        fprintf(out, "%s\n%*s\"%s\": ", comma, depth + 1, "", name);
        print_value(out, member, depth + 1, strlen(name) + 4);
        comma = ",";
    }
    json_array_foreach(value, i, member)
    {
        fprintf(out, "%s\n%*s", comma, depth + 1, "");
        print_value(out, member, depth + 1, 0);
        comma = ",";
    }
    fprintf(out, "\n%*s%c", depth, "", is_object ? '}' : ']');
}

void api_print_document(FILE *out)
{
    print_value(out, document, 0, 0);
    fputc('\n', out);
}

/* ---- tables -------------------------------------------------------------------------------- */

static void add_word(char text[MAX_TEXT], const char *separator, const char *word)
{
    size_t used = strlen(text);
    if (strstr(text, word)) return;
    snprintf(text + used, MAX_TEXT - used, "%s%s", used ? separator : "", word);
}

static void add_kind(char text[MAX_TEXT], const json_t *type)
{
    const char *kind = json_string_value(type);
    if (kind && strcmp(kind, "null") != 0) add_word(text, " or ", kind);
}

/* The kinds of values that a property takes, but null: "string or array", or its choices. */
static void add_kinds(char text[MAX_TEXT], const json_t *p)
{
    const json_t *type = json_object_get(p, "type"), *options = json_object_get(p, "enum"), *one;
    size_t i;
    json_array_foreach(options, i, one)
    {
        char word[64];
        if (json_is_null(one)) continue;
        snprintf(word, sizeof(word), "`%s`",
                 json_is_string(one) ? json_string_value(one) : "false");
        add_word(text, ", ", word);
    }
    if (options) return;
    add_kind(text, type);
    json_array_foreach(type, i, one) add_kind(text, one);
    json_array_foreach(json_object_get(p, "anyOf"), i, one) add_kinds(text, one);
    json_array_foreach(json_object_get(p, "oneOf"), i, one) add_kinds(text, one);
}

static void print_kinds(FILE *out, const json_t *p)
{
    char text[MAX_TEXT] = "";
    const json_t *least = json_object_get(p, "minimum"), *most = json_object_get(p, "maximum");
    const json_t *max_items = json_object_get(p, "maxItems");
    add_kinds(text, p);
    fputs(text, out);
    if (least) fprintf(out, most ? ", %.10g to " : ", from %.10g", json_number_value(least));
    if (most) fprintf(out, "%.10g", json_number_value(most));
    if (max_items) fprintf(out, ", at most %.10g", json_number_value(max_items));
}

static void print_default(FILE *out, const struct param_field *f, bool required)
{
    if (required)
        fputs("required", out);
    else if (f->otherwise)
        fputs(f->otherwise, out);
    else if (f->type == PARAM_BOOL)
        fputs(f->preset != 0 ? "true" : "false", out);
    else if (f->type == PARAM_INT || f->type == PARAM_NUMBER)
        fprintf(out, "%.15g", f->preset);
    else
        fputs("none", out);
}

static void print_rows(FILE *out, const json_t *schema, const struct param_field *fields,
                       const char *names)
{
    for (const struct param_field *f = fields; f->name; f++) {
        const json_t *p = json_object_get(json_object_get(schema, "properties"), f->name);
        if (!p || !is_shown(f, names)) continue;
        fprintf(out, "| `%s` | ", f->name);
        print_kinds(out, p);
        fputs(" | ", out);
        print_default(out, f, is_required(schema, f->name));
        fprintf(out, " | %s", f->meaning);
        if (f->also) fprintf(out, "; also `%s`", f->also);
        fputs(" |\n", out);
    }
}

static void print_head(FILE *out)
{
    fputs("| field | value | default | meaning |\n|---|---|---|---|\n", out);
}

static void print_members(FILE *out, const struct param_field *fields)
{
    json_t *schema = json_pack("{s:o}", "properties", members_of(fields));
    print_head(out);
    print_rows(out, schema, fields, NULL);
    json_decref(schema);
}

int api_print_table(FILE *out, const char *schemas)
{
    if (strcmp(schemas, "stream_options") == 0) {
        print_members(out, srv_fields_stream_options);
        return 0;
    }
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        const struct request *r = &requests[i];
        bool alone = strcmp(schemas, r->schema) == 0;
        if (!alone && !(has_word(schemas, r->schema) && !r->common_names)) continue;
        print_head(out);
        if (alone) print_rows(out, schema_of(r->schema), r->own, r->own_names);
        if (!alone || r->common_names)
            print_rows(out, schema_of(r->schema), srv_fields_common, r->common_names);
        return 0;
    }
    fprintf(stderr, "no schema is called %s\n", schemas);
    return -1;
}
