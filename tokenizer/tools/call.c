/* SPDX-License-Identifier: MIT */
/* The walk through the text of a call; see reader.h and call_steps.h. */
#include <string.h>

#include "tokenizer/tools/call_steps.h"
#include "tokenizer/tools/reader.h"

/* ---- the beginning and the end of a call --------------------------------------------------- */

static void enter(struct tools_reader *r, enum step step);

/* Clears a call but for what its block goes on with. */
static void call_init(struct call *c)
{
    uint8_t after = c->after;
    bool first = c->first, control = c->control, canonical = c->canonical;
    memset(c, 0, offsetof(struct call, params));
    c->after = after;
    c->first = first;
    c->control = control;
    c->canonical = canonical;
    c->match = c->name.end = c->id.begin = NOWHERE;
}

void call_open(struct tools_reader *r, enum opening_index opening)
{
    static const uint8_t by_format[TOOLS_N_FORMATS] = {
        [TOOLS_HERMES] = STEP_BLOCK,         [TOOLS_LIST] = STEP_BLOCK,
        [TOOLS_QWEN_XML] = STEP_XML,         [TOOLS_LLAMA3] = STEP_KEY,
        [TOOLS_MISTRAL] = STEP_MISTRAL,      [TOOLS_MISTRAL_ARGS] = STEP_MISTRAL,
        [TOOLS_FUNCTIONARY] = READ_XML_NAME, [TOOLS_PYTHONIC] = STEP_PYTHON,
        [TOOLS_GEMMA4] = STEP_GEMMA,         [TOOLS_FUNCTIONGEMMA] = STEP_GEMMA,
    };
    enum step step = opening == OPENING_RESULT     ? READ_RESULT
                     : opening == OPENING_FUNCTION ? READ_XML_NAME
                     : opening == OPENING_OBJECT   ? STEP_KEY
                     : opening == OPENING_TAG      ? STEP_TAG
                     : opening == OPENING_CALL     ? READ_PLAIN_NAME
                                                   : by_format[r->set->style.format];
    struct call *c = &r->call;
    c->first = true;
    c->canonical = opening == OPENING_BLOCK || opening == OPENING_OBJECT;
    c->control = opening == OPENING_BLOCK
                     ? r->markers.control[TOOLS_MARK_OPEN]
                     : opening == OPENING_TAG && r->markers.control[TOOLS_MARK_PYTHON_TAG];
    enum tools_format format = r->set->style.format;
    bool closes = format == TOOLS_QWEN_XML || format == TOOLS_FUNCTIONARY || r->set->style.quote;
    c->after = format == TOOLS_LLAMA3 ? STEP_CALL : closes ? STEP_CLOSE : STEP_BARE;
    call_init(c);
    c->opened = r->pos;
    enter(r, step);
}

/* A call was given out, and reading goes on in its block. */
static void begin_after(struct tools_reader *r)
{
    struct call *c = &r->call;
    call_init(c);
    c->first = false;
    r->held = r->sent = r->pos;
    if (c->after == BLOCK_DONE)
        reader_block_done(r);
    else
        enter(r, (enum step)c->after);
}

static void complete_call(struct tools_reader *r)
{
    struct call *c = &r->call;
    if (!c->live) {
        reader_confirm(r);
        call_send_begin(r);
    }
    if (c->live && c->form == ARGUMENTS_XML)
        call_send_text(r, "}");
    else if (!c->live || (c->form != ARGUMENTS_OBJECT && c->form != ARGUMENTS_KEYWORDS))
        call_send_held(r, true);
    call_send_end(r, true);
    r->n_calls++;
    begin_after(r);
}

/* Returns true if what came is a call even if nothing more comes. */
static bool is_call(const struct tools_reader *r)
{
    const struct call *c = &r->call;
    bool begun = c->form != ARGUMENTS_NONE || c->closed;
    return c->named && (begun || r->set->style.format != TOOLS_LLAMA3);
}

