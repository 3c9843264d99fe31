/* SPDX-License-Identifier: MIT */
/* Tools and their choice from a body; see tools_fields.h. */
#include "server/api/read/tools_fields.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/json_writer.h"

/* A reading on its way. */
struct reading {
    struct tools_ask *a;
    const struct srv_body *body;
    struct param_unknown *ignored;
};

/* Messages names the place in the message, since its error object has no param. */
__attribute__((format(printf, 4, 5))) static int fail(const struct reading *r, enum srv_error kind,
                                                      const char *path, const char *format, ...)
{
    char message[PARAM_MESSAGE_MAX];
    bool named = r->a->dialect == TOOLS_MESSAGES;
    FORMAT_REST(message, sizeof(message), format);
    return param_fail(kind, path, "%s%s%s", named ? path : "", named ? ": " : "", message);
}

/* The path of a tool's field as its dialect writes it; field "": of the tool itself. */
static const char *tool_path(const struct tools_ask *a, const struct tools_place *at,
                             const char *field, char path[PARAM_PATH_MAX])
{
    char inner[24] = "";
    if (a->dialect == TOOLS_CHAT && strcmp(field, "type") && *field)
        snprintf(inner, sizeof(inner), ".function");
    else if (at->inner >= 0)
        snprintf(inner, sizeof(inner), ".tools[%d]", at->inner);
    if (a->dialect == TOOLS_MESSAGES)
        snprintf(path, PARAM_PATH_MAX, "tools.%d%s%s", at->index, *field ? "." : "",
                 strcmp(field, "parameters") ? field : "input_schema");
    else
        snprintf(path, PARAM_PATH_MAX, "tools[%d]%s%s%s", at->index, inner, *field ? "." : "",
                 field);
    return path;
}

static int fail_tool(const struct reading *r, enum srv_error kind, const struct tools_place *at,
                     const char *field, const char *wanted)
{
    char path[PARAM_PATH_MAX];
    tool_path(r->a, at, field, path);
    return fail(r, kind, path, "'%s' %s.", path, wanted);
}

/* ---- one tool ------------------------------------------------------------------------------ */

static int find_tool(const struct tools_ask *a, const char *name)
{
    for (int i = 0; i < a->n; i++)
        if (!strcmp(a->tools[i].name, name)) return i;
    return -1;
}

static int find_in_namespace(const struct tools_ask *a, const char *space, const char *name)
{
    for (int i = 0; i < a->n; i++)
        if (a->places[i].space && !strcmp(a->places[i].space, space) &&
            !strcmp(a->places[i].name, name))
            return i;
    return -1;
}

/* The name that the model sees: in a namespace NAMESPACE__NAME. */
static int read_name(const struct reading *r, const json_t *function, struct tools_place *at)
{
    const json_t *value = json_object_get(function, "name");
    char path[PARAM_PATH_MAX], full[2 * TOOLS_MAX_NAME + 4], word[PARAM_WORD_MAX];
    tool_path(r->a, at, "name", path);
    if (!value || json_is_null(value))
        return fail_tool(r, SRV_ERR_MISSING, at, "name", "is required");
    if (!json_is_string(value))
        return fail_tool(r, SRV_ERR_INVALID_TYPE, at, "name", "must be a string");
    at->name = json_string_value(value);
    int len = snprintf(full, sizeof(full), "%s%s%s", at->space ? at->space : "",
                       at->space ? "__" : "", at->name);
    bool whole =
        at->name[0] && strlen(at->name) == json_string_length(value) && len <= TOOLS_MAX_NAME;
    if (!whole || !tools_name_valid(full, (size_t)len))
        return fail(r, SRV_ERR_INVALID_VALUE, path,
                    "The tool name '%s' must be 1 to %d characters of A-Z a-z 0-9 _ - .",
                    param_word(full, word), TOOLS_MAX_NAME);
    if (find_tool(r->a, full) >= 0)
        return fail(r, SRV_ERR_INVALID_VALUE, path, "The tool name '%s' is used twice.", full);
    memcpy(at->full, full, (size_t)len + 1);
    return 0;
}

