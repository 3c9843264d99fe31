/* SPDX-License-Identifier: MIT */
/*
 * The forward pass: near a plain double-precision transformer, and the same bits for a row whatever
 * the cutting of its prompt, the neighbours, the threads; at every kernel level that runs here, for
 * every numeric path, and through BLAS.
 */
#include "engine/model/heads.h"
#include "engine/forward.h"

#include <limits.h>

#include "engine/draft.h"
#include "engine/gemm.h"
#include "engine/gemm_blas.h"
#include "engine/key_centre.h"
#include "engine/kv/kv.h"
#include "engine/model/numerics.h"
#include "engine/pool.h"
#include "engine/state.h"
#include "synth_model.h"
#include "test.h"

enum { MAX_ROWS = 96, MAX_SEGS = 8, MAX_THREADS = 3, N_PAGES = 160, LONG = 1060, SHORT = 45 };

/* Shapes: even and odd sizes, groups of 1 to 16 query heads, and each family's peculiarity. */
static const struct synth_shape shapes[] = {
    {"llama", 2, 64, 6, 2, 16, 96, 100, .tied = true, .nope_layer = -1},
    {"odd sizes, biases", 2, 40, 4, 4, 24, 70, 97, .bias = true, .nope_layer = -1},
    {"one kv head for 16", 1, 64, 16, 1, 8, 64, 64, .nope_layer = -1},
    {"q and k norms, window", 3, 64, 4, 2, 40, 64, 64, .qk_norm = true, .tied = true, .window = 37,
     .nope_layer = -1},
    {"layer without rope, long window", 2, 32, 2, 1, 32, 64, 33, .bias = true, .window = 600,
     .nope_layer = 1},
    {"convolutions", 4, 288, 4, 2, 24, 64, 64, .qk_norm = true, .nope_layer = -1, .n_taps = 3},
    {"all of the last 8 tokens, biases", 3, 40, 2, 1, 64, 64, 40, .bias = true, .nope_layer = -1,
     .n_taps = 8},
    {"delta nets of 40 values, gated attention", 3, 96, 4, 2, 24, 64, 64, .qk_norm = true,
     .nope_layer = -1, .n_taps = 4, .delta = {2, 4, 16, 40}},
    {"delta nets alone, key heads of their own", 1, 32, 2, 1, 32, 64, 40, .nope_layer = -1,
     .n_taps = 2, .delta = {3, 3, 9, 8}},
};

/*
 * Paths, and how far their logits may be from the reference: relative to the reference's spread.
 * Twice that with delta nets, which norm what little the first tokens leave in a state.
 */
static const struct {
    struct eng_numerics n;
    double bound;
} paths[] = {
    {{"exact", KERN_A_F32, true, false, KERN_W_F32, KERN_W_F32, KERN_W_F32, KERN_KV_F32}, 2e-5},
    {{"exact-bf16w", KERN_A_F32, true, false, KERN_W_BF16, KERN_W_BF16, KERN_W_BF16, KERN_KV_F32},
     2e-5},
    {{"bf16", KERN_A_BF16, true, false, KERN_W_BF16, KERN_W_BF16, KERN_W_BF16, KERN_KV_BF16}, 0.06},
    {{"int8", KERN_A_I8, false, false, KERN_W_I8, KERN_W_I8, KERN_W_I8, KERN_KV_BF16}, 0.12},
    {{"int4", KERN_A_I8, false, false, KERN_W_I4K, KERN_W_I5K, KERN_W_I6S, KERN_KV_BF16}, 0.2},
    {{"bf16, int8 KV", KERN_A_BF16, true, false, KERN_W_BF16, KERN_W_BF16, KERN_W_BF16, KERN_KV_I8},
     0.06},
};

/* ---- running sequences --------------------------------------------------------------------- */

struct rig {
    struct eng_model *model;
    struct kv_layout layout;
    struct kv_pages *kv;
    struct pool *pool;
    struct fwd *fwd;
    float *centre; /* of int8 keys, or NULL */
};