/* The end of the part of the current value that can be emitted: before a possible closing tag. */
static size_t value_end(const struct tools_reader *r)
{
    const struct call *c = &r->call;
    size_t end = c->match != NOWHERE ? c->match : r->pos;
    return end > c->param.value.begin && r->text[end - 1] == '\n' ? end - 1 : end;
}

static bool in_xml_value(const struct call *c)
{
    return c->step == READ_XML_VALUE || c->step == READ_XML_NEXT_KEY;
}

/* The text ends in a call. */
static void cut_call(struct tools_reader *r)
{
    struct call *c = &r->call;
    if (!c->live) {
        reader_confirm(r);
        call_send_begin(r);
        call_send_held(r, false);
        if (in_xml_value(c)) call_send_key(r, &c->param, c->n_params);
    }
    if (in_xml_value(c)) call_send_value(r, &c->param, value_end(r), VALUE_CUT);
    call_send_end(r, c->closed);
    r->n_calls++;
}

static void fail_call(struct tools_reader *r, size_t at)
{
    struct call *c = &r->call;
    if (c->live) { /* the guide let something come that is not a call */
        call_send_end(r, c->closed);
        r->n_calls++;
        c->first = false;
        r->held = r->sent < at ? r->sent : at;
    }
    reader_fail(r, at);
}

/* ---- giving out what comes ----------------------------------------------------------------- */

/* The call is one now, whatever comes, if the guide holds: it goes out from here on. */
static void begin_live(struct tools_reader *r)
{
    struct call *c = &r->call;
    bool late_id = r->set->style.format == TOOLS_MISTRAL && r->set->style.writes_id;
    if (!r->guided || !c->canonical || tools_reader_reasoning(r) || late_id) return;
    reader_confirm(r);
    call_send_begin(r);
    c->live = true;
    if (c->form == ARGUMENTS_XML) call_send_text(r, "{");
    r->sent = c->form == ARGUMENTS_OBJECT ? c->arguments.begin : r->pos;
}

/* Gives out what came of a live call, and moves sent up to the part still needed. */
static void flush_live(struct tools_reader *r)
{
    struct call *c = &r->call;
    if (c->step == READ_ARGS) {
        call_send_raw(r, reader_whole(r, r->sent, r->pos));
    } else if (in_xml_value(c)) {
        call_send_value(r, &c->param, value_end(r), VALUE_GOES_ON);
        r->sent = c->param.value.begin;
    } else {
        r->sent = c->step == READ_XML_KEY ? c->param.key.begin
                  : c->match != NOWHERE   ? c->match
                                          : r->pos;
    }
}

/* ---- literals ------------------------------------------------------------------------------ */

static bool is_allowed(const struct tools_reader *r, const struct literal *l)
{
    const struct call *c = &r->call;
    bool llama3 = r->set->style.format == TOOLS_LLAMA3;
    unsigned needed = MEMBER_NAME | (llama3 ? MEMBER_ARGS : 0);
    if (l->member & c->members) return false;
    switch ((enum when)l->when) {
    case ALWAYS: return true;
    case IF_MORE: return r->n_calls < r->set->max_calls;
    case IF_UNSEEN: return c->members != ALL_MEMBERS;
    case IF_WHOLE: return (c->members & needed) == needed;
    case IF_TEXT: return !tools_reader_reasoning(r);
    }
    return false;
}

/* The bytes by which a literal is found; "" if it is a token of its own. */
static const char *text_of(const struct tools_reader *r, const struct literal *l)
{
    if (l->text) return l->text;
    if (r->markers.id[l->marker] >= 0) return "";
    return tools_marker_text(&r->set->style, (enum tools_marker)l->marker);
}

/* Drops the literals that the byte at pos does not fit. Returns the one it completes, or NULL. */
static const struct literal *match_byte(struct tools_reader *r)
{
    struct call *c = &r->call;
    const struct step_row *row = &call_steps[c->step];
    size_t k = r->pos - c->match;
    for (unsigned left = c->alive; left; left &= left - 1) {
        int i = __builtin_ctz(left);
        const char *text = text_of(r, &row->literals[i]);
        if (text[k] != r->text[r->pos])
            c->alive &= (uint8_t) ~(1u << i);
        else if (!text[k + 1])
            return &row->literals[i];
    }
    return NULL;
}

