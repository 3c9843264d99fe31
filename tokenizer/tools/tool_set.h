/* SPDX-License-Identifier: MIT */
/*
 * The tools of a request, as reading needs them: names in order, and of each tool the parameters
 * with the types their schemas allow.
 *
 * Threads: immutable.
 */
#pragma once

#include "tokenizer/tools/param_types.h"
#include "tokenizer/tools/tools.h"

struct tool_entry {
    const char *name;
    size_t name_len;
    struct param *params; /* owned; qwen-xml only */
    size_t n_params;
};

struct tools_set {
    struct tools_style style;
    bool any_name;
    bool reads_calls; /* the format is known, there are tools, and the choice is not none */
    bool reads_reasoning;
    bool own_results; /* results of earlier calls are in the prompt as we write them */
    uint32_t max_calls;
    struct tool_entry *tools; /* sorted by name */
    size_t n_tools;
    char *names; /* owned: what the entries' names point into */
};

/* The tools whose names begin with the same bytes; a range of the sorted list. */
struct name_range {
    size_t begin, end;
};

/* Narrows a range, whose names have the first `at` bytes in common, by one more byte. Returns
 * false, and changes nothing, if it would be empty. */
bool tool_narrow(const struct tools_set *s, struct name_range *r, size_t at, char c);

/* The tool of a range whose name is exactly the `len` bytes in common, or NULL. */
const struct tool_entry *tool_exact(const struct tools_set *s, const struct name_range *r,
                                    size_t len);
