/* SPDX-License-Identifier: MIT */
/* Applies the checks of a head to its request. Threads: the HTTP thread of the connection. */
#pragma once

#include <stdbool.h>

struct srv_guard_head;
struct srv_guard_verdict;
struct srv_request;

/*
 * Applies srv_guard_check to the head of req, to which it adds the headers, and keeps in req what
 * later steps need. Adds the headers that let an allowed origin's web page read the answer.
 */
void srv_admit_request(struct srv_request *req, struct srv_guard_head *head, bool conn_refused,
                       bool too_many_headers, struct srv_guard_verdict *v);

/* Answers OPTIONS: the methods of the path, and to an allowed origin the headers it may send. */
void srv_admit_reply_options(struct srv_request *req);
