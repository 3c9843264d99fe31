/* SPDX-License-Identifier: MIT */
/*
 * Loads the configuration: defaults, then the ini file, then the environment, then the flags, each
 * through the one function that parses a text by its option's row. A list given by a later source
 * replaces the earlier source's; within a source it grows. Main thread only.
 */
#include "base/auto.h"
#include "server/config/config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/nearest.h"
#include "server/config/ini.h"
#include "server/config/options.h"

enum source { FROM_PRESET, FROM_FILE, FROM_ENVIRONMENT, FROM_FLAGS };

enum { MAX_OPTIONS = 192, MAX_NAME_BYTES = 64 };

struct loader {
    struct srv_config *config;
    enum source from;                   /* the source being read */
    bool runs;                          /* `run NAME`: chat with --pull */
    const char *entry;                  /* the model that is read; NULL: that without a name */
    bool in_section;                    /* reading its section of the file, and only that */
    struct srv_list *names;             /* of models, in the order in which they come up */
    const char *label;                  /* the option as its source spells it, for messages */
    char flag[80];                      /* the same of a flag */
    unsigned char sources[MAX_OPTIONS]; /* the source of a list's items */
    char *err;
    size_t errlen;
};

#define refuse(l, format, ...)                                                                     \
    fail_with(-1, (l)->err, (l)->errlen, "%s%s" format, (l)->label ? (l)->label : "",              \
              (l)->label ? ": " : "", ##__VA_ARGS__)

/* ---- one value ----------------------------------------------------------------------------- */

static void *field_of(struct srv_config *c, const struct srv_option *o)
{
    return (char *)c + o->offset;
}

int srv_config_replace(const char **field, const char *value)
{
    char *copy = NULL;
    if (value && *value && !(copy = strdup(value))) return -1;
    free((void *)*field);
    *field = copy;
    return 0;
}

static void clear_list(struct srv_list *list)
{
    for (int i = 0; i < list->n; i++)
        free((void *)list->items[i]);
    free(list->items);
    *list = (struct srv_list){0};
}

static int append_item(struct srv_list *list, const char *text, size_t len)
{
    const char **items = realloc(list->items, sizeof(*items) * (size_t)(list->n + 1));
    if (!items) return -1;
    list->items = items;
    char *copy = strndup(text, len);
    if (!copy) return -1;
    list->items[list->n++] = copy;
    return 0;
}

bool srv_config_is_service_link(const char *name, const char *value)
{
    static const char suffix[] = "_PORT";
    size_t len = strlen(name);
    size_t scheme = strspn(value, "abcdefghijklmnopqrstuvwxyz");
    return len >= sizeof(suffix) && strcmp(name + len - (sizeof(suffix) - 1), suffix) == 0 &&
           scheme > 0 && strncmp(value + scheme, "://", 3) == 0;
}

int srv_config_warn(struct srv_config *c, const char *format, ...)
{
    char text[400];
    FORMAT_REST(text, sizeof(text), format);
    return append_item(&c->warnings, text, strlen(text));
}

/* The length of an item of --lora without its @NAME; 0: it is for another model than that which is
 * read. */
static size_t lora_length(const struct loader *l, const char *item, size_t len)
{
    const char *at = memrchr(item, '@', len);
    size_t n = at ? len - (size_t)(at + 1 - item) : 0;
    for (int i = 0; at && i < l->names->n; i++)
        if (strlen(l->names->items[i]) == n && !memcmp(l->names->items[i], at + 1, n))
            return l->entry && !strcmp(l->entry, l->names->items[i]) ? (size_t)(at - item) : 0;
    return l->config->is_further && !l->in_section ? 0 : len;
}

static int set_list(struct loader *l, const struct srv_option *o, const char *text)
{
    struct srv_list *list = field_of(l->config, o);
    unsigned char *source = &l->sources[o - srv_options];
    bool is_lora = list == &l->config->lora;
    while (*text) {
        text += strspn(text, ", \t");
        size_t len = strcspn(text, ",");
        size_t kept = len;
        while (kept && (text[kept - 1] == ' ' || text[kept - 1] == '\t'))
            kept--;
        if (is_lora) kept = lora_length(l, text, kept);
        if (kept && *source != l->from) clear_list(list);
        if (kept) *source = (unsigned char)l->from;
        if (kept && append_item(list, text, kept)) return refuse(l, "out of memory");
        text += len;
    }
    if (!is_lora && *source != l->from) clear_list(list);
    if (!is_lora) *source = (unsigned char)l->from;
    return 0;
}

/* Goes to the next of the words, separated by blanks, from the end of the last one. Returns its
 * length; 0: there is none. */
static size_t next_word(const char **p)
{
    *p += strspn(*p, " ");
    return strcspn(*p, " ");
}

static bool word_is(const char *text, const char *words)
{
    size_t len = strlen(text);
    for (size_t n; (n = next_word(&words)); words += n)
        if (n == len && strncasecmp(words, text, n) == 0) return true;
    return false;
}

static bool has_word(const char *words, const char *name, size_t len)
{
    for (size_t n; (n = next_word(&words)); words += n)
        if (n == len && strncmp(words, name, len) == 0) return true;
    return false;
}

/* Returns 1, 0, or -1 for a text that is not a boolean. */
static int parse_bool(const char *text)
{
    if (word_is(text, "1 true on yes enabled")) return 1;
    if (word_is(text, "0 false off no disabled")) return 0;
    return -1;
}

/* Returns the multiplier of K, M, G, T (powers of 1024, also written KiB or KB), or 0. */
static double suffix_factor(const char *suffix)
{
    static const struct {
        const char *words;
        double factor;
    } table[] = {
        {"K KB KiB", 1024.0},
        {"M MB MiB", 1048576.0},
        {"G GB GiB", 1073741824.0},
        {"T TB TiB", 1099511627776.0},
        {"B", 1.0},
    };
    if (!*suffix) return 1;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (word_is(suffix, table[i].words)) return table[i].factor;
    return 0;
}

static int parse_number(struct loader *l, const struct srv_option *o, const char *text, double *ret)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text) return refuse(l, "'%.60s' is not a number", text);
    bool may_be_large = o->type == SRV_OPT_BYTES || o->type == SRV_OPT_INT64;
    double factor = may_be_large ? suffix_factor(end) : !*end;
    if (factor == 0) return refuse(l, "'%.60s' is not a number", text);
    value *= factor;
    if (!isfinite(value) || value < o->min || value > o->max)
        return refuse(l, "%.60s is out of range; valid: %.15g to %.15g", text, o->min, o->max);
    *ret = value;
    return 0;
}