/* Anthropic's tools that the client runs: their schemas are the API's own, by type. */
static const struct known_tool {
    const char *type; /* how it begins; the first one counts */
    const char *description, *schema;
} known_tools[] = {
#define PATH_AND_EDITS                                                                             \
    "\"path\":{\"type\":\"string\"},\"view_range\":{\"type\":\"array\",\"items\":{\"type\":"       \
    "\"integer\"},\"minItems\":2,\"maxItems\":2},\"file_text\":{\"type\":\"string\"},"             \
    "\"old_str\":{\"type\":\"string\"},\"new_str\":{\"type\":\"string\"},"                         \
    "\"insert_line\":{\"type\":\"integer\",\"minimum\":0}"
#define EDITOR(commands, more)                                                                     \
    "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"enum\":[\"view\","    \
    "\"create\",\"str_replace\",\"insert\"" commands "]}," PATH_AND_EDITS more                     \
    "},\"required\":[\"command\",\"path\"],\"additionalProperties\":false}"
#define EDITOR_TEXT                                                                                \
    "View, create and edit text files. view_range: first and last line, -1: the end."
    {"bash_", "Run a command in a bash shell that stays open; restart: begin a new shell.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\"},\"restart\":{\"type\":"
     "\"boolean\"}},\"required\":[\"command\"],\"additionalProperties\":false}"},
    {"text_editor_20241022", EDITOR_TEXT, EDITOR(",\"undo_edit\"", "")},
    {"text_editor_20250124", EDITOR_TEXT, EDITOR(",\"undo_edit\"", "")},
    {"text_editor_", EDITOR_TEXT, EDITOR("", ",\"insert_text\":{\"type\":\"string\"}")},
};

static const struct known_tool *find_known(const struct tools_ask *a, const char *type)
{
    if (a->dialect != TOOLS_MESSAGES) return NULL;
    for (size_t i = 0; i < sizeof(known_tools) / sizeof(known_tools[0]); i++)
        if (!strncmp(type, known_tools[i].type, strlen(known_tools[i].type)))
            return &known_tools[i];
    return NULL;
}

/* Writes description and schema, as it was sent, into the list, and sets the schema. */
static int write_own(const struct reading *r, struct jw *w, const json_t *function,
                     const struct tools_place *at, struct srv_span *ret_schema)
{
    const char *key = r->a->dialect == TOOLS_MESSAGES ? "input_schema" : "parameters";
    const json_t *description = json_object_get(function, "description");
    const json_t *schema = json_object_get(function, key);
    if (description && !json_is_null(description) && !json_is_string(description))
        return fail_tool(r, SRV_ERR_INVALID_TYPE, at, "description", "must be a string");
    bool given = schema && !json_is_null(schema);
    if (!given && r->a->dialect == TOOLS_MESSAGES)
        return fail_tool(r, SRV_ERR_MISSING, at, "parameters", "is required");
    if (given && !json_is_object(schema))
        return fail_tool(r, SRV_ERR_INVALID_SCHEMA, at, "parameters",
                         "must be a JSON schema: an object");
    if (json_is_string(description))
        jw_string(w, "description", json_string_value(description),
                  json_string_length(description));
    if (given) *ret_schema = srv_body_span(r->body, schema);
    if (given) jw_json(w, "parameters", ret_schema->text, ret_schema->len);
    return 0;
}

