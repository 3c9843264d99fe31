/* SPDX-License-Identifier: MIT */
/*
 * hearth-filter parse --model DIR: the text of a model to content, reasoning and tool calls, with
 * nothing of the directory but its chat template; with "format" not even that. JSON lines on stdin
 * to JSON lines on stdout, in order, one answer per line, at once:
 *
 *   {"text", "template", "format", "think", "tools", "tool_choice", "parallel_tool_calls",
 *    "reasoning_format", "add_generation_prompt_suffix", "kwargs", "guided", "cuts"}
 *   -> {"content", "reasoning", "tool_calls", "format", "deltas"}
 *
 * Markers count as tokens wherever their text stands outside of strings. "cuts" are the byte
 * offsets at which the text is cut into pieces; "guided" checks each byte against the language of
 * the guide and reads as the server does. A line that cannot be answered gets {"error": "..."}.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "tests/filters/filter.h"
#include "server/config/config.h"
#include "tests/filters/filters.h"
#include "tests/filters/markers_by_text.h"
#include "tests/filters/parse_template.h"
#include "tokenizer/tools/tools.h"

#define MAX_LINE_BYTES (64u << 20)
#define MAX_ANSWER_BYTES (512u << 20)

/* ---- the request --------------------------------------------------------------------------- */

/* The parts of a line, as the library takes them. */
struct job {
    struct tools_style style;
    struct tools_markers markers;
    struct tools_tool tools[TOOLS_MAX_TOOLS];
    struct tools_request request;
    struct tools_set *set;
    const struct tok_chat *chat; /* NULL: the line names a format, or there is no template */
    bool guided, think_open;
};

struct parser {
    struct parse_templates templates;
    void *memory;             /* of the reader */
    struct gram_vocab *vocab; /* a token per byte, for the guide */
};

static const char *text_member(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

static bool is_set(const json_t *v)
{
    return v && !json_is_null(v);
}

/* One tool of the chat dialect; its schema's text is allocated. */
static int read_tool(const json_t *item, struct tools_tool *ret, struct filter_error *e)
{
    const json_t *function = json_object_get(item, "function");
    const json_t *name = json_object_get(function, "name");
    json_t *schema = json_object_get(function, "parameters");
    if (!json_is_string(name)) return filter_fail(e, "a tool has no function with a name");
    *ret =
        (struct tools_tool){.name = json_string_value(name), .name_len = json_string_length(name)};
    if (!is_set(schema)) return 0;
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) return filter_fail(e, "no memory");
    ret->schema = text;
    ret->schema_len = strlen(text);
    return 0;
}

static int read_tools(const json_t *tools, struct job *j, struct filter_error *e)
{
    const json_t *item;
    size_t i;
    j->request.tools = j->tools;
    j->request.any_name = !is_set(tools);
    if (j->request.any_name) return 0;
    if (!json_is_array(tools)) return filter_fail(e, "tools must be an array");
    if (json_array_size(tools) > TOOLS_MAX_TOOLS)
        return filter_fail(e, "tools holds %zu tools; at most %d", json_array_size(tools),
                           TOOLS_MAX_TOOLS);
    json_array_foreach(tools, i, item)
    {
        if (read_tool(item, &j->tools[i], e)) return -1;
        j->request.n_tools = i + 1;
    }
    return 0;
}

static struct tools_tool *find_tool(struct job *j, const char *name)
{
    for (size_t i = 0; name && i < j->request.n_tools; i++)
        if (strlen(name) == j->tools[i].name_len &&
            memcmp(name, j->tools[i].name, j->tools[i].name_len) == 0)
            return &j->tools[i];
    return NULL;
}

static int choice_named(const char *word, enum tools_choice *ret)
{
    static const char *const words[] = {"none", "auto", "required"};
    for (int i = 0; word && i < 3; i++) {
        if (strcmp(word, words[i]) != 0) continue;
        *ret = (enum tools_choice)i;
        return 0;
    }
    return -1;
}

static int include_tool(struct job *j, const json_t *item, struct filter_error *e)
{
    const char *name = text_member(json_object_get(item, "function"), "name");
    struct tools_tool *tool = find_tool(j, name);
    if (!tool) return filter_fail(e, "tool_choice names no tool of tools");
    tool->excluded = false;
    return 0;
}