static int parse_integer(struct loader *l, const struct srv_option *o, const char *text,
                         int64_t *ret)
{
    double value;
    if (parse_number(l, o, text, &value)) return -1;
    if (value != floor(value)) return refuse(l, "'%.60s' is not an integer", text);
    *ret = (int64_t)value;
    return 0;
}

static void unset(void *field, enum srv_option_type type)
{
    if (type == SRV_OPT_INT) *(int *)field = SRV_UNSET;
    if (type == SRV_OPT_INT64) *(int64_t *)field = SRV_UNSET;
    if (type == SRV_OPT_NUMBER) *(double *)field = SRV_UNSET;
}

static int set_string(struct loader *l, const char **field, const char *text)
{
    return srv_config_replace(field, text) ? refuse(l, "out of memory") : 0;
}

static int set_value(struct loader *l, const struct srv_option *o, const char *text)
{
    void *field = field_of(l->config, o);
    int64_t integer;
    if (!*text && (o->flags & SRV_OPT_UNSET)) {
        unset(field, o->type);
        return 0;
    }
    switch (o->type) {
    case SRV_OPT_LIST: return set_list(l, o, text);
    case SRV_OPT_CHOICE:
        if (!word_is(text, o->choices))
            return refuse(l, "'%.60s' is not one of: %s", text, o->choices);
        return set_string(l, field, text);
    case SRV_OPT_STRING: return set_string(l, field, text);
    case SRV_OPT_INT:
        if (parse_integer(l, o, text, &integer)) return -1;
        *(int *)field = (int)integer;
        return 0;
    case SRV_OPT_INT64:
    case SRV_OPT_BYTES: return parse_integer(l, o, text, field);
    case SRV_OPT_NUMBER: return parse_number(l, o, text, field);
    case SRV_OPT_BOOL:
        if (parse_bool(text) < 0) return refuse(l, "'%.60s' is not one of: on off", text);
        *(bool *)field = parse_bool(text);
        return 0;
    }
    return refuse(l, "unknown type");
}

