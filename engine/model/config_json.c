/* SPDX-License-Identifier: MIT */
/* JSON of a model directory; see config_json.h. */
#include "engine/model/config_json.h"

#include <stdio.h>

#include "base/json_reader.h"
#include "base/json_tree.h"
#include "engine/eng_error.h"

_Static_assert((int)JR_EINVAL == ENG_EINVAL && (int)JR_ENOMEM == ENG_ENOMEM, "the same codes");

int eng_json_read(json_t **ret, const char *text, size_t len, const char *name, char *err,
                  size_t errlen)
{
    return jt_read_file(ret, name, text, len, 0, err, errlen);
}

int eng_json_parse(json_t **ret, const char *text, size_t len, const char *name, char *err,
                   size_t errlen)
{
    json_t *root = NULL;
    int rc = eng_json_read(&root, text, len, name, err, errlen);
    if (rc) return rc;
    if (!json_is_object(root)) {
        snprintf(err, errlen, "%s: is not a JSON object", name);
        json_decref(root);
        return ENG_EINVAL;
    }
    *ret = root;
    return 0;
}
