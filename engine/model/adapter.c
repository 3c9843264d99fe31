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
#include "engine/kernels/convert.h"
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
    const struct plan_mat *pm;                    /* NULL: the model has none */
    struct plan_mat packed;                       /* the same, with rows in the adapter's order */
    struct plan_part parts[ENG_LORA_TARGETS + 1]; /* its own */
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
    float *x; /* [x_size]: rows that are read */
    size_t x_size;
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
    if (!is_float(a) || a->shape[0] != (int64_t)rank || a->shape[1] != weight->shape[1] ||
        a->shape[1] % 2)
        return refuse_tensor(o, a, ENG_EINVAL,
                             "it must be [rank, inputs of the base, an even number] of F32, "
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

/* Rows of a tensor as finite f32, in memory of the opening; NULL: reported. */
static const float *read_rows(struct opening *o, const struct eng_tensor *t, int64_t row, int64_t n)
{
    size_t cols = (size_t)t->shape[1], bytes = (size_t)eng_dtype_bytes(t->dtype, t->shape[1]);
    size_t size = (size_t)n * cols;
    uint32_t largest = 0;
    if (size > o->x_size) {
        free(o->x);
        o->x = malloc(size * sizeof(*o->x));
        o->x_size = o->x ? size : 0;
    }
    if (!o->x) {
        eng_report_problem(&o->report, ENG_ENOMEM, "no memory to read %.200s", t->name);
        return NULL;
    }
    int64_t at = t->shard->data_start + t->offset + row * (int64_t)bytes;
    if (file_pread(t->shard->fd, o->x, (size_t)n * bytes, at)) {
        eng_report_problem(&o->report, ENG_EIO, "%s: tensor %.200s cannot be read: %s",
                           t->shard->name, t->name,
                           errno ? strerror(errno) : "the file became shorter");
        return NULL;
    }
    eng_widen(t->dtype, (const uint8_t *)o->x, o->x, size);
    for (size_t i = 0; i < size; i++) {
        uint32_t magnitude = kern_bits(o->x[i]) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    if (largest < 0x7f800000) return o->x;
    refuse_tensor(o, t, ENG_EINVAL, "a number is infinite or not a number");
    return NULL;
}

static void add_hash(struct eng_hash *sum, const char *name, const float *x, size_t n)
{
    struct eng_hash seed = eng_hash_bytes(name, strlen(name), (struct eng_hash){{8, 9}});
    eng_hash_add(sum, eng_hash_bytes(x, n * sizeof(*x), seed));
}

/* Whether two tensors of one shape have the same rows, up to the first that differs. */
static bool same_rows(struct opening *o, const struct eng_tensor *t, const struct eng_tensor *w)
{
    size_t bytes = (size_t)t->shape[1] * sizeof(float);
    float *copy = malloc(bytes);
    if (!copy) eng_report_problem(&o->report, ENG_ENOMEM, "no memory to read %.200s", t->name);
    bool same = copy;
    for (int64_t i = 0; same && i < t->shape[0]; i++) {
        const float *x = read_rows(o, t, i, 1);
        if (x) memcpy(copy, x, bytes);
        x = x ? read_rows(o, w, i, 1) : NULL;
        same = x && memcmp(copy, x, bytes) == 0;
    }
    free(copy);
    return same;
}

/* Whether a tensor is the copy that PEFT writes of an adapted head. */
static bool is_copy_of_head(struct opening *o, const struct eng_tensor *t)
{
    const struct plan_mat *pm = o->sites[o->n_sites - 1].pm;
    const struct eng_tensor *w = pm ? pm->parts[0].weight : NULL;
    size_t n = strlen(t->name), end = strlen("lm_head.base_layer.weight");
    return w && n >= end && strcmp(t->name + n - end, "lm_head.base_layer.weight") == 0 &&
           is_float(t) && is_float(w) && t->shape[0] == w->shape[0] && t->shape[1] == w->shape[1] &&
           same_rows(o, t, w);
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

static size_t take(struct eng_lora *lora, size_t bytes)
{
    size_t at = lora->arena_bytes;
    lora->arena_bytes += bytes;
    return at;
}

/* Numbers k .. k + n_k - 1 of output n. */
static void put(struct eng_lora *lora, size_t panels, int k_end, int n, int k, const float *x,
                int n_k)
{
    bool wide = lora->fmt == KERN_W_F32;
    size_t first = kern_narrow_at(lora->fmt, k_end, n, 0), odd = wide ? KERN_NARROW : 1;
    void *to = lora->arena + panels;
    for (size_t i = 0, at = (size_t)k; i < (size_t)n_k; i++, at++) {
        size_t place = first + at / 2 * 2 * KERN_NARROW + at % 2 * odd;
        if (wide)
            ((float *)to)[place] = x[i];
        else
            ((uint16_t *)to)[place] = kern_bf16_of_f32(x[i]);
    }
}

/* The target that gives row `row` of the packed matrix, *ret its row; NULL: none does. */
static const struct target *target_of(const struct site *s, int row, int *ret)
{
    const struct plan_part *part = eng_plan_row(&s->packed, row, ret);
    for (int k = 0; part && k < s->n_targets; k++)
        if (s->targets[k].weight == part->weight) return &s->targets[k];
    return NULL;
}

/* The columns of u that a panel of the matrix gets. */
static struct eng_lora_panel columns_of(const struct site *s, int panel)
{
    struct eng_lora_panel p = {.n = 0};
    for (int i = 0; i < KERN_PANEL; i++) {
        int row;
        const struct target *t = target_of(s, panel * KERN_PANEL + i, &row);
        if (!t) continue;
        int first = p.n && p.first < t->first ? p.first : t->first;
        int end = p.first + p.n > t->first + t->rank ? p.first + p.n : t->first + t->rank;
        p.first = first;
        p.n = (end - first + 1) / 2 * 2;
    }
    return p;
}

/* Sizes and places of everything. */
static int shape(struct opening *o, struct eng_lora *lora)
{
    int n_panels = 0;
    for (int i = 0; i < o->n_sites; i++)
        n_panels += o->sites[i].n_rows ? o->sites[i].pm->mat->n_panels : 0;
    if (n_panels == 0)
        return eng_report_problem(&o->report, ENG_EINVAL, "%s: no pair of tensors is used",
                                  tensors_name);
    struct eng_lora_panel *panel = lora->panels = malloc((size_t)n_panels * sizeof(*panel));
    if (!panel) return eng_report_problem(&o->report, ENG_ENOMEM, "no memory for the adapter");
    for (int i = 0; i < o->n_sites; i++) {
        struct site *s = &o->sites[i];
        struct eng_lora_pair *p = &lora->pairs[i];
        if (s->n_rows == 0) continue;
        const struct eng_mat *mat = s->pm->mat;
        int n_u = (s->n_rows + KERN_NARROW - 1) / KERN_NARROW * KERN_NARROW;
        *p = (struct eng_lora_pair){mat->n_in, n_u, mat->n_panels, .panels = panel};
        p->a = take(lora, eng_lora_bytes(lora, mat->n_in, n_u));
        p->factors = take(lora, (size_t)n_u * sizeof(float));
        for (int k = 0; k < mat->n_panels; k++, panel++) {
            *panel = columns_of(s, k);
            panel->b = take(lora, eng_lora_bytes(lora, panel->n, KERN_PANEL));
        }
    }
    return 0;
}

static int make_arena(struct opening *o, struct eng_lora *lora)
{
    struct eng_lora_memory *memory = lora->memory;
    long long used = (long long)lora->arena_bytes;
    if (used > memory->whole)
        return eng_report_problem(&o->report, ENG_ENOMEM,
                                  "it takes %lld KiB; --lora-memory is %lld KiB", used >> 10,
                                  memory->whole >> 10);
    if (atomic_fetch_sub(&memory->left, used) < used) {
        atomic_fetch_add(&memory->left, used);
        return eng_report_problem(&o->report, ENG_EQUEUEFULL,
                                  "it takes %lld KiB, and %lld KiB are left of --lora-memory",
                                  used >> 10, (long long)atomic_load(&memory->left) >> 10);
    }
    lora->charged = used;
    lora->arena = eng_arena_map(lora->arena_bytes);
    return lora->arena ? 0
                       : eng_report_problem(&o->report, ENG_ENOMEM, "no memory for the adapter");
}

static int pack_target(struct opening *o, const struct site *s, const struct target *t,
                       struct eng_lora *lora, const struct eng_lora_pair *p, struct eng_hash *sum)
{
    float *factors = (float *)(void *)(lora->arena + p->factors);
    const float *x = read_rows(o, t->a, 0, t->rank);
    if (!x) return o->report.rc;
    add_hash(sum, t->a->name, x, (size_t)t->a->n_elements);
    for (int i = 0; i < t->rank; i++) {
        factors[t->first + i] = (float)t->factor;
        put(lora, p->a, p->n_in, t->first + i, 0, x + (size_t)i * (size_t)p->n_in, p->n_in);
    }
    x = read_rows(o, t->b, 0, t->b->shape[0]);
    if (!x) return o->report.rc;
    add_hash(sum, t->b->name, x, (size_t)t->b->n_elements);
    for (int i = 0; i < s->pm->mat->n_panels * KERN_PANEL; i++) {
        const struct eng_lora_panel *to = &p->panels[i / KERN_PANEL];
        int row;
        if (i % KERN_PANEL == 0 && (t->first < to->first || t->first >= to->first + to->n))
            i += KERN_PANEL - 1; /* a panel of other targets */
        else if (target_of(s, i, &row) == t)
            put(lora, to->b, to->n, i % KERN_PANEL, t->first - to->first,
                x + (size_t)row * (size_t)t->rank, t->rank);
    }
    return 0;
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
        struct site *s = &o->sites[site];
        s->pm = &load->mats[i];
        s->packed = *s->pm;
        s->packed.parts =
            memcpy(s->parts, s->pm->parts, (size_t)s->pm->n_parts * sizeof(*s->parts));
        for (int k = 0; !o->m->hp.family->rope_pairs && k < s->pm->n_parts; k++)
            s->packed.parts[k].pairs = 0; /* those of RoPE in the file are not the adapter's */
        int rc = find_targets(o, s);
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
    rc = shape(o, lora);
    if (!rc) rc = make_arena(o, lora);
    for (int i = 0; !rc && i < o->n_sites; i++) {
        const struct site *s = &o->sites[i];
        for (int k = 0; !rc && k < s->n_targets; k++)
            rc = pack_target(o, s, &s->targets[k], lora, &lora->pairs[i], &sum);
        lora->has_down |= s->n_rows && i % ENG_LORA_SITES == ENG_LORA_DOWN;
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
    lora->fmt = m->numerics->keep_source ? KERN_W_F32 : KERN_W_BF16;
    int rc = open_lora(&o, lora, dir);
    json_decref(o.config);
    eng_weights_close(o.weights);
    free(o.sites);
    free(o.x);
    if (rc)
        eng_lora_close(lora);
    else
        *ret = lora;
    return rc;
}

struct eng_lora *eng_lora_share(struct eng_lora *lora)
{
    atomic_fetch_add_explicit(&lora->refs, 1, memory_order_relaxed);
    return lora;
}

void eng_lora_close(struct eng_lora *lora)
{
    if (!lora || atomic_fetch_sub_explicit(&lora->refs, 1, memory_order_acq_rel) > 1) return;
    eng_arena_unmap(lora->arena, lora->arena_bytes);
    atomic_fetch_add(&lora->memory->left, lora->charged);
    free(lora->pairs);
    free(lora->panels);
    free(lora);
}