/* ---- several models ------------------------------------------------------------------------ */

/* The length of a name that ends with `end`, or 0. */
static size_t name_length(const char *text, char end)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-._:@+";
    size_t len = strspn(text, allowed);
    return len <= MAX_NAME_BYTES && text[len] == end ? len : 0;
}

/* Notes that there is such a model. */
static int note_name(struct loader *l, const char *name, size_t len)
{
    for (int i = 0; i < l->names->n; i++)
        if (strlen(l->names->items[i]) == len && !memcmp(l->names->items[i], name, len)) return 0;
    if (l->names->n == SRV_MAX_MODELS)
        return refuse(l, "more than %d models have names", SRV_MAX_MODELS);
    return append_item(l->names, name, len) ? refuse(l, "out of memory") : 0;
}

/* A source names one directory for a model; a later source replaces it. */
static int note_directory(struct loader *l, const struct srv_option *o, const char *dir)
{
    unsigned char *source = &l->sources[o - srv_options];
    if (*source == l->from)
        return refuse(l, "model %s is '%.100s' and '%.100s'; give one of them another name",
                      l->entry, l->config->model, dir);
    *source = (unsigned char)l->from;
    return 0;
}

/* Commands that serve several models at once. */
static bool takes_several(const struct loader *l)
{
    return l->config->command == SRV_CMD_SERVE || l->config->command == SRV_CMD_BATCH;
}

/* Sets a value, unless it is for another model than the one that is read. */
static int set_option(struct loader *l, const struct srv_option *o, const char *text)
{
    bool is_model = o->offset == offsetof(struct srv_config, model) && !l->in_section;
    size_t len = is_model ? name_length(text, '=') : 0;
    if (len && takes_several(l)) {
        if (note_name(l, text, len)) return -1;
        if (!l->entry || strlen(l->entry) != len || memcmp(l->entry, text, len) != 0) return 0;
        if (note_directory(l, o, text + len + 1)) return -1;
    } else if (l->in_section && o->offset == offsetof(struct srv_config, model)) {
        if (note_directory(l, o, text)) return -1;
    } else if (!len && !l->in_section && l->config->is_further && !strcmp(o->group, "model") &&
               !word_is(o->key, "pull cache-dir lora models default-model models-max load-wait-ms "
                                "models-autoload")) {
        return 0; /* of the first model */
    }
    return set_value(l, o, len ? text + len + 1 : text);
}

/* A setting of a section [model NAME]. Returns true if it is for the model that is read. */
static bool is_own_section(struct loader *l, const char *name, int *ret_rc)
{
    *ret_rc = 0;
    if (!takes_several(l)) return false;
    size_t len = name_length(name, '\0');
    if (!len)
        *ret_rc = refuse(l, "[model %.80s]: a name has 1 to %d letters, digits and -._:@+", name,
                         MAX_NAME_BYTES);
    else
        *ret_rc = note_name(l, name, len);
    return !*ret_rc && l->in_section && !strcmp(name, l->entry);
}

/* ---- sources ------------------------------------------------------------------------------- */

static const struct srv_option *find_option(const char *name, size_t len)
{
    for (int i = 0; i < srv_n_options; i++) {
        const struct srv_option *o = &srv_options[i];
        if (strlen(o->key) == len && strncmp(o->key, name, len) == 0) return o;
        if (o->aliases && has_word(o->aliases, name, len)) return o;
    }
    return NULL;
}

