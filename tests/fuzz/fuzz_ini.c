/* SPDX-License-Identifier: MIT */
/* Any bytes as an ini file, once through the reader alone and once into a configuration. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/config/ini.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    size_t n_bytes;
};

static int note(void *ctx, int line, const char *section, const char *key, const char *value,
                char *err, size_t errlen)
{
    struct seen *seen = ctx;
    assert(line > 0 && section && *key);
    seen->n_bytes += strlen(key) + strlen(value);
    (void)err;
    (void)errlen;
    return 0;
}

static const char *no_environment(const char *name)
{
    (void)name;
    return NULL;
}

static void load_as_file(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/fuzz_ini_XXXXXX", err[256] = "", name[] = "hearth", flag[] = "--config";
    int fd = mkstemp(path);
    if (fd < 0) return;
    if (write(fd, data, size) == (ssize_t)size) {
        struct srv_config c;
        char *argv[] = {name, flag, path, NULL};
        int rc = srv_config_load(&c, 3, argv, no_environment, err, sizeof(err));
        assert(rc == 0 || err[0]);
        srv_config_finish(&c);
    }
    close(fd);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen seen = {0};
    char err[256] = "";
    int rc = srv_ini_parse("x", (const char *)data, size, note, &seen, err, sizeof(err));
    assert(rc == 0 || err[0]);
    assert(seen.n_bytes <= size);
    load_as_file(data, size);
    return 0;
}
