/* SPDX-License-Identifier: MIT */
/* The events of calls; see reader.h. */
#include <string.h>

#include "tokenizer/tools/reader.h"

static void send(struct tools_reader *r, enum tools_event_type type, const char *text, size_t len)
{
    struct tools_event e = {.type = type, .text = text, .len = len, .index = r->n_calls};
    if (len) r->on_event(r->ctx, &e);
}

static void send_arguments(struct tools_reader *r, size_t begin, size_t end)
{
    send(r, TOOLS_CALL_ARGUMENTS, r->text + begin, end > begin ? end - begin : 0);
}

void call_send_text(struct tools_reader *r, const char *text)
{
    send(r, TOOLS_CALL_ARGUMENTS, text, strlen(text));
}

void call_send_end(struct tools_reader *r, bool complete)
{
    struct tools_event e = {.type = TOOLS_CALL_END, .index = r->n_calls, .complete = complete};
    r->on_event(r->ctx, &e);
}

void call_send_raw(struct tools_reader *r, size_t end)
{
    send_arguments(r, r->sent, end);
    r->sent = end;
}

void call_send_keywords(void *ctx, const char *text, size_t len)
{
    send(ctx, TOOLS_CALL_ARGUMENTS, text, len);
}

static void send_held_keywords(struct tools_reader *r, struct range a)
{
    const char *end = r->text + a.end;
    keyword_scan_begin(&r->call.keywords, r->set->style.quote, call_send_keywords, r);
    keyword_scan(&r->call.keywords, r->text + a.begin, end, &end);
}

/* ---- strings ------------------------------------------------------------------------------- */

/* Decodes the text of a checked string in its place, as far as it came, and narrows the range. */
static void decode_string(struct tools_reader *r, struct range *range)
{
    struct json_unescape u = {0};
    char *out = r->text + range->begin, decoded[4];
    for (size_t i = range->begin; i < range->end; i++) {
        int n = json_unescape(&u, r->text[i], decoded);
        if (n < 0) break; /* half of a character, in an id */
        memcpy(out, decoded, (size_t)n);
        out += n;
    }
    range->end = (size_t)(out - r->text);
}

/* ---- calls as JSON ------------------------------------------------------------------------- */

/* The id that the model wrote; empty if there is none, or not as text. */
static struct range find_id(struct tools_reader *r)
{
    enum tools_format format = r->set->style.format;
    struct range id = r->call.id, none = {0, 0};
    if (format != TOOLS_MISTRAL && format != TOOLS_MISTRAL_ARGS) return none;
    if (id.begin == NOWHERE || id.end == NOWHERE) return none;
    if (r->call.plain) return id;
    if (r->text[id.begin] != '"') return none;
    id.begin++;
    id.end--;
    decode_string(r, &id);
    return id.end - id.begin <= MAX_ID ? id : none;
}

void call_send_begin(struct tools_reader *r)
{
    struct range name = r->call.name, id = find_id(r);
    struct tools_event e = {.type = TOOLS_CALL_BEGIN,
                            .text = r->text + name.begin,
                            .len = name.end - name.begin,
                            .index = r->n_calls};
    if (id.end > id.begin) {
        e.id = r->text + id.begin;
        e.id_len = id.end - id.begin;
    }
    r->on_event(r->ctx, &e);
}

static void send_xml(struct tools_reader *r, bool complete)
{
    struct call *c = &r->call;
    call_send_text(r, "{");
    for (size_t i = 0; i < c->n_params; i++) {
        call_send_key(r, &c->params[i], i);
        call_send_value(r, &c->params[i], c->params[i].value.end, VALUE_CLOSED);
        c->value_form = VALUE_UNDECIDED;
        c->value_sent = false;
    }
    if (complete) call_send_text(r, "}");
}

void call_send_held(struct tools_reader *r, bool complete)
{
    struct call *c = &r->call;
    struct range a = c->arguments;
    if (a.end == NOWHERE) a.end = r->pos;
    switch (c->form) {
    case ARGUMENTS_NONE:
        if (complete || c->closed) call_send_text(r, "{}");
        break;
    case ARGUMENTS_STRING: decode_string(r, &a); __attribute__((fallthrough));
    case ARGUMENTS_OBJECT: send_arguments(r, a.begin, reader_whole(r, a.begin, a.end)); break;
    case ARGUMENTS_XML: send_xml(r, complete); break;
    case ARGUMENTS_KEYWORDS: send_held_keywords(r, a); break;
    }
}