static void set_centre(struct rig *g, int max_rows)
{
    char err[200] = "";
    memset(g->centre, 0, key_centre_floats(&g->layout) * sizeof(*g->centre));
    int rc = key_centre_fill(g->model, g->fwd, max_rows, SYNTH_CTX, g->kv, &g->layout, g->centre,
                             err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
}

static void rig_open(struct rig *g, struct eng_model *m, int n_threads)
{
    char err[200] = "";
    *g = (struct rig){.model = m};
    kv_layout_init(&g->layout, m->hp.n_layers, m->hp.n_kv_heads, m->hp.d_head, m->numerics->kv);
    if (key_centre_helps(m, &g->layout))
        g->centre = synth_alloc(key_centre_floats(&g->layout) * sizeof(*g->centre));
    g->layout.key_centre = g->centre;
    REQUIRE(kv_pages_create(&g->kv, &g->layout, N_PAGES, err, sizeof(err)) == 0);
    REQUIRE(pool_create(&g->pool, n_threads, err, sizeof(err)) == 0);
    struct fwd_params params = {m, &g->layout, g->pool, MAX_ROWS, MAX_SEGS, MAX_ROWS, SYNTH_CTX, 0};
    int rc = fwd_create(&g->fwd, &params, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    if (g->centre) set_centre(g, n_threads == 2 ? 5 : MAX_ROWS);
}

static void rig_close(struct rig *g)
{
    fwd_destroy(g->fwd);
    pool_destroy(g->pool);
    kv_pages_destroy(g->kv);
    free(g->centre);
}

/* A sequence on its way through: tokens, its pages, and the logits collected. */
struct sequence {
    int32_t tokens[LONG];
    int n, done;
    int32_t page_ids[LONG / KV_PAGE_TOKENS + 1];
    uint8_t *pages[LONG / KV_PAGE_TOKENS + 1];
    float *state;
    float *logits; /* [n][vocab] */
};

static void sequence_init(struct sequence *s, const struct rig *g, int n, uint32_t seed)
{
    *s = (struct sequence){.n = n};
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        s->tokens[i] = (int32_t)((seed >> 8) % (uint32_t)g->model->hp.vocab);
    }
    for (int i = 0; i * KV_PAGE_TOKENS < n; i++) {
        s->page_ids[i] = kv_page_get(g->kv);
        REQUIRE(s->page_ids[i] >= 0);
        s->pages[i] = kv_page_data(g->kv, s->page_ids[i]);
    }
    s->logits = synth_alloc((size_t)n * (size_t)g->model->hp.vocab * sizeof(float));
    struct state_layout states;
    state_layout_init(&states, &g->model->hp, g->model->kern);
    s->state = synth_alloc(states.n_floats * sizeof(float));
    for (size_t i = 0; i < states.n_floats; i++)
        s->state[i] = NAN; /* of another sequence */
}

static void sequence_finish(struct sequence *s, const struct rig *g)
{
    for (int i = 0; i * KV_PAGE_TOKENS < s->n; i++)
        kv_page_unref(g->kv, s->page_ids[i]);
    free(s->logits);
    free(s->state);
}

/* The next n tokens of a sequence as a segment. */
static struct fwd_segment next_segment(const struct sequence *s, int n)
{
    if (n > s->n - s->done) n = s->n - s->done;
    return (struct fwd_segment){.tokens = s->tokens + s->done,
                                .n_tokens = n,
                                .pos0 = s->done,
                                .pages = s->pages,
                                .state = s->state,
                                .want = FWD_WANT_ALL};
}

static void require_argmax(const struct rig *g, int row)
{
    const float *logits = fwd_logits(g->fwd, row);
    int best = 0;
    bool finite = false;
    for (int k = 1; k < g->model->hp.vocab; k++)
        if (logits[k] > logits[best]) best = k;
    REQUIRE_EQ_INT(fwd_argmax(g->fwd, row, &finite), best);
    REQUIRE(finite);
}

/* One step over the next tokens of some sequences; logits are kept with each. */
static void run_step(const struct rig *g, struct sequence *const *seqs, const int *n_tokens,
                     int n_segs)
{
    struct fwd_segment segs[MAX_SEGS];
    for (int i = 0; i < n_segs; i++)
        segs[i] = next_segment(seqs[i], n_tokens[i]);
    struct fwd_step step = {segs, n_segs, NULL};
    REQUIRE(fwd_run(g->fwd, &step));
    size_t vocab = (size_t)g->model->hp.vocab;
    for (int i = 0, row = 0; i < n_segs; i++)
        for (int k = 0; k < segs[i].n_tokens; k++, row++) {
            memcpy(seqs[i]->logits + (size_t)seqs[i]->done++ * vocab, fwd_logits(g->fwd, row),
                   vocab * sizeof(float));
            require_argmax(g, row);
        }
}

static void run_alone(const struct rig *g, struct sequence *s, int chunk)
{
    while (s->done < s->n)
        run_step(g, &s, &chunk, 1);
}

/* ---- near the reference -------------------------------------------------------------------- */

static double spread_of(const double *x, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i];
        squares += x[i] * x[i];
    }
    return sqrt(squares / (double)n - sum / (double)n * (sum / (double)n));
}

