/* SPDX-License-Identifier: MIT */
/*
 * LoRA adapters of PEFT: adapter_config.json and adapter_model.safetensors, packed for a model.
 *
 * An adapter adds s * B (A x) to products W x. The targets that read the same rows are packed as
 * one pair: their A one below the other, and B with the rows of the model's packed matrix, in which
 * each target has columns of its own and the others are 0. So the panels of B are those of the
 * matrix.
 *
 * Threads: an adapter is const once it is open; references may be taken and dropped by any.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/model/model.h"

enum { ENG_LORA_MAX_RANK = 256, ENG_LORA_TARGETS = 3 /* of one packed matrix */ };

/* The matrices of a layer, in the order in which they are used; after all layers the head. */
enum eng_lora_site { ENG_LORA_QKV, ENG_LORA_O, ENG_LORA_GATE_UP, ENG_LORA_DOWN, ENG_LORA_SITES };

struct eng_lora_pair {
    struct eng_mat a, b;  /* a.n_out 0: the adapter has no target here */
    const float *factors; /* [a.n_out]: alpha over the rank, or over its root, of each row of A */
};

/* Bytes for the packed adapters of a model: all, and those that none has. */
struct eng_lora_memory {
    long long whole;
    atomic_llong left;
};

struct eng_lora {
    atomic_int refs;
    struct eng_lora_pair *pairs; /* [n_layers * ENG_LORA_SITES + 1] */
    bool has_down;
    uint8_t fingerprint[16]; /* of its tensors and configuration */
    void *arena;
    size_t arena_bytes;
    struct eng_lora_memory *memory;
};

/*
 * Reads and packs the adapter of a directory. The model was opened with `adapters` and filled.
 * max_rank: of one target. memory: its bytes are taken from there until the last reference goes.
 * Returns owned: eng_lora_unref; or a negative enum eng_error, and one sentence that names the
 * directory, key or tensor. ENG_EQUEUEFULL: it fits when others have gone.
 */
int eng_adapter_open(struct eng_lora **ret, const struct eng_model *m, const char *dir,
                     int max_rank, struct eng_lora_memory *memory, char *err, size_t errlen);

/* The place of a packed matrix among the pairs; -1: it cannot be adapted. */
int eng_lora_site_of(const struct eng_model *m, const struct eng_mat *mat);

struct eng_lora *eng_lora_ref(struct eng_lora *lora);
void eng_lora_unref(struct eng_lora *lora); /* NULL is fine */