/* Returns the most similar spelling of an option of the subcommand, or NULL with *ret_len 0. */
static const char *find_similar(const struct loader *l, const char *name, size_t len,
                                bool switches_only, int *ret_len)
{
    struct srv_nearest nearest;
    srv_nearest_init(&nearest, name, len);
    for (int i = 0; i < srv_n_options; i++) {
        const struct srv_option *o = &srv_options[i];
        if ((o->flags & (SRV_OPT_HIDDEN | SRV_OPT_ENV_ONLY)) ||
            (switches_only && o->type != SRV_OPT_BOOL) ||
            !(o->commands & (1u << l->config->command)))
            continue;
        srv_nearest_offer(&nearest, o->key, strlen(o->key));
        const char *p = o->aliases;
        for (size_t n; p && (n = next_word(&p)); p += n)
            srv_nearest_offer(&nearest, p, n);
    }
    *ret_len = (int)nearest.name_len;
    return nearest.name;
}

static int set_presets(struct loader *l)
{
    l->from = FROM_PRESET;
    for (int i = 0; i < srv_n_options; i++) {
        const struct srv_option *o = &srv_options[i];
        l->label = o->key;
        const char *preset = o->flags & SRV_OPT_UNSET ? "" : o->preset;
        if (preset && set_value(l, o, preset)) return -1;
    }
    return 0;
}

static bool is_known_group(const char *section)
{
    for (int i = 0; i < srv_n_options; i++)
        if (strcmp(srv_options[i].group, section) == 0) return true;
    return !*section;
}

/* Options of other programs about what is not here. */
static bool is_about_gpus(const char *name, size_t len)
{
    static const char names[] =
        "ngl gpu-layers n-gpu-layers fa flash-attn dev device mg main-gpu sm split-mode ts "
        "tensor-split tp tensor-parallel-size gpu-memory-utilization";
    return has_word(names, name, len);
}

/* The sections of a file, in the order of the table, whose options stand together. */
static const char *list_groups(char *buf, size_t size)
{
    const char *last = "";
    size_t at = 0;
    for (int i = 0; i < srv_n_options && at < size; i++) {
        const char *group = srv_options[i].group;
        if (!strcmp(group, "program") || !strcmp(group, last)) continue;
        at += (size_t)snprintf(buf + at, size - at, "%s%s", at ? " " : "", group);
        last = group;
    }
    return buf;
}

static int set_from_file(void *ctx, int line, const char *section, const char *key,
                         const char *value, char *err, size_t errlen)
{
    struct loader file = *(struct loader *)ctx;
    file.err = err;
    file.errlen = errlen;
    file.label = NULL;
    bool of_model = strncmp(section, "model ", 6) == 0;
    int failed = 0;
    if (of_model && !is_own_section(&file, section + 6, &failed)) return failed;
    if (!of_model && file.in_section) return 0;
    if (!of_model && !is_known_group(section)) {
        char groups[200];
        return refuse(&file, "unknown section [%.60s]; sections are: %s", section,
                      list_groups(groups, sizeof(groups)));
    }
    const struct srv_option *o = find_option(key, strlen(key));
    if (!o || (o->flags & SRV_OPT_FLAG_ONLY) || strcmp(o->key, "config") == 0) {
        int len;
        if (is_about_gpus(key, strlen(key)))
            return refuse(&file, "'%s': there is no GPU to set up: Hearth computes on CPUs", key);
        const char *near = find_similar(&file, key, strlen(key), false, &len);
        if (near) return refuse(&file, "unknown key '%.60s'; did you mean '%.*s'?", key, len, near);
        return refuse(&file, "unknown key '%.60s'", key);
    }
    if (o->flags & SRV_OPT_ENV_ONLY)
        return refuse(&file, "'%s' is read from the environment only", o->key);
    if (of_model && !srv_option_is_of_a_model(o))
        return refuse(&file, "'%s' is not a setting of one model; it belongs into [%s]", o->key,
                      o->group);
    file.label = o->key;
    bool may_be_empty =
        o->type == SRV_OPT_STRING || o->type == SRV_OPT_LIST || (o->flags & SRV_OPT_UNSET);
    if (!*value && !may_be_empty) return refuse(&file, "a value is missing");
    int rc = set_option(&file, o, value);
    memcpy(((struct loader *)ctx)->sources, file.sources, sizeof(file.sources));
    return rc;
}

