/* SPDX-License-Identifier: MIT */
/* Adapters: the configuration, the tensors that go with the model's, and their packing. */
#include "engine/model/adapter.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/eng_error.h"
#include "engine/model/family.h"
#include "engine/model/numerics.h"
#include "engine/model/plan.h"
#include "engine/model/weight_hash.h"

enum { NAME_BYTES = 256, MAX_CONFIG_BYTES = 1 << 20 };

static const char config_name[] = "adapter_config.json";
static const char tensors_name[] = "adapter_model.safetensors";
static const char wrapped[] = "base_model.model."; /* PEFT's prefix of all names */

/* One matrix of the model's files, with its A and B. */
struct target {
    const struct eng_tensor *weight, *a, *b;
    int first, rank; /* its rows of the stacked A */
    double factor;
};

/* The targets that one packed matrix holds. */
struct site {
    const struct plan_mat *pm; /* NULL: the model has none */
    struct target targets[ENG_LORA_TARGETS];
    int n_targets, n_rows; /* of the stacked A */
};

struct opening {
    const struct eng_model *m;
    struct eng_report report;
    json_t *config;
    struct eng_weights *weights;
    struct site *sites; /* [n_sites] */
    int n_sites, max_rank;
};

/* ---- the configuration --------------------------------------------------------------------- */

/* A key that is there and neither null, false nor empty. */
static bool is_set(const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);
    if (json_is_array(v)) return json_array_size(v) > 0;
    if (json_is_object(v)) return json_object_size(v) > 0;
    return v && !json_is_null(v) && !json_is_false(v);
}

static int check_config(struct opening *o)
{
    static const char *const refused[] = {
        "use_dora",          "fan_in_fan_out",    "lora_bias",
        "modules_to_save",   "layer_replication", "trainable_token_indices",
        "target_parameters", "use_qalora",        "alora_invocation_tokens",
        "megatron_config",   "use_bdlora",        "arrow_config",
        "kasa_config",       "monteclora_config"};
    struct eng_report *r = &o->report;
    const char *type = json_string_value(json_object_get(o->config, "peft_type"));
    const char *bias = json_string_value(json_object_get(o->config, "bias"));
    if (!type || strcmp(type, "LORA") != 0)
        return eng_report_problem(r, ENG_EUNSUPPORTED, "%s: peft_type is %.60s; supported: LORA",
                                  config_name, type ? type : "missing");
    if (bias && strcmp(bias, "none") != 0)
        return eng_report_problem(r, ENG_EUNSUPPORTED, "%s: bias is %.60s; supported: none",
                                  config_name, bias);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (is_set(o->config, refused[i]))
            return eng_report_problem(r, ENG_EUNSUPPORTED, "%s: %s is set, which is not supported",
                                      config_name, refused[i]);
    double alpha = json_number_value(json_object_get(o->config, "lora_alpha"));
    if (!isfinite(alpha) || !json_is_number(json_object_get(o->config, "lora_alpha")) ||
        !json_is_integer(json_object_get(o->config, "r")))
        return eng_report_problem(r, ENG_EINVAL, "%s: r or lora_alpha is not a number",
                                  config_name);
    return 0;
}

/* The pattern of the end of a path, with Python's \d, which POSIX does not have. */
static bool write_regex(char *to, size_t size, const char *pattern)
{
    size_t n = (size_t)snprintf(to, size, "^(.*\\.)?(");
    for (const char *p = pattern; *p && n + 8 < size; p++) {
        bool digit = p[0] == '\\' && p[1] == 'd';
        n += (size_t)snprintf(to + n, size - n, digit ? "[0-9]" : "%.*s",
                              p[0] == '\\' && p[1] ? 2 : 1, p);
        p += p[0] == '\\' && p[1];
    }
    if (n + 8 >= size) return false;
    snprintf(to + n, size - n, ")$");
    return true;
}

/* Whether a regular expression fits the end of a module's path. Groups that are repeated a number
 * of times are not taken: nested ones would need any amount of memory. */
