/* SPDX-License-Identifier: MIT */
/*
 * Typed reading of JSON bodies; see json_fields.h. Called on text workers.
 */
#include "server/api/read/json_fields.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INT64_LIMIT 9223372036854775808.0 /* 2^63: the smallest double beyond int64_t */

/* ---- fields -------------------------------------------------------------------------------- */

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

static int wrong_type(const char *name, const char *wanted, const json_t *value)
{
    return param_fail(SRV_ERR_INVALID_TYPE, name, "'%s' must be %s, but is %s.", name, wanted,
                      type_name(value));
}

/* A number as a message shows it: integers whole, others in as few digits as tell it from its
 * neighbours. Returns buf. */
static const char *show_number(const json_t *value, char buf[32])
{
    double v = json_number_value(value);
    if (json_is_integer(value))
        snprintf(buf, 32, "%lld", (long long)json_integer_value(value));
    else
        for (int digits = 6; digits <= DBL_DECIMAL_DIG; digits++) {
            snprintf(buf, 32, "%.*g", digits, v);
            if (strtod(buf, NULL) == v) break;
        }
    return buf;
}

static int read_int(const struct param_field *f, const json_t *value, int64_t *out)
{
    char shown[32];
    double as_real = json_number_value(value);
    if (!json_is_number(value) || (json_is_real(value) && as_real != floor(as_real)))
        return wrong_type(f->name, "an integer", value);
    bool too_large = json_is_real(value) && as_real >= INT64_LIMIT;
    if (as_real < f->min || as_real > f->max || too_large)
        return param_fail(SRV_ERR_INVALID_VALUE, f->name,
                          "'%s' is %s, but must be between %.0f and %lld.", f->name,
                          show_number(value, shown), f->min,
                          f->max < INT64_LIMIT ? (long long)f->max : INT64_MAX);
    *out = json_is_integer(value) ? json_integer_value(value) : (int64_t)as_real;
    return 0;
}

static int read_number(const struct param_field *f, const json_t *value, double *out)
{
    char shown[32];
    if (!json_is_number(value)) return wrong_type(f->name, "a number", value);
    double v = json_number_value(value);
    if (!(v >= f->min && v <= f->max))
        return param_fail(SRV_ERR_INVALID_VALUE, f->name,
                          "'%s' is %s, but must be between %g and %g.", f->name,
                          show_number(value, shown), f->min, f->max);
    *out = v;
    return 0;
}

int param_read_id(const json_t *value, int32_t n_ids, const char *name, int32_t *ret_id)
{
    json_int_t id = json_integer_value(value);
    if (json_is_real(value) && fabs(json_real_value(value)) >= INT64_LIMIT)
        return param_fail(SRV_ERR_INVALID_VALUE, name,
                          "'%s' holds the token id %.6g; ids run from 0 to %d.", name,
                          json_real_value(value), (int)n_ids - 1);
    if (!json_is_integer(value))
        return param_fail(SRV_ERR_INVALID_TYPE, name, "'%s' must hold integers.", name);
    if (id < 0 || id >= n_ids)
        return param_fail(SRV_ERR_INVALID_VALUE, name,
                          "'%s' holds the token id %lld; ids run from 0 to %d.", name,
                          (long long)id, (int)n_ids - 1);
    *ret_id = (int32_t)id;
    return 0;
}

int param_read_ids(const json_t *list, int32_t n_ids, const char *name, int32_t *ret)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (param_read_id(json_array_get(list, i), n_ids, name, &ret[i])) return -1;
    return 0;
}

int param_find_word(const char *const *words, const char *word)
{
    for (int i = 0; word && words[i]; i++)
        if (!strcmp(word, words[i])) return i;
    return -1;
}

/*
 * Returns true if a value of a feature that is not supported asks for nothing: false, 0, -1, an
 * empty string, array or object, a neutral word, ["text"], and an object whose type is a neutral
 * word.
 */
static bool is_neutral(const json_t *value)
{
    static const char *const words[] = {"", "none", "auto", "disabled", "text", NULL};
    if (json_is_object(value)) {
        const char *type = json_string_value(json_object_get(value, "type"));
        return json_object_size(value) == 0 || param_find_word(words + 1, type) >= 0;
    }
    if (json_is_array(value)) {
        const char *only = json_string_value(json_array_get(value, 0));
        return json_array_size(value) == 0 ||
               (json_array_size(value) == 1 && only && strcmp(only, "text") == 0);
    }
    if (json_is_string(value)) return param_find_word(words, json_string_value(value)) >= 0;
    double number = json_is_number(value) ? json_number_value(value) : 1;
    return json_is_false(value) || number == 0 || number == -1;
}

