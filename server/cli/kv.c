/* SPDX-License-Identifier: MIT */
/*
 * hearth kv ls: a line for each model and key with pages in the directory of --kv-disk. hearth kv
 * erase: removes pages; of --model, --older and --key-file all that are given must hold. Servers
 * may use the directory meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "base/hex.h"
#include "base/shown.h"
#include "engine/engine.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "server/http/keys.h"
#include "server/hub/pull_run.h"

enum { HOUR_SECONDS = 3600, DAY_SECONDS = 86400, SHOWN_BYTES = 6, SHOWN_CHARS = 2 * SHOWN_BYTES };

/* Files of one model and key. */
struct group {
    struct eng_kv_file first;
    int64_t n_files, n_tokens, bytes, used_s;
};

struct visit {
    const struct srv_config *config;
    struct srv_keys *keys; /* erase: of these; NULL: all */
    int64_t before_s;      /* erase: not used since */
    struct group *groups;  /* [n_groups] */
    size_t n_groups;
    int64_t n_files, bytes; /* seen, or erased */
    bool no_memory;
};

static bool is_of_model(const struct visit *v, const struct eng_kv_file *f)
{
    return !v->config->model || (f->sound && !strcmp(v->config->model, f->model));
}

static void count(struct visit *v, const struct eng_kv_file *f)
{
    v->n_files++;
    v->bytes += f->bytes;
}

/* ---- ls ------------------------------------------------------------------------------------ */

static struct group *find_group(struct visit *v, const struct eng_kv_file *f)
{
    for (size_t i = 0; i < v->n_groups; i++) {
        const struct eng_kv_file *g = &v->groups[i].first;
        if (f->sound == g->sound && !strcmp(f->model, g->model) &&
            !memcmp(f->fingerprint, g->fingerprint, sizeof(f->fingerprint)) &&
            !memcmp(f->owner, g->owner, sizeof(f->owner)))
            return &v->groups[i];
    }
    struct group *groups = reallocarray(v->groups, v->n_groups + 1, sizeof(*groups));
    if (!groups) return NULL;
    v->groups = groups;
    groups[v->n_groups] = (struct group){.first = *f};
    return &groups[v->n_groups++];
}

static bool add_file(void *ctx, const struct eng_kv_file *f)
{
    struct visit *v = ctx;
    struct group *g = is_of_model(v, f) ? find_group(v, f) : NULL;
    v->no_memory |= is_of_model(v, f) && !g;
    if (!g) return false;
    count(v, f);
    g->n_files++;
    g->n_tokens += f->n_tokens;
    g->bytes += f->bytes;
    if (f->used_s > g->used_s) g->used_s = f->used_s;
    return false;
}

/* The first bytes of a digest; "-" for zeros. */
static const char *hex(const uint8_t *digest, char ret[SHOWN_CHARS + 1])
{
    static const uint8_t none[SHOWN_BYTES];
    if (!memcmp(digest, none, sizeof(none))) return "-";
    return hex_write(ret, digest, SHOWN_BYTES);
}

#define ROW "%-40s  %-12s  %-12s  %8s  %10s  %8s  %s"

static void print_group(const struct group *g)
{
    char bits[SHOWN_CHARS + 1], key[SHOWN_CHARS + 1], files[24], tokens[24], size[32], used[32];
    time_t at = (time_t)g->used_s;
    struct tm tm;
    strftime(used, sizeof(used), "%Y-%m-%d %H:%M", localtime_r(&at, &tm));
    snprintf(files, sizeof(files), "%lld", (long long)g->n_files);
    snprintf(tokens, sizeof(tokens), "%lld", (long long)g->n_tokens);
    pull_format_bytes(g->bytes, size, sizeof(size));
    shown_line(stdout, ROW, g->first.sound ? g->first.model : "(damaged)",
               hex(g->first.fingerprint, bits), hex(g->first.owner, key), files, tokens, size,
               used);
}

/* ---- erase --------------------------------------------------------------------------------- */

static bool erase_file(void *ctx, const struct eng_kv_file *f)
{
    struct visit *v = ctx;
    bool of_keys = !v->keys || (f->sound && srv_keys_own(v->keys, f->owner, sizeof(f->owner)));
    if (!is_of_model(v, f) || !of_keys || f->used_s >= v->before_s) return false;
    count(v, f);
    return true;
}

/* Sets what is to be erased. Returns 0, or -1 with err. */
static int read_conditions(struct visit *v, struct srv_keys **keys, char *err, size_t errlen)
{
    const struct srv_config *c = v->config;
    char *unit = NULL;
    v->before_s = INT64_MAX;
    if (c->older) {
        double n = strtod(c->older, &unit);
        bool is_time = unit > c->older && n >= 0 && n < 1e6 && unit[0] && !unit[1];
        if (!is_time || !strchr("hd", unit[0]))
            return fail_with(-1, err, errlen,
                             "older is %.60s; it is a number of hours or days: 12h, 7d", c->older);
        v->before_s =
            time(NULL) - (int64_t)(n * (unit[0] == 'h' ? (int)HOUR_SECONDS : (int)DAY_SECONDS));
    }
    if (!c->all && !c->older && !c->key_file)
        return fail_with(-1, err, errlen, "erase needs --all, --older or --key-file");
    if (c->key_file && srv_keys_create(keys, "key-file", c->key_file, NULL, true, err, errlen))
        return -1;
    v->keys = *keys;
    return 0;
}

int srv_cmd_kv(const struct srv_config *config)
{
    struct visit v = {.config = config};
    struct srv_keys *keys = NULL;
    char err[700], size[32];
    const char *action = config->kv_action ? config->kv_action : "";
    bool erases = !strcmp(action, "erase");
    int status = SRV_EXIT_USAGE;
    if (!erases && strcmp(action, "ls") != 0)
        snprintf(err, sizeof(err), "kv needs ls or erase, not '%.60s'", action);
    else if (!erases && (config->all || config->older || config->key_file))
        snprintf(err, sizeof(err), "kv ls takes no --all, --older or --key-file");
    else if (!config->kv_disk)
        snprintf(err, sizeof(err), "kv needs the directory: --kv-disk DIR");
    else if (!erases || !read_conditions(&v, &keys, err, sizeof(err)))
        status = EXIT_SUCCESS;
    if (status == EXIT_SUCCESS &&
        eng_kv_visit(config->kv_disk, NULL, erases ? erase_file : add_file, &v, err, sizeof(err)))
        status = EXIT_FAILURE;
    if (v.no_memory) snprintf(err, sizeof(err), "out of memory");
    if (status != EXIT_SUCCESS || v.no_memory) {
        shown_line(stderr, "hearth: %s", err);
        status = status ? status : EXIT_FAILURE;
    } else {
        if (v.n_groups > 0)
            shown_line(stdout, ROW, "MODEL", "BITS", "KEY", "FILES", "TOKENS", "SIZE", "USED");
        for (size_t i = 0; i < v.n_groups; i++)
            print_group(&v.groups[i]);
        pull_format_bytes(v.bytes, size, sizeof(size));
        shown_line(erases ? stdout : stderr, "%s%lld files of %s: %s",
                   erases ? "erased " : "hearth: ", (long long)v.n_files, config->kv_disk, size);
    }
    free(v.groups);
    srv_keys_destroy(keys);
    return status;
}
