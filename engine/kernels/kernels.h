/* SPDX-License-Identifier: MIT */
/*
 * The kernel table: every inner loop of the engine behind function pointers, chosen once at start.
 *
 * Levels, lowest first. x86-64: "c" (plain C, the specification), "avx2" (AVX2 + FMA + F16C),
 * "avx2vnni", "avx512" (F, BW, VL, DQ), "avx512vnni", "avx512bf16" (and VNNI, BF16), "avx512amx"
 * (and AMX's tiles, BF16 and INT8). AArch64: "c", "neon", "neondot" (and FEAT_DotProd), "neonbf16"
 * (and FEAT_BF16).
 *
 * Within one level every function's result is a function of its inputs alone, and the summation
 * order of a dot product is a function of K alone: the same for 1 row and for 12, for every place
 * in a tile. Levels differ in the last bits, except that products of "avx2vnni" have the bits of
 * "avx2", those of "avx512vnni" the bits of "avx512", and those of "neondot" and "neonbf16" the
 * bits of "neon".
 *
 * Packed layouts (shared by all levels, so that packing is independent of the level):
 *
 *   K is padded with zeros to a multiple of KERN_K_ALIGN (k_pad). A panel holds KERN_PANEL = 32
 *   outputs, K outermost:
 *     F32   [k_pad][32] float                                              128 bytes per k
 *     BF16  [k_pad/2][32][2] u16: two k of one output side by side       128 bytes per k-pair
 *     B12   the same weights, compressed without loss to 12 bits each, see b12.h: a head of a
 *           table and the few exceptions, then                           1536 bytes per group
 *     F16   [k_pad][32] u16                                               64 bytes per k
 *     I8    per group of 32 k: [8][32][4] u8 (q + 128, four k of one
 *           output), then 32 F16 scales                                  1088 bytes per group
 *     I4    per group of 32 k: [4][32][4] u8, low nibble k-quad j, high
 *           nibble k-quad j + 4, values q + 8 in 0..15, then 32 F16 scales   576 bytes per group
 *     Those that hold the blocks of quantised files, see blocks.h, per group of 32 k:
 *     I4A   as I4, of values q; after the scales 32 F16 minima               640 bytes per group
 *     I5    q + 16: [32][4] u8 with the upper two bits of k-quads 4 to 7 (2j and 2j + 1:
 *           quad j + 4), [4][32][4] u8 of five bits of k-quad j and above them the
 *           lower three of k-quad j + 4, 32 F16 scales                     704 bytes per group
 *     I5A   as I5, of values q; after the scales 32 F16 minima               768 bytes per group
 *     I4K   in front of each 8 groups 32 F16 scales and 32 F16 scales of
 *           minima; the quads of I4A, 32 u8 scales, 32 u8 minima       576 bytes and 16 of the head
 *     I5K   the same with the quads of I5A                                   704 bytes and 16
 *     I6S   in front of each 8 groups 32 F16 scales; two bits each of k-quads 4j .. 4j + 3,
 *           [2][32][4] u8, the upper ones; the lower four as in I4; 32 s8
 *           scales of k 0-15, 32 s8 scales of k 16-31                        832 bytes and 8
 *
 *   A tile of activations holds n_rows rows, so that a kernel reads one stream:
 *     F32   [k_pad][n_rows] float
 *     BF16  as F32, of rounded numbers; at a level with a bf16 dot product
 *           [k_pad/2][n_rows][2] u16, or with bf16_row_major [k_pad/32][n_rows][32], so that
 *           packing a row stores whole vectors
 *     I8    [k_pad/32][n_rows][32] s8; scales [k_pad/32][n_rows] float; corrections
 *           [k_pad/32][n_rows] int32 = -(128 or 8, by the weights' format) * sum of the group,
 *           for I5 and I6S both sums of 16, see kern_half_sums; for forms with minima the
 *           sum times the scale, bits of a float
 *
 * NaN and infinity in a row of activations come out as NaN or infinity in that row, also through
 * I8.
 *
 * Threads: everything here is pure; tables are const. Kernels include no engine header. Pointers to
 * panels are 64-byte aligned; other pointers have their element's alignment.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KERN_PANEL = 32, KERN_K_ALIGN = 32, KERN_GROUP = 32, KERN_NARROW = 16 };

enum kern_wfmt {
    KERN_W_F32,
    KERN_W_BF16,
    KERN_W_B12,
    KERN_W_F16,
    KERN_W_I8,
    KERN_W_I4,
    KERN_W_I4A,
    KERN_W_I5,
    KERN_W_I5A,
    KERN_W_I4K,
    KERN_W_I5K,
    KERN_W_I6S,
    KERN_W_COUNT
};

/* Longest k_pad of B12. */
enum { KERN_B12_MAX_K = 16383 * KERN_GROUP };
enum kern_afmt { KERN_A_F32, KERN_A_BF16, KERN_A_I8, KERN_A_COUNT };
/* Activations of a gated feed-forward layer. */
enum kern_act {
    KERN_ACT_SILU,
    KERN_ACT_GELU_TANH,
    KERN_ACT_GELU,
    KERN_ACT_SIGMOID, /* of attention's gate */
    KERN_ACT_COUNT
};
/* Numbers in the KV cache. I8: int8 with a scale per position and 32 dims, see kv_int8.h. */
enum kern_kvfmt { KERN_KV_F32, KERN_KV_BF16, KERN_KV_I8, KERN_KV_COUNT };
/* Element types of files, little-endian; from Q4_0 on blocks, see blocks.h. */
enum kern_src {
    KERN_SRC_F32,
    KERN_SRC_F16,
    KERN_SRC_BF16,
    KERN_SRC_Q4_0,
    KERN_SRC_Q4_1,
    KERN_SRC_Q5_0,
    KERN_SRC_Q5_1,
    KERN_SRC_Q8_0,
    KERN_SRC_Q3_K,
    KERN_SRC_Q4_K,
    KERN_SRC_Q5_K,
    KERN_SRC_Q6_K,
    KERN_SRC_IQ4_NL,
    KERN_SRC_IQ4_XS,
    KERN_SRC_COUNT
};