static int read_field(const struct param_field *f, json_t *value, void *out)
{
    void *at = (char *)out + f->offset;
    switch (f->type) {
    case PARAM_BOOL:
        if (!json_is_boolean(value)) return wrong_type(f->name, "a boolean", value);
        *(bool *)at = json_is_true(value);
        return 0;
    case PARAM_INT: return read_int(f, value, at);
    case PARAM_NUMBER: return read_number(f, value, at);
    case PARAM_STRING:
        if (!json_is_string(value)) return wrong_type(f->name, "a string", value);
        if (strlen(json_string_value(value)) != json_string_length(value))
            return param_fail(SRV_ERR_INVALID_VALUE, f->name,
                              "'%s' must not hold the character U+0000.", f->name);
        *(const char **)at = json_string_value(value);
        return 0;
    case PARAM_JSON: *(json_t **)at = value; return 0;
    case PARAM_IGNORED:
    case PARAM_NAMED: return 0;
    case PARAM_UNSUPPORTED:
        if (is_neutral(value)) return 0;
        return param_fail(SRV_ERR_UNSUPPORTED, f->name, "'%s' is not supported by this server.",
                          f->name);
    }
    return 0;
}

int param_wrong_type(const char *path, const char *wanted)
{
    return param_fail(SRV_ERR_INVALID_TYPE, path, "'%s' must be %s.", path, wanted);
}

int param_check_string(const json_t *value, const char *path)
{
    if (json_is_string(value)) return 0;
    if (!value || json_is_null(value))
        return param_fail(SRV_ERR_MISSING, path, "'%s' is required.", path);
    return param_wrong_type(path, "a string");
}

int param_missing(const json_t *body, const char *name)
{
    static const char *const takes[][2] = {{"prompt", "/v1/completions"},
                                           {"messages", "/v1/chat/completions"},
                                           {"input", "/v1/responses"}};
    for (size_t i = 0; i < sizeof(takes) / sizeof(takes[0]); i++)
        if (strcmp(takes[i][0], name) != 0 && json_object_get(body, takes[i][0]))
            return param_fail(SRV_ERR_MISSING, name,
                              "The parameter '%s' is required; '%s' is for %s.", name, takes[i][0],
                              takes[i][1]);
    return param_fail(SRV_ERR_MISSING, name, "The parameter '%s' is required.", name);
}

void param_note_members(struct param_unknown *unknown, const json_t *object, const char *path,
                        const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) /* reads only */
    {
        char name[PARAM_PATH_MAX]; /* a longer one is not repeated */
        if (json_is_null(value) || param_find_word(known, key) >= 0) continue;
        snprintf(name, sizeof(name), "%s.%s", path, key);
        param_note(unknown, name);
    }
}

/* Returns true if `typed` is `name` with a letter missing or doubled, or two letters exchanged. */
static bool is_slip(const char *typed, const char *name)
{
    size_t typed_len = strlen(typed), len = strlen(name), i = 0;
    if (len < 4) return false; /* too short to tell */
    while (typed[i] && typed[i] == name[i])
        i++;
    if (typed_len + 1 == len) return strcmp(typed + i, name + i + 1) == 0;
    if (typed_len == len + 1)
        return i > 0 && typed[i] == typed[i - 1] && strcmp(typed + i + 1, name + i) == 0;
    return typed_len == len && typed[i] && typed[i] == name[i + 1] && typed[i + 1] == name[i] &&
           strcmp(typed + i + 2, name + i + 2) == 0;
}

/* An unknown key that is a slip of a field that is absent would be left out without a word. */
static int check_spelling(const json_t *object, const struct param_field *fields, const char *key)
{
    for (const struct param_field *f = fields; f->name; f++) {
        const char *name = f->also && is_slip(key, f->also) ? f->also : f->name;
        if (!is_slip(key, name) || json_object_get(object, name)) continue;
        return param_fail(SRV_ERR_UNSUPPORTED, name,
                          "'%.80s' is not a field of this request; did you mean '%s'?", key, name);
    }
    return 0;
}

/* The row that has this name or other spelling, under the name given; its name is NULL if none. */
static struct param_field find_field(const struct param_field *fields, const char *key)
{
    while (fields->name && strcmp(fields->name, key) &&
           (!fields->also || strcmp(fields->also, key)))
        fields++;
    struct param_field found = *fields;
    if (found.name) found.name = key;
    return found;
}

void params_preset(const struct param_field *fields, void *out)
{
    for (const struct param_field *f = fields; f->name; f++) {
        void *at = (char *)out + f->offset;
        if (f->type == PARAM_BOOL) *(bool *)at = f->preset != 0;
        if (f->type == PARAM_INT) *(int64_t *)at = (int64_t)f->preset;
        if (f->type == PARAM_NUMBER) *(double *)at = f->preset;
    }
}

int params_read(json_t *object, const struct param_field *fields, void *out,
                struct param_unknown *unknown)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const struct param_field f = find_field(fields, key);
        if (!f.name) {
            if (!json_is_null(value) && check_spelling(object, fields, key)) return -1;
            if (unknown) unknown->n++;
            if (unknown) param_note(unknown, key);
            continue;
        }
        if (json_is_null(value)) continue;
        if (unknown && f.type == PARAM_NAMED && !is_neutral(value)) param_note(unknown, key);
        int rc = read_field(&f, value, out);
        if (rc) return rc;
    }
    return 0;
}