static void begin_literal(struct tools_reader *r)
{
    struct call *c = &r->call;
    const struct step_row *row = &call_steps[c->step];
    c->match = r->pos;
    c->alive = 0;
    for (int i = 0; i < row->n; i++)
        if (is_allowed(r, &row->literals[i])) c->alive |= (uint8_t)(1u << i);
}

/* Where text begins again after a step that failed at pos: a marker may have begun before. */
static size_t restart(const struct tools_reader *r)
{
    const struct call *c = &r->call;
    if (c->match != NOWHERE && c->match < r->pos) return c->match;
    return c->step == STEP_LIST && r->text[r->pos - 1] == '[' ? r->pos - 1 : r->pos;
}

static void take_literal(struct tools_reader *r, const struct literal *l)
{
    struct call *c = &r->call;
    c->match = NOWHERE;
    c->members |= l->member;
    enter(r, (enum step)l->next);
}

/* Skips white space. Returns true if a byte is left after it. */
static bool skip_spaces(struct tools_reader *r, size_t limit)
{
    struct call *c = &r->call;
    while (r->pos < limit && json_is_space(r->text[r->pos])) {
        c->opened += c->opened == r->pos;
        r->pos++;
    }
    return r->pos < limit;
}

static void read_step(struct tools_reader *r, size_t limit)
{
    struct call *c = &r->call;
    const struct step_row *row = &call_steps[c->step];
    const struct literal *l = NULL;
    if (c->match == NOWHERE) {
        if (row->spaces && !skip_spaces(r, limit)) return;
        begin_literal(r);
    }
    while (r->pos < limit && !(l = match_byte(r)) && c->alive)
        r->pos++;
    if (l) {
        r->pos++;
        take_literal(r, l);
    } else if (r->pos < limit && row->name && c->match == r->pos) {
        c->match = NOWHERE;
        enter(r, READ_PLAIN_NAME);
    } else if (r->pos < limit) {
        fail_call(r, restart(r));
    }
}

/* ---- names and ids ------------------------------------------------------------------------- */

static void end_name(struct tools_reader *r)
{
    struct call *c = &r->call;
    bool llama3 = r->set->style.format == TOOLS_LLAMA3;
    c->name.end = r->pos;
    c->named = true;
    c->tool = r->set->any_name ? NULL : tool_exact(r->set, &c->tools, r->pos - c->name.begin);
    bool keywords = r->set->style.assign && c->step == READ_PLAIN_NAME;
    if (c->step == READ_PLAIN_NAME && !keywords) {
        enter(r, STEP_NAMED);
        return;
    }
    r->pos++;
    if (keywords) {
        begin_live(r);
        enter(r, READ_KEYWORDS);
        return;
    }
    if (r->set->style.format == TOOLS_FUNCTIONARY) {
        c->plain = true;
        enter(r, STEP_BARE_ARGS);
        return;
    }
    if (c->step == READ_XML_NAME) c->form = ARGUMENTS_XML;
    enter(r, c->step == READ_XML_NAME ? STEP_XML_BODY : STEP_MEMBER);
    if (!llama3 && !(c->members & MEMBER_ARGS)) begin_live(r);
}

static void read_name(struct tools_reader *r)
{
    struct call *c = &r->call;
    char byte = r->text[r->pos], end = c->step == READ_NAME ? '"' : '>';
    size_t n = r->pos - c->name.begin;
    bool ended = c->step != READ_PLAIN_NAME ? byte == end
                 : r->set->style.assign     ? byte == *r->set->style.name_close
                                            : byte == '[' || byte == '{';
    if (tool_narrow(r->set, &c->tools, n, byte))
        r->pos++;
    else if (ended && n && (r->set->any_name || tool_exact(r->set, &c->tools, n)))
        end_name(r);
    else
        fail_call(r, r->pos);
}

