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
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/utf8.h"
#include "server/cli/interrupt.h"
#include "server/hub/cache.h"

enum {
    ENTRY_MAX_BYTES = 16 << 10,
    HISTORY_MAX_BYTES = LINE_HISTORY_ENTRIES * ENTRY_MAX_BYTES,
};

/* ---- the history file ----------------------------------------------------------------------- */

/* Opens the file and locks it. Another program may replace it between the two. */
static int open_history(const char *path)
{
    struct stat ours, there;
    for (;;) {
        int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) return -1;
        flock(fd, LOCK_EX); /* a file system without locks: go on */
        if (fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
            ours.st_dev == there.st_dev)
            return fd;
        close(fd);
    }
}

/* Returns false if the last entry was not written to its end. */
static bool read_history(int fd, struct buf *text)
{
    char block[16384];
    buf_init(text, HISTORY_MAX_BYTES);
    for (ssize_t n; !text->failed && (n = read(fd, block, sizeof(block))) > 0;)
        buf_add(text, block, (size_t)n);
    if (!text->len || text->data[text->len - 1] == '\n') return true;
    buf_puts(text, "\n");
    return false;
}

/* The part that holds the last n entries. */
static const char *last_entries(const struct buf *text, int n)
{
    const char *p = text->data + text->len;
    while (p > text->data && (p[-1] != '\n' || n-- > 0))
        p--;
    return p;
}

/* Writes the last entries and the new line to a new file in place of the old one. */
static int replace_history(const char *path, const struct buf *text, const struct buf *line)
{
    char beside[PATH_MAX + 8];
    const char *kept = last_entries(text, LINE_HISTORY_ENTRIES - 1);
    snprintf(beside, sizeof(beside), "%s.new", path);
    AUTO(file_close) int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    int rc = file_write_all(fd, kept, (size_t)(text->data + text->len - kept));
    if (!rc) rc = file_write_all(fd, line->data, line->len);
    return rc || rename(beside, path) ? -1 : 0;
}

static void keep(const char *path, const char *entry)
{
    AUTO(buf_finish) struct buf text = {0}, line = {.max = 2 * ENTRY_MAX_BYTES + 1};
    AUTO(file_close) int fd = open_history(path);
    if (fd < 0) return;
    for (const char *p = entry; *p; p++)
        buf_add(&line,
                *p == '\n'   ? "\\n"
                : *p == '\\' ? "\\\\"
                             : p,
                1 + (*p == '\n' || *p == '\\'));
    buf_puts(&line, "\n");
    bool whole = read_history(fd, &text);
    bool is_full = text.len && last_entries(&text, LINE_HISTORY_ENTRIES - 1) > text.data;
    if (!line.failed && !text.failed) {
        if (is_full || !whole)
            replace_history(path, &text, &line);
        else
            file_write_all(fd, line.data, line.len);
    }
}

/* Adds an entry in the file's form to the editor's history; changes it. */
static void recall(struct line_edit *e, char *entry)
{
    char *to = entry;
    for (const char *p = entry; *p; p++) {
        bool escaped = *p == '\\' && p[1];
        if (escaped) p++;
        *to++ = escaped && *p == 'n' ? '\n' : *p;
    }
    *to = '\0';
    if (*entry && utf8_valid(entry, strlen(entry))) line_edit_add(e, entry);
}

static void load_history(struct input *in)
{
    AUTO(buf_finish) struct buf text = {0};
    AUTO(file_close) int fd = open(in->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    read_history(fd, &text);
    char *p = text.len ? (char *)last_entries(&text, LINE_HISTORY_ENTRIES) : NULL;
    for (char *end; p && (end = strchr(p, '\n')); p = end + 1) {
        *end = '\0';
        recall(in->edit, p);
    }
}

static int open_path(struct input *in, char *err, size_t errlen)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char path[PATH_MAX - 8];
    bool has_state = state && *state == '/';
    if (!has_state && (!home || *home != '/')) return 0;
    int n = snprintf(path, sizeof(path), "%s%s/hearth/history", has_state ? state : home,
                     has_state ? "" : "/.local/state");
    int fd = n < (int)sizeof(path) && !hub_make_folders(path, 0700) ? open_history(path) : -1;
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
    if (*in->path) load_history(in);
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
    if (in->edit && **ret && **ret != ' ') {
        line_edit_add(in->edit, *ret);
        if (*in->path && strlen(*ret) <= ENTRY_MAX_BYTES) keep(in->path, *ret);
    }
    return LINE_OK;
}
