/* SPDX-License-Identifier: MIT */
/* Messages from a terminal; see chat_input.h. */
#include "server/cli/chat_input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/utf8.h"
#include "server/cli/interrupt.h"
#include "server/hub/cache.h"

enum { ENTRY_MAX_BYTES = 16 << 10 }; /* of the history */

static int open_path(struct input *in, char *err, size_t errlen)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char path[PATH_MAX - 8];
    bool has_state = state && *state == '/';
    if (!has_state && (!home || *home != '/')) return 0;
    int n = snprintf(path, sizeof(path), "%s%s/hearth/history", has_state ? state : home,
                     has_state ? "" : "/.local/state");
    int fd = n < (int)sizeof(path) && !hub_make_folders(path, 0700)
                 ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
                 : -1;
    if (fd < 0)
        return fail_with(-1, err, errlen, "no history is kept: %s: %s", path, strerror(errno));
    close(fd);
    return realpath(path, in->path) ? 0 : -1; /* a link stays one when the file is replaced */
}

int input_init(struct input *in, const char *const *words, bool keep_history, char *err,
               size_t errlen)
{
    *in = (struct input){.edit = line_edit_create(words)};
    buf_init(&in->plain, INPUT_MAX_BYTES);
    int rc = keep_history && in->edit ? open_path(in, err, errlen) : 0;
    if (*in->path) line_edit_load(in->edit, in->path);
    return rc;
}

void input_finish(struct input *in)
{
    line_edit_destroy(in->edit);
    buf_finish(&in->plain);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static enum line_end fill_plain(struct input *in, int *ret_signal)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = interrupt_fd(), .events = POLLIN}};
    char block[4096];
    poll(fds, 2, -1);
    if (fds[1].revents) {
        *ret_signal = interrupt_take();
        if (!*ret_signal || *ret_signal == SIGWINCH) return LINE_OK;
        buf_clear(&in->plain);
        printf("\n");
        return LINE_SIGNAL;
    }
    if (!fds[0].revents) return LINE_OK;
    ssize_t n = read(STDIN_FILENO, block, sizeof(block));
    if (n > 0) buf_add(&in->plain, block, (size_t)n);
    if (n <= 0) in->at_end = true;
    return in->plain.failed ? LINE_NOMEM : LINE_OK;
}

static enum line_end read_plain(struct input *in, const char *prompt, char **ret, int *ret_signal)
{
    const char *end = NULL;
    fputs(prompt, stdout);
    fflush(stdout);
    while (!in->at_end && !(in->plain.len && (end = memchr(in->plain.data, '\n', in->plain.len)))) {
        enum line_end rc = fill_plain(in, ret_signal);
        if (rc != LINE_OK) return rc;
    }
    if (!end && !in->plain.len) return LINE_EOF;
    size_t len = end ? (size_t)(end - in->plain.data) : in->plain.len;
    *ret = strndup(in->plain.data, len);
    in->plain.len -= len + (end != NULL);
    if (end) memmove(in->plain.data, end + 1, in->plain.len);
    return *ret ? LINE_OK : LINE_NOMEM;
}

static enum line_end read_line(struct input *in, const char *prompt, char **ret, int *ret_signal)
{
    return in->edit ? line_edit_read(in->edit, prompt, ret, ret_signal)
                    : read_plain(in, prompt, ret, ret_signal);
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Adds a line; true if another one belongs to the message. */
static bool add_line(struct buf *message, const char *line, bool *quoted)
{
    bool begins = !message->len && !*quoted && strncmp(line, "\"\"\"", 3) == 0;
    if (begins) {
        *quoted = true;
        line += 3;
    }
    size_t len = strlen(line);
    bool ends_quote = *quoted && utf8_ends_with(line, "\"\"\"");
    bool continues = *quoted ? !ends_quote : utf8_ends_with(line, "\\");
    if (ends_quote) len -= 3;
    if (!*quoted && continues) len--;
    if (ends_quote && !len && message->len) message->data[--message->len] = '\0';
    buf_add(message, line, len);
    if (continues && !(begins && len == 0)) buf_puts(message, "\n");
    return continues;
}

enum line_end input_message(struct input *in, char **ret, int *ret_signal)
{
    struct buf message = {.max = INPUT_MAX_BYTES};
    bool quoted = false, continues = true;
    enum line_end end = LINE_OK;
    for (const char *prompt = "> "; continues && !end; prompt = ". ") {
        char *line = NULL;
        end = read_line(in, prompt, &line, ret_signal);
        if (end == LINE_SIGNAL && *ret_signal == SIGINT && *prompt == '.') end = LINE_CLEARED;
        if (!end) continues = add_line(&message, line, &quoted);
        free(line);
    }
    if (!end && message.failed) end = LINE_NOMEM;
    if (end) {
        buf_finish(&message);
        return end;
    }
    *ret = message.data ? message.data : strdup("");
    if (!*ret) return LINE_NOMEM;
    bool kept = *in->path && strlen(*ret) <= ENTRY_MAX_BYTES;
    if (in->edit && **ret && **ret != ' ') line_edit_add(in->edit, *ret, kept ? in->path : NULL);
    return LINE_OK;
}
