/* SPDX-License-Identifier: MIT */
/*
 * hearth list: a line for each model of the Hugging Face cache, with how much of it is there and
 * whether it could be served; --json: an object per line.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "server/hub/hub_error.h"
#include "server/hub/inventory.h"
#include "server/hub/pull_run.h"

enum { ROW_MAX_BYTES = 64 << 10 };

#define ROW "%-40s  %-12.40s  %-12.12s  %8s  %-12s  %s%s"

/* ctx counts the models, as that of print_json. */
static void print_row(void *ctx, const struct hub_model *m)
{
    char size[32], state[32] = "complete";
    if ((*(int *)ctx)++ == 0)
        printf(ROW "\n", "MODEL", "REVISION", "COMMIT", "SIZE", "STATE", "SERVED", "");
    pull_format_bytes(m->n_bytes, size, sizeof(size));
    if (!m->complete) snprintf(state, sizeof(state), "partial");
    if (!m->complete && m->percent >= 0)
        snprintf(state, sizeof(state), "partial %d %%", m->percent);
    /* A revision that is a commit is in the next column already, shortened. */
    shown_line(stdout, ROW, m->name, hub_is_commit(m->revision) ? "-" : m->revision, m->commit,
               size, state, m->servable ? "served" : "not served: ", m->servable ? "" : m->reason);
}

static void print_json(void *ctx, const struct hub_model *m)
{
    struct buf b;
    struct jw w;
    ++*(int *)ctx;
    buf_init(&b, ROW_MAX_BYTES);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_text(&w, "name", m->name);
    jw_text(&w, "revision", m->revision);
    jw_text(&w, "commit", m->commit);
    jw_text(&w, "path", m->path);
    jw_int(&w, "bytes", m->n_bytes);
    jw_bool(&w, "complete", m->complete);
    jw_bool(&w, "servable", m->servable);
    jw_text(&w, "reason", m->servable ? NULL : m->reason);
    jw_close(&w);
    jw_end(&w);
    buf_puts(&b, "\n");
    if (!b.failed) fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
}

int srv_cmd_list(const struct srv_config *config)
{
    int n = 0;
    char root[PATH_MAX],
        err[HUB_ERR_SIZE] = "no place for models: set --cache-dir, HF_HUB_CACHE or HOME";
    int rc = hub_cache_root(NULL, root, sizeof(root));
    if (!rc) rc = hub_inventory_visit(root, config->json ? print_json : print_row, &n, err);
    if (rc) {
        shown_line(stderr, "hearth: %s", err);
        return EXIT_FAILURE;
    }
    if (n)
        shown_line(stderr, "hearth: %d of %s", n, root);
    else
        shown_line(stderr, "hearth: no models in %s; `hearth pull org/name` fetches one", root);
    if (fflush(stdout) == 0 && !ferror(stdout)) return EXIT_SUCCESS;
    shown_line(stderr, "hearth: stdout cannot be written");
    return EXIT_FAILURE;
}
