/* SPDX-License-Identifier: MIT */
/*
 * libedit by dlopen; see line_edit.h. The editor reads its characters through this file, which
 * waits for the terminal and for signals at once.
 */
#include "server/cli/line_edit.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <histedit.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/utf8.h"
#include "server/cli/interrupt.h"

/* Bracketed paste: the terminal marks what is pasted. */
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
#define PASTE_END "\033[201~"

/* clang-format off */
#define EDIT_FUNCTIONS(X)                                                                          \
    X(el_init) X(el_end) X(el_set) X(el_gets) X(el_resize) X(el_line) X(el_insertstr)              \
    X(el_get) X(el_wset) X(el_source) X(history_init) X(history) X(history_end)
/* clang-format on */

#define FIELD(name) __typeof__(&name) name;
static struct {
    EDIT_FUNCTIONS(FIELD)
} api;

struct line_edit {
    EditLine *el;
    History *history;
    const char *const *words;
    const char *prompt;
    unsigned char in[4096]; /* read from the terminal and not taken yet */
    size_t n_in, next;
    int signal;   /* that ended the line, or 0 */
    bool cleared; /* then: the line had text */
};

static bool load(void)
{
    void *library = dlopen(HEARTH_LIBEDIT, RTLD_NOW | RTLD_LOCAL);
    bool found = library != NULL;
#define FIND(name) found = found && (*(void **)&api.name = dlsym(library, #name));
    EDIT_FUNCTIONS(FIND)
    return found;
}

static struct line_edit *editor_of(EditLine *el)
{
    void *e = NULL;
    api.el_get(el, EL_CLIENTDATA, &e);
    return e;
}

/* ---- characters ---------------------------------------------------------------------------- */

static void write_terminal(const char *text)
{
    fputs(text, stdout);
    fflush(stdout);
}

/* More input, or a signal that ends the line. Returns false at the end of input too. */
static bool fill(struct line_edit *e)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = interrupt_fd(), .events = POLLIN}};
    if (e->next) memmove(e->in, e->in + e->next, e->n_in - e->next);
    e->n_in -= e->next;
    e->next = 0;
    for (;;) {
        poll(fds, 2, -1);
        if (fds[1].revents) {
            int number = interrupt_take();
            if (number == SIGWINCH) {
                api.el_resize(e->el);
                write_terminal(PASTE_ON); /* another program may have had the terminal */
                api.el_set(e->el, EL_REFRESH);
            } else if (number) {
                const LineInfo *line = api.el_line(e->el);
                e->cleared = number == SIGINT && line->lastchar > line->buffer;
                e->signal = number;
                e->n_in = 0;
                return false;
            }
        } else if (fds[0].revents) {
            ssize_t n = read(STDIN_FILENO, e->in + e->n_in, sizeof(e->in) - e->n_in);
            if (n > 0) e->n_in += (size_t)n;
            return n > 0;
        }
    }
}

/* The next code point; broken UTF-8 is U+FFFD. 1; 0: end of input; -1: a signal. */
static int next_char(struct line_edit *e, wchar_t *ret)
{
    int n = 0;
    while (e->next == e->n_in || (n = utf8_classify(e->in + e->next, e->n_in - e->next)) == 0)
        if (!fill(e)) return e->signal ? -1 : 0;
    const unsigned char *p = e->in + e->next;
    *ret = n > 0 ? (wchar_t)utf8_next(&p) : 0xFFFD;
    e->next += (size_t)(n > 0 ? n : -n);
    return 1;
}

static int read_char(EditLine *el, wchar_t *ret)
{
    return next_char(editor_of(el), ret);
}

/* ---- functions bound to keys ---------------------------------------------------------------- */

/* Leaves newlines, tabs and printable characters of what was pasted. */
static void clean(struct buf *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->len; i++) {
        unsigned char c = (unsigned char)text->data[i];
        bool is_cr = c == '\r', is_c1 = c == 0xC2 && (unsigned char)text->data[i + 1] < 0xA0;
        if (is_cr && text->data[i + 1] != '\n') text->data[n++] = '\n';
        if (is_c1) i++;
        if (!is_c1 && c != 0x7F && (c >= 0x20 || c == '\n' || c == '\t')) text->data[n++] = (char)c;
    }
    text->data[n] = '\0';
}

static bool ends_paste(const struct buf *text)
{
    size_t len = sizeof(PASTE_END) - 1;
    return text->len >= len && memcmp(text->data + text->len - len, PASTE_END, len) == 0;
}

/* Takes what is pasted, up to its end mark. */
static unsigned char paste(EditLine *el, int key)
{
    struct line_edit *e = editor_of(el);
    AUTO(buf_finish) struct buf text = {.max = LINE_PASTE_MAX_BYTES};
    bool fits = true;
    wchar_t c;
    while (!ends_paste(&text) && next_char(e, &c) == 1) {
        char out[4];
        buf_add(&text, out, utf8_put(out, (uint32_t)c));
        if (!text.failed) continue;
        buf_clear(&text); /* only the end mark is still of interest */
        fits = false;
    }
    fits = fits && ends_paste(&text);
    if (fits) {
        text.len -= sizeof(PASTE_END) - 1;
        text.data[text.len] = '\0';
        clean(&text);
        fits = !*text.data || !api.el_insertstr(el, text.data);
    }
    return e->signal ? CC_EOF : fits ? CC_REFRESH : CC_ERROR;
}