/* Largest difference from the reference in units of the reference's standard deviation. */
static double distance(const struct eng_model *m, const struct sequence *s)
{
    double *want = synth_reference(m, s->tokens, s->n, NULL), worst = 0;
    size_t ld = (size_t)m->head.n_panels * KERN_PANEL, vocab = (size_t)m->hp.vocab;
    for (size_t r = 0; r < (size_t)s->n; r++)
        for (size_t i = 0; i < vocab; i++)
            worst = fmax(worst, fabs((double)s->logits[r * vocab + i] - want[r * ld + i]));
    worst /= spread_of(want, (size_t)s->n * ld);
    free(want);
    return worst;
}

/* ---- the same bits ------------------------------------------------------------------------- */

static void require_same(const struct sequence *a, const struct sequence *b, int vocab,
                         const char *what)
{
    REQUIRE_EQ_INT(a->n, b->n);
    for (int i = 0; i < a->n * vocab; i++)
        REQUIRE_MSG(memcmp(&a->logits[i], &b->logits[i], sizeof(float)) == 0,
                    "%s: position %d, logit %d: %a and %a", what, i / vocab, i % vocab,
                    (double)a->logits[i], (double)b->logits[i]);
}

static void check_chunks(const struct rig *g, const struct sequence *base, uint32_t seed,
                         const int *chunks, size_t n_chunks)
{
    for (size_t i = 0; i < n_chunks; i++) {
        struct sequence s;
        char what[60];
        sequence_init(&s, g, base->n, seed);
        run_alone(g, &s, chunks[i]);
        snprintf(what, sizeof(what), "chunks of %d, %d threads", chunks[i],
                 pool_n_threads(g->pool));
        require_same(base, &s, g->model->hp.vocab, what);
        sequence_finish(&s, g);
    }
}

/* The sequence among neighbours that decode, that are prefilled, and that come and go. */
static void check_batched(const struct rig *g, const struct sequence *base, uint32_t seed)
{
    static const int chunks[] = {30, 1, 1, 2, 1, 9, 1, 1, 16, 1};
    struct sequence others[5], s;
    for (int i = 0; i < 5; i++)
        sequence_init(&others[i], g, 20 + 9 * i, 1000 + (uint32_t)i);
    sequence_init(&s, g, base->n, seed);
    for (size_t turn = 0; s.done < s.n; turn++) {
        struct sequence *seqs[MAX_SEGS];
        int n_tokens[MAX_SEGS], n = 0;
        for (int i = 0; i < 5; i++) {
            if (i == (int)(turn % 4)) {
                seqs[n] = &s;
                n_tokens[n++] = chunks[turn % N_OF(chunks)];
            }
            if (others[i].done == others[i].n) continue;
            seqs[n] = &others[i];
            n_tokens[n++] = (turn + (size_t)i) % 3 ? 1 : 6;
        }
        run_step(g, seqs, n_tokens, n);
    }
    require_same(base, &s, g->model->hp.vocab, "among neighbours");
    for (int i = 0; i < 5; i++)
        sequence_finish(&others[i], g);
    sequence_finish(&s, g);
}

/*
 * The next ids of a sequence with a draft behind the first n_right of them, after the twin has
 * written other ids there; then the state as a snapshot of it has it.
 */
static void run_draft(const struct rig *g, struct sequence *s, int n_right, int n_wrong)
{
    int32_t ids[1 + DRAFT_MAX], wrong = s->tokens[0];
    size_t vocab = (size_t)g->model->hp.vocab;
    for (int i = 0; i < 1 + DRAFT_MAX; i++)
        ids[i] = i < n_right ? s->tokens[s->done + i] : wrong;
    for (int i = 0; i < n_wrong; i++) {
        struct fwd_segment twin = next_segment(s, 1);
        twin.tokens = i == 0 ? ids : &wrong;
        twin.pos0 += i;
        twin.drafts = true;
        struct fwd_step step = {&twin, 1, NULL};
        REQUIRE(fwd_run(g->fwd, &step));
    }
    struct fwd_segment seg = next_segment(s, n_right);
    seg.tokens = ids;
    seg.n_tokens = n_right + n_wrong;
    struct fwd_step step = {&seg, 1, NULL};
    REQUIRE(fwd_run(g->fwd, &step));
    for (int i = 0; i < n_right; i++)
        memcpy(s->logits + (size_t)s->done++ * vocab, fwd_logits(g->fwd, i), vocab * sizeof(float));
    struct state_layout states;
    state_layout_init(&states, &g->model->hp, g->model->kern);
    if (s->done < states.n_taps) return;
    float *kept = synth_alloc((states.n_kept + 1) * sizeof(*kept));
    if (states.n_kept > 0) state_save(&states, s->state, s->done, kept);
    for (size_t i = 0; i < states.n_floats; i++)
        s->state[i] = NAN;
    if (states.n_kept > 0) state_restore(&states, s->state, s->done, kept);
    free(kept);
}