/* A choice that names tools: the others are not in the language of the guide. */
static int read_named_choice(const json_t *choice, struct job *j, struct filter_error *e)
{
    const char *type = text_member(choice, "type");
    const json_t *allowed = json_object_get(choice, "allowed_tools"), *item;
    size_t i;
    for (i = 0; i < j->request.n_tools; i++)
        j->tools[i].excluded = true;
    j->request.choice = TOOLS_CHOICE_REQUIRED;
    if (type && strcmp(type, "function") == 0) {
        j->request.once = true;
        return include_tool(j, choice, e);
    }
    if (choice_named(text_member(allowed, "mode"), &j->request.choice))
        return filter_fail(e, "tool_choice is not known");
    json_array_foreach(json_object_get(allowed, "tools"), i, item)
    {
        if (include_tool(j, item, e)) return -1;
    }
    return 0;
}

static int read_choice(const json_t *choice, struct job *j, struct filter_error *e)
{
    j->request.choice = TOOLS_CHOICE_AUTO;
    if (!is_set(choice)) return 0;
    if (json_is_object(choice)) return read_named_choice(choice, j, e);
    if (!choice_named(json_string_value(choice), &j->request.choice)) return 0;
    return filter_fail(e, "tool_choice is not known");
}

/* The style of a template: the line's, else the directory's. */
static int find_style(struct parser *p, const json_t *request, struct job *j,
                      struct filter_error *e)
{
    const json_t *source = json_object_get(request, "template");
    if (is_set(source) && !json_is_string(source))
        return filter_fail(e, "template must be a string");
    const struct parse_template *t =
        parse_template_find(&p->templates, json_string_value(source), e);
    if (!t) return -1;
    j->style = t->style;
    j->chat = t->chat;
    return 0;
}

static int read_style(const json_t *request, struct job *j, struct filter_error *e)
{
    const char *name = text_member(request, "format");
    const json_t *think = json_object_get(request, "think");
    const char *open = json_string_value(json_array_get(think, 0));
    const char *close = json_string_value(json_array_get(think, 1));
    enum tools_format format;
    if (!name) return filter_fail(e, "format must be a string");
    if (!tools_format_find(name, &format)) return filter_fail(e, "format '%s' is not known", name);
    if (is_set(think) && (json_array_size(think) != 2 || !open || !*open || !close || !*close))
        return filter_fail(e, "think must be a list of two strings");
    if (!tools_style_of(&j->style, format, open, close))
        return filter_fail(e, "a marker of think is longer than %d bytes", TOOLS_TEXT_BYTES - 1);
    return 0;
}

/* The end of the prompt of a plain question. A template that refuses it says nothing. */
static int render_suffix(const json_t *request, struct job *j, struct filter_error *e)
{
    const json_t *kwargs = json_object_get(request, "kwargs");
    struct tools_prompt prompt;
    char err[1024], *text = NULL;
    if (is_set(kwargs)) text = json_dumps(kwargs, 0);
    if (is_set(kwargs) && (!text || !json_is_object(kwargs))) {
        free(text);
        return filter_fail(e, "kwargs must be an object");
    }
    struct tools_prompt_params params = {.style = &j->style,
                                         .messages = "[{\"role\":\"user\",\"content\":\"Hi\"}]",
                                         .kwargs = text,
                                         .add_generation_prompt = true};
    if (!tools_prompt_render(&prompt, j->chat, &params, err, sizeof(err))) {
        j->think_open = prompt.think_open;
        j->request.answer_begun = prompt.think_closed;
        tok_prompt_finish(&prompt.prompt);
    }
    free(text);
    return 0;
}

static int read_reasoning(const json_t *request, struct job *j, struct filter_error *e)
{
    const char *suffix = text_member(request, "add_generation_prompt_suffix");
    const json_t *format = json_object_get(request, "reasoning_format");
    const char *word = is_set(format) ? json_string_value(format) : "auto";
    if (!word || (strcmp(word, "auto") != 0 && strcmp(word, "none") != 0))
        return filter_fail(e, "reasoning_format must be auto or none");
    j->request.no_reasoning = strcmp(word, "none") == 0;
    if (suffix) j->think_open = tools_think_is_open(&j->style, suffix, strlen(suffix));
    if (suffix) j->request.answer_begun = tools_think_is_closed(&j->style, suffix, strlen(suffix));
    return suffix || !j->chat ? 0 : render_suffix(request, j, e);
}

