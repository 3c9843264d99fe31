/* SPDX-License-Identifier: MIT */
/*
 * Writes the pages of docs/ that repeat tables of the program: options.md, hearth.1, errors.md and
 * metrics.md; the tables of request fields in other pages; openapi.json; and the completions for
 * shells.
 *
 *   print_docs ROOT DOCS COMPLETIONS API
 *
 * For each page it reads ROOT/tests/docs/PAGE.in and writes DOCS/PAGE. A template is copied line by
 * line; the line @TABLE@ is replaced by the table. Pages with tables of request fields are copied
 * from ROOT/docs to DOCS: the table behind a line "<!-- fields: SCHEMAS -->" is printed anew. `ninja
 * docs` runs it on docs/, deploy/completions/ and server/api/, the test `docs` on a folder of its
 * own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/config/config.h"
#include "server/config/options.h"
#include "server/http/api_error.h"
#include "server/metrics.h"

#include "print_api.h"
#include "print_completions.h"

static bool is_shown(const struct srv_option *o)
{
    return !(o->flags & SRV_OPT_HIDDEN);
}

/* Returns true if this option begins a group; *group is the current one. */
static bool begins_group(const struct srv_option *o, const char **group)
{
    if (*group && strcmp(*group, o->group) == 0) return false;
    *group = o->group;
    return true;
}

/* ---- options.md ---------------------------------------------------------------------------- */

static const char *const type_names[] = {
    [SRV_OPT_STRING] = "text",    [SRV_OPT_CHOICE] = "choice", [SRV_OPT_INT] = "integer",
    [SRV_OPT_INT64] = "integer",  [SRV_OPT_BYTES] = "bytes",   [SRV_OPT_NUMBER] = "number",
    [SRV_OPT_BOOL] = "on or off", [SRV_OPT_LIST] = "list",
};

static bool has_range(const struct srv_option *o)
{
    return o->type == SRV_OPT_INT || o->type == SRV_OPT_INT64 || o->type == SRV_OPT_BYTES ||
           o->type == SRV_OPT_NUMBER;
}

/* One end of a range; bytes with their largest suffix. */
static void print_limit(FILE *out, const struct srv_option *o, double value)
{
    static const char suffixes[] = "TGMK";
    double unit = 1099511627776.0;
    for (const char *s = suffixes; o->type == SRV_OPT_BYTES && value > 0 && *s; s++) {
        if (value / unit == (double)(long long)(value / unit)) {
            fprintf(out, "%.0f%c", value / unit, *s);
            return;
        }
        unit /= 1024;
    }
    fprintf(out, o->type == SRV_OPT_NUMBER ? "%.15g" : "%.0f", value);
}

static void print_range(FILE *out, const struct srv_option *o)
{
    print_limit(out, o, o->min);
    fputs(" to ", out);
    print_limit(out, o, o->max);
}

static void print_words(FILE *out, const char *words, const char *separator)
{
    for (const char *p = words; p && *p; p += strspn(p, " ")) {
        int len = (int)strcspn(p, " ");
        fprintf(out, "%s`%.*s`", p == words ? "" : separator, len, p);
        p += len;
    }
}

static void print_flags(FILE *out, const struct srv_option *o)
{
    if (o->flags & SRV_OPT_ENV_ONLY) {
        fputs("none", out);
        return;
    }
    fprintf(out, "`--%s`", o->key);
    for (const char *p = o->aliases; p && *p; p += strspn(p, " ")) {
        int len = (int)strcspn(p, " ");
        fprintf(out, " `%s%.*s`", len <= 2 ? "-" : "--", len, p);
        p += len;
    }
}

static void print_variable(FILE *out, const struct srv_option *o)
{
    char name[80];
    srv_option_env_name(o, name, sizeof(name));
    if (o->flags & SRV_OPT_FLAG_ONLY)
        fputs("none", out);
    else
        fprintf(out, "`%s`", name);
}

static void print_type(FILE *out, const struct srv_option *o)
{
    if (o->choices)
        print_words(out, o->choices, ", ");
    else
        fputs(type_names[o->type], out);
    if (!has_range(o)) return;
    fputs(", ", out);
    print_range(out, o);
}

