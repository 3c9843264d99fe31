/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the header of a safetensors file: the input is the header and 8 bytes of file size before
 * it. Whatever is accepted must keep the format's promises.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Spans follow each other to the end of the data, and are as long as shape and dtype say. */
static void check(const struct eng_shard *s, int64_t data_bytes)
{
    int64_t at = 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct eng_tensor *t = &s->tensors[i];
        char shape[ENG_SHAPE_TEXT];
        eng_tensor_shape(t, shape);
        if (t->offset != at || t->n_bytes < 0 || t->n_bytes > data_bytes - at) abort();
        if (eng_dtype_bytes(t->dtype, t->n_elements) != t->n_bytes) abort();
        if (strlen(shape) < 2 || !eng_dtype_name(t->dtype)) abort();
        at += t->n_bytes;
    }
    if (at != data_bytes) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t data_bytes;
    if (size < sizeof(data_bytes)) return 0;
    memcpy(&data_bytes, data, sizeof(data_bytes));
    data_bytes &= INT64_MAX;
    size -= sizeof(data_bytes);
    char err[256] = "", *header = malloc(size + 1);
    if (!header) return 0;
    memcpy(header, data + sizeof(data_bytes), size);
    header[size] = '\0'; /* as a header is read */
    struct eng_shard shard = {.fd = -1, .name = strdup("fuzz.safetensors")};
    int rc = shard.name ? eng_shard_parse(&shard, header, size, data_bytes, err, sizeof(err)) : 1;
    free(header);
    if (!shard.name) return 0;
    if (rc == 0)
        check(&shard, data_bytes);
    else if (!err[0])
        abort();
    eng_shard_finish(&shard);
    return 0;
}