static bool fits(struct opening *o, const char *pattern, const char *path)
{
    char text[2 * NAME_BYTES + 16];
    regex_t re;
    if (!write_regex(text, sizeof(text), pattern) || strstr(text, "(?") || strstr(text, "){") ||
        regcomp(&re, text, REG_EXTENDED | REG_NOSUB)) {
        eng_report_problem(&o->report, ENG_EUNSUPPORTED,
                           "%s: the pattern %.200s is too long or not a POSIX regular expression",
                           config_name, pattern);
        return false;
    }
    bool found = regexec(&re, path, 0, NULL, 0) == 0;
    regfree(&re);
    return found;
}

/* Whether a list of names has a module. */
static bool lists(const json_t *list, const char *path)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        size_t n = name ? strlen(name) : 0, len = strlen(path);
        if (name && n <= len && strcmp(path + len - n, name) == 0 &&
            (n == len || path[len - n - 1] == '.'))
            return true;
    }
    return false;
}

/* Whether layers_to_transform, a number or a list, leaves a module in. */
static bool has_layer(const json_t *layers, const char *path)
{
    const char *at = strstr(path, "layers.");
    if (!layers || json_is_null(layers)) return true;
    json_int_t layer = at ? atoll(at + 7) : -1;
    if (json_is_integer(layers)) return json_integer_value(layers) == layer;
    for (size_t i = 0; i < json_array_size(layers); i++)
        if (json_integer_value(json_array_get(layers, i)) == layer) return true;
    return false;
}

/* The number of a module: of the first pattern that fits its path, else the common one. */
static double module_number(struct opening *o, const char *patterns, const char *common,
                            const char *path)
{
    const char *pattern;
    json_t *value;
    json_object_foreach(json_object_get(o->config, patterns), pattern, value)
    {
        if (!json_is_number(value))
            eng_report_problem(&o->report, ENG_EINVAL, "%s: %s of %.200s is not a number",
                               config_name, patterns, pattern);
        if (o->report.rc || fits(o, pattern, path)) return json_number_value(value);
    }
    return json_number_value(json_object_get(o->config, common));
}

/* ---- tensors ------------------------------------------------------------------------------- */

static int refuse_tensor(struct opening *o, const struct eng_tensor *t, int rc, const char *why)
{
    char shape[ENG_SHAPE_TEXT];
    eng_tensor_shape(t, shape);
    return eng_report_problem(&o->report, rc, "%s: tensor %.200s %s: %s", tensors_name, t->name,
                              shape, why);
}

static bool is_float(const struct eng_tensor *t)
{
    return t->dtype <= ENG_DTYPE_BF16 && t->rank == 2;
}

/* A target of a module of that path, if the adapter has one. */
static int take_target(struct opening *o, struct site *s, const struct eng_tensor *weight,
                       const char *path)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof(name), "%s%s.lora_A.weight", wrapped, path);
    struct eng_tensor *a = eng_weights_find(o->weights, name);
    snprintf(name, sizeof(name), "%s%s.lora_B.weight", wrapped, path);
    struct eng_tensor *b = eng_weights_find(o->weights, name);
    if (!a || !b) return 0; /* one alone is found as unused */
    a->used = b->used = true;
    if (lists(json_object_get(o->config, "exclude_modules"), path)) return 0;
    /* A pattern, or "all-linear", is Python's to read: the tensors are those of its modules. */
    const json_t *targets = json_object_get(o->config, "target_modules");
    if ((!json_is_string(targets) && !lists(targets, path)) ||
        !has_layer(json_object_get(o->config, "layers_to_transform"), path))
        return refuse_tensor(o, a, ENG_EINVAL,
                             "target_modules and layers_to_transform leave it out");
    double rank = module_number(o, "rank_pattern", "r", path);
    double alpha = module_number(o, "alpha_pattern", "lora_alpha", path);
    if (o->report.rc) return o->report.rc;
    bool rooted = is_set(o->config, "use_rslora");
    if (!(rank >= 1 && rank <= o->max_rank))
        return eng_report_problem(&o->report, ENG_EUNSUPPORTED,
                                  "%s: rank %g of %.200s; supported: 1 to %d (--lora-max-rank)",
                                  config_name, rank, path, o->max_rank);
    if (!is_float(a) || a->shape[0] != (int64_t)rank || a->shape[1] != weight->shape[1])
        return refuse_tensor(o, a, ENG_EINVAL,
                             "it must be [rank, inputs of the base] of F32, "
                             "F16 or BF16");
    if (!is_float(b) || b->shape[1] != (int64_t)rank || b->shape[0] != weight->shape[0])
        return refuse_tensor(o, b, ENG_EINVAL,
                             "it must be [outputs of the base, rank] of F32, "
                             "F16 or BF16");
    s->targets[s->n_targets++] = (struct target){.weight = weight,
                                                 .a = a,
                                                 .b = b,
                                                 .first = s->n_rows,
                                                 .rank = (int)rank,
                                                 .factor = alpha / (rooted ? sqrt(rank) : rank)};
    s->n_rows += (int)rank;
    return 0;
}