/* ---- values of qwen-xml -------------------------------------------------------------------- */

/* Bytes [begin, end) as the inside of a JSON string. */
static void send_escaped(struct tools_reader *r, size_t begin, size_t end)
{
    size_t from = begin;
    for (size_t i = begin; i < end; i++) {
        char escape[8];
        if (!json_escape(r->text[i], escape)) continue;
        send_arguments(r, from, i);
        from = i + 1;
        call_send_text(r, escape);
    }
    send_arguments(r, from, end);
}

void call_send_key(struct tools_reader *r, const struct xml_param *param, size_t number)
{
    call_send_text(r, number ? ", \"" : "\"");
    send_escaped(r, param->key.begin, param->key.end);
    call_send_text(r, "\": ");
}

static size_t trimmed_end(const struct tools_reader *r, size_t begin, size_t end)
{
    while (end > begin && json_is_space(r->text[end - 1]))
        end--;
    return end;
}

/* Returns true if [begin, end) is JSON, or may become JSON if it is cut. */
static bool is_json(const struct tools_reader *r, size_t begin, size_t end, bool cut)
{
    struct json_scan scan;
    const char *p = r->text + begin, *stop = r->text + trimmed_end(r, begin, end);
    json_scan_begin(&scan);
    if (p == stop || json_scan(&scan, p, stop, &p) == JSON_SCAN_FAIL) return false;
    return p == stop && (cut || json_scan_complete(&scan));
}

/* The value that a text means, by its schema and, where that leaves a choice, by the text. */
static enum value_form decide_form(const struct tools_reader *r, const struct xml_param *param,
                                   size_t end, enum value_end how)
{
    unsigned types = param->schema ? param->schema->types : 0;
    size_t n = end - param->value.begin;
    bool known = types & PARAM_KNOWN, null = known && types & PARAM_NULL;
    if (!known || types & PARAM_STRING) {
        bool begins = null && n <= 4 && !memcmp("null", r->text + param->value.begin, n);
        if (begins && how == VALUE_GOES_ON) return VALUE_UNDECIDED;
        return begins && n == 4 && how == VALUE_CLOSED ? VALUE_JSON : VALUE_STRING;
    }
    if (how == VALUE_GOES_ON) return VALUE_JSON; /* of a live call: the guide holds */
    return is_json(r, param->value.begin, end, how == VALUE_CUT) ? VALUE_JSON : VALUE_STRING;
}

/* The value is given out, or dropped, up to end. */
static void advance(struct tools_reader *r, struct xml_param *param, size_t end)
{
    if (end > param->value.begin) r->call.line = r->text[end - 1] == '\n';
    param->value.begin = end;
}

static void send_json_value(struct tools_reader *r, struct xml_param *param, size_t end)
{
    while (!r->call.value_sent && param->value.begin < end &&
           json_is_space(r->text[param->value.begin]))
        advance(r, param, param->value.begin + 1);
    end = trimmed_end(r, param->value.begin, end);
    r->call.value_sent |= end > param->value.begin;
    send_arguments(r, param->value.begin, end);
    advance(r, param, end);
}

void call_send_value(struct tools_reader *r, struct xml_param *param, size_t end,
                     enum value_end how)
{
    struct call *c = &r->call;
    if (how != VALUE_CLOSED) end = reader_whole(r, param->value.begin, end);
    if (c->value_form == VALUE_UNDECIDED) c->value_form = decide_form(r, param, end, how);
    if (c->value_form == VALUE_JSON) send_json_value(r, param, end);
    if (c->value_form != VALUE_STRING) return;
    if (!c->value_sent) call_send_text(r, "\"");
    c->value_sent = true;
    send_escaped(r, param->value.begin, end);
    advance(r, param, end);
    if (how == VALUE_CLOSED) call_send_text(r, "\"");
}
