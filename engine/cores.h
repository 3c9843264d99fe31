/* SPDX-License-Identifier: MIT */
/*
 * The cores: one pool of compute threads, which engines share by turns. One computes a step at a
 * time, so ten loaded models have one set of threads, and none spins against another.
 *
 * Each engine is a member, with a share. Of those that want a turn, the one with the least time
 * used per share is next; of equal ones, the one that asked first. One that was idle comes back
 * with at most CREDIT_US ahead of the others.
 *
 * An engine that goes on and has still used less than the others has a moment to ask again before
 * they get the turn. Else two engines would alternate by steps, however long those are.
 *
 * One that gives way, since its jobs are all spare, has a turn only when no other wants one.
 *
 * Threads: safe; a member is one thread's at a time, but for cores_give_way. Only the one that has
 * the turn may run the pool. A NULL member is fine where one is asked for: nobody else computes.
 */
#pragma once

#include <stdbool.h>

struct eng_cores;
struct cores_member;
struct pool;

/* The pool, which belongs to c. */
struct pool *cores_pool(const struct eng_cores *c);

/* A new member with a share (0: 1); *ret is owned (cores_quit). Returns 0 or ENG_ENOMEM. */
int cores_join(struct eng_cores *c, int share, struct cores_member **ret);
void cores_quit(struct cores_member *s);

/* Waits for the turn. */
void cores_enter(struct cores_member *s);
/* From now on, and while it waits for the turn too. */
void cores_give_way(struct cores_member *s, bool gives_way);
/* Ends the turn. more: it will be asked for at once. Returns true if another engine waits, which
 * does not give way to this one. */
bool cores_leave(struct cores_member *s, bool more);
