/* SPDX-License-Identifier: MIT */
/* Engine parameters from the configuration. Pure; strings are borrowed from the configuration. */
#ifndef HEARTH_SERVER_MODELS_ENGINE_PARAMS_H
#define HEARTH_SERVER_MODELS_ENGINE_PARAMS_H

#include "engine/engine.h"

struct srv_config;

/* For code, libraries, and stacks of threads that do not belong to an engine. */
#define SRV_PROGRAM_BYTES ((int64_t)10 << 20)

/*
 * Model, compute options and memory budgets for one sequence at a time. The queue, answers and the
 * prefix cache have the engine's defaults; the caller changes them if needed.
 */
struct eng_params srv_engine_params(const struct srv_config *config);

#endif