/* Drafts of every length, of which any number of ids was right. */
static void check_snapshots(const struct rig *g, const struct sequence *base, uint32_t seed)
{
    struct sequence s;
    sequence_init(&s, g, base->n, seed);
    for (int turn = 0; s.done + 1 + DRAFT_MAX <= s.n; turn++) {
        int n_right = 1 + turn * 5 % (1 + DRAFT_MAX);
        run_draft(g, &s, n_right, turn % (2 + DRAFT_MAX - n_right));
    }
    run_alone(g, &s, 16);
    require_same(base, &s, g->model->hp.vocab, "from snapshots");
    sequence_finish(&s, g);
}

/* NaN as the value of a position, in every layer and head; then as if it had not been computed. */
static void spoil_and_clear(const struct rig *g, const struct sequence *s, int pos)
{
    const struct kv_layout *l = &g->layout;
    int32_t page = s->page_ids[pos / KV_PAGE_TOKENS];
    float nan[256];
    const struct kv_layer *shape = &l->layers[0];
    REQUIRE(shape->d_head <= (int)N_OF(nan));
    for (int i = 0; i < shape->d_head; i++)
        nan[i] = NAN;
    for (int i = 0; i < l->n_layers * shape->n_heads; i++)
        g->model->kern->put_value[l->fmt](
            kv_page_data(g->kv, page) + kv_value_offset(l, i / shape->n_heads, i % shape->n_heads),
            nan, shape->d_head, shape->d_pad, pos % KV_PAGE_TOKENS);
    kv_page_clear(g->kv, g->model->kern, page, pos % KV_PAGE_TOKENS);
}

/* Steps of a token and up to seven more, of which only the first few are those of the sequence. */
static void check_drafts(const struct rig *g, const struct sequence *base, uint32_t seed)
{
    struct sequence s;
    int vocab = g->model->hp.vocab;
    sequence_init(&s, g, base->n, seed);
    for (int turn = 0; s.done < s.n; turn++) {
        struct sequence tried = s, *seq = &tried;
        int n = 1 + turn % 8, n_right = turn % 3;
        if (n > s.n - s.done) n = s.n - s.done;
        if (n_right > n - 1) n_right = n - 1;
        for (int i = s.done + 1 + n_right; i < s.n; i++)
            tried.tokens[i] = (s.tokens[i] + 1 + turn) % vocab;
        run_step(g, &seq, &n, 1); /* the rows that are wrong are overwritten later */
        for (int pos = s.done + 1 + n_right; turn % 2 && pos < s.done + n; pos++)
            spoil_and_clear(g, &s, pos);
        s.done += 1 + n_right;
    }
    require_same(base, &s, vocab, "with drafts");
    sequence_finish(&s, g);
}

/*
 * A context of three splits of keys: prefilled in other chunks, then the last tokens by one to
 * eight rows, as with drafts, whose splits the threads share.
 */
static void check_long(const struct rig *g, const struct sequence *base)
{
    struct sequence s;
    int n_threads = pool_n_threads(g->pool), chunk = n_threads == 2 ? 41 : MAX_ROWS;
    sequence_init(&s, g, base->n, 6);
    while (s.done < LONG - 60) {
        struct sequence *seq = &s;
        run_step(g, &seq, &chunk, 1);
    }
    for (int turn = 0; s.done < s.n; turn++) {
        struct sequence *seq = &s;
        int n = 1 + turn % 8;
        if (n > s.n - s.done) n = s.n - s.done;
        run_step(g, &seq, &n, 1);
    }
    require_same(base, &s, g->model->hp.vocab, "long context");
    sequence_finish(&s, g);
}

