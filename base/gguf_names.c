/* SPDX-License-Identifier: MIT */
/* Names of GGUF files; see gguf_names.h. */
#include "base/gguf_names.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const char ending[] = ".gguf";
enum { ENDING = sizeof(ending) - 1, SPLIT = sizeof("-00001-of-00003") - 1, COMMIT_DIGITS = 40 };

bool gguf_is_name(const char *path)
{
    size_t len = strlen(path);
    return len > ENDING && strcasecmp(path + len - ENDING, ending) == 0;
}

bool gguf_is_path(const char *path)
{
    struct stat st;
    return gguf_is_name(path) && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool gguf_is_model(const char *path)
{
    static const char *const others[] = {"mmproj", "imatrix", "mtp-", "eagle3-", "dflash-"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcasestr(path, others[i])) return false;
    return gguf_is_name(path);
}

int gguf_split(const char *path, int *ret_count)
{
    int number = 0, count = 0, end = 0;
    size_t len = strlen(path);
    *ret_count = 1;
    if (!gguf_is_name(path) || len <= SPLIT + ENDING) return 0;
    const char *digits = path + len - ENDING - SPLIT;
    if (sscanf(digits, "-%5d-of-%5d%n", &number, &count, &end) != 2 || end != SPLIT ||
        strspn(digits + 1, "0123456789") != 5 || number < 1 || number > count)
        return 0;
    *ret_count = count;
    return number;
}

int gguf_split_name(const char *path, int number, char *buf, size_t size)
{
    int count, end = (int)strlen(path) - ENDING;
    int len = gguf_split(path, &count) ? snprintf(buf, size, "%.*s-%05d-of-%05d%s", end - SPLIT,
                                                  path, number, count, path + end)
                                       : snprintf(buf, size, "%s", path);
    return len >= 0 && (size_t)len < size ? 0 : -1;
}

/* ---- tags ----------------------------------------------------------------------------------- */

bool gguf_tag_fits(const char *path, const char *tag)
{
    size_t n = strlen(tag);
    for (const char *at = path; n && (at = strcasestr(at, tag)); at++)
        if ((at == path || strchr(".-/", at[-1])) && (!at[n] || strchr(".-/", at[n]))) return true;
    return false;
}

/* Q4_K_M, IQ4_XS, TQ1_0, MXFP4, F16, BF16. */
static bool is_type(const char *word, size_t len)
{
    size_t letters = 0;
    while (letters < len && isalpha((unsigned char)word[letters]))
        letters++;
    static const char *const kinds[] = {"Q", "IQ", "TQ", "F", "BF", "FP", "MXFP", "NVFP"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strlen(kinds[i]) == letters && strncasecmp(word, kinds[i], letters) == 0)
            return letters < len && isdigit((unsigned char)word[letters]);
    return false;
}

void gguf_tag_of(const char *path, char ret[GGUF_TAG_SIZE])
{
    int count;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *end = path + strlen(path) - ENDING - (gguf_split(path, &count) ? SPLIT : 0);
    const char *found = name, *found_end = end;
    for (const char *word = path; word < end;) {
        size_t len = strcspn(word, ".-/");
        if (word + len > end) len = (size_t)(end - word);
        if (is_type(word, len)) {
            bool is_dynamic = word - path >= 3 && strncmp(word - 3, "UD-", 3) == 0;
            found = is_dynamic ? word - 3 : word;
            found_end = word + len;
        }
        word += len + 1;
    }
    snprintf(ret, GGUF_TAG_SIZE, "%.*s", (int)(found_end - found), found);
}

/* ---- folders -------------------------------------------------------------------------------- */

/* Whether both are of one set of splits. */
static bool same_set(const char *a, const char *b)
{
    char first[2][PATH_MAX];
    return !gguf_split_name(a, 1, first[0], PATH_MAX) &&
           !gguf_split_name(b, 1, first[1], PATH_MAX) && strcmp(first[0], first[1]) == 0;
}

int gguf_folder_visit(const char *dir, bool (*fn)(void *ctx, const char *name), void *ctx)
{
    struct dirent **found;
    const char *set = "";
    bool go_on = true;
    int n = scandir(dir, &found, NULL, alphasort);
    if (n < 0) return -1;
    for (int i = 0; i < n; i++) {
        const char *name = found[i]->d_name;
        int count;
        if (!go_on || *name == '.' || !gguf_is_model(name) || same_set(set, name)) continue;
        if (gguf_split(name, &count)) set = name;
        go_on = fn(ctx, name);
    }
    for (int i = 0; i < n; i++)
        free(found[i]);
    free(found);
    return 0;
}

struct others {
    const char *name; /* of the file whose folder it is */
    bool any;
};

static bool note_other(void *ctx, const char *name)
{
    struct others *o = ctx;
    o->any = strcmp(name, o->name) != 0 && !same_set(name, o->name);
    return !o->any;
}

const char *gguf_folder_of(const char *path, char *buf, size_t size)
{
    const char *slash = strrchr(path, '/'), *snapshots = strstr(path, "/snapshots/");
    const char *commit = snapshots ? snapshots + sizeof("/snapshots/") - 1 : "";
    bool in_snapshot = strspn(commit, "0123456789abcdef") == COMMIT_DIGITS;
    if (in_snapshot && commit[COMMIT_DIGITS] == '/') {
        snprintf(buf, size, "%.*s", (int)(commit + COMMIT_DIGITS - path), path);
        return buf;
    }
    struct others o = {.name = slash ? slash + 1 : path};
    snprintf(buf, size, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
             slash ? path : ".");
    return gguf_folder_visit(buf, note_other, &o) || o.any ? NULL : buf;
}