static void read_plain_id(struct tools_reader *r)
{
    struct call *c = &r->call;
    char byte = r->text[r->pos];
    size_t n = r->pos - c->id.begin;
    if (n < MAX_ID && tools_name_valid(&byte, 1)) {
        r->pos++;
    } else if (n && (byte == '[' || byte == '{')) {
        c->id.end = r->pos;
        enter(r, STEP_WITH_ID);
    } else {
        fail_call(r, r->pos);
    }
}

/* ---- JSON values --------------------------------------------------------------------------- */

/* Reads on in a value. Returns true at its end. */
static bool scan_value(struct tools_reader *r, size_t limit)
{
    struct call *c = &r->call;
    const char *p = r->text + r->pos, *end = r->text + limit;
    enum json_scan_result rc = c->step == READ_KEYWORDS ? keyword_scan(&c->keywords, p, end, &p)
                                                        : json_scan(&c->scan, p, end, &p);
    r->pos = (size_t)(p - r->text);
    if (rc == JSON_SCAN_FAIL) fail_call(r, r->pos);
    return rc == JSON_SCAN_DONE;
}

static void read_arguments(struct tools_reader *r, size_t limit)
{
    struct call *c = &r->call;
    if (!scan_value(r, limit)) return;
    bool keywords = c->step == READ_KEYWORDS;
    c->arguments.end = r->pos;
    c->closed = true;
    if (c->live && !keywords) call_send_raw(r, r->pos);
    enter(r, c->plain || keywords ? CALL_COMPLETE : STEP_MEMBER);
}

/* A value that is skipped; of an id the place is kept. */
static void read_value(struct tools_reader *r, size_t limit)
{
    struct call *c = &r->call;
    if (c->step == READ_ID && c->id.begin == NOWHERE) {
        if (json_is_space(r->text[r->pos])) {
            r->pos++;
            return;
        }
        c->id = (struct range){r->pos, NOWHERE};
    }
    if (!scan_value(r, limit)) return;
    if (c->step == READ_ID) c->id.end = r->pos;
    enter(r, STEP_MEMBER);
}

/* ---- arguments in a string ----------------------------------------------------------------- */

/* Bytes of the text that the string stands for: it must be an object. */
static bool take_decoded(struct call *c, const char *p, size_t n)
{
    const char *end = p + n;
    while (p < end) {
        bool done = json_scan_complete(&c->scan), none = !c->scan.nesting.depth && !done;
        if ((done || none) && json_is_space(*p)) {
            p++;
            continue;
        }
        if (done || (none && *p != '{')) return false;
        if (json_scan(&c->scan, p, end, &p) == JSON_SCAN_FAIL) return false;
    }
    return true;
}

static void read_string(struct tools_reader *r)
{
    struct call *c = &r->call;
    if (r->text[r->pos] != '"' || c->string.n) {
        char out[4];
        int n = json_unescape(&c->string, r->text[r->pos], out);
        if (n < 0 || !take_decoded(c, out, (size_t)n))
            fail_call(r, r->pos);
        else
            r->pos++;
    } else if (json_scan_complete(&c->scan) && !c->string.high) {
        c->arguments.end = r->pos++;
        c->closed = true;
        enter(r, STEP_MEMBER);
    } else {
        fail_call(r, r->pos);
    }
}

/* ---- qwen-xml ------------------------------------------------------------------------------ */

static bool same(const struct tools_reader *r, struct range a, struct range b)
{
    size_t n = a.end - a.begin;
    return n == b.end - b.begin && !memcmp(r->text + a.begin, r->text + b.begin, n);
}

/* The parameter that a key names; NULL: none, or the tool is not known. */
static const struct param *schema_of(const struct tools_reader *r, struct range key)
{
    const struct tool_entry *t = r->call.tool;
    return t ? param_find(t->params, t->n_params, r->text + key.begin, key.end - key.begin) : NULL;
}