/*
 * Attention knows of the path the type of the KV cache alone: at each level one path per type runs
 * the long context. Plain C is slow, and contexts are cut alike at every level: one path does.
 */
static bool needs_long_context(const struct eng_model *m)
{
    enum kern_kvfmt kv = m->numerics->kv;
    if (kv != KERN_KV_F32 && m->kern == kern_select("c")) return false;
    for (size_t i = 0; i < N_OF(paths); i++)
        if (paths[i].n.kv == kv) return strcmp(paths[i].n.name, m->numerics->name) == 0;
    return false;
}

/*
 * All of it for one model. The bits of one thread and one chunk size are the base of every
 * comparison.
 */
static void check_model(struct eng_model *m, const char *what, double bound)
{
    bool with_long = needs_long_context(m);
    static const int chunks[] = {1, 2, 7, 33, MAX_ROWS};
    struct rig g;
    struct sequence base, base_long;
    rig_open(&g, m, 1);
    sequence_init(&base, &g, SHORT, 5);
    run_alone(&g, &base, SHORT);
    double far = distance(m, &base);
    REQUIRE_MSG(far < bound, "%s: %.3g from the reference, bound %.3g", what, far, bound);
    sequence_init(&base_long, &g, LONG, 6);
    if (with_long) run_alone(&g, &base_long, 64);

    for (int n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
        struct rig h;
        rig_open(&h, m, n_threads);
        check_chunks(&h, &base, 5, chunks, N_OF(chunks));
        check_batched(&h, &base, 5);
        check_drafts(&h, &base, 5);
        if (n_threads == 1) check_snapshots(&h, &base, 5);
        if (with_long && n_threads > 1) check_long(&h, &base_long);
        rig_close(&h);
    }
    sequence_finish(&base, &g);
    sequence_finish(&base_long, &g);
    rig_close(&g);
}

/*
 * With sanitizers level "c", the only one that they see, and fewer shapes are enough; for the
 * thread sanitizer one path too, as it looks at threads.
 */
#if defined(__SANITIZE_THREAD__)
enum { N_CHECKED_LEVELS = 1, N_CHECKED_PATHS = 1, N_CHECKED_SHAPES = 2 };
#elif defined(__SANITIZE_ADDRESS__)
enum { N_CHECKED_LEVELS = 1, N_CHECKED_PATHS = N_OF(paths), N_CHECKED_SHAPES = 2 };
#else
enum { N_CHECKED_LEVELS = INT_MAX, N_CHECKED_PATHS = N_OF(paths), N_CHECKED_SHAPES = N_OF(shapes) };
#endif

static void check_level(const struct kern *kern, const char *level)
{
    for (size_t p = 0; p < N_CHECKED_PATHS; p++)
        for (size_t i = 0; i < N_CHECKED_SHAPES; i++) {
            char what[120];
            snprintf(what, sizeof(what), "%s, %s, %s", level, paths[p].n.name, shapes[i].name);
            struct eng_model *m = synth_create(&shapes[i], kern, &paths[p].n, 42 + i);
            check_model(m, what, (shapes[i].delta.n_keys ? 2 : 1) * paths[p].bound);
            synth_destroy(m);
        }
}

static void test_every_level(void **state)
{
    (void)state;
    const char *only = getenv("HEARTH_KERNELS");
    const char *const *names = kern_names();
    for (int i = 0; names[i] && i < N_CHECKED_LEVELS; i++)
        if (kern_runs_here(names[i]) && (!only || strcmp(only, names[i]) == 0))
            check_level(kern_select(names[i]), names[i]);
}

static void test_blas(void **state)
{
    (void)state;
    const char *core = gemm_blas_init();
    if (!core) skip();
    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < 2; i++) {
            const struct kern *kern = kern_select("auto");
            struct eng_model *m = synth_create(&shapes[i], kern, &paths[p].n, 42 + i);
            synth_use_blas(m);
            REQUIRE_MSG(gemm_blas_settle_model(m), "OpenBLAS %s is not repeatable", core);
            check_model(m, "blas", (shapes[i].delta.n_keys ? 2 : 1) * paths[p].bound);
            synth_destroy(m);
        }
}

/* ---- wants, sums, stops, faults ------------------------------------------------------------ */

static struct eng_model *make_model(size_t shape, size_t path)
{
    return synth_create(&shapes[shape], kern_select("auto"), &paths[path].n, 42);
}

