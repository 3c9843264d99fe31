/* SPDX-License-Identifier: MIT */
/* A NumPy file (format 1.0) of float32 rows, written row by row. Any thread, one owner. */
#ifndef HEARTH_SERVER_CLI_NPY_H
#define HEARTH_SERVER_CLI_NPY_H

#include <stdint.h>
#include <stdio.h>

/* Opens the file with a hole for its head; the rows follow, in the machine's little-endian order.
 * NULL with errno: it cannot be written, or is a pipe. */
FILE *npy_open(const char *path);

/* Writes the head, and closes the file: n_rows of width numbers, or of width 1 a list of n_rows.
 * A file without a head is not an array, so nobody takes a part for the whole. 0 or -1. */
int npy_finish(FILE *f, int64_t n_rows, int width);

#endif
