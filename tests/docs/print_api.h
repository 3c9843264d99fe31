/* SPDX-License-Identifier: MIT */
/* What the tables of request fields say, as openapi.json and as tables of docs/. */
#pragma once

#include <stdio.h>

/*
 * Reads openapi.json.in: the document but for the properties that the field tables give. There,
 * "fields" adds to properties by name what no row says (the items of arrays, the members of
 * objects), and "x-errors" in an operation stands for the answers of all error statuses. The
 * document is kept for the other calls. Returns 0, or -1 with a line on stderr.
 */
int api_open(const char *frame_path);
void api_close(void);

/* The whole document. */
void api_print_document(FILE *out);

/*
 * The rows of "<!-- fields: SCHEMAS -->", as a table: of one schema those that it does not share
 * with all of the generating routes, of two or more those that they share; of "stream_options" its
 * members. Returns 0, or -1 with a line on stderr.
 */
int api_print_table(FILE *out, const char *schemas);