/* The module's name within the family's: without prefix and ending. */
static void module_name(const struct opening *o, const struct plan_mat *pm,
                        const struct eng_tensor *weight, char ret[NAME_BYTES])
{
    size_t skip = 0;
    if (pm->mat == &o->m->embed) { /* a tied head */
        snprintf(ret, NAME_BYTES, "lm_head");
        return;
    }
    for (const char *const *p = o->m->hp.family->prefixes; *p; p++)
        if (strncmp(weight->name, *p, strlen(*p)) == 0 && strlen(*p) > skip) skip = strlen(*p);
    int n = (int)(strlen(weight->name) - skip - strlen(".weight"));
    snprintf(ret, NAME_BYTES, "%.*s", n, weight->name + skip);
}

/* PEFT's name of the module depends on the class that was trained: its prefix is any of them. */
static int find_targets(struct opening *o, struct site *s)
{
    char name[NAME_BYTES], path[2 * NAME_BYTES];
    for (int i = 0; i < s->pm->n_parts; i++) {
        const struct eng_tensor *weight = s->pm->parts[i].weight;
        bool fused = false;
        for (int k = 0; k < i; k++)
            fused |= s->pm->parts[k].weight == weight;
        if (fused) continue;
        module_name(o, s->pm, weight, name);
        int rc = take_target(o, s, weight, name), n = s->n_targets;
        for (const char *const *p = o->m->hp.family->prefixes; !rc && *p && n == s->n_targets;
             p++) {
            snprintf(path, sizeof(path), "%s%s", *p, name);
            if (**p) rc = take_target(o, s, weight, path);
        }
        if (rc) return rc;
    }
    return 0;
}

int eng_lora_site_of(const struct eng_model *m, const struct eng_mat *mat)
{
    if (mat == &m->head || (m->hp.tied && m->has_head && mat == &m->embed))
        return m->hp.n_layers * ENG_LORA_SITES;
    for (int i = 0; i < m->hp.n_layers; i++) {
        const struct eng_layer *l = &m->layers[i];
        const struct eng_mat *mats[ENG_LORA_SITES] = {&l->qkv, &l->o, &l->gate_up, &l->down};
        for (int k = m->hp.layer_mixer[i] == ENG_ATTENTION ? 0 : ENG_LORA_GATE_UP;
             k < ENG_LORA_SITES; k++)
            if (mat == mats[k]) return i * ENG_LORA_SITES + k;
    }
    return -1;
}

/* Rows of a tensor as finite f32, owned; NULL: reported. */
static float *read_rows(struct opening *o, const struct eng_tensor *t, int64_t row, int64_t n)
{
    size_t cols = (size_t)t->shape[1], bytes = (size_t)eng_dtype_bytes(t->dtype, t->shape[1]);
    float *x = malloc((size_t)n * cols * sizeof(*x));
    if (!x) {
        eng_report_problem(&o->report, ENG_ENOMEM, "no memory to read %.200s", t->name);
        return NULL;
    }
    int64_t at = t->shard->data_start + t->offset + row * (int64_t)bytes;
    if (file_pread(t->shard->fd, x, (size_t)n * bytes, at)) {
        eng_report_problem(&o->report, ENG_EIO, "%s: tensor %.200s cannot be read: %s",
                           t->shard->name, t->name,
                           errno ? strerror(errno) : "the file became shorter");
        free(x);
        return NULL;
    }
    eng_widen(t->dtype, (const uint8_t *)x, x, (size_t)n * cols);
    for (size_t i = 0; i < (size_t)n * cols; i++)
        if (!isfinite(x[i])) {
            refuse_tensor(o, t, ENG_EINVAL, "a number is infinite or not a number");
            free(x);
            return NULL;
        }
    return x;
}

