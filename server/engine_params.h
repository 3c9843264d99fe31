/* SPDX-License-Identifier: MIT */
/*
 * Engine parameters from the configuration. Pure; the texts stay the configuration's.
 */
#ifndef HEARTH_SERVER_ENGINE_PARAMS_H
#define HEARTH_SERVER_ENGINE_PARAMS_H

#include "engine/engine.h"

struct srv_config;

/*
 * Model, compute options and memory budgets for one sequence at a time. The caller sets what
 * differs for it; the queue, answers and the prefix cache have the engine's defaults.
 */
struct eng_params srv_engine_params(const struct srv_config *config);

#endif
