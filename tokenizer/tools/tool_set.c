/* SPDX-License-Identifier: MIT */
/* The tools of a request, as reading needs them; see tool_set.h. */
#include "tokenizer/tools/tool_set.h"

#include <stdlib.h>
#include <string.h>

static bool is_name_byte(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '-' || c == '.';
}

bool tools_name_valid(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!is_name_byte(name[i])) return false;
    return len >= 1 && len <= TOOLS_MAX_NAME;
}

bool tool_narrow(const struct tools_set *s, struct name_range *r, size_t at, char c)
{
    if (s->any_name) return at < TOOLS_MAX_NAME && is_name_byte(c);
    const struct tool_entry *t = s->tools;
    size_t begin = r->begin, end = r->end;
    while (begin < end && (t[begin].name_len <= at || t[begin].name[at] != c))
        begin++;
    while (end > begin && (t[end - 1].name_len <= at || t[end - 1].name[at] != c))
        end--;
    if (begin < end) *r = (struct name_range){begin, end};
    return begin < end;
}

const struct tool_entry *tool_exact(const struct tools_set *s, const struct name_range *r,
                                    size_t len)
{
    if (r->begin == r->end) return NULL;
    const struct tool_entry *t = &s->tools[r->begin];
    return t->name_len == len ? t : NULL;
}

static int compare_entries(const void *x, const void *y)
{
    const struct tool_entry *a = x, *b = y;
    size_t n = a->name_len < b->name_len ? a->name_len : b->name_len;
    int order = memcmp(a->name, b->name, n);
    return order ? order : (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

/* Copies names and types; schemas are in the order of the request until the sort. */
static int add_tools(struct tools_set *s, const struct tools_request *q)
{
    char *p = s->names;
    for (size_t i = 0; i < q->n_tools; i++) {
        const struct tools_tool *tool = &q->tools[i];
        struct tool_entry *entry = &s->tools[s->n_tools++];
        entry->name = memcpy(p, tool->name, tool->name_len);
        entry->name_len = tool->name_len;
        p += tool->name_len;
        if (!tool->schema || q->style->format != TOOLS_QWEN_XML) continue;
        int rc = param_types(tool->schema, tool->schema_len, &entry->params, &entry->n_params);
        if (rc) return rc;
    }
    qsort(s->tools, s->n_tools, sizeof(s->tools[0]), compare_entries);
    for (size_t i = 1; i < s->n_tools; i++)
        if (compare_entries(&s->tools[i - 1], &s->tools[i]) == 0) return TOK_EINVAL;
    return 0;
}

static int names_size(const struct tools_request *q, size_t *ret)
{
    *ret = 0;
    if (q->n_tools > TOOLS_MAX_TOOLS) return TOK_EINVAL;
    for (size_t i = 0; i < q->n_tools; i++) {
        if (!tools_name_valid(q->tools[i].name, q->tools[i].name_len)) return TOK_EINVAL;
        *ret += q->tools[i].name_len;
    }
    return 0;
}

static struct tools_set *set_new(const struct tools_request *q, size_t n_names)
{
    struct tools_set *s = calloc(1, sizeof(*s));
    if (!s) return NULL;
    bool read = q->style->format != TOOLS_NONE && q->style->format != TOOLS_UNKNOWN &&
                q->choice != TOOLS_CHOICE_NONE;
    s->style = *q->style;
    s->any_name = q->any_name;
    s->reads_calls = read && (q->any_name || q->n_tools);
    s->own_results = s->reads_calls && !(s->style.writes_tools ? s->style.writes_results
                                                               : s->style.plain_writes_results);
    s->reads_reasoning = !q->no_reasoning && q->style->think_open[0] && q->style->think_close[0];
    s->max_calls = q->one_call ? 1 : TOOLS_MAX_CALLS;
    s->tools = calloc(q->n_tools + 1, sizeof(s->tools[0]));
    s->names = malloc(n_names + 1);
    if (s->tools && s->names) return s;
    tools_set_destroy(s);
    return NULL;
}

int tools_set_create(struct tools_set **ret, const struct tools_request *request)
{
    size_t n_names;
    int rc = names_size(request, &n_names);
    if (rc) return rc;
    struct tools_set *s = set_new(request, n_names);
    if (!s) return TOK_ENOMEM;
    rc = add_tools(s, request);
    if (rc)
        tools_set_destroy(s);
    else
        *ret = s;
    return rc;
}

void tools_set_destroy(struct tools_set *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n_tools; i++)
        param_types_free(s->tools[i].params, s->tools[i].n_params);
    free(s->tools);
    free(s->names);
    free(s);
}
