/* SPDX-License-Identifier: MIT */
/* Whether a running server is ready. */
#ifndef HEARTH_SERVER_STATE_H
#define HEARTH_SERVER_STATE_H

enum srv_state { SRV_LOADING, SRV_READY, SRV_DRAINING, SRV_FAILED };

#endif
