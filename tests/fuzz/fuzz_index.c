/* SPDX-License-Identifier: MIT */
/* Fuzzes model.safetensors.index.json: no accepted file name may lead out of the directory. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/safetensors.h"
#include "engine/model/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct eng_index *index)
{
    if (index->n_files == 0) abort();
    for (size_t i = 0; i < index->n_files; i++) {
        const char *name = index->files[i];
        size_t len = strlen(name);
        if (name[0] == '/' || strcmp(name, "..") == 0 || strncmp(name, "../", 3) == 0) abort();
        if (strstr(name, "/../") || (len >= 3 && strcmp(name + len - 3, "/..") == 0)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[256] = "", *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0'; /* as files end */
    struct eng_index index = {0};
    int rc = eng_index_parse(&index, text, size, err, sizeof(err));
    free(text);
    if (rc == 0)
        check(&index);
    else if (!err[0])
        abort();
    eng_index_finish(&index);
    return 0;
}
