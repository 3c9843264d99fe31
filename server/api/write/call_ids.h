/* SPDX-License-Identifier: MIT */
/* Ids of the calls in an answer. Threads: the text worker that holds the request. */
#ifndef HEARTH_SERVER_API_WRITE_CALL_IDS_H
#define HEARTH_SERVER_API_WRITE_CALL_IDS_H

#include "server/api/read/tools_request.h"
#include "server/api/run/choice_text.h"

enum { SRV_CALL_ID_CHARS = 24, SRV_CALL_ID_MAX = 40 };

/*
 * The id of a call: the prefix and 24 letters or digits; for templates that want short ids, nine
 * without a prefix, which may be the model's own. `body`: of the request, whose ids are not given
 * out again.
 */
void srv_tools_call_id(const struct srv_tools *t, struct srv_span body, const struct gen_choice *c,
                       const struct choice_part *call, const char *prefix,
                       char ret[SRV_CALL_ID_MAX]);

#endif