static int load_file(struct loader *l, const char *path)
{
    size_t len;
    AUTO_FREE char *text = NULL;
    if (file_load(NULL, path, SRV_CONFIG_FILE_MAX_BYTES, &text, &len, l->err, l->errlen)) return -1;
    l->from = FROM_FILE;
    return srv_ini_parse(path, text, len, set_from_file, l, l->err, l->errlen);
}

static int load_environment(struct loader *l, const char *(*env)(const char *name))
{
    l->from = FROM_ENVIRONMENT;
    for (int i = 0; i < srv_n_options; i++) {
        const struct srv_option *o = &srv_options[i];
        if (o->flags & SRV_OPT_FLAG_ONLY) continue;
        char name[80];
        srv_option_env_name(o, name, sizeof(name));
        const char *value = env ? env(name) : getenv(name);
        bool is_number = o->type == SRV_OPT_INT || o->type == SRV_OPT_INT64;
        if (value && is_number && srv_config_is_service_link(name, value)) {
            if (srv_config_warn(l->config,
                                "%s=%.60s is ignored: Kubernetes sets it for a Service of that "
                                "name; enableServiceLinks: false in the pod prevents it",
                                name, value))
                return refuse(l, "out of memory");
            continue;
        }
        l->label = name;
        if (value && *value && set_option(l, o, value)) return -1;
        l->label = NULL;
    }
    return 0;
}

/* ---- the command line ---------------------------------------------------------------------- */

struct args {
    int argc, next;
    char **argv;
    const char *positional; /* the one that has been read */
    bool only_config_file;  /* first pass: find --config, check nothing */
};

static bool is_flag(const char *arg)
{
    return arg[0] == '-' && arg[1] && !(arg[1] >= '0' && arg[1] <= '9') && arg[1] != '.';
}

/* The value of the flag just read: after '=', or the next argument; booleans need none. */
static const char *flag_value(struct args *a, const struct srv_option *o, const char *attached)
{
    if (attached) return attached;
    const char *next = a->next < a->argc ? a->argv[a->next] : NULL;
    if (o->type == SRV_OPT_BOOL) {
        if (!next || parse_bool(next) < 0) return "on";
    } else if (!next) {
        return NULL;
    }
    a->next++;
    return next;
}

static int refuse_flag(struct loader *l, const char *name, size_t len)
{
    int near_len;
    if (is_about_gpus(name, len))
        return refuse(l, "there is no GPU to set up: Hearth computes on CPUs; leave it out");
    bool is_no = len > 3 && strncmp(name, "no-", 3) == 0;
    const char *near = is_no ? find_similar(l, name + 3, len - 3, true, &near_len)
                             : find_similar(l, name, len, false, &near_len);
    if (!near) return refuse(l, "unknown option; see --help");
    return refuse(l, "unknown option; did you mean %s%s%.*s?", near_len > 2 ? "--" : "-",
                  is_no ? "no-" : "", near_len, near);
}

