/* SPDX-License-Identifier: MIT */
/*
 * Files of the source tree that the binary carries: server/meson.build names each, embed.py writes
 * its bytes into a C array at build time, with a NUL behind them that is not counted. Constant; any
 * thread.
 */
#pragma once

#include <stddef.h>

extern const unsigned char srv_embedded_openapi_json[];
extern const size_t srv_embedded_openapi_json_bytes;

/* The chat page, and a gzip copy of it. */
extern const unsigned char srv_embedded_page_html[];
extern const size_t srv_embedded_page_html_bytes;
extern const unsigned char srv_embedded_page_html_gzip[];
extern const size_t srv_embedded_page_html_gzip_bytes;
/* Entity tags of the two, quoted. */
extern const char srv_embedded_page_html_etag[];
extern const char srv_embedded_page_html_gzip_etag[];
/* Source expressions of a content security policy: 'sha256-...', quoted. */
extern const char srv_embedded_page_html_script_hash[];
extern const char srv_embedded_page_html_style_hash[];