/* Bytes of one panel of k_pad inputs. */
size_t kern_panel_bytes(enum kern_wfmt fmt, int k_pad);

/* Bytes in front of each 8 groups; 0: the form has none. */
enum { KERN_HEAD_GROUPS = 8 };
static inline int kern_head_bytes(enum kern_wfmt fmt)
{
    return fmt == KERN_W_I6S ? 64 : fmt == KERN_W_I4K || fmt == KERN_W_I5K ? 128 : 0;
}

/* One tile of packed activations. scale and corr only for KERN_A_I8. */
struct kern_tile {
    void *data;
    float *scale;
    int32_t *corr;
    int n_rows;
};

/* The destination of a product. */
struct kern_out {
    float *c; /* [n_rows][ld], first column of the first panel */
    size_t ld;
    bool add; /* add to what is there (one rounding after the whole dot product) */
};

/*
 * Memory to prefetch into L2: first `data`, then `more`; each may be of 0 bytes. At most the size
 * of two panels is prefetched.
 *
 * With `ahead` > 0 the panels themselves are prefetched that many bytes before they are read, and
 * at the end of the run as many bytes from `data` on (NULL: nothing), a panel of the same format.
 */
struct kern_fetch {
    const void *data, *more;
    size_t bytes, more_bytes;
    size_t ahead;
};

/*
 * tile [n_rows, k_pad] times n_panels consecutive panels -> out columns 0 .. 32 * n_panels - 1.
 * 1 <= n_rows <= max_rows of the activation format. Panels are panel_bytes apart.
 *
 * While one panel is multiplied, the next one of the run is prefetched into L2, and during the last
 * one `fetch` (a hint: kernels may ignore it); but see kern_fetch.ahead. NULL: no prefetch.
 * fetch_rows below says when the next panel pays.
 */
typedef void kern_matmul_fn(const struct kern_tile *tile, int k_pad, const void *panels,
                            size_t panel_bytes, int n_panels, const struct kern_out *out,
                            const struct kern_fetch *fetch);

/*
 * A product of plain rows with narrow panels, of 16 outputs and of any even k, one after the other:
 * panel i of F32 or BF16 gives columns 16 * i ... of out. Even and odd k are summed apart.
 */
typedef void kern_narrow_fn(const float *x, size_t ld, int n_rows, int k, enum kern_wfmt fmt,
                            const void *panels, int n_panels, const struct kern_out *out);

