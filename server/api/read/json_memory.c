/* SPDX-License-Identifier: MIT */
/* See json_memory.h. */
#include "server/api/read/json_memory.h"

#include <stdlib.h>

#include <jansson.h>

static _Thread_local bool out_of_memory;

static void *json_alloc(size_t size)
{
    void *p = malloc(size);
    if (!p) out_of_memory = true;
    return p;
}

void srv_json_watch_memory(void)
{
    json_set_alloc_funcs(json_alloc, free);
}

bool srv_json_ran_out(void)
{
    bool was = out_of_memory;
    out_of_memory = false;
    return was;
}
