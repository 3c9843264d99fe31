/* SPDX-License-Identifier: MIT */
/* Reading generation_config.json; see generation_config.h. */
#include "server/models/generation_config.h"

#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/models/lookup.h"

struct srv_defaults srv_defaults_neutral(void)
{
#define NEUTRAL(name, type, least, most, neutral, ...) .name = neutral,
    struct srv_defaults d = {
        .sampling = {ENG_SAMPLING_PARAMS(NEUTRAL)}, .seed = -1, .max_tokens = -1};
    d.ollama = d.sampling;
    d.ollama.temperature = 0.8;
    d.ollama.top_k = 40;
    d.ollama.top_p = 0.9;
    return d;
}

void srv_defaults_override(struct srv_defaults *d, const struct srv_config *c)
{
#define OVERRIDE(name, type, ...)                                                                  \
    if (c->name != SRV_UNSET) d->sampling.name = d->ollama.name = c->name;
    ENG_SAMPLING_OPTIONS(OVERRIDE)
    if (c->seed != SRV_UNSET) d->seed = c->seed;
    if (c->max_tokens != SRV_UNSET) d->max_tokens = c->max_tokens;
}

void srv_sampling_set(struct eng_sampling *chain, const struct srv_sampling *values)
{
#define CONVERT(name, type, ...) chain->name = (type)values->name;
    ENG_SAMPLING_PARAMS(CONVERT)
}

/* A parameter as the file names it; one of real and whole is NULL. */
struct file_param {
    const char *key;
    double min, max;
    double *real;
    int64_t *whole;
};

static int read_param(const json_t *root, const struct file_param *p, char *err, size_t errlen)
{
    const json_t *given = json_object_get(root, p->key);
    if (!given || json_is_null(given)) return 0;
    double number = json_number_value(given);
    if (!json_is_number(given) || !(number >= p->min && number <= p->max)) {
        snprintf(err, errlen, "generation_config.json: %s must be a number from %g to %g", p->key,
                 p->min, p->max);
        return -1;
    }
    if (p->real)
        *p->real = number;
    else
        *p->whole = (int64_t)number;
    return 0;
}

#define IN_float(member) member, NULL
#define IN_int(member) NULL, member
#define FILE_PARAM(name, type, least, most, ...) {#name, least, most, IN_##type(&s->name)},

static int read_all(struct srv_sampling *s, const json_t *root, char *err, size_t errlen)
{
    const struct file_param params[] = {ENG_SAMPLING_DEFAULTS(FILE_PARAM)};
    for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++)
        if (read_param(root, &params[i], err, errlen)) return -1;
    if (json_is_false(json_object_get(root, "do_sample"))) s->temperature = 0;
    return 0;
}

int srv_defaults_read(struct srv_defaults *d, const char *dir, char *err, size_t errlen)
{
    json_auto_t *root = NULL;
    if (srv_json_file(&root, dir, "generation_config.json", err, errlen)) return -1;
    struct srv_defaults read = *d;
    if (read_all(&read.sampling, root, err, errlen) || read_all(&read.ollama, root, err, errlen))
        return -1;
    *d = read;
    return 0;
}