static void begin_param(struct tools_reader *r, struct range key)
{
    struct call *c = &r->call;
    c->param = (struct xml_param){key, {r->pos, NOWHERE}, schema_of(r, key)};
    c->value_form = VALUE_UNDECIDED;
    c->value_sent = false;
    c->lead = true;
    c->line = false;
    if (c->live) call_send_key(r, &c->param, c->n_params);
    enter(r, READ_XML_VALUE);
}

/* Returns false if the call has too many parameters to be held, and failed. */
static bool end_param(struct tools_reader *r, size_t end)
{
    struct call *c = &r->call;
    if (c->live) {
        call_send_value(r, &c->param, end, VALUE_CLOSED);
    } else if (c->n_params == MAX_XML_PARAMS) {
        fail_call(r, r->pos);
        return false;
    } else {
        c->param.value.end = end;
        c->params[c->n_params] = c->param;
    }
    c->n_params++;
    return true;
}

/* Returns true if a key in hand may follow the value without its closing tag: it is another
 * parameter of the tool, or, if the tools are not known, one that is not given yet. */
static bool follows(const struct tools_reader *r, struct range key)
{
    const struct call *c = &r->call;
    const struct param *p = schema_of(r, key);
    if (!r->set->any_name) return p && p != c->param.schema;
    if (c->live) return false; /* the keys before it have left the window */
    for (size_t i = 0; i < c->n_params; i++)
        if (same(r, c->params[i].key, key)) return false;
    return !same(r, c->param.key, key);
}

/*
 * Reads a byte of a key. Returns true at its '>', and fails (*ret false) at what cannot be in it.
 */
static bool read_key_byte(const struct tools_reader *r, size_t begin, bool *ret)
{
    char c = r->text[r->pos];
    size_t n = r->pos - begin;
    *ret = (c == '>' && n) || (n < MAX_XML_KEY && (unsigned char)c >= 0x20 && c != '<' && c != '>');
    return c == '>' && n;
}

static void read_key(struct tools_reader *r)
{
    bool ok;
    struct range key = {r->call.param.key.begin, r->pos};
    bool ended = read_key_byte(r, key.begin, &ok);
    if (!ok) {
        fail_call(r, r->pos);
        return;
    }
    r->pos++;
    if (ended) begin_param(r, key);
}

/* Whether the value goes on with this key, or ends before its tag at `match`. */
static void read_next_key(struct tools_reader *r)
{
    struct call *c = &r->call;
    bool ok;
    struct range key = {c->match + strlen("<parameter="), r->pos};
    bool ended = read_key_byte(r, key.begin, &ok);
    if (ok && !ended) {
        r->pos++;
    } else if (ended && follows(r, key)) {
        size_t end = c->match - (c->match > c->param.value.begin);
        r->pos++;
        if (!end_param(r, end)) return;
        c->match = NOWHERE;
        begin_param(r, key);
    } else {
        c->match = NOWHERE;
        c->step = READ_XML_VALUE;
    }
}

static void end_value(struct tools_reader *r)
{
    struct call *c = &r->call;
    size_t end = c->match;
    if (end > c->param.value.begin && r->text[end - 1] == '\n') end--;
    r->pos++;
    c->match = NOWHERE;
    if (end_param(r, end)) enter(r, STEP_XML_BODY);
}

/* A byte of a value from its '<' at `match` on. */
static void read_tag(struct tools_reader *r)
{
    static const char close[] = "</parameter>", next[] = "<parameter=";
    struct call *c = &r->call;
    size_t k = r->pos - c->match;
    bool line = c->match > c->param.value.begin ? r->text[c->match - 1] == '\n' : c->line;
    bool closes = close[k] == r->text[r->pos] && (k < 1 || r->text[c->match + 1] == '/');
    bool opens = next[k] == r->text[r->pos] && (k < 1 || r->text[c->match + 1] == 'p') && line;
    if (closes && k + 1 == strlen(close)) {
        end_value(r);
    } else if (opens && k + 1 == strlen(next)) {
        r->pos++;
        c->step = READ_XML_NEXT_KEY;
    } else if (closes || opens) {
        r->pos++;
    } else {
        c->match = NOWHERE;
    }
}

