/* SPDX-License-Identifier: MIT */
/* The ini reader. Called by load.c on the main thread before any other exists; keeps no state. */
#include "server/config/ini.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fail.h"

struct ini {
    const char *name;
    int line;
    const char *section; /* points into the copy of the text */
    char *err;
    size_t errlen;
};

#define refuse(ini, format, ...)                                                                   \
    fail_with(-1, (ini)->err, (ini)->errlen, "%s:%d: " format, (ini)->name, (ini)->line,           \
              ##__VA_ARGS__)

static char *trim(char *text)
{
    while (*text == ' ' || *text == '\t' || *text == '\r')
        text++;
    size_t len = strlen(text);
    while (len && (text[len - 1] == ' ' || text[len - 1] == '\t' || text[len - 1] == '\r'))
        len--;
    text[len] = '\0';
    return text;
}

/* Removes the quotes; only a comment may follow the closing one. */
static int unquote(const struct ini *ini, char **value)
{
    char quote = **value;
    if (quote != '"' && quote != '\'') return 0;
    char *end = strchr(*value + 1, quote);
    if (!end) return refuse(ini, "unclosed quote %c", quote);
    const char *rest = trim(end + 1);
    if (*rest && *rest != '#' && *rest != ';')
        return refuse(ini, "text after the closing quote: %.40s", rest);
    *end = '\0';
    ++*value;
    return 0;
}

static int read_line(struct ini *ini, char *line, srv_ini_setting *setting, void *ctx)
{
    line = trim(line);
    if (!*line || *line == '#' || *line == ';') return 0;
    if (*line == '[') {
        char *end = strchr(line, ']');
        if (!end || end[1]) return refuse(ini, "expected a section as [name]: %.40s", line);
        *end = '\0';
        ini->section = trim(line + 1);
        return 0;
    }
    char *equals = strchr(line, '=');
    if (!equals || equals == line) return refuse(ini, "expected key = value: %.40s", line);
    *equals = '\0';
    char *key = trim(line), *value = trim(equals + 1);
    if (!*key) return refuse(ini, "the key is missing");
    if (unquote(ini, &value)) return -1;
    char reason[512];
    if (setting(ctx, ini->line, ini->section, key, value, reason, sizeof(reason)))
        return refuse(ini, "%s", reason);
    return 0;
}

int srv_ini_parse(const char *name, const char *text, size_t len, srv_ini_setting *setting,
                  void *ctx, char *err, size_t errlen)
{
    struct ini ini = {.name = name, .line = 1, .section = "", .err = err, .errlen = errlen};
    if (memchr(text, '\0', len))
        return refuse(&ini, "the file contains NUL bytes; it is not a text file");
    AUTO_FREE char *copy = malloc(len + 1);
    if (!copy) return refuse(&ini, "out of memory (%zu bytes)", len);
    memcpy(copy, text, len);
    copy[len] = '\0';
    char *line = copy;
    if (strncmp(line, "\xef\xbb\xbf", 3) == 0) line += 3;
    int rc = 0;
    for (char *next; line && rc == 0; line = next, ini.line++) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        rc = read_line(&ini, line, setting, ctx);
    }
    return rc;
}
