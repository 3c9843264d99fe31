/* SPDX-License-Identifier: MIT */
/* Options to engine parameters; see engine_params.h. */
#include "server/models/engine_params.h"

#include <string.h>

#include "server/config/config.h"

enum { DAY_SECONDS = 86400 };

static enum eng_speculate speculate_of(const char *name)
{
    return !strcmp(name, "off")      ? ENG_SPECULATE_OFF
           : !strcmp(name, "always") ? ENG_SPECULATE_ALWAYS
           : !strcmp(name, "lookup") ? ENG_SPECULATE_LOOKUP
                                     : ENG_SPECULATE_AUTO;
}

struct eng_params srv_engine_params(const struct srv_config *config)
{
    return (struct eng_params){
        .model_dir = config->model,
        .draft_dir = config->draft_model,
        .numerics = config->numerics,
        .gemm = config->gemm,
        .kernels = config->kernels,
        .weight_coding = config->weight_coding,
        .kv_dtype = config->kv_dtype,
        .n_threads = config->threads,
        .n_parallel = 1,
        .ctx_tokens = config->ctx_size,
        .chunk_tokens = config->chunk,
        .memory_bytes = config->memory_bytes,
        .kv_bytes = config->kv_memory_bytes,
        .caller_bytes = SRV_PROGRAM_BYTES,
        .kv_disk = {.dir = config->kv_disk,
                    .bytes = config->kv_disk_bytes,
                    .seconds = (int64_t)config->kv_disk_age * DAY_SECONDS},
        .speculate = speculate_of(config->speculate),
    };
}
