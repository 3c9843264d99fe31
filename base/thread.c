/* SPDX-License-Identifier: MIT */
#include "base/thread.h"

#include <signal.h>
#include <time.h>

int thread_start(pthread_t *ret, const char *name, size_t stack_bytes, void *(*run)(void *arg),
                 void *arg)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t blocked, before;
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc) return rc;
    if (stack_bytes) rc = pthread_attr_setstacksize(&attr, stack_bytes);
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&blocked, faults[i]);
    char own[16] = "";
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    /* A thread begins with its creator's name; another one's is written to a file in /proc. */
    pthread_getname_np(pthread_self(), own, sizeof(own));
    pthread_setname_np(pthread_self(), name);
    if (!rc) rc = pthread_create(ret, &attr, run, arg);
    pthread_setname_np(pthread_self(), own);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

void thread_cond_init(pthread_cond_t *ret)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(ret, &attr);
    pthread_condattr_destroy(&attr);
}