/* Whether a tensor is the copy that PEFT writes of an adapted head. */
static bool is_copy_of_head(struct opening *o, const struct eng_tensor *t)
{
    const struct plan_mat *pm = o->sites[o->n_sites - 1].pm;
    const struct eng_tensor *w = pm ? pm->parts[0].weight : NULL;
    size_t n = strlen(t->name), end = strlen("lm_head.base_layer.weight");
    if (!w || n < end || strcmp(t->name + n - end, "lm_head.base_layer.weight") != 0 ||
        !is_float(t) || !is_float(w) || t->shape[0] != w->shape[0] || t->shape[1] != w->shape[1])
        return false;
    bool same = true;
    for (int64_t i = 0; same && i < w->shape[0]; i++) {
        float *x = read_rows(o, t, i, 1), *y = x ? read_rows(o, w, i, 1) : NULL;
        same = y && memcmp(x, y, (size_t)w->shape[1] * sizeof(*x)) == 0;
        free(x);
        free(y);
    }
    return same;
}

static int check_unused(struct opening *o)
{
    for (size_t i = 0; i < o->weights->n_tensors; i++) {
        const struct eng_tensor *t = o->weights->by_name[i];
        if (t->used || is_copy_of_head(o, t)) continue;
        if (o->report.rc) return o->report.rc;
        return refuse_tensor(o, t, ENG_EUNSUPPORTED,
                             "no such pair of an adapted matrix of the model; supported: lora_A "
                             "and lora_B of attention, feed-forward and lm_head");
    }
    return 0;
}

/* ---- packing ------------------------------------------------------------------------------- */

static void shape_mat(const struct opening *o, struct eng_mat *mat, int n_out, int n_in,
                      int n_panels, size_t *used)
{
    mat->fmt = o->m->numerics->keep_source ? KERN_W_F32 : KERN_W_BF16;
    mat->n_out = n_out;
    mat->n_in = n_in;
    mat->k_pad = (n_in + KERN_K_ALIGN - 1) / KERN_K_ALIGN * KERN_K_ALIGN;
    mat->n_panels = n_panels;
    mat->panel_bytes = kern_panel_bytes(mat->fmt, mat->k_pad);
    mat->panels = (uint8_t *)*used; /* an offset until there is an arena */
    *used += (size_t)n_panels * mat->panel_bytes;
}

static int make_arena(struct opening *o, struct eng_lora *lora)
{
    size_t used = 0;
    for (int i = 0; i < o->n_sites; i++) {
        const struct site *s = &o->sites[i];
        struct eng_lora_pair *p = &lora->pairs[i];
        if (s->n_rows == 0) continue;
        const struct eng_mat *mat = s->pm->mat;
        shape_mat(o, &p->a, s->n_rows, mat->n_in, (s->n_rows + KERN_PANEL - 1) / KERN_PANEL, &used);
        shape_mat(o, &p->b, mat->n_out, s->n_rows, mat->n_panels, &used);
        p->factors = (const float *)used;
        used += (size_t)p->a.n_panels * KERN_PANEL * sizeof(float);
    }
    if (used == 0)
        return eng_report_problem(&o->report, ENG_EINVAL, "%s: no pair of tensors is used",
                                  tensors_name);
    struct eng_lora_memory *memory = lora->memory;
    if ((long long)used > memory->whole)
        return eng_report_problem(&o->report, ENG_ENOMEM,
                                  "it takes %lld KiB; --lora-memory is %lld KiB",
                                  (long long)(used >> 10), memory->whole >> 10);
    if (atomic_fetch_sub(&memory->left, (long long)used) < (long long)used) {
        atomic_fetch_add(&memory->left, (long long)used);
        return eng_report_problem(
            &o->report, ENG_EQUEUEFULL, "it takes %lld KiB, and %lld KiB are left of --lora-memory",
            (long long)(used >> 10), (long long)atomic_load(&memory->left) >> 10);
    }
    lora->arena_bytes = used;
    uint8_t *base = lora->arena = eng_arena_map(used);
    if (!base) return eng_report_problem(&o->report, ENG_ENOMEM, "no memory for the adapter");
    for (int i = 0; i < o->n_sites; i++) {
        struct eng_lora_pair *p = &lora->pairs[i];
        p->a.panels = base + (size_t)p->a.panels;
        p->b.panels = base + (size_t)p->b.panels;
        p->factors = (const float *)(const void *)(base + (size_t)p->factors);
    }
    return 0;
}