/* The place of a number in them: [k / 2][16][2], or of F32 [k / 2][2][16]; k_end: of a panel. */
static inline size_t kern_narrow_at(enum kern_wfmt fmt, int k_end, int n, int k)
{
    size_t pair = (size_t)(n / KERN_NARROW * (k_end / 2) + k / 2);
    int i = n % KERN_NARROW, odd = k % 2;
    return pair * 2 * KERN_NARROW +
           (size_t)(fmt == KERN_W_F32 ? odd * KERN_NARROW + i : 2 * i + odd);
}

/* Panels that are not next to each other: those of some pages of the KV cache. */
struct kern_pages {
    const void *const *panels; /* [n] */
    int n;
    /* [n * groups of 32 inputs]: what to prefetch into L2 while a group is multiplied; NULL, all or
     * some: nothing */
    const void *const *ahead;
    size_t ahead_bytes; /* of each */
};

/* The same product: panels of k_pad inputs, panel i gives columns 32 * i ... */
typedef void kern_matmul_pages_fn(const struct kern_tile *tile, int k_pad,
                                  const struct kern_pages *pages, const struct kern_out *out);

/*
 * The same product with K in the pages: tile [n_rows, 32 * n], panels of 32 inputs -> out 32
 * columns. The order of summation is that of one long panel.
 */
typedef void kern_matmul_segs_fn(const struct kern_tile *tile, const struct kern_pages *pages,
                                 const struct kern_out *out);

/*
 * Names the random numbers of one draw (engine/race.h): Philox4x32-10 (Salmon, Moraes, Dror, Shaw:
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with this key, and with index, choice and
 * a block of ids as the counter.
 */
enum { KERN_RACE_BLOCK = 32 };
struct kern_race {
    uint32_t key[2], index[2], choice;
};

/* Result of a softmax over some of a row's scores. */
struct kern_softmax {
    float max; /* largest scaled score */
    float sum; /* of the exponentials */
};

/* The scales of the I8 values of 32 dims in a split, and the weights that probabilities get. */
enum { KERN_MAX_SPLIT = 512 };
struct kern_value_scales {
    int n; /* positions, a multiple of 32 */
    int n_weights;
    uint16_t top[2]; /* bf16: the scale that weight[i] is for */
    uint16_t scale[KERN_MAX_SPLIT];
    float weight[2][KERN_MAX_SPLIT];
};

/* Of a row of probabilities over n positions. */
#define KERN_PROBS_BYTES(n) (((size_t)(n) + 63) / 64 * 128)

typedef void kern_pack_probs_fn(const float *e, int lo, int hi, struct kern_value_scales *s,
                                const struct kern_tile *tile, int row);

/* A convolution over the last `taps` tokens, each channel for itself. */
struct kern_conv {
    const float *w; /* [taps][ld], the oldest token's first */
    size_t ld;
    const float *bias; /* NULL: 0 */
    int taps;
};

/* Values of a delta net's head that are computed together. */
enum { KERN_DELTA = 32 };

/* The inputs of one token to a head of a delta net. */
struct kern_delta {
    const float *k, *q; /* [d_k] */
    const float *v;     /* [n] */
    float decay, beta;
    int d_k, n; /* n <= KERN_DELTA */
};

/* Places from which memory is read at once, at most. */
enum { KERN_READ_PLACES = 4 };

struct kern {
    const char *name;

    /* Tallest tile of each activation format. */
    int max_rows[KERN_A_COUNT];

    /* Bytes of a number in a tile of each activation format. */
    int act_bytes[KERN_A_COUNT];

    /* Tiles of BF16 hold each row's 32 k of a group side by side. */
    bool bf16_row_major;

    /*
     * BF16 products have twice the rate of f32: as fast as those of I8 pages, of which half the
     * memory is then all that they gain. Where the automatic level has it, the bf16 path is the
     * default. (Not "neonbf16": it takes two instructions a pair of k, as f32 does.)
     */
    bool fast_bf16;

    /*
     * Rows of a step (all tiles together) from which a prefetch pays; with fewer, pass matmul NULL.
     */
    int fetch_rows[KERN_A_COUNT][KERN_W_COUNT];

