/* SPDX-License-Identifier: MIT */
/*
 * The header traceparent of W3C Trace Context: 00-<32 hex>-<16 hex>-<2 hex>, that is version, trace
 * id, id of the caller's span, and flags. The server makes no spans; it repeats the header in its
 * log and in errors, so that both can be found from a trace. Stateless; any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { SRV_TRACE_PARENT_CHARS = 55 };

/*
 * Copies the four fields from a header's value, with a NUL. Returns false, with ret unchanged, if
 * it is malformed, which is then to be treated as absent: upper-case digits, ids of zeros, version
 * ff, or anything behind the flags in version 00. A later version may go on behind a '-'.
 */
bool srv_trace_parent_read(char ret[SRV_TRACE_PARENT_CHARS + 1], const char *value, size_t len);
