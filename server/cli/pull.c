/* SPDX-License-Identifier: MIT */
/*
 * hearth pull NAME[@REVISION]: fetches a model from the Hugging Face hub into its cache. stdout
 * gets the snapshot's path, as `hf download` prints it; --dry-run a list of files.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/shown.h"
#include "server/cli/cli.h"
#include "server/config/config.h"
#include "server/hub/pull_run.h"

int srv_cmd_pull(const struct srv_config *config)
{
    char path[PATH_MAX] = "";
    if (!config->model) {
        shown_line(stderr, "hearth: pull needs the name of a model, such as "
                           "HuggingFaceTB/SmolLM2-135M-Instruct");
        return SRV_EXIT_USAGE;
    }
    int status = pull_run(config, false, path, sizeof(path));
    if (status) return status;
    if (!config->dry_run) printf("%s\n", path);
    if (fflush(stdout) == 0 && !ferror(stdout)) return EXIT_SUCCESS;
    shown_line(stderr, "hearth: stdout cannot be written");
    return EXIT_FAILURE;
}
