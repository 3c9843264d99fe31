/* SPDX-License-Identifier: MIT */
/*
 * Files of the source tree that the binary carries: server/meson.build names each, embed.py writes
 * its bytes into a C array at build time, with a NUL behind them that is not counted. Constant; any
 * thread.
 */
#ifndef HEARTH_SERVER_EMBEDDED_H
#define HEARTH_SERVER_EMBEDDED_H

#include <stddef.h>

extern const unsigned char srv_embedded_openapi_json[];
extern const size_t srv_embedded_openapi_json_bytes;

#endif
