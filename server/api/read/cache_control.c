/* SPDX-License-Identifier: MIT */
/* Checks of cache_control; see cache_fields.h. Called on text workers. */
#include "server/api/read/cache_fields.h"

#include <stdio.h>
#include <string.h>

struct checking {
    int n;
    struct param_error *err;
};

static int fail(struct checking *c, const char *path, const char *below, const char *message)
{
    char full[PARAM_PATH_MAX];
    snprintf(full, sizeof(full), "%s%s", path, below);
    return param_fail(SRV_ERR_INVALID_VALUE, full, "%s: %s", full, message);
}

/* path: of the member. */
static int check_one(struct checking *c, const json_t *control, const char *path)
{
    const json_t *type = json_object_get(control, "type"), *ttl = json_object_get(control, "ttl");
    const char *word = json_string_value(type), *time = json_string_value(ttl);
    if (!control || json_is_null(control)) return 0;
    if (!json_is_object(control)) return fail(c, path, "", "Input should be an object");
    if (!type || json_is_null(type)) return fail(c, path, ".type", "Field required");
    if (!word || strcmp(word, "ephemeral") != 0) {
        char message[PARAM_MESSAGE_MAX], shown[PARAM_WORD_MAX];
        snprintf(message, sizeof(message),
                 "Input tag '%s' found using 'type' does not match any of the expected tags: "
                 "'ephemeral'",
                 word ? param_word(word, shown) : "");
        return fail(c, path, "", message);
    }
    if (ttl && !json_is_null(ttl) && (!time || (strcmp(time, "5m") && strcmp(time, "1h"))))
        return fail(c, path, ".ephemeral.ttl", "Input should be '5m' or '1h'");
    c->n++;
    return 0;
}

/* Each of a list of blocks or tools, and the blocks inside results. */
static int check_list(struct checking *c, const json_t *list, const char *path, bool inner)
{
    char own[PARAM_PATH_MAX - 24], below[PARAM_PATH_MAX];
    int rc = 0;
    for (size_t i = 0; !rc && json_is_array(list) && i < json_array_size(list); i++) {
        const json_t *block = json_array_get(list, i);
        snprintf(own, sizeof(own), "%s.%zu", path, i);
        snprintf(below, sizeof(below), "%s.cache_control", own);
        rc = check_one(c, json_object_get(block, "cache_control"), below);
        snprintf(below, sizeof(below), "%s.content", own);
        if (!rc && !inner) rc = check_list(c, json_object_get(block, "content"), below, true);
    }
    return rc;
}

int cache_control_check(const json_t *body, struct param_error *err)
{
    struct checking c = {0, err};
    const json_t *messages = json_object_get(body, "messages");
    char path[40];
    if (check_one(&c, json_object_get(body, "cache_control"), "cache_control")) return -1;
    c.n = 0; /* it names no block */
    if (check_list(&c, json_object_get(body, "tools"), "tools", true) ||
        check_list(&c, json_object_get(body, "system"), "system", true))
        return -1;
    for (size_t i = 0; json_is_array(messages) && i < json_array_size(messages); i++) {
        snprintf(path, sizeof(path), "messages.%zu.content", i);
        if (check_list(&c, json_object_get(json_array_get(messages, i), "content"), path, false))
            return -1;
    }
    if (c.n <= CACHE_CONTROL_MAX) return 0;
    return param_fail(SRV_ERR_INVALID_VALUE, NULL,
                      "A maximum of %d blocks with cache_control may be provided. Found %d.",
                      CACHE_CONTROL_MAX, c.n);
}
