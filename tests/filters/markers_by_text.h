/* SPDX-License-Identifier: MIT */
/* The markers of a style without a vocabulary. */
#pragma once

#include <string.h>

#include "tokenizer/tools/tools.h"

/* All by their bytes; control where the families' vocabularies have control tokens. */
static inline void markers_by_text(const struct tools_style *style, struct tools_markers *ret)
{
    ret->n_think_close_ids = 0;
    for (int i = 0; i < TOOLS_N_MARKERS; i++) {
        const char *text = tools_marker_text(style, (enum tools_marker)i);
        ret->id[i] = -1;
        ret->control[i] = strcmp(text, "[TOOL_CALLS]") == 0 || strcmp(text, "[ARGS]") == 0 ||
                          strcmp(text, "[CALL_ID]") == 0 || strncmp(text, "<|", 2) == 0;
    }
}
