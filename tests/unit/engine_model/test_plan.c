/* SPDX-License-Identifier: MIT */
/*
 * Loading the tiny models of tests/golden/models: where every row and bias lands, formats of each
 * path, a fingerprint that only the contents decide, and refusals.
 */
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/kernels/convert.h"
#include "engine/model/load.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"
#include "engine/model/plan.h"
#include "engine/pool.h"
#include "test.h"

enum { ERR_BYTES = 512, CTX = 100 };

static char dir[512], err[ERR_BYTES];

static const char *fixture(const char *name)
{
    snprintf(dir, sizeof(dir), "%s/tests/golden/models/%s", test_source_root(), name);
    return dir;
}

static int open_model(struct eng_model **m, const char *where, const char *numerics,
                      const char *gemm, int64_t memory)
{
    const struct eng_model_params params = {
        .dir = where,
        .numerics = numerics ? eng_numerics_find(numerics) : NULL,
        .kern = kern_select("auto"),
        .gemm = gemm,
        .memory_bytes = memory,
    };
    err[0] = '\0';
    return eng_model_open(m, &params, err, sizeof(err));
}

static struct eng_model *load(const char *where, const char *numerics, int n_threads)
{
    struct eng_model *m = NULL;
    struct pool *pool = NULL;
    REQUIRE_EQ_INT(pool_create(&pool, n_threads, err, sizeof(err)), 0);
    int rc = open_model(&m, where, numerics, "native", 0);
    REQUIRE_MSG(rc == 0, "%s: %s", where, err);
    int64_t planned = m->weights_bytes;
    rc = eng_model_fill(m, pool, CTX, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s: %s", where, err);
    if (!m->plain) REQUIRE_EQ_INT(m->arena_bytes, m->weights_bytes + eng_model_rope_bytes(m, CTX));
    REQUIRE(m->weights_bytes <= planned);
    REQUIRE(m->load == NULL && (uintptr_t)m->arena % (2 << 20) == 0);
    pool_destroy(pool);
    return m;
}

/* One tensor as f32, read here by other means: the whole file at once. */
static float *read_tensor(const char *where, const char *name, int64_t *ret_cols)
{
    struct eng_report r = {.err = err, .errlen = sizeof(err)};
    struct eng_weights *w = NULL;
    REQUIRE(eng_weights_open(&w, where, &r) == 0);
    const struct eng_tensor *t = eng_weights_find(w, name);
    REQUIRE_MSG(t, "%s", name);
    uint8_t *raw = malloc((size_t)t->n_bytes);
    float *values = malloc((size_t)t->n_elements * sizeof(*values));
    REQUIRE(raw && values);
    REQUIRE(pread(t->shard->fd, raw, (size_t)t->n_bytes, t->shard->data_start + t->offset) ==
            t->n_bytes);
    for (int64_t i = 0; i < t->n_elements; i++) {
        uint16_t half;
        memcpy(&half, raw + 2 * i, 2);
        if (t->dtype == ENG_DTYPE_F32)
            memcpy(&values[i], raw + 4 * i, 4);
        else
            values[i] = t->dtype == ENG_DTYPE_F16 ? kern_f32_of_f16(half) : kern_f32_of_bf16(half);
    }
    *ret_cols = t->rank == 2 ? t->shape[1] : t->shape[0];
    free(raw);
    eng_weights_close(w);
    return values;
}

/* Row `row` of the tensor must be packed row `at`. */
static void check_row(const struct eng_model *m, const struct eng_mat *mat, int at,
                      const float *values, int64_t cols, int row)
{
    float got[512];
    REQUIRE(mat->n_in == cols && cols <= 512);
    m->kern->unpack_row(mat->fmt, mat->panels + (size_t)(at / 32) * mat->panel_bytes, at % 32,
                        mat->n_in, got);
    REQUIRE_MSG(memcmp(got, values + row * cols, (size_t)cols * sizeof(*got)) == 0,
                "packed row %d is not row %d", at, row);
}

static void check_zero_row(const struct eng_model *m, const struct eng_mat *mat, int at)
{
    float got[512];
    m->kern->unpack_row(mat->fmt, mat->panels + (size_t)(at / 32) * mat->panel_bytes, at % 32,
                        mat->n_in, got);
    for (int i = 0; i < mat->n_in; i++)
        REQUIRE(got[i] == 0.0f);
}

/*
 * Rows [0, n) of PREFIX.weight at packed rows place(row), and the bias likewise if there is
 * one.
 */
static void check_part(const struct eng_model *m, const char *where, const char *prefix,
                       const struct eng_mat *mat, int n, int (*place)(int row, int base), int base)
{
    char name[128];
    int64_t cols = 0;
    snprintf(name, sizeof(name), "%s.weight", prefix);
    float *values = read_tensor(where, name, &cols);
    for (int row = 0; row < n; row++)
        check_row(m, mat, place(row, base), values, cols, row);
    free(values);
    if (!mat->bias) return;
    snprintf(name, sizeof(name), "%s.bias", prefix);
    values = read_tensor(where, name, &cols);
    REQUIRE_EQ_INT(cols, n);
    for (int row = 0; row < n; row++)
        REQUIRE(mat->bias[place(row, base)] == values[row]);
    free(values);
}

static int after(int row, int base)
{
    return base + row;
}

static int alternating(int row, int base)
{
    return row / 32 * 64 + base + row % 32;
}

static void check_places(const char *name)
{
    char where[512];
    snprintf(where, sizeof(where), "%s", fixture(name));
    struct eng_model *m = load(where, "exact", 2);
    const struct eng_hparams *hp = &m->hp;
    const struct eng_layer *l = &m->layers[1];
    int n_q = hp->n_heads * hp->d_head, n_kv = hp->n_kv_heads * hp->d_head;
    check_part(m, where, "model.layers.1.self_attn.q_proj", &l->qkv, n_q, after, 0);
    check_part(m, where, "model.layers.1.self_attn.k_proj", &l->qkv, n_kv, after, n_q);
    check_part(m, where, "model.layers.1.self_attn.v_proj", &l->qkv, n_kv, after, n_q + n_kv);
    for (int i = n_q + 2 * n_kv; i < 32 * l->qkv.n_panels; i++)
        check_zero_row(m, &l->qkv, i);
    check_part(m, where, "model.layers.1.self_attn.o_proj", &l->o, hp->d_model, after, 0);
    check_part(m, where, "model.layers.1.mlp.gate_proj", &l->gate_up, hp->d_ff, alternating, 0);
    check_part(m, where, "model.layers.1.mlp.up_proj", &l->gate_up, hp->d_ff, alternating, 32);
    check_zero_row(m, &l->gate_up, 64 + hp->d_ff - 32);
    check_part(m, where, "model.layers.1.mlp.down_proj", &l->down, hp->d_model, after, 0);
    check_part(m, where, "model.embed_tokens", &m->embed, hp->vocab, after, 0);
    if (hp->tied)
        REQUIRE(m->head.panels == m->embed.panels);
    else
        check_part(m, where, "lm_head", &m->head, hp->vocab, after, 0);
    int64_t cols = 0;
    float *norm = read_tensor(where, "model.layers.1.post_attention_layernorm.weight", &cols);
    REQUIRE(memcmp(norm, l->ffn_norm, (size_t)cols * sizeof(*norm)) == 0);
    free(norm);
    eng_model_close(m);
}

/* The packed row of row `row` of heads of 16 whose first 8 rows turn in pairs. */
static int paired(int row, int base)
{
    int in_head = row % 16;
    if (in_head < 8) row += in_head % 2 ? 4 + in_head / 2 - in_head : -in_head / 2;
    return base + row;
}

/* Row `row` of a tensor of 40 gate rows, then 40 up rows, in panels that alternate. */
static int gate_up_place(int row, int base)
{
    return alternating(row % 40, base + row / 40 * 32);
}

/* Tensors that hold several parts, and rows that RoPE turns in pairs, with their biases. */
static void test_fused_and_paired(void **state)
{
    (void)state;
    char where[512];
    snprintf(where, sizeof(where), "%s", fixture("glm4-bf16"));
    struct eng_model *m = load(where, "exact", 1);
    const struct eng_layer *l = &m->layers[1];
    REQUIRE(l->qkv.bias && l->attn_post && l->ffn_post);
    check_part(m, where, "model.layers.1.self_attn.q_proj", &l->qkv, 64, paired, 0);
    check_part(m, where, "model.layers.1.self_attn.k_proj", &l->qkv, 32, paired, 64);
    check_part(m, where, "model.layers.1.self_attn.v_proj", &l->qkv, 32, after, 96);
    check_part(m, where, "model.layers.1.mlp.gate_up_proj", &l->gate_up, 80, gate_up_place, 0);
    eng_model_close(m);

    snprintf(where, sizeof(where), "%s", fixture("phi3-longrope-bf16"));
    m = load(where, "exact", 1);
    l = &m->layers[1];
    check_part(m, where, "model.layers.1.self_attn.qkv_proj", &l->qkv, 128, after, 0);
    eng_model_close(m);
}

/* (1 + w), and the scales that vanish at load. */
static void test_vectors(void **state)
{
    (void)state;
    char where[512];
    int64_t n;
    snprintf(where, sizeof(where), "%s", fixture("gemma3-windows-bf16"));
    struct eng_model *m = load(where, "exact", 1);
    float *w = read_tensor(where, "model.norm.weight", &n);
    for (int i = 0; i < n; i++)
        REQUIRE(m->final_norm[i] == w[i] + 1.0f);
    REQUIRE(m->head_norm == m->final_norm && m->embed_scale == sqrtf(32.0f));
    REQUIRE(m->layers[0].rope_cos != m->layers[2].rope_cos);
    free(w);
    eng_model_close(m);
    m = load(where, "int8", 1);
    REQUIRE(m->embed_scale == 5.65625f); /* sqrt(32) in bf16 */
    eng_model_close(m);

    snprintf(where, sizeof(where), "%s", fixture("granite-bias-bf16"));
    m = load(where, "exact", 1);
    w = read_tensor(where, "model.norm.weight", &n);
    for (int i = 0; i < n; i++)
        REQUIRE(m->final_norm[i] == w[i] && m->head_norm[i] == w[i] * (float)(1 / 1.7));
    REQUIRE(m->embed_scale == (float)(12 / 0.22));
    REQUIRE(fabs(m->stream_eps - 1e-2 / (0.22 * 0.22)) < 1e-9);
    free(w);
    eng_model_close(m);
}

static void test_places(void **state)
{
    (void)state;
    check_places("llama-bias-tied-f32");
    check_places("llama-mixed-shards"); /* parts of three dtypes in one matrix, odd offsets */
    check_places("llama-dynamic-f16");
    check_places("qwen2-window-bf16");
}

static enum kern_wfmt kept_as(const struct eng_model *m, enum kern_wfmt fmt)
{
    return fmt == KERN_W_BF16 && m->kern->prefers_b12 ? KERN_W_B12 : fmt;
}

static void test_formats(void **state)
{
    (void)state;
    static const struct {
        const char *model, *numerics;
        enum kern_wfmt matrix, head, embed;
    } rows[] = {
        {"llama-yarn-bf16", "exact", KERN_W_BF16, KERN_W_BF16, KERN_W_BF16},
        {"llama-yarn-bf16", "bf16", KERN_W_BF16, KERN_W_BF16, KERN_W_BF16},
        {"llama-yarn-bf16", "int8", KERN_W_I8, KERN_W_I8, KERN_W_BF16},
        {"llama-yarn-bf16", "int4", KERN_W_I5K, KERN_W_I6S, KERN_W_BF16},
        {"qwen2-window-bf16", "int4", KERN_W_I5K, KERN_W_I6S, KERN_W_I6S}, /* tied */
        {"llama-dynamic-f16", "exact", KERN_W_F16, KERN_W_F16, KERN_W_F16},
        {"llama-dynamic-f16", "bf16", KERN_W_BF16, KERN_W_BF16, KERN_W_F16},
        {"llama-mixed-shards", "exact", KERN_W_F32, KERN_W_F16, KERN_W_F32}, /* parts differ */
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct eng_model *m = load(fixture(rows[i].model), rows[i].numerics, 1);
        REQUIRE_EQ_INT(m->layers[0].qkv.fmt, kept_as(m, rows[i].matrix));
        REQUIRE_EQ_INT(m->head.fmt, kept_as(m, rows[i].head));
        REQUIRE_EQ_INT(m->embed.fmt, kept_as(m, rows[i].embed));
        REQUIRE_EQ_INT(m->layers[0].qkv.panel_bytes,
                       kern_panel_bytes(kept_as(m, rows[i].matrix), m->layers[0].qkv.k_pad));
        eng_model_close(m);
    }
}

/* Packed row `at` is row `row` of a tensor, within half a step of the largest of 31 a group. */
static void check_five_bits(const struct eng_model *m, const struct eng_mat *mat, int at,
                            const char *model, const char *tensor, int row)
{
    int64_t cols;
    float *values = read_tensor(fixture(model), tensor, &cols), got[512];
    REQUIRE(mat->n_in == cols && cols <= 512 && cols % KERN_GROUP == 0);
    m->kern->unpack_row(KERN_W_I5K, mat->panels + eng_mat_offset(mat, at / KERN_PANEL),
                        at % KERN_PANEL, mat->n_in, got);
    for (int64_t k = 0; k < cols; k += KERN_GROUP) {
        float lo = 0, hi = 0;
        for (int i = 0; i < KERN_GROUP; i++) {
            lo = fminf(lo, values[row * cols + k + i]);
            hi = fmaxf(hi, values[row * cols + k + i]);
        }
        for (int i = 0; i < KERN_GROUP; i++)
            REQUIRE(fabsf(got[k + i] - values[row * cols + k + i]) < (hi - lo) / 31);
    }
    free(values);
}

/* With int4, keys, values, what adds to the stream and the first and last layer have five bits. */
static void test_fine_panels(void **state)
{
    (void)state;
    static const char name[] = "qwen3-types-bf16";
    struct eng_model *m = load(fixture(name), "int4", 2);
    REQUIRE_EQ_INT(m->hp.n_layers, 3);
    const struct eng_mat *qkv = &m->layers[1].qkv;
    int n_q = m->hp.n_heads * m->hp.d_head, n_kv = m->hp.n_kv_heads * m->hp.d_head;
    int first = n_q / KERN_PANEL;
    REQUIRE_EQ_INT(qkv->fmt, KERN_W_I4K);
    REQUIRE_EQ_INT(qkv->n_fine, qkv->n_panels - first);
    REQUIRE(first > 0 && !eng_mat_is_fine(qkv, first - 1) && eng_mat_is_fine(qkv, first));
    REQUIRE_EQ_INT(eng_mat_offset(qkv, qkv->n_panels),
                   (size_t)first * kern_panel_bytes(KERN_W_I4K, qkv->k_pad) +
                       (size_t)qkv->n_fine * kern_panel_bytes(KERN_W_I5K, qkv->k_pad));
    check_five_bits(m, qkv, n_q, name, "model.layers.1.self_attn.k_proj.weight", 0);
    check_five_bits(m, qkv, n_q + n_kv + 3, name, "model.layers.1.self_attn.v_proj.weight", 3);
    check_five_bits(m, &m->layers[0].o, 5, name, "model.layers.0.self_attn.o_proj.weight", 5);
    REQUIRE_EQ_INT(m->layers[1].gate_up.fmt, KERN_W_I4K);
    REQUIRE_EQ_INT(m->layers[1].o.fmt, KERN_W_I5K);
    REQUIRE_EQ_INT(m->layers[1].down.fmt, KERN_W_I5K);
    REQUIRE_EQ_INT(m->layers[1].down.n_fine, 0);
    for (int i = 0; i < 3; i += 2) {
        REQUIRE_EQ_INT(m->layers[i].qkv.fmt, KERN_W_I5K);
        REQUIRE_EQ_INT(m->layers[i].qkv.n_fine, 0);
        REQUIRE_EQ_INT(m->layers[i].gate_up.fmt, KERN_W_I5K);
    }
    eng_model_close(m);
}

static void test_defaults(void **state)
{
    (void)state;
    struct eng_model *m = NULL;
    REQUIRE_EQ_INT(open_model(&m, fixture("llama-yarn-bf16"), NULL, "auto", 0), 0);
    REQUIRE_EQ_STR(m->numerics->name, kern_select("auto")->fast_bf16 ? "bf16" : "exact");
    REQUIRE_EQ_STR(m->weights_dtype, "BF16");
    eng_model_close(m);
    REQUIRE_EQ_INT(open_model(&m, fixture("llama-mixed-shards"), NULL, "auto", 0), 0);
    REQUIRE_EQ_STR(m->numerics->name, "exact");
    REQUIRE_EQ_STR(m->weights_dtype, "mixed");
    eng_model_close(m);
    REQUIRE_EQ_INT(open_model(&m, fixture("llama-yarn-bf16"), NULL, "blas", 0), 0);
    REQUIRE_EQ_STR(m->numerics->name, "exact");
    REQUIRE(m->layers[0].qkv.use_blas && m->head.use_blas && !m->embed.use_blas);
    eng_model_close(m);
    eng_model_close(NULL);
    REQUIRE(eng_numerics_find("fp8") == NULL);
}

static void test_refusals(void **state)
{
    (void)state;
    struct eng_model *m = NULL;
    REQUIRE_EQ_INT(open_model(&m, fixture("llama-yarn-bf16"), "bf16", "blas", 0), ENG_EUNSUPPORTED);
    REQUIRE_MSG(strstr(err, "--gemm blas needs --numerics exact"), "%s", err);
    REQUIRE_EQ_INT(open_model(&m, fixture("llama-yarn-bf16"), "exact", "native", 1000), ENG_ENOMEM);
    REQUIRE_MSG(strstr(err, "memory limit"), "%s", err);
    REQUIRE_EQ_INT(open_model(&m, "/nonexistent", "exact", "native", 0), ENG_ENOENT);
    REQUIRE_MSG(strstr(err, "/nonexistent/config.json"), "%s", err);
    REQUIRE(m == NULL);
}

/* The fingerprint is that of the files, however they were packed. */
static void test_fingerprint(void **state)
{
    (void)state;
    uint8_t first[16];
    static const char *const paths[] = {"exact", "bf16", "int8", "int4"};
    for (int i = 0; i < 4; i++) {
        struct eng_model *m = load(fixture("llama-mixed-shards"), paths[i], 1 + i % 3);
        if (i == 0) memcpy(first, m->fingerprint, sizeof(first));
        REQUIRE_MSG(memcmp(first, m->fingerprint, sizeof(first)) == 0, "%s", paths[i]);
        eng_model_close(m);
    }
    struct eng_model *other = load(fixture("llama-yarn-bf16"), "exact", 2);
    REQUIRE(memcmp(first, other->fingerprint, sizeof(first)) != 0);
    eng_model_close(other);
}

/* Panels do not depend on the number of threads either. */
static void test_threads(void **state)
{
    (void)state;
    struct eng_model *a = load(fixture("qwen3-types-bf16"), "int8", 1);
    struct eng_model *b = load(fixture("qwen3-types-bf16"), "int8", 3);
    REQUIRE_EQ_INT(a->arena_bytes, b->arena_bytes);
    REQUIRE(memcmp(a->arena, b->arena, a->arena_bytes) == 0);
    eng_model_close(a);
    eng_model_close(b);
}

static void test_rope_tables(void **state)
{
    (void)state;
    struct eng_model *m = load(fixture("llama-dynamic-f16"), "exact", 3);
    int half = m->hp.d_head / 2;
    REQUIRE_EQ_INT(m->ctx, CTX);
    for (int pos = 0; pos < CTX; pos++) {
        for (int i = 0; i < half; i++) {
            double angle = pos * pow(10000.0, -2.0 * i / m->hp.d_head);
            REQUIRE(fabs((double)m->layers[0].rope_cos[pos * half + i] - cos(angle)) < 1e-7);
            REQUIRE(fabs((double)m->layers[0].rope_sin[pos * half + i] - sin(angle)) < 1e-7);
        }
    }
    eng_model_close(m);
}

/* ---- files that change --------------------------------------------------------------------- */

static void copy_file(const char *from_dir, const char *to_dir, const char *name)
{
    char path[1024];
    static uint8_t data[1 << 20];
    snprintf(path, sizeof(path), "%s/%s", from_dir, name);
    FILE *f = fopen(path, "rb");
    REQUIRE(f);
    size_t n = fread(data, 1, sizeof(data), f);
    fclose(f);
    snprintf(path, sizeof(path), "%s/%s", to_dir, name);
    f = fopen(path, "wb");
    REQUIRE(f && fwrite(data, 1, n, f) == n);
    REQUIRE(fclose(f) == 0);
}

static const char *const copied_files[] = {"model.safetensors", "config.json"};

/* A copy of a model in a directory of its own, whose template becomes its name. */
static void make_copy(char *template, const char *from)
{
    REQUIRE(mkdtemp(template));
    for (size_t i = 0; i < N_OF(copied_files); i++)
        copy_file(from, template, copied_files[i]);
}

static void remove_copy(const char *copy)
{
    char path[1024];
    for (size_t i = 0; i < N_OF(copied_files); i++) {
        snprintf(path, sizeof(path), "%s/%s", copy, copied_files[i]);
        unlink(path);
    }
    REQUIRE(rmdir(copy) == 0);
}

/*
 * One bit of a weight is another fingerprint; a file cut between opening and filling is an error.
 */
static void test_changing_file(void **state)
{
    (void)state;
    char copy[] = "/tmp/hearth-test-load-XXXXXX", weights[64];
    make_copy(copy, fixture("llama-yarn-bf16"));
    snprintf(weights, sizeof(weights), "%s/model.safetensors", copy);

    struct eng_model *m = load(copy, "exact", 2), *cut = NULL;
    uint8_t before[16], byte;
    memcpy(before, m->fingerprint, sizeof(before));
    eng_model_close(m);
    int fd = open(weights, O_RDWR);
    struct stat st;
    REQUIRE(fd >= 0 && fstat(fd, &st) == 0);
    REQUIRE(pread(fd, &byte, 1, st.st_size - 100) == 1);
    byte ^= 1;
    REQUIRE(pwrite(fd, &byte, 1, st.st_size - 100) == 1);
    m = load(copy, "exact", 2);
    REQUIRE(memcmp(before, m->fingerprint, sizeof(before)) != 0);
    eng_model_close(m);

    struct pool *pool = NULL;
    REQUIRE_EQ_INT(pool_create(&pool, 2, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(open_model(&cut, copy, "exact", "native", 0), 0);
    REQUIRE(ftruncate(fd, st.st_size - 1000) == 0);
    REQUIRE_EQ_INT(eng_model_fill(cut, pool, CTX, err, sizeof(err)), ENG_EIO);
    REQUIRE_MSG(strstr(err, "model.safetensors: tensor ") && strstr(err, "became shorter"), "%s",
                err);
    eng_model_close(cut);
    pool_destroy(pool);
    close(fd);
    remove_copy(copy);
}

/* Fills a tensor of a file with finite numbers of every size. */
static void make_odd(const char *where, const char *name)
{
    struct eng_report r = {.err = err, .errlen = sizeof(err)};
    struct eng_weights *w = NULL;
    REQUIRE(eng_weights_open(&w, where, &r) == 0);
    const struct eng_tensor *t = eng_weights_find(w, name);
    char path[1024];
    snprintf(path, sizeof(path), "%s/model.safetensors", where);
    int fd = open(path, O_WRONLY);
    REQUIRE(t && fd >= 0);
    uint32_t state = 1;
    for (int64_t i = 0; i < t->n_elements; i++) {
        state = state * 1664525 + 1013904223;
        uint16_t word = (uint16_t)(state >> 16 & 0xbfff); /* below 2 */
        REQUIRE(pwrite(fd, &word, 2, t->shard->data_start + t->offset + 2 * i) == 2);
    }
    close(fd);
    eng_weights_close(w);
}

/* A matrix whose weights do not fit 12 bits stays BF16, and only it. */
static void test_odd_weights(void **state)
{
    (void)state;
    char copy[] = "/tmp/hearth-test-odd-XXXXXX";
    make_copy(copy, fixture("llama-yarn-bf16"));
    struct eng_model *plain = load(copy, "bf16", 2);
    REQUIRE(!plain->plain);
    make_odd(copy, "model.layers.1.mlp.up_proj.weight");
    for (int n_threads = 1; n_threads <= 3; n_threads += 2) {
        struct eng_model *m = load(copy, "bf16", n_threads);
        const struct eng_layer *l = &m->layers[1];
        if (m->kern->prefers_b12) REQUIRE(m->plain && m->weights_bytes > plain->weights_bytes);
        REQUIRE_EQ_INT(l->gate_up.fmt, KERN_W_BF16);
        REQUIRE_EQ_INT(l->down.fmt, kept_as(m, KERN_W_BF16));
        REQUIRE_EQ_INT(m->layers[0].gate_up.fmt, kept_as(m, KERN_W_BF16));
        check_part(m, copy, "model.layers.1.mlp.gate_proj", &l->gate_up, m->hp.d_ff, alternating,
                   0);
        check_part(m, copy, "model.layers.1.mlp.up_proj", &l->gate_up, m->hp.d_ff, alternating, 32);
        check_part(m, copy, "model.layers.1.mlp.down_proj", &l->down, m->hp.d_model, after, 0);
        check_part(m, copy, "model.embed_tokens", &m->embed, m->hp.vocab, after, 0);
        eng_model_close(m);
    }
    eng_model_close(plain);
    remove_copy(copy);
}

struct counts {
    int problems, configs, tensors, unused, paths, defaults;
    int64_t n_params;
};

static void count_problem(void *ctx, const char *sentence)
{
    struct counts *n = ctx;
    REQUIRE(*sentence && !strchr(sentence, '\n'));
    n->problems++;
}

static void count_config(void *ctx, const struct eng_inspect_config *c)
{
    struct counts *n = ctx;
    n->configs++;
    REQUIRE_EQ_STR(c->architecture, "LlamaForCausalLM");
    REQUIRE(c->n_layers > 0 && c->d_head > 0 && c->tied_head && c->n_eos_ids >= 0);
}

static void count_tensor(void *ctx, const struct eng_inspect_tensor *t)
{
    struct counts *n = ctx;
    n->tensors++;
    n->unused += !t->used;
    REQUIRE(t->rank > 0 && t->shape[0] > 0 && t->n_bytes > 0);
    REQUIRE_EQ_STR(t->file, "model.safetensors");
}

static void note_weights(void *ctx, int64_t n_params, const char *dtype)
{
    ((struct counts *)ctx)->n_params = n_params;
    REQUIRE_EQ_STR(dtype, "F32");
}

static void count_path(void *ctx, const struct eng_inspect_path *p)
{
    struct counts *n = ctx;
    n->paths++;
    n->defaults += p->is_default;
    REQUIRE(p->weights_bytes > 0);
}

static void test_inspect(void **state)
{
    (void)state;
    struct counts n = {0};
    const struct eng_inspector in = {count_problem, count_config, count_tensor,
                                     note_weights,  count_path,   &n};
    REQUIRE_EQ_INT(eng_inspect(fixture("llama-bias-tied-f32"), &in), 0);
    REQUIRE(n.configs == 1 && n.problems == 0 && n.n_params > 0);
    REQUIRE_EQ_INT(n.unused, 2); /* old frequencies, and a head with tied embeddings */
    REQUIRE_MSG(n.tensors > 20, "%d tensors", n.tensors);
    REQUIRE_EQ_INT(n.paths, 4);
    REQUIRE_EQ_INT(n.defaults, 1);
    REQUIRE(eng_inspect("/nonexistent", &in) < 0);
    REQUIRE_EQ_INT(n.problems, 2); /* neither configuration nor weights */
    REQUIRE(eng_inspect("/nonexistent", &(struct eng_inspector){0}) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),        cmocka_unit_test(test_fused_and_paired),
        cmocka_unit_test(test_vectors),       cmocka_unit_test(test_formats),
        cmocka_unit_test(test_fine_panels),   cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_rope_tables),
        cmocka_unit_test(test_changing_file), cmocka_unit_test(test_odd_weights),
        cmocka_unit_test(test_inspect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