static int read_flag(struct loader *l, struct args *a)
{
    const char *arg = a->argv[a->next++];
    const char *name = arg + (arg[1] == '-' ? 2 : 1);
    size_t len = strcspn(name, "=");
    const char *attached = name[len] ? name + len + 1 : NULL;
    const struct srv_option *o = find_option(name, len);
    const char *value = NULL;
    snprintf(l->flag, sizeof(l->flag), "%.*s", (int)(len + (size_t)(name - arg)), arg);
    l->label = l->flag;
    if (!o && len > 3 && strncmp(name, "no-", 3) == 0) {
        o = find_option(name + 3, len - 3);
        if (o && (o->type != SRV_OPT_BOOL || attached)) o = NULL;
        value = "off";
    }
    if (!o) return a->only_config_file ? 0 : refuse_flag(l, name, len);
    if (!value && !(value = flag_value(a, o, attached)))
        return a->only_config_file ? 0 : refuse(l, "a value is missing");
    if (a->only_config_file && strcmp(o->key, "config") != 0) return 0;
    if (o->flags & SRV_OPT_ENV_ONLY) {
        char env[80];
        srv_option_env_name(o, env, sizeof(env));
        return refuse(l, "a secret is not accepted on the command line; use %s or api-key-file",
                      env);
    }
    if (!a->only_config_file && !(o->commands & (1u << l->config->command)))
        return refuse(l, "not an option of '%s'", srv_commands[l->config->command].name);
    return set_option(l, o, value);
}

/* The argument without a flag: the URL of healthcheck, what kv does, else the model. */
static int read_positional(struct loader *l, struct args *a)
{
    const char *arg = a->argv[a->next++];
    struct srv_config *c = l->config;
    if (a->only_config_file || c->is_further) return 0;
    if (c->command == SRV_CMD_LIST) return refuse(l, "list takes no argument: '%.60s'", arg);
    const char **field = &c->model, *noun = "model";
    if (c->command == SRV_CMD_HEALTHCHECK) field = &c->url, noun = "URL";
    if (c->command == SRV_CMD_KV) field = &c->kv_action, noun = "of ls and erase";
    if (c->command == SRV_CMD_BATCH) field = &c->batch_in, noun = "file";
    if (a->positional && l->runs && !c->prompt) return set_string(l, &c->prompt, arg);
    if (a->positional)
        return refuse(l, "only one %s is allowed, not both '%.200s' and '%.200s'", noun,
                      a->positional, arg);
    a->positional = arg;
    return set_string(l, field, arg);
}

static int read_flags(struct loader *l, struct args a)
{
    l->from = FROM_FLAGS;
    int rc = 0;
    while (rc == 0 && a.next < a.argc) {
        rc = is_flag(a.argv[a.next]) ? read_flag(l, &a) : read_positional(l, &a);
        l->label = NULL;
    }
    return rc;
}

static int refuse_command(struct loader *l, const char *word)
{
    static const char *const others[][2] = {
        /* subcommands of other programs */
        {"ls", "`hearth list` shows the models of the cache"},
        {"show", "`hearth inspect MODEL` shows what a model is"},
        {"ps", "`curl http://127.0.0.1:8080/v1/models` shows what a running server serves"},
        {"stop", "Ctrl-C ends `hearth serve`, `systemctl stop hearth` the service"},
    };
    struct srv_nearest nearest;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (!strcmp(word, others[i][0]))
            return refuse(l, "there is no '%s' here: %s", word, others[i][1]);
    srv_nearest_init(&nearest, word, strlen(word));
    for (int i = 0; i < SRV_CMD_COUNT; i++)
        srv_nearest_offer(&nearest, srv_commands[i].name, strlen(srv_commands[i].name));
    if (nearest.name)
        return refuse(l, "unknown subcommand '%.60s'; did you mean '%s'?", word, nearest.name);
    if (strchr(word, '/'))
        return refuse(l, "unknown subcommand '%.200s'; did you mean 'hearth serve %.200s'?", word,
                      word);
    return refuse(l, "unknown subcommand '%.60s'; see --help", word);
}

