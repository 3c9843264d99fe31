/* SPDX-License-Identifier: MIT */
/*
 * The models that the configuration names: entry 0 is the first one, the others follow as they were
 * given. All are in memory at once, so their plans are made together: each gets what it needs, and
 * if memory is short, KV caches without a size of their own become smaller, all by the same part.
 *
 * Threads: safe; nothing is kept.
 */
#ifndef HEARTH_SERVER_CATALOGUE_H
#define HEARTH_SERVER_CATALOGUE_H

#include "server/config/config.h"
#include "server/served_model.h"

/* The configuration of an entry in [0, 1 + n_more). */
const struct srv_config *srv_catalogue_config(const struct srv_config *c, int entry);

/*
 * The names of a model of this configuration: its entry's and the aliases, or without both `own`.
 * Borrows them; the array is the caller's (free). Returns 0, or -1 when out of memory.
 */
int srv_catalogue_names(const struct srv_config *c, const char *own, struct srv_list *ret);

/*
 * Checks that no two models have a name in common, makes the plans and writes the shares, one per
 * entry. dir: of the first model. Returns 0, or an enum eng_error with a sentence in err.
 */
int srv_catalogue_plan(const struct srv_config *c, const char *dir, struct srv_share *shares,
                       char *err, size_t errlen);

/* What srv_model_open gets; names and dir are borrowed. */
struct srv_model_params srv_catalogue_params(const struct srv_config *c, int entry, const char *dir,
                                             const struct srv_share *share);

#endif
