/* SPDX-License-Identifier: MIT */
/*
 * The hub's statuses and error codes (X-Error-Code, X-Error-Message) as sentences for people: not
 * found, private, gated, a token that is not accepted, a limit on requests. Pure.
 */
#ifndef HEARTH_SERVER_HUB_STATUS_H
#define HEARTH_SERVER_HUB_STATUS_H

#include <stdbool.h>

struct hub_client;
struct hub_failure;
struct hub_request;
struct transfer;

struct hub_answer {
    int status;
    struct transfer *transfer; /* for headers; borrowed */
    bool with_token;           /* the request carried the token */
    bool from_endpoint;        /* it came from the hub itself, not from where a link led */
};

/* Sets *f by the answer to a request; 2xx leaves it unchanged. */
void hub_status_judge(const struct hub_client *c, const struct hub_request *r,
                      const struct hub_answer *a, struct hub_failure *f);

#endif
