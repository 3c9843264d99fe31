/* SPDX-License-Identifier: MIT */
/*
 * Turns of engines that share the cores: one computes a step at a time, in the order of asking, so
 * that two pools of threads never spin against each other.
 *
 * Threads: safe. NULL is fine in both functions: the engine is alone.
 */
#ifndef HEARTH_ENGINE_TURNS_H
#define HEARTH_ENGINE_TURNS_H

#include <stdbool.h>

struct eng_turns;

/* Waits for the turn. */
void turns_enter(struct eng_turns *t);
/* Ends the turn. Returns true if another engine waits for it. */
bool turns_leave(struct eng_turns *t);

#endif
