/* SPDX-License-Identifier: MIT */
/*
 * Turns of engines that share the cores: one computes a step at a time, so that two pools of
 * threads never spin against each other. Each has a seat, with a share. Of those that want a turn,
 * the one with the least time used per share is next; of equal ones, the one that asked first. One
 * that was idle comes back with at most CREDIT_US ahead of the others.
 *
 * An engine that goes on and is still behind the others has a moment to ask again before they get
 * the turn. Else two engines would alternate by steps, however long those are.
 *
 * Threads: safe; a seat is one thread's at a time. A NULL seat is fine everywhere: the engine is
 * alone.
 */
#ifndef HEARTH_ENGINE_TURNS_H
#define HEARTH_ENGINE_TURNS_H

#include <stdbool.h>

struct eng_turns;
struct turns_seat;

/* A seat with a share (0: 1); *ret is owned (turns_stand), NULL without turns. Returns 0 or
 * ENG_ENOMEM. */
int turns_sit(struct eng_turns *t, int share, struct turns_seat **ret);
void turns_stand(struct turns_seat *s);

/* Waits for the turn. */
void turns_enter(struct turns_seat *s);
/* Ends the turn. more: it will be asked for at once. Returns true if another engine waits. */
bool turns_leave(struct turns_seat *s, bool more);

#endif