static int read_job(struct parser *p, const json_t *request, struct job *j, struct filter_error *e)
{
    bool parallel, named = is_set(json_object_get(request, "format"));
    j->request.style = &j->style;
    if ((named ? read_style(request, j, e) : find_style(p, request, j, e)) ||
        read_tools(json_object_get(request, "tools"), j, e) ||
        read_choice(json_object_get(request, "tool_choice"), j, e) ||
        read_reasoning(request, j, e) ||
        filter_flag(request, "parallel_tool_calls", true, &parallel, e) ||
        filter_flag(request, "guided", false, &j->guided, e))
        return -1;
    j->request.one_call = !parallel;
    j->request.once |= !parallel;
    markers_by_text(&j->style, &j->markers);
    int rc = tools_set_create(&j->set, &j->request);
    return rc ? filter_fail(e, rc == TOK_ENOMEM ? "no memory"
                                                : "a tool's name is not valid or used twice")
              : 0;
}

static void job_finish(struct job *j)
{
    for (size_t i = 0; i < j->request.n_tools; i++)
        free((char *)j->tools[i].schema);
    tools_set_destroy(j->set);
}

/* ---- the answer ---------------------------------------------------------------------------- */

struct call {
    struct buf name, arguments, id;
    bool complete;
};

struct answer {
    struct buf content, reasoning, deltas;
    struct call calls[TOOLS_MAX_CALLS];
    uint32_t n_calls;
    struct jw w; /* of deltas */
    bool open;   /* a delta, whose string is open too */
    enum tools_event_type type;
};

static void answer_init(struct answer *a)
{
    memset(a, 0, sizeof(*a));
    buf_init(&a->content, MAX_ANSWER_BYTES);
    buf_init(&a->reasoning, MAX_ANSWER_BYTES);
    buf_init(&a->deltas, MAX_ANSWER_BYTES);
    for (int i = 0; i < TOOLS_MAX_CALLS; i++) {
        buf_init(&a->calls[i].name, MAX_ANSWER_BYTES);
        buf_init(&a->calls[i].arguments, MAX_ANSWER_BYTES);
        buf_init(&a->calls[i].id, MAX_ANSWER_BYTES);
    }
    jw_init(&a->w, &a->deltas);
    jw_open(&a->w, NULL, '[');
}

static void answer_finish(struct answer *a)
{
    buf_finish(&a->content);
    buf_finish(&a->reasoning);
    buf_finish(&a->deltas);
    for (int i = 0; i < TOOLS_MAX_CALLS; i++) {
        buf_finish(&a->calls[i].name);
        buf_finish(&a->calls[i].arguments);
        buf_finish(&a->calls[i].id);
    }
}

static void close_delta(struct answer *a)
{
    if (!a->open) return;
    jw_string_end(&a->w);
    if (a->type == TOOLS_CALL_ARGUMENTS) jw_close(&a->w);
    jw_close(&a->w);
    a->open = false;
}

static void open_call_delta(struct answer *a, uint32_t index)
{
    jw_open(&a->w, NULL, '{');
    jw_open(&a->w, "tool_call", '{');
    jw_int(&a->w, "index", index);
}

/* A part of a text: one delta for as long as nothing else comes. */
static void add_text(struct answer *a, const struct tools_event *event)
{
    static const char *const names[] = {"reasoning", "content"};
    if (a->open && a->type != event->type) close_delta(a);
    if (!a->open && event->type == TOOLS_CALL_ARGUMENTS)
        open_call_delta(a, event->index);
    else if (!a->open)
        jw_open(&a->w, NULL, '{');
    if (!a->open)
        jw_string_begin(&a->w,
                        event->type == TOOLS_CALL_ARGUMENTS ? "arguments" : names[event->type]);
    a->open = true;
    a->type = event->type;
    jw_string_part(&a->w, event->text, event->len);
}