    /*
     * BF16 weights are better kept as B12: products are as fast, and a quarter less is read. (Not
     * so with few registers; measured.)
     */
    bool prefers_b12;

    /*
     * Packs row x[k] (k valid values, zero-padded to k_pad) as row `row` of a tile, and touches no
     * other row. wfmt matters only to KERN_A_I8 (corrections). Scales of KERN_A_I8 are per (row,
     * group of 32): max |x| / 127.
     */
    void (*pack_row[KERN_A_COUNT])(const float *x, int k, int k_pad, enum kern_wfmt wfmt,
                                   const struct kern_tile *tile, int row);

    /*
     * NULL if a combination is not used: F32 and BF16 go with BF16 and B12, which give the same
     * bits, F32 with F32 and F16 (the bits of the same weights as F32), I8 with I8 and I4.
     */
    kern_matmul_fn *matmul[KERN_A_COUNT][KERN_W_COUNT];
    kern_narrow_fn *narrow;

    /*
     * F32 over F32 panels, BF16 over BF16 panels. I8 over I8 blocks of pages, for tiles of any
     * height: matmul_pages takes queries that pack_row packed for KERN_W_I8, matmul_segs
     * probabilities from pack_probs.
     */
    kern_matmul_pages_fn *matmul_pages[KERN_A_COUNT];
    kern_matmul_segs_fn *matmul_segs[KERN_A_COUNT];

    /*
     * o[i] = x[i] / sqrt(mean(x^2) + eps) * w[i]; the sum in a fixed order of n alone. o may be x.
     */
    void (*rmsnorm)(const float *x, const float *w, float *o, int n, float eps);

    /*
     * o[i] = (x[i] - mean) / sqrt(mean((x - mean)^2) + eps) * w[i] + b[i], the mean first; b NULL:
     * no b[i]. The sums in a fixed order of n alone. o may be x.
     */
    void (*layernorm)(const float *x, const float *w, const float *b, float *o, int n, float eps);

    /*
     * Rotates one head in place: the first n pairs (i, i + apart), apart >= n; cos and sin [n].
     * Hugging Face's layout has halves apart.
     */
    void (*rope)(float *x, const float *cos, const float *sin, int n, int apart);

    /*
     * o[i] = act(g[i]) * u[i]; o may be g. GELU_TANH is the approximation by tanh:
     * x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), GELU itself x / 2 * (1 + erf(x /
     * sqrt(2))), SIGMOID 1 / (1 + exp(-x)).
     */
    void (*glu[KERN_ACT_COUNT])(const float *g, const float *u, float *o, int n);

    /* x[i] = cap * tanh(scale * x[i] / cap), cap > 0 */
    void (*softcap)(float *x, int n, float scale, float cap);

    /* y[i] += x[i] */
    void (*add)(float *y, const float *x, int n);

    /*
     * One token of a short convolution between two gates, channel by channel: now[i] = b[i] * u[i],
     * o[i] = c[i] * (bias[i] + the sum over the tokens of their inputs times w), the oldest first.
     * before [taps - 1]: inputs of the tokens before this one. b and c NULL: no gates, and o may be
     * u. The same bits at every level.
     */
    void (*conv_token)(const struct kern_conv *conv, const float *b, const float *c, const float *u,
                       const float *const *before, float *now, float *o, int n);

    /*
     * One token of n values of a delta net's head (Yang, Kautz, Hatamizadeh: "Gated Delta
     * Networks", 2024), whose state s is [d_k][KERN_DELTA], zeros in columns from n on:
     *   delta = (v - decay * sum of k[i] s[i]) * beta,  s[i] = decay * s[i] + k[i] * delta,
     *   o = sum of q[i] s[i].
     * Sums of even and odd i are added at the end. ret_delta [KERN_DELTA], o [n]. delta_again does
     * the same to s with a delta that is known. The same bits at every level.
     */
    void (*delta_token)(const struct kern_delta *t, float *s, float *ret_delta, float *o);
    void (*delta_again)(const struct kern_delta *t, const float *delta, float *s);

    /*
     * The gates of n heads for a token: beta = 1 / (1 + exp(-beta)),
     * decay = exp(-exp(a_log) * log(1 + exp(decay + bias))). The same bits at every level.
     */
    void (*delta_gates)(const float *a_log, const float *bias, float *beta, float *decay, int n);

