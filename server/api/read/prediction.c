/* SPDX-License-Identifier: MIT */
/* The field "prediction": see generation_fields.h. */
#include "base/auto.h"
#include "server/api/read/generation_fields.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"

static const char PATH[] = "prediction.content";

static int add_part(struct buf *text, const json_t *part, size_t i)
{
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), "%s[%zu]", PATH, i);
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *value = json_object_get(part, "text");
    if (!type || strcmp(type, "text") != 0 || !json_is_string(value))
        return param_fail(SRV_ERR_INVALID_VALUE, path,
                          "'%s' must be an object with the type 'text' and a text.", path);
    buf_add(text, json_string_value(value), json_string_length(value));
    return 0;
}

static int join_text(struct buf *text, const json_t *field)
{
    const char *type = json_string_value(json_object_get(field, "type"));
    const json_t *content = json_object_get(field, "content");
    if (!type || strcmp(type, "content") != 0)
        return param_fail(SRV_ERR_INVALID_VALUE, "prediction.type",
                          "'prediction' must be an object with the type 'content'.");
    if (json_is_string(content)) {
        buf_add(text, json_string_value(content), json_string_length(content));
        return 0;
    }
    if (!json_is_array(content))
        return param_wrong_type(PATH, "a string or an array of text parts");
    for (size_t i = 0; i < json_array_size(content); i++)
        if (add_part(text, json_array_get(content, i), i)) return -1;
    return 0;
}

int srv_prediction_read(struct srv_request *req, const json_t *field, const int32_t **ret_ids,
                        int64_t *ret_n)
{
    AUTO(buf_finish) struct buf text = {.max = SIZE_MAX};
    struct tok_ids ids = {0};
    if (!field) return 0;
    int rc = join_text(&text, field);
    if (!rc && text.failed) rc = param_no_memory();
    if (!rc && text.len > 0) {
        rc = param_encode(srv_facts(req)->model->tok, text.data, text.len, 0, PATH, &ids);
        rc = param_keep_ids(req, rc, &ids, ret_ids, ret_n);
    }
    return rc;
}
