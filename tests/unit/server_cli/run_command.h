/* SPDX-License-Identifier: MIT */
/* A subcommand in a process of its own: its exit status, and what it wrote to stdout and stderr. */
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/models/budget.h"
#include "server_config/command_line.h"

struct ran {
    int status; /* -1: a signal ended it */
    char out[1 << 16], err[4096];
};

/* The demo model. */
static inline const char *demo_dir(void)
{
    static char dir[1024];
    const char *root = getenv("HEARTH_SOURCE_ROOT");
    snprintf(dir, sizeof(dir), "%s/deploy/demo", root ? root : ".");
    return dir;
}

/* A file that is gone with the process, holding the text. */
static inline int temporary(const char *text)
{
    char path[] = "/tmp/hearth-test-XXXXXX";
    int fd = mkstemp(path);
    REQUIRE(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    unlink(path);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static inline void read_back(int fd, char *to, size_t size)
{
    ssize_t n = pread(fd, to, size - 1, 0);
    REQUIRE(n >= 0);
    to[n] = '\0';
    close(fd);
}

/* Runs the command with the options in a line, "chat -n 8", and a text as its stdin. */
static inline void run_command(struct ran *r, int (*command)(const struct srv_config *config),
                               const char *line, const char *input)
{
    struct srv_config config;
    char err[512] = "";
    int fds[3] = {temporary(input), temporary(""), temporary("")}, status;
    REQUIRE_MSG(load(&config, line, err, sizeof(err)) == 0, "%s", err);
    REQUIRE_EQ_INT(srv_budget_settle(&config), 0);
    fflush(NULL);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 3; i++)
            dup2(fds[i], i);
        status = command(&config);
        fflush(NULL);
        _exit(status);
    }
    REQUIRE(waitpid(pid, &status, 0) == pid);
    r->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    close(fds[0]);
    read_back(fds[1], r->out, sizeof(r->out));
    read_back(fds[2], r->err, sizeof(r->err));
    srv_config_finish(&config);
}
