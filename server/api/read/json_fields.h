/* SPDX-License-Identifier: MIT */
/*
 * JSON request bodies into structs: a table of fields says what each key means.
 *
 * Every optional field accepts null (= absent). A wrong type or a value out of range is an error
 * with the JSON path of the field. Keys that no table row names are collected for x-ignored-params;
 * under --strict-params they are an error. Fields that would change the answer and are not
 * supported are rows too (PARAM_UNSUPPORTED): their neutral values are accepted, anything else is
 * refused.
 *
 * Threads: pure; each call works on its caller's data.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "server/api/read/body.h"
#include "server/http/param_error.h"
#include "tokenizer/tokenizer.h"

enum param_type {
    PARAM_BOOL,        /* bool */
    PARAM_INT,         /* int64_t; a real without fraction counts */
    PARAM_NUMBER,      /* double */
    PARAM_STRING,      /* const char *, borrowed from the tree */
    PARAM_JSON,        /* json_t *, borrowed from the tree, any type */
    PARAM_IGNORED,     /* accepted, without effect by its nature (user, metadata) */
    PARAM_NAMED,       /* accepted, without effect; named in x-ignored-params unless neutral */
    PARAM_UNSUPPORTED, /* refused unless its value changes nothing (see json_fields.c) */
};

/* One field of a body. tests/docs prints openapi.json and the tables of docs/ from these rows. */
struct param_field {
    const char *name;
    enum param_type type;
    size_t offset;         /* into the struct filled */
    double min, max;       /* PARAM_INT and PARAM_NUMBER */
    double preset;         /* the value of a flag or number that is absent: params_preset */
    const char *also;      /* another name for it, or NULL */
    const char *otherwise; /* the effect of its absence, as docs/ say it; NULL: the preset */
    const char *meaning;   /* for openapi.json and docs/; NULL: they do not name the field */
};

/* The start of a row for a member of the struct `of`. */
#define PARAM_FIELD(of, name_, type_, member, otherwise_, meaning_)                                \
    .name = name_, .type = type_, .offset = offsetof(of, member), .otherwise = otherwise_,         \
    .meaning = meaning_

/* Sets the flags and numbers of `out` to their presets. */
void params_preset(const struct param_field *fields, void *out);

/*
 * Fills `out` from the object's members; absent and null members leave their field alone. An
 * unknown member that is a slip of an absent field's name is an error. Returns 0 or -1 after
 * param_fail filled. unknown may be NULL.
 */
int params_read(json_t *object, const struct param_field *fields, void *out,
                struct param_unknown *unknown);

/* The error of a value that is not, say, "an array". Returns -1. */
int param_wrong_type(const char *path, const char *wanted);

/* The place of a word, which may be NULL, in a list that NULL ends; -1: it is not there. */
int param_find_word(const char *const *words, const char *word);

/* Returns 0 for a string, or -1 after param_fail. */
int param_check_string(const json_t *value, const char *path);

/* The error of a body without `name`, with the route that takes what the body has. Returns -1. */
int param_missing(const json_t *body, const char *name);

/* Adds the members of an object, or of none, that are not null and not of the known ones,
 * NULL-terminated, as "path.member". */
void param_note_members(struct param_unknown *unknown, const json_t *object, const char *path,
                        const char *const *known);

/* Reads a token id below n_ids from the list called `name`. 0 or -1 after param_fail. */
int param_read_id(const json_t *value, int32_t n_ids, const char *name, int32_t *ret_id);

/* Reads the token ids of a list. */
int param_read_ids(const json_t *list, int32_t n_ids, const char *name, int32_t *ret);

/* ---- texts as token ids, with the errors of the field that holds them ---------------------- */

/* Turns an enum tok_error with its sentence into the error of the field `path`. Returns 0 for 0,
 * else -1. */
int param_encode_failed(int rc, const char *path, const char *message);

/* Appends the ids of the field's text, see tok_encode. Returns 0, or -1 after param_fail. */
int param_encode(const struct tok *tok, const char *text, size_t len, unsigned flags,
                 const char *path, struct tok_ids *ids);

/* Reads the ids of the field's list, each below n_ids, into a zeroed `ids`. Returns 0, or -1
 * after param_fail. */
int param_take_ids(const json_t *list, int32_t n_ids, const char *path, struct tok_ids *ids);

/*
 * Moves ids into the request's memory: *ret [*ret_n]; ids is empty afterwards. rc: of making them;
 * unless it is 0 they are only freed, and it is returned. Returns 0, or -1 after param_fail.
 */
int param_keep_ids(struct srv_request *req, int rc, struct tok_ids *ids, const int32_t **ret,
                   int64_t *ret_n);
