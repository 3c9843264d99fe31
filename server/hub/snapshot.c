/* SPDX-License-Identifier: MIT */
/* Checks of snapshots; see snapshot.h. */
#include "server/hub/snapshot.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "server/hub/listing.h"
#include "server/hub/hub_error.h"

static bool has_file(int dir_fd, const char *name)
{
    struct stat st;
    return fstatat(dir_fd, name, &st, 0) == 0 && S_ISREG(st.st_mode);
}

static bool has_shard(void *ctx, const char *name)
{
    return has_file(*(int *)ctx, name);
}

/* Reads the index through a path, since the file reader takes one. */
static bool has_all_shards(int dir_fd)
{
    char dir[40], err[HUB_ERR_SIZE], *text = NULL;
    size_t len;
    snprintf(dir, sizeof(dir), "/proc/self/fd/%d", dir_fd);
    int rc = file_load(dir, HUB_INDEX_NAME, HUB_INDEX_MAX_BYTES, &text, &len, err, sizeof(err));
    bool all = !rc && hub_shards_visit(text, len, has_shard, &dir_fd, err) == 0;
    free(text);
    return all;
}

static bool is_whole(int dir_fd)
{
    if (!has_file(dir_fd, HUB_CONFIG_NAME)) return false;
    return has_file(dir_fd, HUB_WEIGHTS_NAME) || has_all_shards(dir_fd);
}

bool hub_snapshot_is_whole(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool whole = fd >= 0 && is_whole(fd);
    if (fd >= 0) close(fd);
    return whole;
}

int hub_snapshot_only(int repo_fd, char ret[HUB_COMMIT_LEN + 1])
{
    int fd = repo_fd < 0 ? -1 : openat(repo_fd, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int n = 0;
    if (!dir) {
        if (fd >= 0) close(fd);
        return -1;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!hub_is_commit(entry->d_name)) continue;
        memcpy(ret, entry->d_name, HUB_COMMIT_LEN + 1);
        n++;
    }
    int snapshot = n == 1 ? openat(fd, ret, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool whole = snapshot >= 0 && is_whole(snapshot);
    if (snapshot >= 0) close(snapshot);
    closedir(dir);
    return whole ? 0 : -1;
}