static void add_call(struct answer *a, const struct tools_event *event)
{
    struct call *c = &a->calls[event->index];
    close_delta(a);
    open_call_delta(a, event->index);
    jw_string(&a->w, "name", event->text, event->len);
    if (event->id) jw_string(&a->w, "id", event->id, event->id_len);
    jw_close(&a->w);
    jw_close(&a->w);
    buf_add(&c->name, event->text, event->len);
    buf_add(&c->id, event->id ? event->id : "", event->id_len);
    a->n_calls = event->index + 1;
}

static void on_event(void *ctx, const struct tools_event *event)
{
    struct answer *a = ctx;
    struct call *c = &a->calls[event->index];
    switch (event->type) {
    case TOOLS_REASONING: buf_add(&a->reasoning, event->text, event->len); break;
    case TOOLS_CONTENT: buf_add(&a->content, event->text, event->len); break;
    case TOOLS_CALL_ARGUMENTS: buf_add(&c->arguments, event->text, event->len); break;
    case TOOLS_CALL_BEGIN: add_call(a, event); return;
    case TOOLS_CALL_END: c->complete = event->complete; return;
    }
    add_text(a, event);
}

static void write_text(struct jw *w, const char *name, const struct buf *b)
{
    jw_string(w, name, b->data ? b->data : "", b->len);
}

