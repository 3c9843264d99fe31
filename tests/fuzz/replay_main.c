/* SPDX-License-Identifier: MIT */
/*
 * Runs a fuzz target over files: every argument is a file or a directory of files. This is how the
 * committed corpora are replayed by the normal test run, with any compiler and sanitizer.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return -1;
    }
    size_t size = 0, cap = 1 << 16;
    uint8_t *data = malloc(cap);
    while (data) {
        size += fread(data + size, 1, cap - size, f);
        if (size < cap) break;
        uint8_t *bigger = realloc(data, cap *= 2);
        if (!bigger) free(data);
        data = bigger;
    }
    fclose(f);
    if (!data) return -1;
    /* An exact copy, so that a read past the end is seen by the sanitizer. */
    uint8_t *exact = malloc(size ? size : 1);
    if (exact) {
        memcpy(exact, data, size);
        LLVMFuzzerTestOneInput(exact, size);
    }
    free(exact);
    free(data);
    return exact ? 0 : -1;
}

static int replay_directory(const char *path, int *n_files)
{
    DIR *dir = opendir(path);
    if (!dir) return -1;
    int rc = 0;
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        char file[4096];
        int len = snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        if (len < 0 || (size_t)len >= sizeof(file)) continue;
        rc = replay_file(file);
        ++*n_files;
    }
    closedir(dir);
    return rc;
}

int main(int argc, char **argv)
{
    int n_files = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st)) {
            perror(argv[i]);
            return 1;
        }
        int rc = S_ISDIR(st.st_mode) ? replay_directory(argv[i], &n_files) : replay_file(argv[i]);
        if (rc) return 1;
        n_files += !S_ISDIR(st.st_mode);
    }
    fprintf(stderr, "%d inputs replayed\n", n_files);
    return n_files == 0;
}