static void print_commands(FILE *out, unsigned commands)
{
    const char *separator = "";
    if (commands == (1u << SRV_CMD_COUNT) - 1) {
        fputs("all", out);
        return;
    }
    for (int i = 0; i < SRV_CMD_COUNT; i++) {
        if (!(commands & (1u << i))) continue;
        fprintf(out, "%s%s", separator, srv_commands[i].name);
        separator = ", ";
    }
}

static void print_options(FILE *out)
{
    const char *group = NULL;
    for (int i = 0; i < srv_n_options; i++) {
        const struct srv_option *o = &srv_options[i];
        if (!is_shown(o)) continue;
        if (begins_group(o, &group)) {
            fprintf(out,
                    "\n## %s\n\n| flag | variable | value | default | subcommands | meaning |\n"
                    "|---|---|---|---|---|---|\n",
                    group);
        }
        fputs("| ", out);
        print_flags(out, o);
        fputs(" | ", out);
        print_variable(out, o);
        fputs(" | ", out);
        print_type(out, o);
        fprintf(out, " | %s%s%s | ", o->preset ? "`" : "", o->preset ? o->preset : "unset",
                o->preset ? "`" : "");
        print_commands(out, o->commands);
        fprintf(out, " | %s |\n", o->help);
    }
}

/* ---- hearth.1 ------------------------------------------------------------------------------ */

static const char *placeholder(const struct srv_option *o)
{
    static const char *const names[] = {
        [SRV_OPT_STRING] = " Ar text", [SRV_OPT_CHOICE] = " Ar name", [SRV_OPT_INT] = " Ar n",
        [SRV_OPT_INT64] = " Ar n",     [SRV_OPT_BYTES] = " Ar bytes", [SRV_OPT_NUMBER] = " Ar x",
        [SRV_OPT_BOOL] = "",           [SRV_OPT_LIST] = " Ar list",
    };
    return names[o->type];
}

static void print_man_option(FILE *out, const struct srv_option *o)
{
    fprintf(out, ".It Fl -%s%s", o->key, placeholder(o));
    for (const char *p = o->aliases; p && *p; p += strspn(p, " ")) {
        int len = (int)strcspn(p, " ");
        fprintf(out, " , Fl %s%.*s", len <= 2 ? "" : "-", len, p);
        p += len;
    }
    fprintf(out, "\n%s.\n", o->help);
    if (o->choices) fprintf(out, "One of: %s.\n", o->choices);
    if (has_range(o)) {
        fputs("Range: ", out);
        print_range(out, o);
        fputs(".\n", out);
    }
    if (o->preset) fprintf(out, "Default: %s.\n", o->preset);
    fputs("Subcommands: ", out);
    print_commands(out, o->commands);
    fputs(".\n", out);
}

static void print_man(FILE *out)
{
    const char *group = NULL;
    for (int i = 0; i < srv_n_options; i++) {
        const struct srv_option *o = &srv_options[i];
        bool first = !group;
        if (!is_shown(o) || (o->flags & SRV_OPT_ENV_ONLY)) continue;
        if (begins_group(o, &group))
            fprintf(out, "%s.Ss %s\n.Bl -tag -width Ds\n", first ? "" : ".El\n", group);
        print_man_option(out, o);
    }
    fputs(".El\n", out);
}

/* ---- errors.md ----------------------------------------------------------------------------- */

/* The statuses after which the same request may succeed; the official clients retry on them. */
static bool is_worth_retrying(int status)
{
    return status == 408 || status == 429 || status == 503;
}

static void print_errors(FILE *out)
{
    fputs("| status | code | type | when | what to do | retry |\n|---|---|---|---|---|---|\n", out);
    for (int i = 0; i < SRV_ERR_COUNT; i++) {
        enum srv_error kind = (enum srv_error)i;
        int status = srv_errors[kind].status;
        fprintf(out, "| %d | `%s` | `%s` | %s | %s | %s |\n", status, srv_errors[kind].code,
                srv_errors[kind].type, srv_errors[kind].when, srv_errors[kind].advice,
                is_worth_retrying(status) ? "yes" : "no");
    }
}

