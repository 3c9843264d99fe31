/* SPDX-License-Identifier: MIT */
/* Control groups; see cgroup.h. */
#include "base/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct visit {
    const char *root, *controller;
    void (*fn)(void *ctx, const char *dir, int version);
    void *ctx;
};

bool cgroup_read_line(const char *dir, const char *name, char *line, size_t size)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = len > 0 && len < PATH_MAX ? fopen(path, "re") : NULL;
    if (!f) return false;
    bool ok = fgets(line, (int)size, f) != NULL;
    fclose(f);
    return ok;
}

static void visit_levels(const struct visit *v, const char *mount, const char *group, int version)
{
    char dir[PATH_MAX];
    int stem =
        snprintf(dir, sizeof(dir), "%s/sys/fs/cgroup%s%s", v->root, version == 1 ? "/" : "", mount);
    if (stem < 0 || stem >= PATH_MAX) return;
    size_t room = sizeof(dir) - (size_t)stem;
    int len = snprintf(dir + stem, room, "%s", group);
    if (len < 0 || (size_t)len >= room) return;
    for (;;) {
        v->fn(v->ctx, dir, version);
        char *slash = strrchr(dir + stem, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

/* Returns true if `name` is one of the names of a list like "cpu,cpuacct". */
static bool is_listed(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, len) == 0 && (at[len] == ',' || !at[len])) return true;
    }
    return false;
}

/* One line of /proc/self/cgroup: "0::/group" (version 2) or "4:cpu,cpuacct:/group". */
static void visit_line(const struct visit *v, char *line)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group || group[1] != '/') return;
    *group++ = '\0';
    controllers++;
    if (!*controllers)
        visit_levels(v, "", group, 2);
    else if (is_listed(controllers, v->controller))
        visit_levels(v, v->controller, group, 1);
}

void cgroup_visit(const char *root, const char *controller,
                  void (*fn)(void *ctx, const char *dir, int version), void *ctx)
{
    const struct visit v = {root, controller, fn, ctx};
    char path[PATH_MAX], line[4096];
    int len = snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *f = len > 0 && len < PATH_MAX ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof(line), f))
        visit_line(&v, line);
    if (f) fclose(f);
}

/* The number in a group's file; "max" and anything else is not a limit. */
static void take_limit(void *ctx, const char *dir, int version)
{
    int64_t *best = ctx;
    char line[64], *end;
    const char *name = version == 2 ? "memory.max" : "memory.limit_in_bytes";
    if (!cgroup_read_line(dir, name, line, sizeof(line))) return;
    errno = 0;
    long long n = strtoll(line, &end, 10);
    if (errno == 0 && end != line && n > 0 && n < *best) *best = n;
}

int64_t cgroup_memory_limit(const char *root)
{
    int64_t limit = INT64_MAX;
    cgroup_visit(root, "memory", take_limit, &limit);
    return limit;
}
