/* SPDX-License-Identifier: MIT */
/* GET /openapi.json: the description of this API, embedded from server/openapi.json at build time. */
#include "server/api.h"

/* The assembler reads the file (its path comes from the build); the linker gives its ends names. */
__asm__(".section .rodata\n"
        ".balign 16\n"
        "srv_openapi_begin:\n"
        ".incbin \"" SRV_OPENAPI_FILE "\"\n"
        "srv_openapi_end:\n"
        ".byte 0\n"
        ".previous\n");

extern const char srv_openapi_begin[], srv_openapi_end[];

static void handle(struct srv_request *req)
{
    struct srv_buf b;
    srv_request_account(req)->endpoint = "openapi";
    srv_buf_init(&b, 1 << 20);
    srv_buf_add(&b, srv_openapi_begin, (size_t)(srv_openapi_end - srv_openapi_begin));
    srv_reply(req, 200, NULL, &b);
}

const struct srv_route srv_routes_openapi[] = {
    {"GET", "/openapi.json", SRV_ROUTE_INLINE | SRV_ROUTE_EARLY, handle},
    {0},
};