    /*
     * s[0..n) (n a multiple of 32): keys outside [lo, hi) become exactly 0 from any value, the
     * others exp(scale * s[i] - max) with max the largest scaled score within; scale > 0. lo < hi
     * or both 0 (empty: max = -INFINITY, sum = 0). The result does not depend on n.
     */
    struct kern_softmax (*softmax_keys)(float *s, int n, int lo, int hi, float scale);

    /*
     * The same, packed as row `row` of a tile of BF16 and K = n, in one pass; s[0..n) is undefined
     * after it. Exponentials may be off by 1e-4 before they are rounded, and `sum` is that of the
     * rounded ones. NULL: softmax_keys, then pack_row does it.
     */
    struct kern_softmax (*softmax_pack)(float *s, int n, int lo, int hi, float scale,
                                        const struct kern_tile *tile, int row);

    /*
     * Adds the softmax of other keys of the row, and their weighted sum x[n], to `to` and y[n],
     * both sides times exp(their max - the larger max).
     */
    void (*merge_softmax)(struct kern_softmax *to, float *y, const struct kern_softmax *from,
                          const float *x, int n);

    /* y[i] *= a */
    void (*scale)(float *y, float a, int n);

    /*
     * Index of the largest value, the lowest on a tie; *ret_finite is false if any value is NaN or
     * +inf (then the index is any in range). n >= 1.
     */
    int (*argmax)(const float *x, int n, bool *ret_finite);

    /* log(sum(exp(x))) in double, in a fixed order of n alone; no NaN, no +inf, n >= 1. */
    double (*log_sum_exp)(const float *x, int n);

    /*
     * The random race, see race.h; the same bits at every level. Every id has a number with the
     * exponential distribution of mean 1. race_noise: of n blocks of ids from block0, the least
     * number and its place in the block. race_block: the numbers of a block of which these two are
     * known. race_keys: exp((x[i] - top) * scale) / noise[i], for x[i] <= top; x may be -INFINITY.
     * block_max: ret[b], the maximum of the b-th 32 of n values, the last block may be shorter.
     */
    void (*race_noise)(const struct kern_race *r, int block0, int n, float *ret_least,
                       uint8_t *ret_place);
    void (*race_block)(const struct kern_race *r, int block, float least, int place,
                       float ret[KERN_RACE_BLOCK]);
    void (*race_keys)(const float *x, const float *noise, int n, float top, float scale,
                      float *ret);
    void (*block_max)(const float *x, int n, float *ret);

    /*
     * Reads `bytes`, a multiple of 64, from each of n places (1, 2 or KERN_READ_PLACES), a line of
     * each in turn, and prefetches `ahead` bytes before them, if that is not 0. Returns the bitwise
     * or of all words of 64 bits.
     */
    uint64_t (*read_memory)(const uint8_t *const *from, int n, size_t bytes, size_t ahead);

    /*
     * One position's key (or value) into a page. K pages are one panel with K = dims, outputs = 32
     * positions; V pages are d_pad / 32 panels with K = 32 positions, outputs = 32 dims. x[d], d
     * valid, zero-padded to d_pad. slot in [0, 32). Other threads may write other slots of the same
     * page at the same time: nothing but the slot is touched.
     */
    void (*put_key[KERN_KV_COUNT])(void *panel, const float *x, int d, int d_pad, int slot);
    void (*put_value[KERN_KV_COUNT])(void *panels, const float *x, int d, int d_pad, int slot);

    /*
     * Probabilities for I8 values, see kv_int8.h. read_scales begins with the value blocks of some
     * pages. pack_probs packs row `row` of a tile for matmul_segs[KERN_A_I8] from the exponentials
     * e[s->n] of softmax_keys, of which the row sees [lo, hi); a tile takes KERN_PROBS_BYTES(n) for
     * each row, and scale[n_rows].
     */
    void (*read_scales)(const void *const *blocks, int n_blocks, struct kern_value_scales *s);
    kern_pack_probs_fn *pack_probs;