static void pack(const struct opening *o, const struct eng_mat *mat, int panel,
                 const void *const rows[KERN_PANEL])
{
    o->m->kern->pack_panel(mat->fmt, KERN_SRC_F32, rows, NULL, mat->n_in, mat->k_pad,
                           mat->panels + (size_t)panel * mat->panel_bytes);
}

static void pack_a(const struct opening *o, const struct site *s, const struct eng_lora_pair *p,
                   float *const *data)
{
    float *factors = (float *)p->factors;
    for (int panel = 0; panel < p->a.n_panels; panel++) {
        const void *rows[KERN_PANEL] = {NULL};
        for (int k = 0; k < s->n_targets; k++) {
            const struct target *t = &s->targets[k];
            for (int i = 0; i < t->rank; i++) {
                int row = t->first + i;
                factors[row] = (float)t->factor;
                if (row / KERN_PANEL == panel)
                    rows[row % KERN_PANEL] = data[k] + (size_t)i * (size_t)p->a.n_in;
            }
        }
        pack(o, &p->a, panel, rows);
    }
}

/* Rows in the order of the packed matrix; the file's pairs of RoPE are not the adapter's. */
static bool pack_b(const struct opening *o, const struct site *s, const struct eng_lora_pair *p,
                   float *const *data)
{
    size_t n_in = (size_t)p->b.n_in;
    struct plan_mat pm = *s->pm;
    float *x = malloc(KERN_PANEL * n_in * sizeof(*x));
    if (!x) return false;
    for (int i = 0; !o->m->hp.family->rope_pairs && i < pm.n_parts; i++)
        pm.parts[i].pairs = 0;
    for (int panel = 0; panel < p->b.n_panels; panel++) {
        const void *rows[KERN_PANEL] = {NULL};
        memset(x, 0, KERN_PANEL * n_in * sizeof(*x));
        for (int i = 0; i < KERN_PANEL; i++) {
            int row;
            const struct plan_part *part = eng_plan_row(&pm, panel * KERN_PANEL + i, &row);
            for (int k = 0; part && k < s->n_targets; k++) {
                const struct target *t = &s->targets[k];
                if (t->weight != part->weight) continue;
                size_t rank = (size_t)t->rank;
                float *to = x + (size_t)i * n_in;
                memcpy(to + t->first, data[k] + (size_t)row * rank, rank * sizeof(*x));
                rows[i] = to;
            }
        }
        pack(o, &p->b, panel, rows);
    }
    free(x);
    return true;
}

static void add_hash(struct eng_hash *sum, const char *name, const float *x, size_t n)
{
    struct eng_hash seed = eng_hash_bytes(name, strlen(name), (struct eng_hash){{8, 9}});
    eng_hash_add(sum, eng_hash_bytes(x, n * sizeof(*x), seed));
}

