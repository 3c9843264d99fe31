/* SPDX-License-Identifier: MIT */
/* Advice for an operator about a system error, to follow strerror in a sentence. */
#pragma once

#include <errno.h>

/* Begins with a semicolon; "" if the error needs none. Static. */
static inline const char *os_error_remedy(int error)
{
    switch (error) {
    case EAGAIN:
        return "; raise the limit of threads (ulimit -u, systemd's TasksMax, a container's pids "
               "limit)";
    case EMFILE: return "; raise the limit of open files (ulimit -n, systemd's LimitNOFILE)";
    case ENFILE: return "; raise the limit of open files of the system (fs.file-max)";
    case ENOMEM: return "; raise the limit of memory (ulimit -v, systemd's MemoryMax)";
    default: return "";
    }
}
