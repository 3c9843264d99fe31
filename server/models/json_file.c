/* SPDX-License-Identifier: MIT */
/* See json_file.h. */
#include "server/models/json_file.h"

#include "base/auto.h"
#include "base/file.h"
#include "base/json_tree.h"
#include "server/config/config.h"

int srv_json_file(json_t **ret, const char *dir, const char *name, char *err, size_t errlen)
{
    AUTO_FREE char *text = NULL;
    size_t len;
    *ret = NULL;
    if (file_load_optional(dir, name, SRV_CONFIG_FILE_MAX_BYTES, &text, &len, err, errlen))
        return -1;
    return text && jt_read_file(ret, name, text, len, JT_REPEATS, err, errlen) ? -1 : 0;
}
