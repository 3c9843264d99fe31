/* SPDX-License-Identifier: MIT */
/* An array from malloc that grows. */
#pragma once

#include <stdint.h>
#include <stdlib.h>

/*
 * Makes room for `need` elements at least; the capacity, of any unsigned type, doubles from
 * `least`. 0, or -1 with both as they were.
 */
#define ARRAY_ROOM(array, capacity, need, least)                                                   \
    ({                                                                                             \
        size_t need_ = (need), cap_ = (capacity) ? (capacity) : (least), bytes_;                   \
        while (cap_ < need_ && cap_ <= SIZE_MAX / 2)                                               \
            cap_ *= 2;                                                                             \
        void *room_ = (array);                                                                     \
        if (cap_ != (capacity))                                                                    \
            room_ = __builtin_mul_overflow(cap_, sizeof(*(array)), &bytes_)                        \
                        ? NULL                                                                     \
                        : realloc(array, bytes_);                                                  \
        if (room_) {                                                                               \
            (array) = room_;                                                                       \
            (capacity) = (__typeof__(capacity))cap_;                                               \
        }                                                                                          \
        room_ ? 0 : -1;                                                                            \
    })
