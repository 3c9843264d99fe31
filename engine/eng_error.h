/* SPDX-License-Identifier: MIT */
/*
 * The error codes of the engine library; each comes with a sentence in the caller's `err` buffer.
 */
#pragma once

enum eng_error {
    ENG_EINVAL = -1,       /* invalid model file, or a parameter out of range; err names it */
    ENG_ENOMEM = -2,       /* out of memory or threads, or the plan exceeds the limit */
    ENG_EIO = -3,          /* a file cannot be read */
    ENG_ENOENT = -4,       /* a file is missing */
    ENG_EUNSUPPORTED = -5, /* a model feature that is not supported; err names it */
    ENG_ECONTEXT = -6,     /* the prompt is longer than the context */
    ENG_EQUEUEFULL = -7,   /* the bounded queue has no room: requests or prompt tokens */
    ENG_ECLOSED = -8,      /* the engine is draining or closed */
    ENG_EFAILED = -9,      /* the engine met an internal error */
};