/* function: the object that holds name, description and schema, if they are not known. */
static int add_tool(const struct reading *r, struct jw *w, const json_t *function,
                    const struct known_tool *known, struct tools_place at)
{
    struct tools_ask *a = r->a;
    const json_t *strict = json_object_get(function, "strict");
    struct srv_span schema = {NULL, 0};
    if (read_name(r, function, &at)) return -1;
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return fail_tool(r, SRV_ERR_INVALID_TYPE, &at, "strict", "must be true or false");
    jw_fields(w, "{ name %s", at.full);
    if (known) {
        schema = (struct srv_span){known->schema, strlen(known->schema)};
        jw_text(w, "description", known->description);
        jw_json(w, "parameters", schema.text, schema.len);
    } else if (write_own(r, w, function, &at, &schema)) {
        return -1;
    }
    jw_close(w);
    size_t len = (size_t)snprintf(at.pointer, sizeof(at.pointer), "/tools/%d", at.index);
    if (at.inner >= 0) snprintf(at.pointer + len, sizeof(at.pointer) - len, "/tools/%d", at.inner);
    struct tools_place *where = &a->places[a->n];
    *where = at;
    a->tools[a->n++] = (struct tools_tool){.name = where->full,
                                           .name_len = strlen(where->full),
                                           .schema = schema.text,
                                           .schema_len = schema.len,
                                           .pointer = where->pointer,
                                           .strict = json_is_true(strict)};
    return 0;
}

static int add_inner(const struct reading *r, struct jw *w, const json_t *tool,
                     struct tools_place at)
{
    const json_t *function = json_object_get(tool, "function");
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), "tools[%d].function", at.index);
    if (!function || json_is_null(function))
        return fail(r, SRV_ERR_MISSING, path, "'%s' is required.", path);
    if (!json_is_object(function))
        return fail(r, SRV_ERR_INVALID_TYPE, path, "'%s' must be an object.", path);
    return add_tool(r, w, function, NULL, at);
}

static int add_tools(const struct reading *r, struct jw *w, const json_t *tools,
                     struct tools_place at);

/* The functions of a namespace, which Codex groups its tools and those of MCP servers in. */
static int add_namespace(const struct reading *r, struct jw *w, const json_t *tool,
                         struct tools_place at)
{
    const json_t *name = json_object_get(tool, "name"), *tools = json_object_get(tool, "tools");
    if (json_string_length(name) == 0)
        return fail_tool(r, name ? SRV_ERR_INVALID_VALUE : SRV_ERR_MISSING, &at, "name",
                         "is required, a string");
    if (!json_is_array(tools))
        return fail_tool(r, SRV_ERR_INVALID_TYPE, &at, "tools", "must be an array of tools");
    at.space = json_string_value(name);
    at.inner = 0;
    return add_tools(r, w, tools, at);
}

static bool is_namespace(const struct tools_ask *a, const json_t *tool)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    return a->dialect == TOOLS_RESPONSES && type && !strcmp(type, "namespace");
}

static int read_tool(const struct reading *r, struct jw *w, const json_t *tool,
                     struct tools_place at)
{
    const char *own = r->a->dialect == TOOLS_MESSAGES ? "custom" : "function";
    const json_t *type = json_object_get(tool, "type");
    const char *word = json_string_value(type);
    if (!json_is_object(tool)) {
        char path[PARAM_PATH_MAX];
        return fail(r, SRV_ERR_INVALID_TYPE, tool_path(r->a, &at, "", path),
                    "'tools' must be an array of tool objects.");
    }
    if (type && !json_is_null(type) && !word)
        return fail_tool(r, SRV_ERR_INVALID_TYPE, &at, "type", "must be a string");
    if (!word && r->a->dialect != TOOLS_MESSAGES)
        return fail_tool(r, SRV_ERR_MISSING, &at, "type", "is required");
    if (is_namespace(r->a, tool) && !at.space) return add_namespace(r, w, tool, at);
    const struct known_tool *known = word ? find_known(r->a, word) : NULL;
    if (word && strcmp(word, own) != 0 && !known) {
        /* Agents send tools that other servers run, or of other types: those are noted. */
        char name[PARAM_PATH_MAX], path[PARAM_PATH_MAX];
        snprintf(name, sizeof(name), "%.30s=%.40s", tool_path(r->a, &at, "", path), word);
        param_note(r->ignored, name);
        return 0;
    }
    return r->a->dialect == TOOLS_CHAT ? add_inner(r, w, tool, at)
                                       : add_tool(r, w, tool, known, at);
}