/* ---- metrics.md ---------------------------------------------------------------------------- */

enum { MAX_FAMILIES = 256 };

struct family {
    char name[96], type[16], help[160];
    char labels[64]; /* names, separated by ", " */
};

struct families {
    struct family v[MAX_FAMILIES];
    int n;
};

static bool is_alias(const struct family *f)
{
    return strncmp(f->name, "vllm:", 5) == 0;
}

/* Adds the label names of one sample line, but le. */
static void note_labels(struct family *f, const char *line)
{
    const char *p = strchr(line, '{'), *end = strchr(line, '}');
    f->labels[0] = '\0';
    while (p && end && p < end) {
        size_t len = strcspn(++p, "=");
        bool is_le = len == 2 && strncmp(p, "le", 2) == 0;
        size_t used = strlen(f->labels);
        if (!is_le) {
            snprintf(f->labels + used, sizeof(f->labels) - used, "%s`%.*s`", used ? ", " : "",
                     (int)len, p);
        }
        p = strchr(p + len + 2, '"');
        if (p) p++;
    }
}

static void read_line(struct families *all, const char *line)
{
    struct family *last = all->n ? &all->v[all->n - 1] : NULL;
    if (strncmp(line, "# HELP ", 7) == 0) {
        if (all->n == MAX_FAMILIES) exit(EXIT_FAILURE);
        last = &all->v[all->n++];
        sscanf(line, "# HELP %95s %159[^\n]", last->name, last->help);
    } else if (last && strncmp(line, "# TYPE ", 7) == 0) {
        sscanf(line, "# TYPE %*s %15s", last->type);
    } else if (last && *line) {
        note_labels(last, line);
    }
}

/* The families as a registry writes them that has counted nothing. */
static void read_families(struct families *ret)
{
    struct srv_metrics *m = srv_metrics_create();
    struct srv_metrics_view view = {.model = "m"};
    struct buf b;
    buf_init(&b, 1 << 20);
    if (m) srv_metrics_key(m, "a");
    if (m) srv_metrics_render(m, &view, true, &b);
    if (!m || b.failed) exit(EXIT_FAILURE);
    for (char *line = strtok(b.data, "\n"); line; line = strtok(NULL, "\n"))
        read_line(ret, line);
    buf_finish(&b);
    srv_metrics_destroy(m);
}

/* The vLLM families that carry the same value: those with the same help. Returns their number. */
static int print_aliases(FILE *out, const struct families *all, const struct family *f)
{
    int n = 0;
    for (int i = 0; i < all->n; i++) {
        const struct family *other = &all->v[i];
        if (!is_alias(other) || strcmp(other->help, f->help) != 0) continue;
        fprintf(out, "%s`%s`", n++ ? ", " : "", other->name);
    }
    return n;
}

static bool has_own_family(const struct families *all, const struct family *alias)
{
    for (int i = 0; i < all->n; i++) {
        const struct family *f = &all->v[i];
        if (!is_alias(f) && strcmp(f->help, alias->help) == 0) return true;
    }
    return false;
}

static void print_metrics(FILE *out)
{
    static struct families all;
    read_families(&all);
    fputs("| name | type | labels | meaning | vLLM's name |\n|---|---|---|---|---|\n", out);
    for (int i = 0; i < all.n; i++) {
        const struct family *f = &all.v[i];
        if (is_alias(f)) continue;
        fprintf(out, "| `%s` | %s | %s | %s | ", f->name, f->type, f->labels, f->help);
        print_aliases(out, &all, f);
        fputs(" |\n", out);
    }
    fputs("\nUnder vLLM's name alone:\n\n| name | type | meaning |\n|---|---|---|\n", out);
    for (int i = 0; i < all.n; i++) {
        const struct family *f = &all.v[i];
        if (!is_alias(f) || has_own_family(&all, f)) continue;
        fprintf(out, "| `%s` | %s | %s |\n", f->name, f->type, f->help);
    }
}

