/* SPDX-License-Identifier: MIT */
/* Whether a running server is ready. */
#pragma once

enum srv_state { SRV_LOADING, SRV_READY, SRV_DRAINING, SRV_FAILED };