static void read_xml_value(struct tools_reader *r, size_t limit)
{
    struct call *c = &r->call;
    if (c->lead) {
        c->lead = false;
        if (r->text[r->pos] == '\n') {
            c->param.value.begin = ++r->pos;
            c->line = true;
            return;
        }
    }
    if (c->match == NOWHERE) {
        const char *p = memchr(r->text + r->pos, '<', limit - r->pos);
        r->pos = p ? (size_t)(p - r->text) : limit;
        if (!p) return;
        c->match = r->pos;
    }
    read_tag(r);
}

/* ---- results ------------------------------------------------------------------------------- */

/* A block without its closing tag, or where a call begins, is text. */
static void read_result(struct tools_reader *r, size_t limit)
{
    static const char close[] = "</tool_response>";
    struct call *c = &r->call;
    const struct opening *block = &r->openings[OPENING_BLOCK];
    if (c->match == NOWHERE) {
        const char *p = memchr(r->text + r->pos, '<', limit - r->pos);
        r->pos = p ? (size_t)(p - r->text) : limit;
        if (p) c->match = r->pos;
        return;
    }
    size_t k = r->pos - c->match;
    const char *text = r->text + c->match;
    bool marked = block->modes && reader_opening_is_text(r, block);
    bool closes = k < strlen(close) && !memcmp(text, close, k + 1);
    bool calls = marked && k < block->len && !memcmp(text, block->text, k + 1);
    if (calls && k + 1 == block->len) {
        fail_call(r, c->match);
    } else if (closes && k + 1 == strlen(close)) {
        r->pos++;
        reader_confirm(r);
        reader_block_done(r);
    } else if (closes || calls) {
        r->pos++;
    } else {
        c->match = NOWHERE;
    }
}

/* ---- all steps ----------------------------------------------------------------------------- */

static void begin_arguments(struct tools_reader *r)
{
    struct call *c = &r->call;
    const char *brace = "{";
    json_scan_begin(&c->scan);
    json_scan(&c->scan, brace, brace + 1, &brace);
    c->arguments = (struct range){r->pos - 1, NOWHERE};
    c->form = ARGUMENTS_OBJECT;
    if (c->live) r->sent = c->arguments.begin;
    if (c->named && !c->live) {
        const struct tools_style *style = &r->set->style;
        size_t n = strlen(style->call_open);
        if (style->format == TOOLS_LLAMA3)
            c->canonical &= c->name.begin - r->held >= n &&
                            !memcmp(r->text + c->name.begin - n, style->call_open, n);
        begin_live(r);
    }
}

/* Begins a step; its literal, if it has one, is taken. */
static void enter(struct tools_reader *r, enum step step)
{
    struct call *c = &r->call;
    c->step = (uint8_t)step;
    switch (step) {
    case STEP_LIST: c->after = STEP_NEXT; break;
    case STEP_PYTHON_LIST: c->after = STEP_PYTHON_NEXT; break;
    case READ_PLAIN_NAME:
        c->plain = true;
        if (!r->set->style.assign) c->after = BLOCK_DONE;
        __attribute__((fallthrough));
    case READ_NAME:
    case READ_XML_NAME:
        c->name = (struct range){r->pos, NOWHERE};
        c->tools = (struct name_range){0, r->set->n_tools};
        break;
    case READ_ARGS: begin_arguments(r); break;
    case READ_KEYWORDS:
        c->form = ARGUMENTS_KEYWORDS;
        c->arguments = (struct range){r->pos, NOWHERE};
        keyword_scan_begin(&c->keywords, r->set->style.quote, c->live ? call_send_keywords : NULL,
                           r);
        break;
    case READ_STRING:
        c->form = ARGUMENTS_STRING;
        c->arguments = (struct range){r->pos, NOWHERE};
        __attribute__((fallthrough));
    case READ_TYPE:
    case READ_ID: json_scan_begin(&c->scan); break;
    case READ_PLAIN_ID: c->id = (struct range){r->pos, NOWHERE}; break;
    case READ_XML_KEY: c->param.key.begin = r->pos; break;
    case READ_NULL:
        c->closed = true;
        c->step = STEP_MEMBER;
        break;
    case STEP_LIST_END:
        if (c->first) reader_confirm(r); /* an empty list is dropped */
        c->first = false;
        r->held = r->sent = r->pos;
        if (!r->set->style.close[0]) reader_block_done(r);
        break;
    case CALL_COMPLETE: complete_call(r); break;
    case BLOCK_DONE: reader_block_done(r); break;
    default: break;
    }
}