/* The centre of keys is a constant of the model, whatever the threads and steps, and not zero. */
static void test_key_centre(void **state)
{
    (void)state;
    for (size_t shape = 0; shape < N_CHECKED_SHAPES; shape++) {
        struct eng_model *m = make_model(shape, N_OF(paths) - 1);
        struct rig one, three;
        rig_open(&one, m, 1);
        rig_open(&three, m, MAX_THREADS);
        size_t n = key_centre_floats(&one.layout), n_zero = 0;
        for (int max_rows = 1; max_rows < MAX_ROWS; max_rows = 3 * max_rows + 1) {
            set_centre(&three, max_rows);
            REQUIRE(memcmp(one.centre, three.centre, n * sizeof(float)) == 0);
        }
        for (size_t i = 0; i < n; i++)
            n_zero += one.centre[i] == 0;
        bool attends = shapes[shape].n_taps == 0 || m->hp.n_layers > 1;
        REQUIRE_MSG(attends == (n_zero < n), "%s: the centre", shapes[shape].name);
        rig_close(&one);
        rig_close(&three);
        synth_destroy(m);
    }
}

/* Only the rows that want logits get them, and they are the same as when all do. */
static void test_wanted_rows(void **state)
{
    (void)state;
    struct eng_model *m = make_model(0, 0);
    struct rig g;
    struct sequence all[3], some[3];
    static const enum fwd_want wants[] = {FWD_WANT_LAST, FWD_WANT_NONE, FWD_WANT_ALL};
    rig_open(&g, m, 2);
    struct fwd_segment segs[3];
    for (int i = 0; i < 3; i++) {
        sequence_init(&all[i], &g, 6 + i, 70 + (uint32_t)i);
        sequence_init(&some[i], &g, 6 + i, 70 + (uint32_t)i);
        run_alone(&g, &all[i], MAX_ROWS);
        segs[i] = next_segment(&some[i], MAX_ROWS);
        segs[i].want = wants[i];
    }
    struct fwd_step step = {segs, 3, NULL};
    REQUIRE(fwd_run(g.fwd, &step));
    size_t bytes = (size_t)m->hp.vocab * sizeof(float);
    REQUIRE(memcmp(fwd_logits(g.fwd, 0), all[0].logits + 5 * m->hp.vocab, bytes) == 0);
    for (int i = 0; i < 8; i++)
        REQUIRE(memcmp(fwd_logits(g.fwd, 1 + i), all[2].logits + i * m->hp.vocab, bytes) == 0);

    step.n_segs = 1;
    segs[0].want = FWD_WANT_NONE;
    REQUIRE(fwd_run(g.fwd, &step));
    for (int i = 0; i < 3; i++) {
        sequence_finish(&all[i], &g);
        sequence_finish(&some[i], &g);
    }
    rig_close(&g);
    synth_destroy(m);
}

/* The row of a text of n tokens, read in chunks beside another sequence. */
static void pool_text(const struct rig *g, int n, int chunk, int n_unpooled, float *ret)
{
    struct sequence s, other;
    size_t d = (size_t)g->model->hp.d_model;
    float *pool = synth_alloc(d * sizeof(*pool));
    sequence_init(&s, g, n, 9);
    sequence_init(&other, g, n, 10);
    memset(pool, 0xff, d * sizeof(*pool));
    while (s.done < n) {
        struct fwd_segment segs[] = {next_segment(&other, 1), next_segment(&s, chunk)};
        struct fwd_step step = {segs + (chunk == n), 2 - (chunk == n), NULL};
        segs[1].want = s.done == 0 ? FWD_WANT_LAST : FWD_WANT_NONE;
        segs[1].pool = pool;
        segs[1].n_unpooled = n_unpooled;
        segs[1].ends = s.done + segs[1].n_tokens == n;
        REQUIRE(fwd_run(g->fwd, &step));
        s.done += segs[1].n_tokens;
        other.done++;
        if (!segs[1].ends) continue;
        memcpy(ret, fwd_pooled(g->fwd, step.n_segs - 1),
               (size_t)g->model->heads.width * sizeof(*ret));
    }
    free(pool);
    sequence_finish(&s, g);
    sequence_finish(&other, g);
}

