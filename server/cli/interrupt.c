/* SPDX-License-Identifier: MIT */
/* Signals as flags; see interrupt.h. */
#include "server/cli/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

static atomic_bool stop, interrupted, resized;
static atomic_int end_signal, ending;
static int fd = -1;
static struct termios saved;
static bool has_saved;

void interrupt_end(void)
{
    if (has_saved) tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
}

static void handle(int number)
{
    const uint64_t one = 1;
    int kept = errno;
    int n = atomic_load(&ending);
    if (n > 0 && number != SIGWINCH && (n == 1 || number != SIGINT || atomic_load(&interrupted))) {
        interrupt_end();
        _exit(128 + number);
    }
    if (number == SIGWINCH)
        atomic_store(&resized, true);
    else if (number == SIGINT)
        atomic_store(&interrupted, true);
    else
        atomic_store(&end_signal, number);
    if (number != SIGWINCH) atomic_store(&stop, true);
    if (write(fd, &one, sizeof(one)) < 0) { /* a full counter is readable too */
    }
    errno = kept;
}

/* Ctrl-Z: stops with the terminal as it was at the start, and comes back to the line. */
static void suspend(int number)
{
    const struct sigaction stops = {.sa_handler = SIG_DFL};
    struct sigaction ours;
    struct termios now;
    sigset_t set;
    int kept = errno;
    bool is_editing = tcgetattr(STDIN_FILENO, &now) == 0 && !(now.c_lflag & ICANON);
    interrupt_end();
    sigemptyset(&set);
    sigaddset(&set, number);
    sigaction(number, &stops, &ours);
    raise(number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* here it stops */
    sigaction(number, &ours, NULL);
    if (is_editing) {
        tcsetattr(STDIN_FILENO, TCSADRAIN, &now);
        handle(SIGWINCH);
    }
    errno = kept;
}

int interrupt_begin(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return -1;
    has_saved = tcgetattr(STDIN_FILENO, &saved) == 0;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &action, NULL);
    action.sa_handler = suspend;
    sigaction(SIGTSTP, &action, NULL);
    return 0;
}

const atomic_bool *interrupt_stop(void)
{
    return &stop;
}

int interrupt_fd(void)
{
    return fd;
}

int interrupt_take(void)
{
    uint64_t n;
    if (read(fd, &n, sizeof(n)) < 0) { /* no signal since */
    }
    if (atomic_load(&end_signal)) return atomic_load(&end_signal);
    if (atomic_exchange(&resized, false)) return SIGWINCH;
    if (!atomic_exchange(&interrupted, false)) return 0;
    atomic_store(&stop, atomic_load(&end_signal) != 0);
    return SIGINT;
}

void interrupt_ends(int n)
{
    atomic_store(&ending, n);
}