static void read_any(struct tools_reader *r, size_t limit)
{
    switch (r->call.step) {
    case READ_NAME:
    case READ_XML_NAME:
    case READ_PLAIN_NAME: read_name(r); break;
    case READ_ARGS:
    case READ_KEYWORDS: read_arguments(r, limit); break;
    case READ_STRING: read_string(r); break;
    case READ_TYPE:
    case READ_ID: read_value(r, limit); break;
    case READ_PLAIN_ID: read_plain_id(r); break;
    case READ_XML_KEY: read_key(r); break;
    case READ_XML_VALUE: read_xml_value(r, limit); break;
    case READ_XML_NEXT_KEY: read_next_key(r); break;
    case READ_RESULT: read_result(r, limit); break;
    default: read_step(r, limit); break;
    }
}

void call_read(struct tools_reader *r)
{
    while (r->in_call && r->pos < r->len) {
        size_t limit = (r->call.live ? r->sent : r->held) + r->max_held;
        if (r->pos >= limit && r->call.live) {
            flush_live(r);
            limit = r->sent + r->max_held;
        }
        if (r->pos >= limit) {
            fail_call(r, r->pos);
            return;
        }
        read_any(r, limit < r->len ? limit : r->len);
    }
    if (r->in_call && r->call.live) flush_live(r);
}

/* Returns true if the call is at a value whose text may be anything. */
static bool in_any_text(const struct tools_reader *r)
{
    const struct call *c = &r->call;
    return c->step == READ_ARGS || c->step == READ_KEYWORDS || c->step == READ_STRING ||
           c->step == READ_TYPE || c->step == READ_ID || c->step == READ_XML_VALUE;
}

bool call_marker(struct tools_reader *r, enum tools_marker marker)
{
    struct call *c = &r->call;
    bool named = c->step == READ_PLAIN_NAME && !r->set->style.assign;
    size_t n_name = r->pos - c->name.begin;
    if (named && (r->set->any_name ? n_name > 0 : tool_exact(r->set, &c->tools, n_name) != NULL)) {
        end_name(r);
    } else if (c->step == READ_PLAIN_ID && r->pos > c->id.begin) {
        c->id.end = r->pos;
        enter(r, STEP_WITH_ID);
    }
    if (in_any_text(r)) {
        size_t begin = r->pos;
        call_read(r);
        if (!r->in_call) r->pos = begin;
        return r->in_call;
    }
    const struct step_row *row = c->step < N_STEPS ? &call_steps[c->step] : NULL;
    for (int i = 0; row && c->match == NOWHERE && i < row->n; i++) {
        if (row->literals[i].text || row->literals[i].marker != (int)marker) continue;
        r->pos = r->len;
        take_literal(r, &row->literals[i]);
        return true;
    }
    fail_call(r, restart(r));
    return false;
}

void call_end(struct tools_reader *r)
{
    if (!is_call(r)) {
        fail_call(r, r->len);
        return;
    }
    cut_call(r);
    r->in_call = false;
    r->sent = r->pos = r->len;
    r->space = NOWHERE;
    r->mode = MODE_TEXT;
}
