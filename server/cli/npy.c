/* SPDX-License-Identifier: MIT */
/* See npy.h. */
#include "server/cli/npy.h"

#include <stdbool.h>

enum { HEAD_BYTES = 128, BEFORE_TEXT_BYTES = 10 };

FILE *npy_open(const char *path)
{
    FILE *f = fopen(path, "wbe");
    if (!f || !fseek(f, HEAD_BYTES, SEEK_SET)) return f;
    fclose(f);
    return NULL;
}

int npy_finish(FILE *f, int64_t n_rows, int width)
{
    char shape[48], text[HEAD_BYTES];
    snprintf(shape, sizeof(shape), width > 1 ? "%lld, %d" : "%lld,", (long long)n_rows, width);
    snprintf(text, sizeof(text), "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }",
             shape);
    /* version 1.0, the length of the text, which blanks and a line feed fill up */
    bool good = !fseek(f, 0, SEEK_SET) &&
                fprintf(f, "\x93NUMPY%c%c%c%c%-*s\n", 1, 0, HEAD_BYTES - BEFORE_TEXT_BYTES, 0,
                        HEAD_BYTES - BEFORE_TEXT_BYTES - 1, text) == HEAD_BYTES;
    return fclose(f) || !good ? -1 : 0;
}
