/* SPDX-License-Identifier: MIT */
/* Checks of cache_control; see cache_fields.h. Called on text workers. */
#include "server/api/read/cache_fields.h"

#include <stdio.h>
#include <string.h>

static int fail(const char *path, const char *below, const char *message)
{
    char full[PARAM_PATH_MAX];
    snprintf(full, sizeof(full), "%s%s", path, below);
    return param_fail(SRV_ERR_INVALID_VALUE, full, "%s: %s", full, message);
}

/* path: of the member. n: how many there are so far, here and below. */
static int check_one(const json_t *control, const char *path, int *n)
{
    const json_t *type = json_object_get(control, "type"), *ttl = json_object_get(control, "ttl");
    const char *word = json_string_value(type), *time = json_string_value(ttl);
    if (!control || json_is_null(control)) return 0;
    if (!json_is_object(control)) return fail(path, "", "Input should be an object");
    if (!type || json_is_null(type)) return fail(path, ".type", "Field required");
    if (!word || strcmp(word, "ephemeral") != 0) {
        char message[PARAM_MESSAGE_MAX], shown[PARAM_WORD_MAX];
        snprintf(message, sizeof(message),
                 "Input tag '%s' found using 'type' does not match any of the expected tags: "
                 "'ephemeral'",
                 word ? param_word(word, shown) : "");
        return fail(path, "", message);
    }
    if (ttl && !json_is_null(ttl) && (!time || (strcmp(time, "5m") && strcmp(time, "1h"))))
        return fail(path, ".ephemeral.ttl", "Input should be '5m' or '1h'");
    ++*n;
    return 0;
}

/* Each of a list of blocks or tools, and the blocks inside results. */
static int check_list(const json_t *list, const char *path, bool inner, int *n)
{
    char own[PARAM_PATH_MAX - 24], below[PARAM_PATH_MAX];
    int rc = 0;
    for (size_t i = 0; !rc && json_is_array(list) && i < json_array_size(list); i++) {
        const json_t *block = json_array_get(list, i);
        snprintf(own, sizeof(own), "%s.%zu", path, i);
        snprintf(below, sizeof(below), "%s.cache_control", own);
        rc = check_one(json_object_get(block, "cache_control"), below, n);
        snprintf(below, sizeof(below), "%s.content", own);
        if (!rc && !inner) rc = check_list(json_object_get(block, "content"), below, true, n);
    }
    return rc;
}

int cache_control_check(const json_t *body)
{
    int n = 0;
    const json_t *messages = json_object_get(body, "messages");
    char path[40];
    if (check_one(json_object_get(body, "cache_control"), "cache_control", &n)) return -1;
    n = 0; /* it names no block */
    if (check_list(json_object_get(body, "tools"), "tools", true, &n) ||
        check_list(json_object_get(body, "system"), "system", true, &n))
        return -1;
    for (size_t i = 0; json_is_array(messages) && i < json_array_size(messages); i++) {
        snprintf(path, sizeof(path), "messages.%zu.content", i);
        if (check_list(json_object_get(json_array_get(messages, i), "content"), path, false, &n))
            return -1;
    }
    if (n <= CACHE_CONTROL_MAX) return 0;
    return param_fail(SRV_ERR_INVALID_VALUE, NULL,
                      "A maximum of %d blocks with cache_control may be provided. Found %d.",
                      CACHE_CONTROL_MAX, n);
}