static int pack_site(struct opening *o, const struct site *s, const struct eng_lora_pair *p,
                     struct eng_hash *sum)
{
    float *a[ENG_LORA_TARGETS] = {NULL}, *b[ENG_LORA_TARGETS] = {NULL};
    bool ok = true;
    for (int k = 0; ok && k < s->n_targets; k++) {
        const struct target *t = &s->targets[k];
        a[k] = read_rows(o, t->a, 0, t->a->shape[0]);
        b[k] = a[k] ? read_rows(o, t->b, 0, t->b->shape[0]) : NULL;
        ok = b[k];
        if (!ok) break;
        add_hash(sum, t->a->name, a[k], (size_t)t->a->n_elements);
        add_hash(sum, t->b->name, b[k], (size_t)t->b->n_elements);
    }
    if (ok) pack_a(o, s, p, a);
    if (ok && !pack_b(o, s, p, b))
        eng_report_problem(&o->report, ENG_ENOMEM, "no memory to pack the adapter");
    for (int k = 0; k < s->n_targets; k++) {
        free(a[k]);
        free(b[k]);
    }
    return o->report.rc;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int read_files(struct opening *o, const char *dir, struct eng_hash *sum)
{
    char *text = NULL, err[512];
    size_t len = 0;
    json_error_t at;
    int rc = file_load(dir, config_name, MAX_CONFIG_BYTES, &text, &len, err, sizeof(err));
    if (rc) return eng_report_problem(&o->report, rc, "%s", err);
    *sum = eng_hash_bytes(text, len, (struct eng_hash){{10, 11}});
    o->config = json_loadb(text, len, JSON_REJECT_DUPLICATES, &at);
    free(text);
    if (!json_is_object(o->config))
        return eng_report_problem(&o->report, ENG_EINVAL, "%s/%s is not a JSON object", dir,
                                  config_name);
    rc = check_config(o);
    if (!rc && !file_exists(dir, tensors_name) && file_exists(dir, "adapter_model.bin"))
        return eng_report_problem(&o->report, ENG_EUNSUPPORTED,
                                  "%s has only adapter_model.bin; save it again as safetensors",
                                  dir);
    return rc ? rc : eng_weights_open_file(&o->weights, dir, tensors_name, &o->report);
}

static int find_sites(struct opening *o)
{
    const struct eng_load *load = o->m->load;
    o->n_sites = o->m->hp.n_layers * ENG_LORA_SITES + 1;
    o->sites = calloc((size_t)o->n_sites, sizeof(*o->sites));
    if (!o->sites) return eng_report_problem(&o->report, ENG_ENOMEM, "no memory for the adapter");
    for (int i = 0; i < load->n_mats; i++) {
        int site = eng_lora_site_of(o->m, load->mats[i].mat);
        if (site < 0) continue;
        o->sites[site].pm = &load->mats[i];
        int rc = find_targets(o, &o->sites[site]);
        if (rc) return rc;
    }
    return check_unused(o);
}

static int open_lora(struct opening *o, struct eng_lora *lora, const char *dir)
{
    struct eng_hash sum;
    if (o->m->hp.encoder || !o->m->has_head)
        return eng_report_problem(&o->report, ENG_EUNSUPPORTED,
                                  "adapters of models that make no tokens are not supported");
    int rc = read_files(o, dir, &sum);
    if (!rc) rc = find_sites(o);
    if (rc) return rc;
    lora->pairs = calloc((size_t)o->n_sites, sizeof(*lora->pairs));
    if (!lora->pairs)
        return eng_report_problem(&o->report, ENG_ENOMEM, "no memory for the adapter");
    rc = make_arena(o, lora);
    for (int i = 0; !rc && i < o->n_sites; i++) {
        if (o->sites[i].n_rows == 0) continue;
        rc = pack_site(o, &o->sites[i], &lora->pairs[i], &sum);
        lora->has_down |= i % ENG_LORA_SITES == ENG_LORA_DOWN;
    }
    memcpy(lora->fingerprint, sum.lane, sizeof(lora->fingerprint));
    return rc;
}

int eng_adapter_open(struct eng_lora **ret, const struct eng_model *m, const char *dir,
                     int max_rank, struct eng_lora_memory *memory, char *err, size_t errlen)
{
    struct opening o = {.m = m, .report = {.err = err, .errlen = errlen}, .max_rank = max_rank};
    struct eng_lora *lora = calloc(1, sizeof(*lora));
    if (!lora) return eng_report_problem(&o.report, ENG_ENOMEM, "no memory for the adapter");
    atomic_init(&lora->refs, 1);
    lora->memory = memory;
    int rc = open_lora(&o, lora, dir);
    json_decref(o.config);
    eng_weights_close(o.weights);
    free(o.sites);
    if (rc)
        eng_lora_unref(lora);
    else
        *ret = lora;
    return rc;
}

struct eng_lora *eng_lora_ref(struct eng_lora *lora)
{
    atomic_fetch_add_explicit(&lora->refs, 1, memory_order_relaxed);
    return lora;
}

void eng_lora_unref(struct eng_lora *lora)
{
    if (!lora || atomic_fetch_sub_explicit(&lora->refs, 1, memory_order_acq_rel) > 1) return;
    eng_arena_unmap(lora->arena, lora->arena_bytes);
    atomic_fetch_add(&lora->memory->left, (long long)lora->arena_bytes);
    free(lora->pairs);
    free(lora);
}