/* Completes a word at the start of the line as far as it is unique. */
static unsigned char complete(EditLine *el, int key)
{
    const struct line_edit *e = editor_of(el);
    const LineInfo *line = api.el_line(el);
    size_t len = (size_t)(line->cursor - line->buffer), common = 0;
    const char *match = NULL;
    char rest[64];
    for (const char *const *word = e->words; *word; word++) {
        if (strncmp(*word, line->buffer, len) != 0) continue;
        size_t n = strlen(*word);
        for (size_t i = 0; match && i < n; i++)
            if ((*word)[i] != match[i]) n = i;
        common = match && common < n ? common : n;
        match = *word;
    }
    if (!match || len == 0 || common <= len) return CC_ERROR;
    snprintf(rest, sizeof(rest), "%.*s", (int)(common - len), match + len);
    return api.el_insertstr(el, rest) ? CC_ERROR : CC_REFRESH;
}

static char *prompt_of(EditLine *el)
{
    return (char *)editor_of(el)->prompt;
}

/* ---- the editor ---------------------------------------------------------------------------- */

static void bind_keys(EditLine *el)
{
    static const char *const keys[][2] = {
        {"^R", "em-inc-search-prev"},  {"^S", "em-inc-search-next"},
        {"^W", "ed-delete-prev-word"}, {"^I", "hearth-complete"},
        {"\033[200~", "hearth-paste"}, {"\033[3~", "ed-delete-next-char"},
        {"\033[H", "ed-move-to-beg"},  {"\033[F", "ed-move-to-end"},
        {"\033[1;5C", "em-next-word"}, {"\033[1;5D", "ed-prev-word"},
    };
    api.el_set(el, EL_EDITOR, "emacs");
    api.el_wset(el, EL_ADDFN, L"hearth-complete", L"complete a command", complete);
    api.el_wset(el, EL_ADDFN, L"hearth-paste", L"insert what is pasted", paste);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        api.el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL);
    api.el_source(el, NULL); /* the user's own keys: ~/.editrc */
}

static History *open_history(void)
{
    HistEvent event;
    History *h = api.history_init();
    if (!h) return NULL;
    api.history(h, &event, H_SETSIZE, LINE_HISTORY_ENTRIES);
    api.history(h, &event, H_SETUNIQUE, 1);
    return h;
}

struct line_edit *line_edit_create(const char *const *words)
{
    struct line_edit *e = load() ? calloc(1, sizeof(*e)) : NULL;
    if (!e) return NULL;
    e->words = words;
    e->el = api.el_init("hearth", stdin, stdout, stderr);
    e->history = open_history();
    if (!e->el || !e->history) {
        line_edit_destroy(e);
        return NULL;
    }
    api.el_set(e->el, EL_CLIENTDATA, e);
    api.el_set(e->el, EL_GETCFN, read_char);
    api.el_set(e->el, EL_PROMPT, prompt_of);
    api.el_set(e->el, EL_HIST, api.history, e->history);
    bind_keys(e->el);
    return e;
}

void line_edit_destroy(struct line_edit *e)
{
    if (!e) return;
    if (e->history) api.history_end(e->history);
    if (e->el) api.el_end(e->el);
    free(e);
}

/* ---- the history file ----------------------------------------------------------------------- */

void line_edit_load(struct line_edit *e, const char *path)
{
    HistEvent event;
    api.history(e->history, &event, H_LOAD, path);
}

/* Writes what the file has, and the entry, to a new file in its place. */
static void replace_file(const char *path, const char *entry)
{
    HistEvent event;
    History *all = open_history();
    char beside[PATH_MAX + 8];
    snprintf(beside, sizeof(beside), "%s.new", path);
    int fd = all ? open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file) {
        api.history(all, &event, H_LOAD, path);
        api.history(all, &event, H_ENTER, entry);
        bool written = api.history(all, &event, H_SAVE_FP, file) >= 0 && !ferror(file);
        if (fclose(file) == 0 && written) rename(beside, path);
    }
    if (all) api.history_end(all);
}

void line_edit_add(struct line_edit *e, const char *text, const char *path)
{
    HistEvent event;
    api.history(e->history, &event, H_ENTER, text);
    if (!path) return;
    AUTO_FREE char *folder = strndup(path, (size_t)(strrchr(path, '/') - path));
    AUTO(file_close) int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    flock(fd, LOCK_EX); /* a file system without locks: go on */
    replace_file(path, text);
}

enum line_end line_edit_read(struct line_edit *e, const char *prompt, char **ret, int *ret_signal)
{
    int n = 0;
    e->prompt = prompt;
    e->signal = 0;
    api.el_set(e->el, EL_PREP_TERM, 1); /* before the prompt: whoever sees it may type */
    write_terminal(PASTE_ON);
    const char *line = api.el_gets(e->el, &n);
    *ret = line && n > 0 ? strndup(line, (size_t)n - (line[n - 1] == '\n')) : NULL;
    api.el_set(e->el, EL_PREP_TERM, 0);
    write_terminal(*ret ? PASTE_OFF : PASTE_OFF "\n");
    *ret_signal = e->signal;
    if (e->signal) return e->cleared ? LINE_CLEARED : LINE_SIGNAL;
    return *ret ? LINE_OK : line && n > 0 ? LINE_NOMEM : LINE_EOF;
}
