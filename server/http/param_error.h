/* SPDX-License-Identifier: MIT */
/*
 * The faults of a request's fields, and the fields that had no effect.
 *
 * Threads: any. The error is its thread's, as errno is: who reads a request answers it.
 */
#pragma once

#include "server/http/endpoint.h"

enum { PARAM_PATH_MAX = 96, PARAM_MESSAGE_MAX = 320, PARAM_WORD_MAX = 44 };

/* Set by param_fail, which returns -1; empty after param_reply. */
extern _Thread_local struct param_error {
    enum srv_error kind;
    char path[PARAM_PATH_MAX];
    char message[PARAM_MESSAGE_MAX];
} param_error;

int param_fail(enum srv_error kind, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The error of a request for which memory ran out. Returns -1. */
int param_no_memory(void);

/* Answers the request with the error. */
void param_reply(struct srv_request *req);

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
 * error. Returns 0, or -1 after param_fail. */
int param_name_ignored(struct srv_request *req, const struct param_unknown *unknown);
