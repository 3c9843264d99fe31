/* SPDX-License-Identifier: MIT */
#include "server/models/fit.h"

#include <stdio.h>

#include "engine/engine.h"
#include "server/config/config.h"
#include "server/models/served_model.h"

#define PLENTY_BYTES ((int64_t)1 << 50)

int fit_beside(struct fit_bytes *ret, struct srv_model_params *params, int64_t in_use,
               int64_t kv_bytes, bool alone, char *err, size_t errlen)
{
    int64_t limit = eng_memory_limit(params->config->memory_bytes), available = limit - in_use,
            once = srv_process_bytes(params->config, params->entry);
    struct eng_memory plan;
    *ret = (struct fit_bytes){0};
    char why[512];
    if (!alone) /* 0 would be as configured */
        params->share.memory_bytes = available + once > 0 ? available + once : 1;
    int rc = srv_model_plan(&plan, params, 0, err, errlen);
    if (rc && (rc != ENG_ENOMEM || srv_model_plan(&plan, params, PLENTY_BYTES, why, sizeof(why))))
        return rc;
    int64_t needed = srv_plan_bytes(&plan) - once;
    *ret = (struct fit_bytes){needed, available, limit};
    if (!rc && needed <= available) return 0;
    if (rc && alone) return rc;
    int len = snprintf(err, errlen,
                       "the model takes %lld MiB next to the running one's %lld MiB, but the limit "
                       "is %lld MiB",
                       fit_mib(needed), fit_mib(in_use), fit_mib(limit));
    if (len < 0 || (size_t)len >= errlen) return ENG_ENOMEM;
    /* The KV cache is what a plan can make smaller. */
    if (needed + in_use - kv_bytes < limit)
        snprintf(err + len, errlen - (size_t)len,
                 "; with --swap-memory %lldM the server leaves room for it", fit_mib(needed));
    else
        snprintf(err + len, errlen - (size_t)len, " (--memory)");
    return ENG_ENOMEM;
}