/* Number d of the pooled row, from the hidden states [n][width]. */
static double reference_pool(enum eng_pooling pooling, const double *hidden, int n, int skip,
                             size_t width, size_t d)
{
    double sum = 0, weights = 0, most = -INFINITY;
    if (pooling == ENG_POOL_CLS) return hidden[d];
    if (pooling == ENG_POOL_LAST) return hidden[(size_t)(n - 1) * width + d];
    for (int t = skip; t < n; t++) {
        double w = pooling == ENG_POOL_WEIGHTED ? t + 1 : 1, x = hidden[(size_t)t * width + d];
        sum += w * x;
        weights += w;
        if (x > most) most = x;
    }
    if (pooling == ENG_POOL_MAX) return most;
    return sum / (pooling == ENG_POOL_SQRT_LEN ? sqrt(weights) : weights);
}

static double reference_act(enum eng_head_act act, double x)
{
    return act == ENG_HEAD_TANH   ? tanh(x)
           : act == ENG_HEAD_RELU ? fmax(x, 0)
           : act == ENG_HEAD_GELU ? x / 2 * (1 + erf(x / sqrt(2)))
                                  : x;
}

/* Two products and a length of 1, as the model's files may ask for. */
static void add_heads(struct eng_model *m, enum eng_head_act act)
{
    int d = m->hp.d_model;
    m->heads.ops[0] = (struct eng_head_op){
        .mat = synth_mat(m->kern, m->numerics->head, 3 * d + 1, d, true, 0.2f), .act = act};
    m->heads.ops[1] = (struct eng_head_op){
        .mat = synth_mat(m->kern, m->numerics->head, 5, 3 * d + 1, false, 0.2f)};
    m->heads.ops[2].kind = ENG_HEAD_L2;
    m->heads.n_ops = 3;
    m->heads.width = 5;
}

static void reference_heads(const struct eng_model *m, const double *x, double *ret)
{
    const struct eng_head_op *ops = m->heads.ops;
    size_t d = (size_t)m->hp.d_model;
    double *middle = synth_multiply(m->kern, &ops[0].mat, x, 1, d), length = 0;
    for (int i = 0; i < ops[0].mat.n_out; i++)
        middle[i] = reference_act(ops[0].act, middle[i]);
    double *last = synth_multiply(m->kern, &ops[1].mat, middle, 1, (size_t)ops[0].mat.n_out);
    for (int i = 0; i < 5; i++)
        length += last[i] * last[i];
    for (int i = 0; i < 5; i++)
        ret[i] = last[i] / sqrt(length);
    free(middle);
    free(last);
}

static void test_pooling(void **state)
{
    (void)state;
    enum { N = 40, SKIP = 3 };
    for (int k = 0; k < ENG_N_POOLINGS; k++) {
        struct eng_model *m = make_model(3, 0);
        struct rig g;
        size_t d = (size_t)m->hp.d_model;
        m->heads.pooling = (enum eng_pooling)k;
        if (k % 3 == 2) m->has_head = false;
        if (k > 0) add_heads(m, (enum eng_head_act)(k % 4));
        rig_open(&g, m, 2);
        size_t width = (size_t)m->heads.width;
        float *whole = synth_alloc(d * sizeof(*whole)), *cut = synth_alloc(d * sizeof(*cut));
        pool_text(&g, N, N, SKIP, whole);
        pool_text(&g, N, 7, SKIP, cut);
        REQUIRE(memcmp(whole, cut, width * sizeof(*whole)) == 0);

        struct sequence s;
        double *hidden, *want = calloc(d, sizeof(*want));
        sequence_init(&s, &g, N, 9);
        free(synth_reference(m, s.tokens, N, &hidden));
        for (size_t i = 0; i < d; i++)
            want[i] = reference_pool(m->heads.pooling, hidden, N, SKIP, d, i);
        if (k > 0) reference_heads(m, want, want);
        for (size_t i = 0; i < width; i++)
            REQUIRE_MSG(fabs(want[i] - (double)whole[i]) < 3e-5, "%d: %zu: %g, not %g",
                        (int)m->heads.pooling, i, (double)whole[i], want[i]);
        for (int i = 0; i < m->heads.n_ops; i++)
            synth_mat_destroy(&m->heads.ops[i].mat);
        free(hidden);
        free(want);
        free(whole);
        free(cut);
        sequence_finish(&s, &g);
        rig_close(&g);
        synth_destroy(m);
    }
}

static void require_logits(const struct rig *g, const struct sequence *s)
{
    size_t vocab = (size_t)g->model->hp.vocab;
    for (int i = 0; i < s->n; i++)
        REQUIRE(memcmp(fwd_logits(g->fwd, i), s->logits + (size_t)i * vocab,
                       vocab * sizeof(float)) == 0);
}

