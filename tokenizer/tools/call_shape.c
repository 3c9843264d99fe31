/* SPDX-License-Identifier: MIT */
/* The form of a call in a rendered text; see call_shape.h. */
#include "tokenizer/tools/call_shape.h"

#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/json_reader.h"
#include "tokenizer/tools/json_scan.h"

enum { MAX_CALL_BYTES = 2048 /* of a text with a call; searching it takes quadratic time */ };

/* A call as JSON: an object, or the one element of a list. */
struct json_call {
    struct tools_span whole, object; /* the same without a list */
    struct tools_span name;          /* without its quotes */
    struct tools_span arguments;
    bool is_list, says_parameters;
};

static struct tools_span between(const char *begin, const char *end)
{
    return (struct tools_span){.s = begin, .len = (size_t)(end - begin)};
}

static const char *end_of(struct tools_span s)
{
    return s.s + s.len;
}

struct tools_span tools_span_trim(struct tools_span s)
{
    while (s.len && json_is_space(s.s[s.len - 1]))
        s.len--;
    while (s.len && json_is_space(*s.s)) {
        s.s++;
        s.len--;
    }
    return s;
}

static const char *find(struct tools_span s, const char *word)
{
    return memmem(s.s, s.len, word, strlen(word));
}

static bool is_text(struct tools_span s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.s, text, s.len) == 0;
}

/* Moves past the text if it is next. */
static bool take(struct tools_span *s, const char *text)
{
    size_t n = strlen(text);
    if (s->len < n || memcmp(s->s, text, n) != 0) return false;
    s->s += n;
    s->len -= n;
    return true;
}

bool tools_span_put(char to[TOOLS_TEXT_BYTES], struct tools_span s)
{
    if (s.len >= TOOLS_TEXT_BYTES) return false;
    memcpy(to, s.s, s.len);
    to[s.len] = '\0';
    return true;
}

/* ---- a call as JSON ------------------------------------------------------------------------ */

/* Takes a member; false: a call has no such member. */
static bool read_member(struct json_call *c, struct tools_span key, struct tools_span value)
{
    bool parameters = is_text(key, "parameters");
    if (is_text(key, "name") && value.len > 2) {
        c->name = between(value.s + 1, end_of(value) - 1);
        return *value.s == '"';
    }
    if (parameters || is_text(key, "arguments")) {
        c->arguments = value;
        c->says_parameters = parameters;
        return *value.s == '{';
    }
    return is_text(key, "type") || is_text(key, "id");
}

static bool read_members(struct jr *r, struct json_call *c)
{
    struct tools_span key, value;
    jr_open(r, '{');
    while (jr_member(r, &key.s, &key.len) > 0) {
        char copy[16];
        if (key.len > sizeof(copy)) return false;
        memcpy(copy, key.s, key.len);
        key.s = copy;
        if (jr_skip(r, &value.s, &value.len) || !read_member(c, key, value)) return false;
    }
    return !r->failed && c->name.s && c->arguments.s;
}

/* A call that begins with the bracket at the beginning of text. */
static bool read_call(struct tools_span text, struct json_call *c)
{
    AUTO(jr_finish) struct jr r;
    char err[64];
    *c = (struct json_call){.is_list = *text.s == '['};
    jr_init(&r, text.s, text.len, 0, err, sizeof(err));
    bool ok = !c->is_list || (!jr_open(&r, '[') && jr_more(&r, ']') == 1);
    jr_peek(&r); /* after white space */
    size_t begin = r.pos;
    ok = ok && read_members(&r, c);
    c->object = between(text.s + begin, text.s + r.pos);
    ok = ok && (!c->is_list || jr_more(&r, ']') == 0);
    c->whole = between(text.s, text.s + r.pos);
    return ok;
}

/* The call of this name in the text: the outermost brackets around it. */
static bool find_call(struct tools_span text, const char *name, struct json_call *c)
{
    const char *at = find(text, name);
    for (const char *p = text.s; at && p < at; p++)
        if ((*p == '{' || *p == '[') && read_call(between(p, end_of(text)), c) &&
            is_text(c->name, name))
            return true;
    return false;
}

/* The texts around the values, where the template writes them in the order that we write them; it
 * keeps the canonical ones otherwise. */