/* ---- the list ------------------------------------------------------------------------------ */

/* at: the first place of the list. */
static int add_tools(const struct reading *r, struct jw *w, const json_t *tools,
                     struct tools_place at)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        *(at.space ? &at.inner : &at.index) = (int)i;
        if (read_tool(r, w, json_array_get(tools, i), at)) return -1;
    }
    return 0;
}

static int write_list(const struct reading *r, const json_t *tools)
{
    struct tools_ask *a = r->a;
    struct jw w = {.out = &a->list};
    jw_open(&w, NULL, '[');
    if (add_tools(r, &w, tools, (struct tools_place){.inner = -1})) return -1;
    jw_close(&w);
    return a->list.failed ? param_no_memory() : 0;
}

/* Those of namespaces are counted each. */
static size_t count_tools(const struct tools_ask *a, const json_t *tools)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        n += is_namespace(a, tool) ? json_array_size(json_object_get(tool, "tools")) : 1;
    }
    return n;
}

static int read_list(const struct reading *r)
{
    struct tools_ask *a = r->a;
    const json_t *tools = json_object_get(r->body->root, "tools");
    if (!tools || json_is_null(tools)) return 0;
    if (!json_is_array(tools))
        return fail(r, SRV_ERR_INVALID_TYPE, "tools", "'tools' must be an array of tool objects.");
    size_t n_bytes = srv_body_span(r->body, tools).len;
    size_t n = count_tools(a, tools);
    if (n > TOOLS_MAX_TOOLS)
        return fail(r, SRV_ERR_INVALID_VALUE, "tools", "'tools' holds %zu tools; at most %d.", n,
                    TOOLS_MAX_TOOLS);
    if (n_bytes > TOOLS_TEXT_MAX)
        return fail(r, SRV_ERR_INVALID_VALUE, "tools", "'tools' has %zu bytes; at most %d.",
                    n_bytes, TOOLS_TEXT_MAX);
    a->tools = calloc(n ? n : 1, sizeof(*a->tools));
    a->places = calloc(n ? n : 1, sizeof(*a->places));
    if (!a->tools || !a->places) return param_no_memory();
    return write_list(r, tools);
}

/* ---- the choice ---------------------------------------------------------------------------- */

static int bad_choice(const struct reading *r)
{
    static const char *const forms[] = {
        [TOOLS_CHAT] = "'none', 'auto', 'required', {\"type\": \"function\", \"function\": "
                       "{\"name\": ...}} or {\"type\": \"allowed_tools\", ...}",
        [TOOLS_RESPONSES] = "'none', 'auto', 'required', {\"type\": \"function\", \"name\": ...} "
                            "or {\"type\": \"allowed_tools\", ...}",
        [TOOLS_MESSAGES] = "an object of type 'auto', 'any', 'tool' or 'none'",
    };
    return fail(r, SRV_ERR_INVALID_VALUE, "tool_choice", "'tool_choice' must be %s.",
                forms[r->a->dialect]);
}

/* Returns false for a word that is not one of the dialect. */
static bool read_use(struct tools_ask *a, const char *word)
{
    const char *required = a->dialect == TOOLS_MESSAGES ? "any" : "required";
    if (!strcmp(word, "none"))
        a->choice = TOOLS_CHOICE_NONE;
    else if (!strcmp(word, "auto"))
        a->choice = TOOLS_CHOICE_AUTO;
    else if (!strcmp(word, required))
        a->choice = TOOLS_CHOICE_REQUIRED;
    else
        return false;
    return true;
}