/* A step that is stopped before every phase, and one that is begun anew, have the logits of one that
   is not. */
static void check_stop(size_t path)
{
    struct eng_model *m = make_model(0, path);
    struct rig g;
    struct sequence s, whole;
    atomic_bool stop = true;
    int n_phases = 1;
    rig_open(&g, m, 2);
    sequence_init(&whole, &g, 20, 3);
    sequence_init(&s, &g, 20, 3);
    run_alone(&g, &whole, 20);
    struct fwd_segment seg = next_segment(&s, 20);
    struct fwd_step step = {&seg, 1, &stop};
    REQUIRE(!fwd_run(g.fwd, &step));
    while (!fwd_resume(g.fwd))
        n_phases++;
    REQUIRE(n_phases > m->hp.n_layers);
    require_logits(&g, &whole);
    REQUIRE(!fwd_run(g.fwd, &step));
    atomic_store(&stop, false);
    REQUIRE(fwd_run(g.fwd, &step));
    require_logits(&g, &whole);
    sequence_finish(&s, &g);
    sequence_finish(&whole, &g);
    rig_close(&g);
    synth_destroy(m);
}

static void test_stop(void **state)
{
    (void)state;
    for (size_t p = 0; p < N_OF(paths); p++)
        check_stop(p);
}

/* A sequence whose numbers overflow is reported as such, and its neighbours keep their bits. */
static void check_overflow(size_t path)
{
    struct eng_model *m = make_model(0, path);
    struct rig g;
    struct sequence good, alone, bad;
    int one[] = {1, 1};
    bool finite;
    rig_open(&g, m, 2);
    sequence_init(&good, &g, 10, 3);
    sequence_init(&alone, &g, 10, 3);
    sequence_init(&bad, &g, 10, 4);
    run_alone(&g, &alone, 1);
    struct sequence *pair[] = {&bad, &good};
    for (int i = 0; i < 9; i++)
        run_step(&g, pair, one, 2);
    /* NaN everywhere in the bad sequence's own pages */
    memset(bad.pages[0], 0xff, g.layout.page_bytes);
    struct fwd_segment segs[] = {next_segment(&bad, 1), next_segment(&good, 1)};
    struct fwd_step step = {segs, 2, NULL};
    REQUIRE(fwd_run(g.fwd, &step));
    fwd_argmax(g.fwd, 0, &finite);
    REQUIRE(!finite);
    fwd_argmax(g.fwd, 1, &finite);
    REQUIRE(finite);
    memcpy(good.logits + 9 * m->hp.vocab, fwd_logits(g.fwd, 1),
           (size_t)m->hp.vocab * sizeof(float));
    require_same(&alone, &good, m->hp.vocab, "next to a sequence with NaN");
    sequence_finish(&good, &g);
    sequence_finish(&alone, &g);
    sequence_finish(&bad, &g);
    rig_close(&g);
    synth_destroy(m);
}

static void test_non_finite_rows(void **state)
{
    (void)state;
    for (size_t p = 0; p < N_OF(paths); p++)
        check_overflow(p);
}

static void test_plan(void **state)
{
    (void)state;
    struct eng_model *m = make_model(0, 2);
    struct kv_layout layout;
    kv_layout_init(&layout, m->hp.n_layers, m->hp.n_kv_heads, m->hp.d_head, KERN_KV_BF16);
    struct fwd_params params = {m, &layout, NULL, 100, 4, 10, SYNTH_CTX, 0};
    int64_t scratch, logits, more_scratch, more_logits;
    fwd_plan(&params, 2, &scratch, &logits);
    REQUIRE(scratch > 100 * 64 * 4 && scratch < 8 << 20);
    REQUIRE(logits >= 10 * 100 * 4 && logits < 10 * 128 * 4 + 4096);
    params.max_logit_rows = 20;
    fwd_plan(&params, 3, &more_scratch, &more_logits);
    REQUIRE(more_scratch > scratch && more_logits > logits);
    params.max_rows = 0;
    struct fwd *f = NULL;
    char err[200] = "";
    REQUIRE(fwd_create(&f, &params, err, sizeof(err)) != 0 && f == NULL && err[0]);
    fwd_destroy(NULL);
    synth_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_level),     cmocka_unit_test(test_blas),
        cmocka_unit_test(test_key_centre),      cmocka_unit_test(test_wanted_rows),
        cmocka_unit_test(test_pooling),         cmocka_unit_test(test_stop),
        cmocka_unit_test(test_non_finite_rows), cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