static void take_call_texts(struct tools_style *style, const struct json_call *c)
{
    const char *id = memmem(c->object.s, c->object.len, SHAPE_ID, strlen(SHAPE_ID));
    struct tools_span after = between(end_of(c->arguments), end_of(c->object));
    struct tools_style s = *style;
    s.writes_id = id != NULL;
    if (c->name.s < c->arguments.s && (!id || id > c->arguments.s)) {
        const char *behind_id = id ? id + strlen(SHAPE_ID) : NULL;
        bool fits =
            tools_span_put(s.call_open, between(c->object.s, c->name.s)) &&
            tools_span_put(s.name_close, between(end_of(c->name), c->arguments.s)) &&
            tools_span_put(s.id_open, between(after.s, id ? id : after.s)) &&
            tools_span_put(s.id_close, id ? between(behind_id, end_of(after) - 1) : after) &&
            tools_span_put(s.call_close, id ? between(end_of(after) - 1, end_of(after)) : after);
        if (!id) s.id_close[0] = '\0';
        if (!fits) return;
    }
    *style = s;
}

/* ---- the end of the turn ------------------------------------------------------------------- */

static size_t common(struct tools_span a, struct tools_span b)
{
    size_t n = 0;
    while (n < a.len && n < b.len && a.s[n] == b.s[n])
        n++;
    return n;
}

/* The text up to where it has most in common with turn_end: that is where the turn ends. */
static bool cut_at_turn_end(struct tools_span text, struct tools_span turn_end,
                            struct tools_span *ret)
{
    size_t best = 0;
    for (const char *p = text.s; p < end_of(text); p++) {
        size_t n = common(between(p, end_of(text)), turn_end);
        if (n <= best) continue;
        best = n;
        *ret = between(text.s, p);
    }
    return best > 0;
}

/* ---- formats ------------------------------------------------------------------------------- */