static int write_answer(struct answer *a, const struct job *j, struct jw *w, struct filter_error *e)
{
    jw_close(&a->w);
    if (jw_end(&a->w)->failed || a->content.failed || a->reasoning.failed)
        return filter_fail(e, "no memory for the answer");
    jw_open(w, NULL, '{');
    write_text(w, "content", &a->content);
    write_text(w, "reasoning", &a->reasoning);
    jw_open(w, "tool_calls", '[');
    for (uint32_t i = 0; i < a->n_calls; i++) {
        jw_open(w, NULL, '{');
        write_text(w, "name", &a->calls[i].name);
        write_text(w, "arguments", &a->calls[i].arguments);
        jw_bool(w, "complete", a->calls[i].complete);
        if (a->calls[i].id.len) write_text(w, "id", &a->calls[i].id);
        jw_close(w);
    }
    jw_close(w);
    jw_text(w, "format", tools_format_name(j->style.format));
    jw_json(w, "deltas", a->deltas.data, a->deltas.len);
    jw_close(w);
    return 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* ---- the guide ----------------------------------------------------------------------------- */

/* Every byte is a token; the last id ends an answer. */
enum { END_ID = 256, N_IDS };

static size_t byte_of_id(void *ctx, int32_t id, char *buf, size_t size)
{
    (void)ctx;
    if (id == END_ID) return 0;
    if (size) *buf = (char)id;
    return 1;
}

static int create_vocab(struct gram_vocab **ret)
{
    static const int32_t end = END_ID;
    struct gram_vocab_params params = {
        .n_ids = N_IDS, .bytes = byte_of_id, .end_ids = &end, .n_end_ids = 1};
    return gram_vocab_create(ret, &params);
}

static int walk(const struct gram *gram, const char *text, size_t len, size_t *ret,
                struct filter_error *e)
{
    void *memory = aligned_alloc(64, gram_state_bytes());
    if (!memory) return filter_fail(e, "no memory");
    struct gram_state *state = gram_state_init(memory, gram, NULL, NULL);
    size_t i = 0;
    while (i < len && gram_take_bytes(state, text + i, 1))
        i++;
    free(memory);
    *ret = i;
    return 0;
}

/* Checks a text against the language of the guide. *ret: the bytes that are within it. */
static int check_language(const struct parser *p, const struct job *j, const char *text, size_t len,
                          size_t *ret, struct filter_error *e)
{
    struct gram_options options = {.strict = false};
    struct gram_error error;
    struct gram *gram;
    enum tools_format format = j->style.format;
    *ret = len;
    if (j->request.any_name) return filter_fail(e, "guided needs tools");
    if (format == TOOLS_NONE || format == TOOLS_UNKNOWN || !j->request.n_tools ||
        j->request.choice == TOOLS_CHOICE_NONE)
        return 0;
    if (tools_compile(&gram, p->vocab, &j->request, &j->markers, j->think_open, NULL, &options,
                      &error))
        return filter_fail(e, "%s: %s", error.pointer, error.message);
    int rc = walk(gram, text, len, ret, e);
    gram_release(gram);
    return rc;
}

/* ---- texts --------------------------------------------------------------------------------- */

/* The end of the piece behind `at`. Repeated cuts are one. */
static int next_cut(const json_t *cuts, size_t *i, size_t at, size_t len, size_t *ret,
                    struct filter_error *e)
{
    for (; *i < json_array_size(cuts); ++*i) {
        const json_t *cut = json_array_get(cuts, *i);
        json_int_t v = json_integer_value(cut);
        if (!json_is_integer(cut) || v < (json_int_t)at || v > (json_int_t)len)
            return filter_fail(e, "cuts must be ascending offsets of bytes of the text");
        if (v == (json_int_t)at) continue;
        *ret = (size_t)v;
        return 0;
    }
    *ret = len;
    return 0;
}

static int read_pieces(struct tools_reader *r, struct answer *a, const json_t *text,
                       const json_t *cuts, struct filter_error *e)
{
    const char *s = json_string_value(text);
    size_t len = json_string_length(text), at = 0, i = 0, end = len;
    if (is_set(cuts) && !json_is_array(cuts)) return filter_fail(e, "cuts must be an array");
    do {
        if (next_cut(cuts, &i, at, len, &end, e)) return -1;
        close_delta(a);
        tools_reader_text(r, s + at, end - at);
        at = end;
    } while (at < len);
    tools_reader_end(r);
    close_delta(a);
    return 0;
}

static void write_outside(struct jw *w, size_t offset)
{
    char message[64];
    snprintf(message, sizeof(message), "byte %zu is outside the language", offset);
    jw_open(w, NULL, '{');
    jw_text(w, "error", message);
    jw_int(w, "offset", (int64_t)offset);
    jw_close(w);
}

/* Returns 1 if the answer is written: the text is not one that the guide lets come. */
static int read_text(const struct parser *p, const json_t *request, struct job *j, struct answer *a,
                     struct jw *w, struct filter_error *e)
{
    const json_t *text = json_object_get(request, "text");
    struct tools_reader_params params = {.set = j->set,
                                         .markers = &j->markers,
                                         .guided = j->guided,
                                         .think_open = j->think_open,
                                         .max_held = TOOLS_MAX_HELD,
                                         .on_event = on_event,
                                         .ctx = a};
    if (!json_is_string(text)) return filter_fail(e, "text must be a string");
    size_t len = json_string_length(text), within = len;
    if (j->guided && check_language(p, j, json_string_value(text), len, &within, e)) return -1;
    if (within < len) {
        write_outside(w, within);
        return 1;
    }
    struct tools_reader *r = tools_reader_init(p->memory, &params);
    return read_pieces(r, a, text, json_object_get(request, "cuts"), e);
}

static int parse(struct parser *p, const json_t *request, struct jw *w, struct filter_error *e)
{
    struct job j = {.set = NULL};
    struct answer a;
    answer_init(&a);
    int rc = read_job(p, request, &j, e);
    if (!rc) rc = read_text(p, request, &j, &a, w, e);
    if (!rc) rc = write_answer(&a, &j, w, e);
    job_finish(&j);
    answer_finish(&a);
    return rc < 0 ? rc : 0;
}

static int answer(void *ctx, const char *line, size_t len, struct jw *w, struct filter_error *e)
{
    json_error_t error;
    json_t *request = json_loadb(len ? line : "", len, JSON_ALLOW_NUL, &error);
    if (!request) return filter_fail(e, "%s", error.text);
    int rc = json_is_object(request) ? parse(ctx, request, w, e)
                                     : filter_fail(e, "the line must be an object");
    json_decref(request);
    return rc;
}

int filter_parse(const struct srv_config *config)
{
    struct parser p = {.memory = malloc(tools_reader_bytes(TOOLS_MAX_HELD))};
    if (!p.memory || create_vocab(&p.vocab)) {
        shown_line(stderr, "hearth: out of memory");
        free(p.memory);
        return EXIT_FAILURE;
    }
    if (parse_templates_open(&p.templates, config)) return EXIT_FAILURE;
    const struct filter filter = {.max_line_bytes = MAX_LINE_BYTES,
                                  .max_answer_bytes = MAX_ANSWER_BYTES,
                                  .answer = answer,
                                  .ctx = &p};
    int status = filter_run(&filter);
    parse_templates_close(&p.templates);
    gram_vocab_destroy(p.vocab);
    free(p.memory);
    return status;
}