/* Makes the function that `object` names callable; path: of the object. */
static int allow_named(const struct reading *r, const json_t *object, const char *path)
{
    char full[PARAM_PATH_MAX + 24], word[PARAM_WORD_MAX];
    const json_t *holder = object;
    if (r->a->dialect == TOOLS_CHAT) holder = json_object_get(object, "function");
    snprintf(full, sizeof(full), "%s%s.name", path, r->a->dialect == TOOLS_CHAT ? ".function" : "");
    const char *name = json_string_value(json_object_get(holder, "name"));
    const char *space = json_string_value(json_object_get(holder, "namespace"));
    if (!name) return fail(r, SRV_ERR_MISSING, full, "'%s' is required, a string.", full);
    int i = space ? find_in_namespace(r->a, space, name) : find_tool(r->a, name);
    if (i < 0)
        return fail(r, SRV_ERR_INVALID_VALUE, full, "There is no tool '%s' in 'tools'.",
                    param_word(name, word));
    r->a->tools[i].excluded = false;
    return 0;
}

/* A choice of a tool that is not a function: the tool is refused then, not dropped. */
static int refuse_chosen_type(const struct reading *r, const char *type)
{
    const json_t *tools = json_object_get(r->body->root, "tools");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const char *own = json_string_value(json_object_get(json_array_get(tools, i), "type"));
        char path[PARAM_PATH_MAX];
        snprintf(path, sizeof(path), "tools[%zu].type", i);
        if (own && !strcmp(own, type))
            return fail(r, SRV_ERR_UNSUPPORTED, path,
                        "Only tools of type 'function' are supported.");
    }
    return bad_choice(r);
}

static void allow_none(struct tools_ask *a)
{
    for (int i = 0; i < a->n; i++)
        a->tools[i].excluded = true;
}

static int read_allowed(const struct reading *r, const json_t *choice)
{
    bool inner = r->a->dialect == TOOLS_CHAT;
    const char *base = inner ? "tool_choice.allowed_tools" : "tool_choice";
    const json_t *set = inner ? json_object_get(choice, "allowed_tools") : choice;
    const json_t *tools = json_object_get(set, "tools");
    const char *mode = json_string_value(json_object_get(set, "mode"));
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), "%s.mode", base);
    if (!mode || !read_use(r->a, mode) || r->a->choice == TOOLS_CHOICE_NONE)
        return fail(r, SRV_ERR_INVALID_VALUE, path, "'%s' must be 'auto' or 'required'.", path);
    snprintf(path, sizeof(path), "%s.tools", base);
    if (!json_is_array(tools) || json_array_size(tools) == 0)
        return fail(r, SRV_ERR_INVALID_TYPE, path, "'%s' must be an array of tools.", path);
    allow_none(r->a);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        snprintf(path, sizeof(path), "%s.tools[%zu]", base, i);
        if (type && strcmp(type, "function") != 0) return refuse_chosen_type(r, type);
        if (allow_named(r, tool, path)) return -1;
    }
    return 0;
}

static int read_choice_object(const struct reading *r, const json_t *choice)
{
    struct tools_ask *a = r->a;
    const char *type = json_string_value(json_object_get(choice, "type"));
    const char *own = a->dialect == TOOLS_MESSAGES ? "tool" : "function";
    if (!type) return bad_choice(r);
    if (a->dialect == TOOLS_MESSAGES && read_use(a, type)) return 0;
    if (!strcmp(type, own)) {
        a->choice = TOOLS_CHOICE_REQUIRED;
        a->once = true;
        allow_none(a);
        return a->n > 0 ? allow_named(r, choice, "tool_choice") : 0;
    }
    if (a->dialect == TOOLS_MESSAGES) return bad_choice(r);
    if (!strcmp(type, "allowed_tools")) return a->n > 0 ? read_allowed(r, choice) : bad_choice(r);
    return refuse_chosen_type(r, type);
}

static int read_parallel(const struct reading *r, const json_t *choice)
{
    bool of_choice = r->a->dialect == TOOLS_MESSAGES;
    const char *name = of_choice ? "disable_parallel_tool_use" : "parallel_tool_calls";
    const json_t *value = json_object_get(of_choice ? choice : r->body->root, name);
    if (!value || json_is_null(value)) return 0;
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), "%s%s", of_choice ? "tool_choice." : "", name);
    if (!json_is_boolean(value))
        return fail(r, SRV_ERR_INVALID_TYPE, path, "'%s' must be true or false.", path);
    r->a->parallel = json_is_true(value) != of_choice;
    return 0;
}