/* ---- pages --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*print)(FILE *out);
} pages[] = {
    {"options.md", print_options},
    {"hearth.1", print_man},
    {"errors.md", print_errors},
    {"metrics.md", print_metrics},
};

static const struct {
    const char *name;
    void (*print)(FILE *out);
} completions[] = {
    {"hearth.bash", print_bash_completion},
    {"_hearth", print_zsh_completion},
    {"hearth.fish", print_fish_completion},
};

static FILE *open_page(const char *dir, const char *name, const char *ending, const char *mode)
{
    char path[8192];
    snprintf(path, sizeof(path), "%s/%s%s", dir, name, ending);
    FILE *f = fopen(path, mode);
    if (!f) perror(path);
    return f;
}

static int write_page(const char *templates, const char *dir, int i)
{
    char line[1024];
    FILE *in = open_page(templates, pages[i].name, ".in", "r");
    FILE *out = in ? open_page(dir, pages[i].name, "", "w") : NULL;
    if (!out) return -1;
    while (fgets(line, sizeof(line), in)) {
        if (strcmp(line, "@TABLE@\n") == 0)
            pages[i].print(out);
        else
            fputs(line, out);
    }
    fclose(in);
    return ferror(out) | fclose(out);
}

/* A page whose tables of request fields are replaced; it may be replaced itself. */
static int write_fields_page(const char *root, const char *dir, const char *name)
{
    static const char mark[] = "<!-- fields: ", end[] = " -->\n";
    char path[4096], line[4096], schemas[256];
    struct buf page;
    snprintf(path, sizeof(path), "%s/docs", root);
    FILE *in = open_page(path, name, "", "r");
    bool in_table = false;
    buf_init(&page, 1 << 20);
    while (in && fgets(line, sizeof(line), in))
        buf_puts(&page, line);
    if (!in || fclose(in) || page.failed) return -1;
    FILE *out = open_page(dir, name, "", "w");
    if (!out) return -1;
    for (const char *p = page.data; *p;) {
        int len = (int)strcspn(p, "\n") + 1;
        in_table = in_table && *p == '|';
        if (!in_table) fprintf(out, "%.*s", len, p);
        if (strncmp(p, mark, strlen(mark)) == 0) {
            const char *from = p + strlen(mark);
            snprintf(schemas, sizeof(schemas), "%.*s", (int)(strstr(from, end) - from), from);
            fputc('\n', out);
            if (api_print_table(out, schemas)) return -1;
            len++; /* the empty line */
            in_table = true;
        }
        p += len;
    }
    buf_finish(&page);
    return ferror(out) | fclose(out);
}

static int write_document(const char *root, const char *docs, const char *api)
{
    static const char *const names[] = {"api.md",      "api-routes.md",       "infill.md",
                                        "ollama.md",   "retrieval.md",        "swap.md",
                                        "adapters.md", "files-and-batches.md"};
    char path[4096];
    snprintf(path, sizeof(path), "%s/tests/docs/openapi.json.in", root);
    if (api_open(path)) return -1;
    FILE *out = open_page(api, "openapi.json", "", "w");
    if (!out) return -1;
    api_print_document(out);
    int rc = ferror(out) | fclose(out);
    for (size_t i = 0; !rc && i < sizeof(names) / sizeof(names[0]); i++)
        rc = write_fields_page(root, docs, names[i]);
    api_close();
    return rc;
}

static int write_completion(const char *dir, int i)
{
    FILE *out = open_page(dir, completions[i].name, "", "w");
    if (!out) return -1;
    completions[i].print(out);
    return ferror(out) | fclose(out);
}

int main(int argc, char **argv)
{
    char templates[4096];
    if (argc != 5) {
        fputs("usage: print_docs ROOT DOCS COMPLETIONS API\n", stderr);
        return 2;
    }
    snprintf(templates, sizeof(templates), "%s/tests/docs", argv[1]);
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        if (write_page(templates, argv[2], (int)i)) return EXIT_FAILURE;
    }
    if (write_document(argv[1], argv[2], argv[4])) return EXIT_FAILURE;
    for (size_t i = 0; i < sizeof(completions) / sizeof(completions[0]); i++) {
        if (write_completion(argv[3], (int)i)) return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
