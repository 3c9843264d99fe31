/* SPDX-License-Identifier: MIT */
/* The styles of the known formats, and their markers; see tools.h. */
#include "tokenizer/tools/tools.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char *const format_names[TOOLS_N_FORMATS] = {
    [TOOLS_NONE] = "none",
    [TOOLS_UNKNOWN] = "unknown",
    [TOOLS_HERMES] = "hermes",
    [TOOLS_LIST] = "list",
    [TOOLS_QWEN_XML] = "qwen-xml",
    [TOOLS_LLAMA3] = "llama3",
    [TOOLS_MISTRAL] = "mistral",
    [TOOLS_MISTRAL_ARGS] = "mistral-args",
    [TOOLS_FUNCTIONARY] = "functionary",
    [TOOLS_PYTHONIC] = "pythonic",
    [TOOLS_GEMMA4] = "gemma4",
    [TOOLS_FUNCTIONGEMMA] = "functiongemma",
};

const char *tools_format_name(enum tools_format format)
{
    assert((unsigned)format < TOOLS_N_FORMATS);
    return format_names[format];
}

bool tools_format_find(const char *name, enum tools_format *ret)
{
    for (int i = 0; i < TOOLS_N_FORMATS; i++) {
        if (strcmp(format_names[i], name) != 0) continue;
        *ret = (enum tools_format)i;
        return true;
    }
    return false;
}

const char *const tools_source_names[] = {"detected", "option", "fallback"};

#define JSON_CALL(key)                                                                             \
    .call_open = "{\"name\": \"", .name_close = "\", \"" key "\": ", .call_close = "}"

#define GEMMA_CALL(open_, close_, quote_, result)                                                  \
    {                                                                                              \
        .open = open_, .close = close_, .block_open = open_, .block_close = close_,                \
        .one_per_block = true, .call_open = "call:", .name_close = "{", .call_close = "}",         \
        .assign = ":", .comma = ",", .quote = quote_, .result_open = result                        \
    }

static const struct tools_style styles[TOOLS_N_FORMATS] = {
    [TOOLS_HERMES] = {.open = "<tool_call>",
                      .close = "</tool_call>",
                      .block_open = "<tool_call>\n",
                      .block_close = "\n</tool_call>",
                      .block_sep = "\n",
                      .one_per_block = true,
                      JSON_CALL("arguments")},
    [TOOLS_LIST] = {.open = "<tool_call>",
                    .close = "</tool_call>",
                    .block_open = "<tool_call>[",
                    .block_close = "]</tool_call>",
                    .block_sep = "\n",
                    .call_sep = ", ",
                    JSON_CALL("arguments")},
    [TOOLS_QWEN_XML] = {.open = "<tool_call>",
                        .close = "</tool_call>",
                        .block_open = "<tool_call>\n",
                        .block_close = "\n</tool_call>",
                        .block_sep = "\n",
                        .one_per_block = true,
                        .call_open = "<function=",
                        .name_close = ">\n",
                        .call_close = "</function>"},
    [TOOLS_LLAMA3] = {.call_sep = "; ", JSON_CALL("parameters")},
    [TOOLS_MISTRAL] = {.open = "[TOOL_CALLS]",
                       .block_open = "[TOOL_CALLS][",
                       .block_close = "]",
                       .call_sep = ", ",
                       .id_open = ", \"id\": \"",
                       .id_close = "\"",
                       .writes_id = true,
                       .short_ids = true,
                       JSON_CALL("arguments")},
    [TOOLS_MISTRAL_ARGS] = {.open = "[TOOL_CALLS]",
                            .block_open = "[TOOL_CALLS]",
                            .one_per_block = true,
                            .id_open = "[CALL_ID]",
                            .name_close = "[ARGS]",
                            .writes_id = true,
                            .short_ids = true},
    [TOOLS_FUNCTIONARY] = {.open = "<function=",
                           .close = "</function>",
                           .block_close = "</function>",
                           .one_per_block = true,
                           .call_open = "<function=",
                           .name_close = ">"},
    [TOOLS_PYTHONIC] = {.open = "<|tool_call_start|>",
                        .close = "<|tool_call_end|>",
                        .block_open = "<|tool_call_start|>[",
                        .block_close = "]<|tool_call_end|>",
                        .call_sep = ", ",
                        .name_close = "(",
                        .call_close = ")",
                        .assign = "=",
                        .comma = ", "},
    [TOOLS_GEMMA4] = GEMMA_CALL("<|tool_call>", "<tool_call|>", "<|\"|>", "<|tool_response>"),
    [TOOLS_FUNCTIONGEMMA] = GEMMA_CALL("<start_function_call>", "<end_function_call>", "<escape>",
                                       "<start_function_response>"),
};

bool tools_style_of(struct tools_style *ret, enum tools_format format, const char *think_open,
                    const char *think_close)
{
    *ret = styles[format];
    ret->format = format;
    ret->source = TOOLS_OPTION;
    int n = snprintf(ret->think_open, TOOLS_TEXT_BYTES, "%s", think_open ? think_open : "");
    int m = snprintf(ret->think_close, TOOLS_TEXT_BYTES, "%s", think_close ? think_close : "");
    return n < TOOLS_TEXT_BYTES && m < TOOLS_TEXT_BYTES;
}

/* The last place of what in text[0..len), or NULL. */
static const char *find_last(const char *text, size_t len, const char *what)
{
    const char *last = NULL, *p = text;
    while ((p = memmem(p, (size_t)(text + len - p), what, strlen(what)))) {
        last = p;
        p += strlen(what);
    }
    return last;
}

bool tools_think_is_open(const struct tools_style *style, const char *text, size_t len)
{
    if (!style->think_open[0] || !style->think_close[0]) return false;
    const char *open = find_last(text, len, style->think_open);
    return open && !find_last(open, (size_t)(text + len - open), style->think_close);
}

bool tools_think_is_closed(const struct tools_style *style, const char *text, size_t len)
{
    size_t n = strlen(style->think_close);
    while (len && strchr(" \t\r\n", text[len - 1]))
        len--;
    return n && len >= n && memcmp(text + len - n, style->think_close, n) == 0;
}

const char *tools_marker_text(const struct tools_style *style, enum tools_marker marker)
{
    bool args = style->format == TOOLS_MISTRAL || style->format == TOOLS_MISTRAL_ARGS;
    switch (marker) {
    case TOOLS_MARK_OPEN: return style->open;
    case TOOLS_MARK_CLOSE: return style->close;
    case TOOLS_MARK_THINK_OPEN: return style->think_open;
    case TOOLS_MARK_THINK_CLOSE: return style->think_close;
    case TOOLS_MARK_ARGS: return args ? "[ARGS]" : "";
    case TOOLS_MARK_CALL_ID: return args ? "[CALL_ID]" : "";
    case TOOLS_MARK_QUOTE: return style->quote ? style->quote : "";
    case TOOLS_MARK_PYTHON_TAG: return style->format == TOOLS_LLAMA3 ? "<|python_tag|>" : "";
    case TOOLS_N_MARKERS: break;
    }
    return "";
}
