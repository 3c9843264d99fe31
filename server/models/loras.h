/* SPDX-License-Identifier: MIT */
/*
 * The adapters of entries: their names, and which of them are open. One is opened by the first
 * request that wants it, in the text worker of that request; if memory for adapters is short, those
 * that no request uses are closed before, the least recently used first. A request holds a
 * reference to each that it uses, so one that is replaced or removed is read by those that began
 * with it, and by nobody else.
 *
 * Threads: any. The lock of the set guards the list; one adapter is opened at a time.
 */
#pragma once

#include "server/models/set.h"

enum { SRV_LORA_NAME_MAX = 128 };

/* Guarded by the lock of the set. */
struct srv_lora {
    uint64_t number;  /* of the files that the name has now: others have another one */
    const char *name; /* with the directory in one block, owned */
    const char *dir;
    int entry;             /* whose models it is for */
    float scale;           /* in requests that name no adapter; 0: none */
    int64_t created;       /* unix seconds */
    struct eng_lora *lora; /* if it is open, */
    struct srv_model *of;  /* for this model */
    uint64_t used_us;
};

/* An adapter that a request asks for: its number, or its place in the list, from 0. */
struct srv_lora_ask {
    uint64_t which;
    float scale;
};

bool srv_loras_any(struct srv_models *set);

/* Adds the adapter of that name from a folder of --lora-dir, if there is one. */
void srv_loras_look(struct srv_models *set, const char *name);
/* The number of an adapter that the key may use (as of srv_models_find_of), and its entry; 0: none
 * has the name. */
uint64_t srv_loras_find(struct srv_models *set, const char *only, const char *name, int *ret_entry);
/* Those at n places, of the entry (-1: of any) and of this key, by number in the order of the list.
 * Returns how many there are; fewer than n: a place has none, or is there twice. */
int srv_loras_at(struct srv_models *set, const char *only, int entry,
                 const struct srv_lora_ask *places, int n, struct srv_lora_ask *ret);
/* Those of requests that name none. Returns how many. */
int srv_loras_usual(struct srv_models *set, int entry, struct srv_lora_ask ret[ENG_MAX_LORAS]);
/* Sets them, by number, instead of those before. */
void srv_loras_set_usual(struct srv_models *set, const struct srv_lora_ask *asks, int n);

/* The names of those that requests use, with commas. Returns buf. */
const char *srv_loras_used(struct srv_models *set, char *buf, size_t size);

/* Whether a list of names (as of srv_models_find_of) has the adapter. With the lock held. */
bool srv_lora_is_of(const struct srv_lora *l, const char *only);

/*
 * Takes a reference to an adapter for a request of this model: eng_lora_close, before the model is
 * given back. Opens it if need be. Returns 0, or with a sentence in err ENG_ENOENT: it has been
 * removed; ENG_EQUEUEFULL: requests use all memory for adapters; or as eng_lora_open.
 */
int srv_loras_take(struct srv_models *set, struct srv_model *m, uint64_t number,
                   struct eng_lora **ret, char *err, size_t errlen);

/*
 * Adds an adapter, or replaces the one that has the name. Its files are read now if the entry is
 * loaded. Returns 0, or as srv_loras_take.
 */
int srv_loras_put(struct srv_models *set, const char *name, const char *dir, int entry, char *err,
                  size_t errlen);
/* Returns false if there is none of the name. */
bool srv_loras_remove(struct srv_models *set, const char *name);

/* Adds those that the configuration of an entry names. Returns 0, or an enum eng_error with a
 * sentence in err. */
int srv_loras_start(struct srv_models *set, const struct srv_entry *e, char *err, size_t errlen);

/* Closes those that are open for a model, before it is closed; m NULL: the end of the list. */
void srv_loras_close(struct srv_models *set, const struct srv_model *m);
