/* SPDX-License-Identifier: MIT */
/*
 * The faults of a request's fields, and the fields that had no effect.
 *
 * Threads: pure; each call works on its caller's data.
 */
#pragma once

#include "server/http/endpoint.h"

enum { PARAM_PATH_MAX = 96, PARAM_MESSAGE_MAX = 320, PARAM_WORD_MAX = 44 };

/* The first error found. */
struct param_error {
    enum srv_error kind;
    char path[PARAM_PATH_MAX];
    char message[PARAM_MESSAGE_MAX];
};

int param_fail(struct param_error *err, enum srv_error kind, const char *path, const char *format,
               ...) __attribute__((format(printf, 4, 5)));

/* The error of a request for which memory ran out. Returns -1. */
int param_no_memory(struct param_error *err);

/* Answers the request with the error. */
void param_reply(struct srv_request *req, const struct param_error *err);

/* Copies a word of the request for a message, cut, with '?' for anything but printable ASCII.
 * Returns buf. */
const char *param_word(const char *text, char buf[PARAM_WORD_MAX]);

/* Keys without effect, as one comma-separated list. n_left: those that it has no room for, or that
 * no header can hold. n: the number of keys that are in no row. */
struct param_unknown {
    char list[256];
    int n, n_left;
};

/* Adds a key to the list, or counts it as left out. */
void param_note(struct param_unknown *unknown, const char *key);

/* Names the parameters without effect in x-ignored-params; under strict-params unknown ones are an
 * error. Returns 0, or -1 with err. */
int param_name_ignored(struct srv_request *req, const struct param_unknown *unknown,
                       struct param_error *err);