/* A marker of a known format inside of a longer one is a form that we do not know. */
static bool is_plausible(struct tools_span marker)
{
    static const char *const known[] = {"<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (find(marker, known[i]) && !is_text(marker, known[i])) return false;
    return true;
}

/* By the text around the JSON. */
static enum tools_format json_format(const struct json_call *c, struct tools_span open,
                                     struct tools_span close)
{
    bool marked = open.len && close.len && is_plausible(open) && is_plausible(close);
    if ((!open.len || is_text(open, "<|python_tag|>")) && !close.len)
        return c->says_parameters && !c->is_list ? TOOLS_LLAMA3 : TOOLS_UNKNOWN;
    if (is_text(open, "[TOOL_CALLS]"))
        return !close.len && c->is_list ? TOOLS_MISTRAL : TOOLS_UNKNOWN;
    if (!marked) return TOOLS_UNKNOWN;
    return c->is_list ? TOOLS_LIST : TOOLS_HERMES;
}

static bool find_json(struct tools_style *style, struct tools_span text, struct tools_span turn_end)
{
    struct json_call c;
    struct tools_span after;
    struct tools_style s;
    if (!find_call(text, SHAPE_NAME, &c) || !find(c.arguments, SHAPE_KEY) ||
        !cut_at_turn_end(between(end_of(c.whole), end_of(text)), turn_end, &after))
        return false;
    struct tools_span open = tools_span_trim(between(text.s, c.whole.s)),
                      close = tools_span_trim(after);
    enum tools_format format = json_format(&c, open, close);
    if (format == TOOLS_UNKNOWN) return false;
    tools_style_of(&s, format, NULL, NULL);
    if (format != TOOLS_LLAMA3 &&
        !(tools_span_put(s.open, open) && tools_span_put(s.close, close) &&
          tools_span_put(s.block_open, between(open.s, c.object.s)) &&
          tools_span_put(s.block_close,
                         between(end_of(c.object), close.len ? end_of(close) : end_of(c.whole)))))
        return false;
    take_call_texts(&s, &c);
    *style = s;
    return true;
}

/* Every byte of it is fixed. */
static bool find_tags(struct tools_style *style, struct tools_span text)
{
    text = tools_span_trim(text);
    if (!take(&text, "<tool_call>\n<function=" SHAPE_NAME ">\n<parameter=" SHAPE_KEY
                     ">\n" SHAPE_VALUE "\n</parameter>\n</function>\n</tool_call>"))
        return false;
    return tools_style_of(style, TOOLS_QWEN_XML, NULL, NULL);
}

static bool find_args(struct tools_style *style, struct tools_span text)
{
    text = tools_span_trim(text);
    if (!take(&text, "[TOOL_CALLS]" SHAPE_NAME)) return false;
    bool writes_id = take(&text, "[CALL_ID]" SHAPE_ID);
    if (!take(&text, "[ARGS]") || !take(&text, "{\"" SHAPE_KEY "\"")) return false;
    tools_style_of(style, TOOLS_MISTRAL_ARGS, NULL, NULL);
    style->writes_id = writes_id;
    return true;
}

static bool find_function(struct tools_style *style, struct tools_span text)
{
    text = tools_span_trim(text);
    return take(&text, "<function=" SHAPE_NAME ">{\"" SHAPE_KEY "\"") &&
           find(text, "}</function>") && tools_style_of(style, TOOLS_FUNCTIONARY, NULL, NULL);
}

/* The same of a format with keywords; Python's strings are in either quotes. */
static bool find_keywords(struct tools_style *style, struct tools_span text,
                          enum tools_format format)
{
    struct tools_style s;
    char call[3 * TOOLS_TEXT_BYTES + 64];
    text = tools_span_trim(text);
    tools_style_of(&s, format, NULL, NULL);
    snprintf(call, sizeof(call), "%s%s" SHAPE_NAME "%s" SHAPE_KEY "%s", s.block_open, s.call_open,
             s.name_close, s.assign);
    if (!take(&text, call)) return false;
    const char *quote = s.quote ? s.quote : *text.s == '"' ? "\"" : "'";
    snprintf(call, sizeof(call), "%s" SHAPE_VALUE "%s%s%s", quote, quote, s.call_close,
             s.block_close);
    if (!take(&text, call)) return false;
    *style = s;
    return true;
}

bool tools_shape_find(struct tools_style *style, struct tools_span text, struct tools_span turn_end)
{
    if (text.len > MAX_CALL_BYTES || turn_end.len > MAX_CALL_BYTES) return false;
    return find_tags(style, text) || find_args(style, text) || find_function(style, text) ||
           find_keywords(style, text, TOOLS_PYTHONIC) || find_keywords(style, text, TOOLS_GEMMA4) ||
           find_keywords(style, text, TOOLS_FUNCTIONGEMMA) || find_json(style, text, turn_end);
}

/* ---- what else is seen --------------------------------------------------------------------- */

void tools_shape_find_separator(struct tools_style *style, struct tools_span text)
{
    struct json_call one, two;
    struct tools_span rest;
    if (style->format != TOOLS_HERMES && style->format != TOOLS_LLAMA3) return;
    if (text.len > MAX_CALL_BYTES) return;
    if (!find_call(text, SHAPE_NAME, &one)) return;
    rest = between(end_of(one.whole), end_of(text));
    if (!find_call(rest, SHAPE_NEXT_NAME, &two)) return;
    rest = between(rest.s, two.whole.s);
    size_t n_open = strlen(style->block_open);
    if (!take(&rest, style->block_close) || rest.len < n_open) return;
    rest.len -= n_open;
    if (memcmp(end_of(rest), style->block_open, n_open) == 0)
        tools_span_put(style->one_per_block ? style->block_sep : style->call_sep, rest);
}

bool tools_shape_is_shown(enum tools_format format, const char *text)
{
    static const char *const json[] = {"{\"name\":", "\"arguments\":", "</tool_call>", NULL};
    static const char *const tags[] = {"<function=",  "<parameter=",  "</parameter>",
                                       "</function>", "</tool_call>", NULL};
    if (format == TOOLS_PYTHONIC) /* LFM2's templates show no call, but list tools like no other */
        return strstr(text, "List of tools: [{\"") ||
               strstr(text, "List of tools: <|tool_list_start|>[{\"");
    const char *const *words = format == TOOLS_QWEN_XML ? tags : json;
    for (const char *p = text; (p = strstr(p, "<tool_call>"));) {
        p += strlen("<tool_call>");
        const char *at = p + strspn(p, " \n\t\r"), *next = at;
        size_t i = 0;
        while (words[i] && (next = strstr(at, words[i])) && (i || next == at))
            at = next + strlen(words[i++]);
        if (!words[i]) return true;
    }
    return false;
}
