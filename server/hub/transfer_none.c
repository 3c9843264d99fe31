/* SPDX-License-Identifier: MIT */
/* Replaces transfer.c in a build without libcurl, in which no command gets past transfer_load. */
#include "base/fail.h"
#include "server/hub/transfer.h"

int transfer_load(char *err, size_t errlen)
{
    return fail_with(
        -1, err, errlen,
        "this build has no HTTP client (Meson option hub, with libcurl 7.85 or newer); "
        "`hf download` of huggingface_hub fetches models too");
}

struct transfer *transfer_create(const struct transfer_settings *settings)
{
    return NULL;
}

void transfer_destroy(struct transfer *t)
{
}

enum transfer_end transfer_run(struct transfer *t, const struct transfer_exchange *x)
{
    return TRANSFER_UNREACHED;
}

int transfer_status(const struct transfer *t)
{
    return 0;
}

const char *transfer_header(struct transfer *t, const char *name)
{
    return NULL;
}

const char *transfer_reason(const struct transfer *t)
{
    return "";
}

int transfer_url_join(const char *base, const char *relative, char *buf, size_t size)
{
    return -1;
}

int transfer_url_origin(const char *url, struct transfer_origin *ret)
{
    return -1;
}
