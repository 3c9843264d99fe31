/* SPDX-License-Identifier: MIT */
/*
 * How fetching a model can fail. Functions of hub_*.c return 0 or one of these, with a sentence for
 * people in an err buffer of HUB_ERR_SIZE bytes. Its absolute value is the exit status.
 */
#ifndef HEARTH_SERVER_HUB_HUB_ERROR_H
#define HEARTH_SERVER_HUB_HUB_ERROR_H

enum hub_error {
    HUB_EINTERNAL = -1,  /* out of memory, or a bug */
    HUB_EUSAGE = -2,     /* an invalid name, revision, endpoint or token */
    HUB_ENOTFOUND = -3,  /* no such model or revision */
    HUB_EDENIED = -4,    /* gated or private, or the token is not accepted */
    HUB_ENETWORK = -5,   /* not reached, too slow, rate limits, certificates, or offline */
    HUB_EWRONG = -6,     /* an invalid answer or content */
    HUB_EDISK = -7,      /* no space, or no permission to write */
    HUB_ENOTSERVED = -8, /* no model that this program can serve */
    HUB_ESTOPPED = -9,   /* asked to stop; no exit status of its own */
};

enum { HUB_ERR_SIZE = 600 };

#endif
