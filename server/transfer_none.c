/* SPDX-License-Identifier: MIT */
/* Replaces transfer.c in a build without libcurl: transfer_load fails, so nothing else runs. */
#include <stdio.h>

#include "server/transfer.h"

int transfer_load(char *err, size_t errlen)
{
    snprintf(err, errlen,
             "this build fetches no models (Meson option hub); `hf download` of huggingface_hub "
             "does");
    return -1;
}

struct transfer *transfer_create(const struct transfer_settings *settings)
{
    (void)settings;
    return NULL;
}

void transfer_destroy(struct transfer *t)
{
    (void)t;
}

enum transfer_end transfer_run(struct transfer *t, const struct transfer_exchange *x)
{
    (void)t, (void)x;
    return TRANSFER_UNREACHED;
}

int transfer_status(const struct transfer *t)
{
    (void)t;
    return 0;
}

const char *transfer_header(struct transfer *t, const char *name)
{
    (void)t, (void)name;
    return NULL;
}

const char *transfer_reason(const struct transfer *t)
{
    (void)t;
    return "";
}

int transfer_url_join(const char *base, const char *relative, char *buf, size_t size)
{
    (void)base, (void)relative, (void)buf, (void)size;
    return -1;
}

int transfer_url_origin(const char *url, struct transfer_origin *ret)
{
    (void)url, (void)ret;
    return -1;
}