/* The subcommand, if the first argument is one; otherwise serve. */
static int read_command(struct loader *l, struct args *a)
{
    if (a->next >= a->argc || is_flag(a->argv[a->next])) return 0;
    const char *word = a->argv[a->next++];
    for (int i = 0; i < SRV_CMD_COUNT; i++) {
        if (strcmp(word, srv_commands[i].name) != 0) continue;
        l->config->command = (enum srv_command)i;
        return 0;
    }
    if (strcmp(word, "run") == 0) {
        l->config->command = SRV_CMD_CHAT;
        l->runs = true;
    } else if (strcmp(word, "help") == 0)
        l->config->help = true;
    else if (strcmp(word, "version") == 0)
        l->config->version = true;
    else
        return refuse_command(l, word);
    return 0;
}

/* --hf-repo NAME is --model NAME --pull. */
static int take_hf_repo(struct loader *l)
{
    struct srv_config *c = l->config;
    if (!c->hf_repo) return 0;
    if (c->model) return refuse(l, "model and hf-repo cannot be used together");
    c->pull = true;
    return set_string(l, &c->model, c->hf_repo);
}

/* Variables of the request itself cannot be set for all requests. */
static int check_kwargs(struct loader *l)
{
    const char *text = l->config->chat_template_kwargs, *s;
    AUTO(jr_finish) struct jr r = {0};
    char why[100] = "";
    size_t n;
    if (!text) return 0;
    jr_init(&r, text, strlen(text), 0, why, sizeof(why));
    jr_open(&r, '{');
    while (jr_member(&r, &s, &n) > 0) {
        if (has_word("messages tools add_generation_prompt", s, n))
            return refuse(l, "chat-template-kwargs must not name messages, tools or "
                             "add_generation_prompt");
        jr_skip(&r, &s, &n);
    }
    return jr_end(&r) ? refuse(l, "chat-template-kwargs is not a JSON object: %s", why) : 0;
}

/* A * counts alone or, in origins, as a host after a scheme or as a port at the end. */
static int check_stars(struct loader *l, const char *option, const struct srv_list *list,
                       bool origins)
{
    for (int i = 0; i < list->n; i++) {
        const char *item = list->items[i], *star = strchr(item, '*'), *host = strstr(item, "://");
        if (!star || strcmp(item, "*") == 0) continue;
        bool ends = origins && !star[1] && host && host > item;
        if (ends && (star == host + 3 || (star > host + 4 && star[-1] == ':'))) continue;
        return refuse(l, "%s: '%.100s' has a * that means nothing there; supported: *%s", option,
                      item, origins ? ", SCHEME://* and SCHEME://HOST:* (any port)" : " alone");
    }
    return 0;
}

static int check_together(struct loader *l)
{
    const struct srv_config *c = l->config;
    l->label = NULL;
    if (take_hf_repo(l) || check_kwargs(l)) return -1;
    if (check_stars(l, "cors-origins", &c->cors_origins, true) ||
        check_stars(l, "allowed-hosts", &c->allowed_hosts, false))
        return -1;
    if (l->runs && !c->model && !c->help)
        return refuse(l, "run needs the name of a model: hearth run org/name");
    if (c->pull && !c->model && c->command != SRV_CMD_PULL && c->command != SRV_CMD_LIST)
        return refuse(l, "pull needs the name of a model: --model org/name");
    if (c->chat_url && c->pull) return refuse(l, "pull and url cannot be used together");
    if (!c->tls_cert_file != !c->tls_key_file)
        return refuse(l, "tls-cert-file and tls-key-file must be given together");
    if (c->strict_model && c->accept_any_model)
        return refuse(l, "strict-model and accept-any-model cannot be used together");
    if (c->metrics_port > 0 && c->metrics_port == c->port && !c->unix_socket)
        return refuse(l, "port and metrics-port are both %d", c->port);
    return 0;
}

/* Reads the sources for the model `entry`, or for that without a name. */
static int load_one(const struct loader *all, struct srv_config *ret, const char *entry,
                    struct args args, const char *(*env)(const char *name))
{
    struct loader one = *all, *l = &one;
    one.config = ret;
    one.entry = entry;
    ret->is_further = ret != all->config;
    if (set_presets(l)) return -1;
    l->label = NULL;
    if (entry && set_string(l, &ret->entry, entry)) return -1;
    if (read_command(l, &args)) return -1;
    bool help = ret->help, version = ret->version;

