/* SPDX-License-Identifier: MIT */
/* JSON files of a model, which strangers wrote, as jansson trees. Any thread. */
#pragma once

#include <stddef.h>

#include <jansson.h>

/*
 * Reads an object or array of at most SRV_CONFIG_FILE_MAX_BYTES; of members with the same name the
 * last one counts. *ret: owned (json_decref); NULL if the file is not there. Returns 0, or -1 with
 * a sentence in err that begins with `name`.
 */
int srv_json_file(json_t **ret, const char *dir, const char *name, char *err, size_t errlen);