static struct srv_span word_text(enum tools_choice choice)
{
    const char *text = choice == TOOLS_CHOICE_NONE   ? "\"none\""
                       : choice == TOOLS_CHOICE_AUTO ? "\"auto\""
                                                     : "\"required\"";
    return (struct srv_span){text, strlen(text)};
}

static int read_choice(const struct reading *r)
{
    struct tools_ask *a = r->a;
    const json_t *choice = json_object_get(r->body->root, "tool_choice");
    const char *word = json_string_value(choice);
    if (choice && json_is_null(choice)) choice = NULL;
    a->parallel = true;
    a->choice = a->n > 0 ? TOOLS_CHOICE_AUTO : TOOLS_CHOICE_NONE;
    if (read_parallel(r, choice)) return -1;
    if (!choice) return 0;
    a->choice_text = srv_body_span(r->body, choice);
    if (json_is_object(choice)) {
        if (read_choice_object(r, choice)) return -1;
    } else if (a->dialect == TOOLS_MESSAGES || !word || !read_use(a, word)) {
        return bad_choice(r);
    } else {
        a->choice_text = word_text(a->choice);
    }
    if (a->n == 0 && a->choice == TOOLS_CHOICE_REQUIRED)
        return fail(r, SRV_ERR_INVALID_VALUE, "tool_choice", "'tool_choice' needs 'tools'.");
    if (a->n == 0) a->choice = TOOLS_CHOICE_NONE;
    return 0;
}

/* ---- the door ------------------------------------------------------------------------------ */

static int refuse_functions(const struct reading *r)
{
    static const char *const old[] = {"functions", "function_call"};
    for (size_t i = 0; r->a->dialect == TOOLS_CHAT && i < sizeof(old) / sizeof(old[0]); i++) {
        const json_t *value = json_object_get(r->body->root, old[i]);
        if (value && !json_is_null(value))
            return fail(r, SRV_ERR_UNSUPPORTED, old[i], "Use 'tools' and 'tool_choice'.");
    }
    return 0;
}

int tools_ask_read(struct tools_ask *a, enum tools_dialect dialect, const struct srv_body *body,
                   struct param_unknown *ignored)
{
    assert(dialect != TOOLS_NO_DIALECT);
    *a = (struct tools_ask){.dialect = dialect};
    const struct reading r = {a, body, ignored};
    buf_init(&a->list, TOOLS_TEXT_MAX + 64 * TOOLS_MAX_TOOLS);
    return refuse_functions(&r) || read_list(&r) || read_choice(&r) ? -1 : 0;
}

const struct tools_place *tools_ask_place(const struct tools_ask *a, const char *name)
{
    int i = find_tool(a, name);
    return i < 0 ? NULL : &a->places[i];
}

void tools_ask_finish(struct tools_ask *a)
{
    buf_finish(&a->list);
    free(a->tools);
    free(a->places);
    a->tools = NULL;
    a->places = NULL;
}

int tools_ask_refuse_schema(const struct tools_ask *a, const char *pointer, const char *message)
{
    const struct reading r = {(struct tools_ask *)a, NULL, NULL};
    char path[PARAM_PATH_MAX];
    for (int i = 0; i < a->n; i++) {
        size_t len = strlen(a->places[i].pointer);
        if (strncmp(pointer, a->places[i].pointer, len) || (pointer[len] && pointer[len] != '/'))
            continue;
        tool_path(a, &a->places[i], "parameters", path);
        return fail(&r, SRV_ERR_INVALID_SCHEMA, path, "%s", message);
    }
    return fail(&r, SRV_ERR_INVALID_SCHEMA, "tools", "%s", message);
}
