/* SPDX-License-Identifier: MIT */
/* The error codes of the engine library; a sentence in the caller's `err` buffer goes with each. */
#ifndef HEARTH_ENGINE_ENG_ERROR_H
#define HEARTH_ENGINE_ENG_ERROR_H

enum eng_error {
    ENG_EINVAL = -1,       /* wrong model file, or a parameter out of range; err says which */
    ENG_ENOMEM = -2,       /* memory cannot be had, or the plan does not fit the limit */
    ENG_EIO = -3,          /* a file cannot be read */
    ENG_ENOENT = -4,       /* a file is missing */
    ENG_EUNSUPPORTED = -5, /* a model feature that is not built; err names it */
    ENG_ECONTEXT = -6,     /* the prompt is longer than the context */
    ENG_EQUEUEFULL = -7,   /* the bounded queue has no room: requests or prompt tokens */
    ENG_ECLOSED = -8,      /* the engine is draining or closed */
    ENG_EFAILED = -9,      /* the engine met an internal error */
};

#endif
