/* SPDX-License-Identifier: MIT */
/* Memory from which a test cuts what the engine cuts from its own. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "engine/scratch.h"
#include "test.h"

/* Zeros for what a test sets up; to be freed. */
static inline struct scratch new_memory(void)
{
    enum { BYTES = 8 << 20 };
    struct scratch m = {aligned_alloc(64, BYTES), 0};
    REQUIRE(m.base);
    memset(m.base, 0, BYTES);
    return m;
}
