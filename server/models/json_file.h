/* SPDX-License-Identifier: MIT */
/* JSON files of a model, which strangers wrote, as jansson trees. Any thread. */
#pragma once

#include <stddef.h>

#include <jansson.h>

/*
 * Reads an object or array; of members with the same name the last one counts. *ret: owned
 * (json_decref). Returns 0, or -1 with a sentence in err that begins with `name`.
 */
int srv_json_read(json_t **ret, const char *name, const char *text, size_t len, char *err,
                  size_t errlen);

/* The same of a file of at most SRV_CONFIG_FILE_MAX_BYTES; 0 with *ret NULL if it is not there. */
int srv_json_file(json_t **ret, const char *dir, const char *name, char *err, size_t errlen);