    /*
     * 32 rows of a matrix into one panel of any format but B12, I4, I4A, I5 and I5A. rows[i]
     * points at k elements of type src (any alignment), or is NULL (a row of zeros). importance
     * [k_pad], not negative: how much the squared error of a column counts in I4K and I5K; NULL:
     * these are packed roughly and fast. Bit-identical at every level for finite weights: BF16 and
     * F16 from F32 round to nearest even; the others as convert.h defines.
     */
    void (*pack_panel)(enum kern_wfmt fmt, enum kern_src src, const void *const rows[KERN_PANEL],
                       const float *importance, int k, int k_pad, void *panel);

    /*
     * A BF16 panel to a B12 panel, the same bytes at every level. Returns false and leaves the
     * panel undefined if there are too many exceptions.
     */
    bool (*encode_panel)(const void *bf16_panel, int k_pad, void *panel);

    /* Output n of one panel back as k floats (embedding lookup). */
    void (*unpack_row)(enum kern_wfmt fmt, const void *panel, int n, int k, float *ret_row);
};

/* The best format for weights of format fmt at this level: BF16 may become B12. */
enum kern_wfmt kern_kept_as(const struct kern *kern, enum kern_wfmt fmt, int k_pad);

/*
 * pack_panel for any format, from blocks into their form; B12 through a BF16 panel in `words`
 * (unused for other formats). Returns false and leaves the panel undefined if the weights do not
 * fit B12.
 */
bool kern_pack_panel(const struct kern *kern, enum kern_wfmt fmt, enum kern_src src,
                     const void *const rows[KERN_PANEL], const float *importance, int k, int k_pad,
                     void *words, void *panel);

/*
 * The best table this CPU can run ("auto" or NULL), or the one named; NULL for a name that is
 * unknown or that this CPU cannot run. The environment variable HEARTH_KERNELS is read by the
 * server, not here.
 *
 * The best is the highest level, but not "avx512bf16" on a CPU that makes less products a second by
 * its bf16 dot product than by f32 FMA: measured once, see kern_automatic.
 */
const struct kern *kern_select(const char *limit);

/*
 * The name of the best level, and what was measured for it: products a second of the bf16 dot
 * product over those of f32 FMA; 0: nothing.
 */
const char *kern_automatic(double *ret_bf16_rate);

/* All levels compiled in, lowest first, whether or not this CPU runs them; NULL-terminated. */
const char *const *kern_names(void);
bool kern_runs_here(const char *name);

/* The number added to weights of an integer format when they are stored. */
static inline int kern_offset(enum kern_wfmt fmt)
{
    static const uint8_t offsets[KERN_W_COUNT] = {
        [KERN_W_I8] = 128, [KERN_W_I4] = 8, [KERN_W_I5] = 16, [KERN_W_I6S] = 32};
    return offsets[fmt];
}

/*
 * How rows are corrected for an integer format; formats of a kind other than OFFSETS share rows.
 * HALVES: the sums of activations of k 0-15 in the lower and of k 16-31 in the upper 16 bits of a
 * word, each of 16 numbers up to 127.
 */
enum kern_corr { KERN_CORR_OFFSETS, KERN_CORR_HALVES, KERN_CORR_MINIMA };
static inline enum kern_corr kern_corr_of(enum kern_wfmt fmt)
{
    return fmt < KERN_W_I4A                        ? KERN_CORR_OFFSETS
           : fmt == KERN_W_I5 || fmt == KERN_W_I6S ? KERN_CORR_HALVES
                                                   : KERN_CORR_MINIMA;
}

/* Formats with a minimum. */
static inline bool kern_has_minimum(enum kern_wfmt fmt)
{
    return kern_corr_of(fmt) == KERN_CORR_MINIMA;
}

/* Bytes of a group of integers before its scales. */
static inline int kern_quads_bytes(enum kern_wfmt fmt)
{
    return fmt == KERN_W_I8                                             ? 1024
           : fmt == KERN_W_I6S                                          ? 768
           : fmt == KERN_W_I5 || fmt == KERN_W_I5A || fmt == KERN_W_I5K ? 640
                                                                        : 512;
}

static inline int32_t kern_half_sums(int low, int high)
{
    return (int32_t)((uint32_t)high << 16 | (uint16_t)low);
}

static inline int kern_low_sum(int32_t word)
{
    return (int16_t)(uint32_t)word;
}

static inline int kern_high_sum(int32_t word)
{
    return word >> 16;
}
