/* SPDX-License-Identifier: MIT */
/*
 * Names in the environment: a HEARTH_* variable that is not an option gets a warning, with the
 * option that was probably meant. Main thread only.
 *
 * Kubernetes gives every pod variables for each Service of its namespace, and Docker for each
 * linked container. Those of one named hearth, or hearth-something, look like ours: HEARTH_PORT is
 * then "tcp://10.96.36.139:80", and HEARTH_SERVICE_HOST, HEARTH_PORT_80_TCP_ADDR and similar are
 * set too.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "server/config/config.h"
#include "server/config/options.h"

static const char prefix[] = "HEARTH_";

/* Variables of this project's own test scripts. */
static const char *const test_names[] = {
    "BIN",       "BUILD_ROOT", "IN_VENV",     "NODE_MODULES", "OFFLINE",
    "REFERENCE", "SLOW",       "SOURCE_ROOT", "VENV",
};

/* SERVICE_HOST, SERVICE_PORT..., PORT_80_TCP..., alone or after the rest of a Service's name. */
static bool has_service_part(const char *name)
{
    for (const char *p = name; p; p = strchr(p, '_')) {
        p += *p == '_';
        if (strncmp(p, "SERVICE_HOST", 12) == 0 || strncmp(p, "SERVICE_PORT", 12) == 0) return true;
        if (strncmp(p, "PORT_", 5) == 0 && isdigit((unsigned char)p[5])) return true;
    }
    return false;
}

/* name: without the prefix. */
static bool is_test_name(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(test_names) / sizeof(test_names[0]); i++)
        if (strlen(test_names[i]) == len && strncmp(test_names[i], name, len) == 0) return true;
    return false;
}

/* Returns true if the variable is an option's; else *ret_near is the most similar one, or "". */
static bool find_variable(const char *variable, size_t len, char *ret_near, size_t size)
{
    struct srv_nearest nearest;
    const struct srv_option *meant = NULL;
    srv_nearest_init(&nearest, variable + sizeof(prefix) - 1, len - (sizeof(prefix) - 1));
    for (int i = 0; i < srv_n_options; i++) {
        const struct srv_option *o = &srv_options[i];
        char name[80];
        if (o->flags & SRV_OPT_FLAG_ONLY) continue;
        srv_option_env_name(o, name, sizeof(name));
        if (strlen(name) == len && strncmp(name, variable, len) == 0) return true;
        int before = nearest.edits;
        srv_nearest_offer(&nearest, name + sizeof(prefix) - 1, strlen(name) - (sizeof(prefix) - 1));
        if (nearest.edits < before && !(o->flags & SRV_OPT_HIDDEN)) meant = o;
    }
    *ret_near = '\0';
    if (meant) srv_option_env_name(meant, ret_near, size);
    return false;
}

int srv_config_note_variables(struct srv_config *c, char *const *variables)
{
    for (; variables && *variables; variables++) {
        const char *variable = *variables, *equals = strchr(variable, '=');
        if (!equals || strncmp(variable, prefix, sizeof(prefix) - 1) != 0) continue;
        char name[128], near[80];
        size_t len = (size_t)(equals - variable);
        snprintf(name, sizeof(name), "%.*s", (int)len, variable);
        if (has_service_part(name + sizeof(prefix) - 1) ||
            is_test_name(variable + sizeof(prefix) - 1, len - (sizeof(prefix) - 1)) ||
            find_variable(variable, len, near, sizeof(near)) ||
            srv_config_is_service_link(name, equals + 1))
            continue;
        if (srv_config_warn(c, "unknown variable %s%s%s%s", name, *near ? "; did you mean " : "",
                            near, *near ? "?" : ""))
            return -1;
    }
    return 0;
}
