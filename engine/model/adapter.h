/* SPDX-License-Identifier: MIT */
/*
 * LoRA adapters of PEFT: adapter_config.json and adapter_model.safetensors, packed for a model.
 *
 * An adapter adds s * B (A x) to products W x. The targets that read the same rows form one pair:
 * their A one below the other, and a piece of B for each panel of the model's packed matrix, with
 * the columns of the targets whose rows that panel has.
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

/* Added to a panel: two narrow panels of B times columns of u = A x. */
struct eng_lora_panel {
    size_t b;     /* in the arena */
    int first, n; /* columns; n 0: nothing is added */
};

struct eng_lora_pair {
    int n_in, n_u;     /* of A, its rows in whole narrow panels; n_u 0: no target here */
    int n_panels;      /* of the matrix */
    size_t a, factors; /* in the arena; [n_u]: alpha over the rank, or over its root, of each row */
    struct eng_lora_panel *panels; /* [n_panels] */
};

/* Bytes for the packed adapters of a model: all, and those that none has. */
struct eng_lora_memory {
    long long whole;
    atomic_llong left;
};

struct eng_lora {
    atomic_int refs;
    struct eng_lora_pair *pairs;   /* [n_layers * ENG_LORA_SITES + 1] */
    struct eng_lora_panel *panels; /* of all pairs */
    enum kern_wfmt fmt;
    bool has_down;
    uint8_t fingerprint[16]; /* of its tensors and configuration */
    uint8_t *arena;
    size_t arena_bytes;
    struct eng_lora_memory *memory;
    long long charged; /* bytes of it */
};

/*
 * Reads and packs the adapter of a directory. The model was opened with `adapters` and filled.
 * max_rank: of one target. memory: its bytes are taken from there until the last reference goes.
 * Returns owned: eng_lora_close; or a negative enum eng_error, and one sentence that names the
 * directory, key or tensor. ENG_EQUEUEFULL: it fits when others have gone.
 */
int eng_adapter_open(struct eng_lora **ret, const struct eng_model *m, const char *dir,
                     int max_rank, struct eng_lora_memory *memory, char *err, size_t errlen);

/* Bytes of narrow panels with k inputs and n outputs. */
static inline size_t eng_lora_bytes(const struct eng_lora *lora, int k, int n)
{
    return kern_narrow_at(lora->fmt, k, n, 0) * (lora->fmt == KERN_W_F32 ? 4 : 2);
}

/* The place of a packed matrix among the pairs; -1: it cannot be adapted. */
int eng_lora_site_of(const struct eng_model *m, const struct eng_mat *mat);

/* References, see engine.h. */
struct eng_lora *eng_lora_share(struct eng_lora *lora);
void eng_lora_close(struct eng_lora *lora);
