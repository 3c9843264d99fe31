/* SPDX-License-Identifier: MIT */
/* Reading generation_config.json; see generation_config.h. */
#include "server/generation_config.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "server/config/config.h"

struct srv_defaults srv_defaults_neutral(void)
{
    return (struct srv_defaults){.temperature = 1,
                                 .top_p = 1,
                                 .typical_p = 1,
                                 .repetition_penalty = 1,
                                 .seed = -1,
                                 .max_tokens = -1};
}

void srv_defaults_override(struct srv_defaults *d, const struct srv_config *c)
{
    if (c->temperature != SRV_UNSET) d->temperature = c->temperature;
    if (c->top_p != SRV_UNSET) d->top_p = c->top_p;
    if (c->min_p != SRV_UNSET) d->min_p = c->min_p;
    if (c->top_k != SRV_UNSET) d->top_k = c->top_k;
    if (c->seed != SRV_UNSET) d->seed = c->seed;
    if (c->max_tokens != SRV_UNSET) d->max_tokens = c->max_tokens;
}

static int read_number(const json_t *root, const char *key, double min, double max, double *value,
                       char *err, size_t errlen)
{
    const json_t *given = json_object_get(root, key);
    if (!given || json_is_null(given)) return 0;
    double number = json_number_value(given);
    if (!json_is_number(given) || !(number >= min && number <= max)) {
        snprintf(err, errlen, "generation_config.json: %s must be a number from %g to %g", key, min,
                 max);
        return -1;
    }
    *value = number;
    return 0;
}

static int read_all(struct srv_defaults *d, const json_t *root, char *err, size_t errlen)
{
    double top_k = 0;
    const struct {
        const char *key;
        double min, max;
        double *value;
    } rows[] = {
        {"temperature", 0, 100, &d->temperature},
        {"top_p", 1e-9, 1, &d->top_p},
        {"min_p", 0, 1, &d->min_p},
        {"typical_p", 1e-9, 1, &d->typical_p},
        {"repetition_penalty", 1e-9, 100, &d->repetition_penalty},
        {"top_k", 0, INT_MAX, &top_k},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (read_number(root, rows[i].key, rows[i].min, rows[i].max, rows[i].value, err, errlen)) {
            return -1;
        }
    }
    d->top_k = (int64_t)top_k;
    if (json_is_false(json_object_get(root, "do_sample"))) d->temperature = 0;
    return 0;
}

int srv_defaults_read(struct srv_defaults *d, const char *dir, char *err, size_t errlen)
{
    json_error_t error;
    size_t n;
    char *text;
    if (file_load_optional(dir, "generation_config.json", SRV_CONFIG_FILE_MAX_BYTES, &text, &n, err,
                           errlen))
        return -1;
    if (!text) return 0;
    json_t *root = json_loadb(text, n, 0, &error);
    free(text);
    if (!root) {
        snprintf(err, errlen, "generation_config.json: line %d: %s", error.line, error.text);
        return -1;
    }
    struct srv_defaults read = *d;
    int rc = read_all(&read, root, err, errlen);
    if (rc == 0) *d = read;
    json_decref(root);
    return rc;
}