    args.only_config_file = true;
    const char *from_env = env ? env("HEARTH_CONFIG") : getenv("HEARTH_CONFIG");
    if (from_env && set_string(l, &ret->config_file, from_env)) return -1;
    if (read_flags(l, args)) return -1;
    args.only_config_file = false;

    if (ret->config_file && load_file(l, ret->config_file)) return -1;
    l->in_section = l->entry != NULL;
    if (l->in_section && ret->config_file && load_file(l, ret->config_file)) return -1;
    l->in_section = false;
    if (load_environment(l, env)) return -1;
    if (read_flags(l, args)) return -1;
    ret->help |= help;
    ret->version |= version;
    ret->pull |= l->runs && ret->model && !ret->chat_url;
    if (ret->url) ret->command = SRV_CMD_HEALTHCHECK;
    if (check_together(l)) return -1;
    if (!ret->entry || ret->model || ret->help || ret->version) return 0;
    return refuse(
        l, "model %s: its directory is missing; --model %s=DIR, or model = DIR in [model %s]",
        ret->entry, ret->entry, ret->entry);
}

/* Reads the sources once more for each model that has a name. The one without is the first. */
static int load_more(struct loader *l, struct args args, const char *(*env)(const char *name))
{
    struct srv_config *ret = l->config;
    const struct srv_list names = *l->names;
    int rc = 0, i = 0;
    if (!ret->model) {
        srv_config_finish(ret);
        rc = load_one(l, ret, names.items[i++], args, env);
    }
    if (rc || i == names.n) return rc;
    ret->more = calloc((size_t)(names.n - i), sizeof(*ret->more));
    if (!ret->more) return refuse(l, "out of memory");
    for (; !rc && i < names.n; i++)
        rc = load_one(l, &ret->more[ret->n_more++], names.items[i], args, env);
    return rc;
}

int srv_config_load(struct srv_config *ret, int argc, char **argv,
                    const char *(*env)(const char *name), char *err, size_t errlen)
{
    *ret = (struct srv_config){0};
    struct srv_list names = {0};
    struct loader l = {.config = ret, .names = &names, .err = err, .errlen = errlen};
    const struct args args = {.argc = argc, .argv = argv, .next = 1};
    int rc = load_one(&l, ret, NULL, args, env);
    if (!rc && names.n) rc = load_more(&l, args, env);
    if (!rc && ret->models_dir) {
        ret->found = calloc(1, sizeof(*ret->found));
        rc = ret->found ? load_one(&l, ret->found, NULL, args, env) : refuse(&l, "out of memory");
    }
    clear_list(&names);
    return rc;
}

int srv_config_set(struct srv_config *c, const char *group, const char *name, const char *value,
                   char *err, size_t errlen)
{
    struct loader l = {.config = c, .label = name, .err = err, .errlen = errlen};
    const struct srv_option *o = find_option(name, strlen(name));
    if (!o || strcmp(o->group, group) != 0 || !(o->flags & SRV_OPT_UNSET))
        return refuse(&l, "not a setting");
    return set_value(&l, o, value);
}

void srv_config_finish(struct srv_config *c)
{
    for (int i = 0; i < srv_n_options; i++) {
        void *field = field_of(c, &srv_options[i]);
        enum srv_option_type type = srv_options[i].type;
        if (type == SRV_OPT_LIST) clear_list(field);
        if (type == SRV_OPT_STRING || type == SRV_OPT_CHOICE) free(*(void **)field);
    }
    for (int i = 0; i < c->n_more; i++)
        srv_config_finish(&c->more[i]);
    free(c->more);
    if (c->found) srv_config_finish(c->found);
    free(c->found);
    free((void *)c->entry);
    free((void *)c->model_shown);
    free((void *)c->kv_action);
    free((void *)c->draft_shown);
    clear_list(&c->warnings);
    *c = (struct srv_config){0};
}
