/* SPDX-License-Identifier: MIT */
/* JSON of a model directory; see config_json.h. */
#include "engine/model/config_json.h"

#include <jansson.h>
#include <stdio.h>

#include "base/json_reader.h"
#include "engine/eng_error.h"

/* A value takes about 100 bytes in jansson, so this bounds a file's tree to about 100 MB. */
enum { MAX_JSON_VALUES = 1000000 };

int eng_json_parse(json_t **ret, const char *text, size_t len, const char *name, char *err,
                   size_t errlen)
{
    size_t n_values;
    int depth;
    jr_shape(text, len, &depth, &n_values);
    if (n_values > MAX_JSON_VALUES) {
        snprintf(err, errlen, "%s: more than %d JSON values", name, MAX_JSON_VALUES);
        return ENG_EINVAL;
    }
    json_error_t error;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        snprintf(err, errlen, "%s: line %d: %s", name, error.line, error.text);
        return json_error_code(&error) == json_error_out_of_memory ? ENG_ENOMEM : ENG_EINVAL;
    }
    if (!json_is_object(root)) {
        snprintf(err, errlen, "%s: is not a JSON object", name);
        json_decref(root);
        return ENG_EINVAL;
    }
    *ret = root;
    return 0;
}
