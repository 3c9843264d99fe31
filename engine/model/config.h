/* SPDX-License-Identifier: MIT */
/*
 * config.json and generation_config.json -> struct eng_hparams.
 *
 * Both spellings of the reference (rope_theta and rope_scaling, or rope_parameters) and its
 * defaults are accepted; every number is checked for its range, and an unsupported feature is
 * refused by the name of its field. All problems go to the report, not only the first.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/model/hparams.h"
#include "engine/model/problems.h"

/* Reads both files of a directory; generation_config.json may be absent. 0 or the first problem. */
int eng_config_read(struct eng_hparams *ret_hp, const char *dir, struct eng_report *r);

/* The same from texts, which end with a NUL, or no generation: NULL. *ret_hp is always written. */
int eng_config_parse(struct eng_hparams *ret_hp, const char *config, size_t config_len,
                     const char *generation, size_t generation_len, struct eng_report *r);

/* The same of a GGUF file's keys, and a generation_config.json that belongs to the file. */
struct eng_weights;
int eng_config_read_gguf(struct eng_hparams *ret_hp, const struct eng_weights *weights,
                         struct eng_report *r);

/* Adds an end id. False: it is one already, or not within the vocabulary, or there are too many. */
bool eng_config_add_end(struct eng_hparams *hp, int64_t id);

/* Reports that a model makes no tokens, where only those that do are wanted. */
int eng_config_refuse_reader(const struct eng_hparams *hp, struct eng_report *r);
