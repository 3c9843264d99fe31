/* SPDX-License-Identifier: MIT */
/* The tokenizer of a GGUF file; see gguf.h. */
#include "tokenizer/gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/gguf.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_internal.h"

/* Types of tokens, as the format numbers them. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

enum { MAX_TEXT_BYTES = 256 << 20, MARK_BYTES = 3 };

static const char mark[] = "\xe2\x96\x81"; /* U+2581, a blank in SentencePiece's vocabularies */

enum { BOS, EOS, UNK, PAD, N_IDS };
static const char *const id_names[N_IDS] = {"bos", "eos", "unknown", "padding"};

/* ---- how text is split ---------------------------------------------------------------------- */

#define BYTE_LEVEL(regex)                                                                          \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"                    \
    "\"use_regex\":" regex "}"
#define SEQUENCE(first, second) "{\"type\":\"Sequence\",\"pretokenizers\":[" first "," second "]}"
#define SPLIT(regex)                                                                               \
    SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},"                          \
             "\"behavior\":\"Isolated\",\"invert\":false}",                                        \
             BYTE_LEVEL("false"))
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define MARKS " ?[^\\\\s\\\\p{L}\\\\p{N}]+"
#define BLANKS "*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define WORDS(digits)                                                                              \
    SPLIT(CONTRACTIONS "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" digits "|" MARKS                 \
                       "[\\\\r\\\\n]" BLANKS)
#define UPPER "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define LOWER "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define FRONT "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"

/* Values of tokenizer.ggml.pre. Each is here because a published tokenizer.json agrees with it. */
static const struct rule {
    const char *names[4];
    const char *pre_tokenizer;
    bool nfc, ignore_merges, add_bos;
} rules[] = {
    {{"smollm"},
     SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}", BYTE_LEVEL("true")),
     false,
     false,
     false},
    {{"llama-bpe", "llama3", "llama-v3"}, WORDS("\\\\p{N}{1,3}"), false, true, true},
    {{"qwen2"}, WORDS("\\\\p{N}"), true, false, false},
    {{"tekken"},
     SPLIT(FRONT UPPER "*" LOWER "+|" FRONT UPPER "+" LOWER "*|\\\\p{N}|" MARKS
                       "[\\\\r\\\\n/]" BLANKS),
     false,
     true,
     true},
    {{"gpt-2"}, BYTE_LEVEL("true"), false, false, false},
};

/* SentencePiece without a blank in front, as the tokenizer.json of Gemma has it. */
static const struct rule sentencepiece = {
    {"llama"},
    "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\","
    "\"invert\":false}",
    false,
    false,
    true};

/* ---- reading -------------------------------------------------------------------------------- */

struct loader {
    struct gguf *g;
    const struct rule *rule;
    struct tok_vocab vocab; /* as tokenizer.json has it: not the UNUSED ones */
    const struct gguf_key *types, *scores, *merges; /* NULL: the file has none */
    size_t n;                                       /* ids */
    int32_t ids[N_IDS];                             /* -1: none */
    bool is_spm, add_bos, add_eos;
    char *err;
    size_t errlen;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct loader *l, const char *format, ...)
{
    va_list args;
    int len = snprintf(l->err, l->errlen, "%.300s: ", l->g->name);
    va_start(args, format);
    if (len >= 0 && (size_t)len < l->errlen)
        vsnprintf(l->err + len, l->errlen - (size_t)len, format, args);
    va_end(args);
    return TOK_EINVAL;
}

/* Puts the file's name in front of a sentence that lacks it. */
static int name_file(struct loader *l, int rc)
{
    char sentence[384];
    if (rc != TOK_EINVAL) return rc;
    snprintf(sentence, sizeof(sentence), "%s", l->err);
    return refuse(l, "%s", sentence);
}

/* An array with an element for each token; 0 with *ret NULL if the file has none. */
static int read_array(struct loader *l, const char *name, enum gguf_type kind,
                      const struct gguf_key **ret)
{
    int rc = gguf_array(l->g, name, kind, ret, l->err, l->errlen);
    if (rc == 1 && kind != GGUF_STRING && (*ret)->n != l->n)
        return refuse(l, "key %s has %zu elements, tokenizer.ggml.tokens has %zu", name, (*ret)->n,
                      l->n);
    return rc < 0 ? rc : 0;
}

static int64_t type_of(const struct loader *l, size_t id)
{
    return l->types ? gguf_int_at(l->types, id) : NORMAL;
}

static int add_token(struct loader *l, uint32_t id, const char *s, size_t len)
{
    char marked[MARK_BYTES * TOK_MAX_ADDED_BYTES];
    size_t n = 0;
    if (len == 0 || len > TOK_MAX_ADDED_BYTES)
        return refuse(l, "key tokenizer.ggml.tokens: id %u has %zu bytes; 1 to %d are read", id,
                      len, TOK_MAX_ADDED_BYTES);
    if (l->is_spm && type_of(l, id) == USER_DEFINED) {
        for (size_t i = 0; i < len; i++) {
            if (s[i] == ' ')
                memcpy(marked + n, mark, MARK_BYTES);
            else
                marked[n] = s[i];
            n += s[i] == ' ' ? MARK_BYTES : 1;
        }
        s = marked;
        len = n;
    }
    return name_file(l, tok_vocab_add(&l->vocab, s, len, id, l->err, l->errlen));
}

static int read_tokens(struct loader *l)
{
    static const char name[] = "tokenizer.ggml.tokens";
    const struct gguf_key *tokens = NULL;
    int rc = read_array(l, name, GGUF_STRING, &tokens);
    if (rc) return rc;
    if (!tokens) return refuse(l, "key %s is missing", name);
    l->n = tokens->n;
    for (size_t i = 0; i < l->g->n_tensors; i++) {
        const struct gguf_tensor *t = &l->g->tensors[i];
        if (strcmp(t->name, "token_embd.weight") == 0 && t->dims[1] != (int64_t)l->n)
            return refuse(l, "key %s has %zu elements, token_embd.weight has %lld rows", name, l->n,
                          (long long)t->dims[1]);
    }
    if (l->n > TOK_MAX_IDS)
        return refuse(l, "key %s has %zu elements; at most %u are read", name, l->n, TOK_MAX_IDS);
    rc = read_array(l, "tokenizer.ggml.token_type", GGUF_I64, &l->types);
    const unsigned char *at = tokens->data;
    for (uint32_t id = 0; !rc && id < l->n; id++) {
        size_t len;
        const char *s = gguf_next_string(&at, &len);
        int64_t type = type_of(l, id);
        if (type < NORMAL || type > BYTE)
            rc = refuse(l, "key tokenizer.ggml.token_type: id %u has %lld; types are %d to %d", id,
                        (long long)type, NORMAL, BYTE);
        else if (type != UNUSED)
            rc = add_token(l, id, s, len);
    }
    return rc;
}

static int read_ids(struct loader *l)
{
    for (int i = 0; i < N_IDS; i++) {
        char name[64];
        int64_t id = -1;
        size_t len;
        snprintf(name, sizeof(name), "tokenizer.ggml.%s_token_id", id_names[i]);
        int rc = gguf_int(l->g, name, 0, (int64_t)l->n - 1, &id, l->err, l->errlen);
        if (rc < 0) return rc;
        l->ids[i] = (int32_t)id;
        if (rc && !tok_vocab_string(&l->vocab, l->ids[i], &len))
            return refuse(l, "key %s is %d, which is an unused token", name, l->ids[i]);
    }
    return 0;
}

/* The arrays that every use of the file needs. */
static int open_loader(struct loader *l, const char *file, char *err, size_t errlen)
{
    const char *model = "";
    *l = (struct loader){.err = err, .errlen = errlen};
    int rc = gguf_open(&l->g, NULL, file, 0, err, errlen);
    if (!rc) rc = gguf_string(l->g, "tokenizer.ggml.model", &model, err, errlen) < 0;
    if (rc) return rc < 0 ? rc : TOK_EINVAL;
    l->is_spm = strcmp(model, "llama") == 0;
    rc = read_tokens(l);
    return rc ? rc : read_ids(l);
}

static void close_loader(struct loader *l)
{
    gguf_close(l->g);
    tok_vocab_finish(&l->vocab);
}

/* ---- the rule ------------------------------------------------------------------------------- */

/* The file does not say how text becomes tokens; that of the model it was made from would. */
static int refuse_rule(struct loader *l, const char *key, const char *value, const char *why)
{
    const char *base = NULL;
    char err[1], shown[64], quoted[80] = "";
    if (gguf_string(l->g, "general.base_model.0.repo_url", &base, err, sizeof(err)) < 0)
        base = NULL;
    if (value)
        snprintf(quoted, sizeof(quoted), " '%s'", shown_text(shown, 64, value, strlen(value)));
    return refuse(l, "%s%s %s; pass the base model's: --tokenizer org/name%s%.200s%s", key, quoted,
                  why, base ? " (" : "", base ? base : "", base ? ")" : "");
}

static int find_rule(struct loader *l)
{
    static const char key[] = "tokenizer.ggml.pre";
    const char *pre = NULL;
    int rc = gguf_string(l->g, key, &pre, l->err, l->errlen);
    if (rc < 0) return rc;
    for (size_t i = 0; pre && i < sizeof(rules) / sizeof(rules[0]); i++)
        for (int k = 0; k < 4 && rules[i].names[k]; k++)
            if (strcmp(pre, rules[i].names[k]) == 0) l->rule = &rules[i];
    if (l->rule) return 0;
    bool says = pre && strcmp(pre, "default") != 0;
    return refuse_rule(l, key, pre,
                       says  ? "is a rule for splitting text that is not known"
                       : pre ? "does not say how text is split"
                             : "is missing: it says how text is split");
}

static int choose_rule(struct loader *l)
{
    bool blank = true;
    const char *model = NULL;
    int rc = gguf_string(l->g, "tokenizer.ggml.model", &model, l->err, l->errlen);
    if (rc < 0) return rc;
    if (!model) return refuse(l, "key tokenizer.ggml.model is missing");
    if (strcmp(model, "gpt2") == 0) return find_rule(l);
    if (!l->is_spm)
        return refuse_rule(l, "tokenizer.ggml.model", model, "is a tokenizer that is not built");
    rc = gguf_bool(l->g, "tokenizer.ggml.add_space_prefix", &blank, l->err, l->errlen);
    if (rc < 0) return rc;
    l->rule = &sentencepiece;
    return blank ? refuse_rule(l, "tokenizer.ggml.model", model,
                               "with a blank in front of a text does not say how text is split")
                 : 0;
}

/* add_bos_token and add_eos_token; by default a begin-of-text as the rule has it. */
static int read_flags(struct loader *l)
{
    l->add_bos = l->rule->add_bos && l->ids[BOS] >= 0;
    if (gguf_bool(l->g, "tokenizer.ggml.add_bos_token", &l->add_bos, l->err, l->errlen) < 0 ||
        gguf_bool(l->g, "tokenizer.ggml.add_eos_token", &l->add_eos, l->err, l->errlen) < 0)
        return TOK_EINVAL;
    for (int i = BOS; i <= EOS; i++)
        if ((i == BOS ? l->add_bos : l->add_eos) && l->ids[i] < 0)
            return refuse(l, "key tokenizer.ggml.%s_token_id is missing, and one is to be added",
                          id_names[i]);
    return 0;
}

static int read_rule(struct loader *l)
{
    int rc = choose_rule(l);
    if (!rc) rc = read_flags(l);
    if (rc) return rc;
    if (!l->types) return refuse(l, "key tokenizer.ggml.token_type is missing");
    if (l->is_spm) {
        rc = read_array(l, "tokenizer.ggml.scores", GGUF_F64, &l->scores);
        if (!rc && !l->scores) rc = refuse(l, "key tokenizer.ggml.scores is missing");
    } else {
        rc = read_array(l, "tokenizer.ggml.merges", GGUF_STRING, &l->merges);
        if (!rc && !l->merges) rc = refuse(l, "key tokenizer.ggml.merges is missing");
    }
    return rc;
}

/* ---- merges of SentencePiece ---------------------------------------------------------------- */

/* A token in two parts that are tokens as well. */
struct merge {
    float score;
    uint32_t whole;
    uint16_t left_bytes, left_chars, right_chars;
};

struct merges {
    struct merge *items;
    size_t n, cap;
};

/* As transformers sorts them: by score downwards, then the longer parts first, in characters. */
static int compare_merges(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    if (x->left_chars != y->left_chars) return y->left_chars - x->left_chars;
    if (x->right_chars != y->right_chars) return y->right_chars - x->right_chars;
    return x->whole < y->whole ? -1 : 1;
}

static int append_merge(struct loader *l, struct merges *m, const struct merge *one)
{
    if (m->n == TOK_MAX_IDS)
        return refuse(l, "its tokens are made of others in more than %u ways", TOK_MAX_IDS);
    if (m->n == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 4096;
        struct merge *items = realloc(m->items, cap * sizeof(*items));
        if (!items) return TOK_ENOMEM;
        m->items = items;
        m->cap = cap;
    }
    m->items[m->n++] = *one;
    return 0;
}

static int split_token(struct loader *l, uint32_t id, struct merges *m)
{
    size_t len = 0, n_chars = 0;
    const char *s = tok_vocab_string(&l->vocab, (int32_t)id, &len);
    int64_t type = type_of(l, id);
    if (type != NORMAL && type != USER_DEFINED) return 0;
    struct merge one = {.score = type == NORMAL ? (float)gguf_number_at(l->scores, id) : 0,
                        .whole = id};
    for (size_t i = 0; i < len; i++)
        n_chars += ((unsigned char)s[i] & 0xC0) != 0x80;
    for (size_t i = 1, chars = 1; i < len; i++) {
        if (((unsigned char)s[i] & 0xC0) == 0x80) continue;
        one.left_bytes = (uint16_t)i;
        one.left_chars = (uint16_t)chars;
        one.right_chars = (uint16_t)(n_chars - chars);
        chars++;
        if (tok_vocab_find(&l->vocab, s, i) < 0 || tok_vocab_find(&l->vocab, s + i, len - i) < 0)
            continue;
        int rc = append_merge(l, m, &one);
        if (rc) return rc;
    }
    return 0;
}

static int write_split_merges(struct loader *l, struct jw *w)
{
    struct merges m = {0};
    int rc = 0;
    for (uint32_t id = 0; !rc && id < l->n; id++)
        rc = split_token(l, id, &m);
    if (m.n) qsort(m.items, m.n, sizeof(*m.items), compare_merges);
    for (size_t i = 0; !rc && i < m.n; i++) {
        size_t len, left = m.items[i].left_bytes;
        const char *s = tok_vocab_string(&l->vocab, (int32_t)m.items[i].whole, &len);
        jw_open(w, NULL, '[');
        jw_string(w, NULL, s, left);
        jw_string(w, NULL, s + left, len - left);
        jw_close(w);
    }
    free(m.items);
    return rc;
}

/* ---- the text of a tokenizer.json ------------------------------------------------------------ */

#define JSON(w, name, text) jw_json(w, name, text, strlen(text))

static void write_token(const struct loader *l, struct jw *w, const char *name, int32_t id)
{
    size_t len;
    const char *s = tok_vocab_string(&l->vocab, id, &len);
    jw_string(w, name, s, len);
}

static void write_added(const struct loader *l, struct jw *w)
{
    jw_open(w, "added_tokens", '[');
    for (uint32_t id = 0; id < l->n; id++) {
        int64_t type = type_of(l, id);
        if (type != CONTROL && type != USER_DEFINED) continue;
        jw_open(w, NULL, '{');
        jw_int(w, "id", id);
        write_token(l, w, "content", (int32_t)id);
        jw_bool(w, "single_word", false);
        jw_bool(w, "lstrip", false);
        jw_bool(w, "rstrip", false);
        jw_bool(w, "normalized", false);
        jw_bool(w, "special", type == CONTROL);
        jw_close(w);
    }
    jw_close(w);
}

/* {NAME: {"id": ID, "type_id": TYPE}} */
static void write_piece(struct jw *w, const struct loader *l, int32_t token, int type)
{
    jw_open(w, NULL, '{');
    jw_open(w, token < 0 ? "Sequence" : "SpecialToken", '{');
    if (token < 0)
        jw_text(w, "id", type ? "B" : "A");
    else
        write_token(l, w, "id", token);
    jw_int(w, "type_id", type);
    jw_close(w);
    jw_close(w);
}

static void write_post_processor(const struct loader *l, struct jw *w)
{
    const bool added[] = {l->add_bos, l->add_eos && (!l->add_bos || l->ids[BOS] != l->ids[EOS])};
    jw_open(w, "post_processor", '{');
    jw_text(w, "type", "TemplateProcessing");
    for (int n = 1; n <= 2; n++) {
        jw_open(w, n == 1 ? "single" : "pair", '[');
        for (int type = 0; type < n; type++) {
            if (l->add_bos) write_piece(w, l, l->ids[BOS], type);
            write_piece(w, l, -1, type);
            if (l->add_eos) write_piece(w, l, l->ids[EOS], type);
        }
        jw_close(w);
    }
    jw_open(w, "special_tokens", '{');
    for (int i = BOS; i <= EOS; i++) {
        size_t len;
        if (!added[i]) continue;
        const char *s = tok_vocab_string(&l->vocab, l->ids[i], &len);
        jw_key(w, s, len);
        jw_open(w, NULL, '{');
        jw_ints(w, "ids", &l->ids[i], 1);
        jw_close(w);
    }
    jw_close(w);
    jw_close(w);
}

static int write_model(struct loader *l, struct jw *w)
{
    int rc = 0;
    jw_open(w, "model", '{');
    jw_text(w, "type", "BPE");
    if (l->is_spm && l->ids[UNK] >= 0) write_token(l, w, "unk_token", l->ids[UNK]);
    jw_bool(w, "fuse_unk", l->is_spm);
    jw_bool(w, "byte_fallback", l->is_spm);
    jw_bool(w, "ignore_merges", l->rule->ignore_merges);
    jw_open(w, "vocab", '{');
    for (uint32_t id = 0; id < l->n; id++) {
        size_t len;
        const char *s = tok_vocab_string(&l->vocab, (int32_t)id, &len);
        if (!s) continue;
        jw_key(w, s, len);
        jw_int(w, NULL, id);
    }
    jw_close(w);
    jw_open(w, "merges", '[');
    const unsigned char *at = l->merges ? l->merges->data : NULL;
    for (size_t i = 0; l->merges && i < l->merges->n; i++) {
        size_t len;
        const char *s = gguf_next_string(&at, &len);
        jw_string(w, NULL, s, len);
    }
    if (l->is_spm) rc = write_split_merges(l, w);
    jw_close(w);
    jw_close(w);
    return rc;
}

/* Ends the text and hands it out, owned. */
static int give_text(struct loader *l, struct buf *b, int rc, char **ret, size_t *ret_len)
{
    if (!rc && b->too_large)
        rc = refuse(l, "its tokenizer takes more than %d MiB as text", MAX_TEXT_BYTES >> 20);
    else if (!rc && b->failed)
        rc = TOK_ENOMEM;
    if (rc) {
        buf_finish(b);
        return rc;
    }
    *ret = b->data;
    *ret_len = b->len;
    return 0;
}

static int write_tokenizer(struct loader *l, char **ret, size_t *ret_len)
{
    struct buf b;
    struct jw w;
    buf_init(&b, MAX_TEXT_BYTES);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_text(&w, "version", "1.0");
    write_added(l, &w);
    if (l->is_spm)
        JSON(&w, "normalizer",
             "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}");
    else if (l->rule->nfc)
        JSON(&w, "normalizer", "{\"type\":\"NFC\"}");
    JSON(&w, "pre_tokenizer", l->rule->pre_tokenizer);
    if (l->add_bos || l->add_eos) write_post_processor(l, &w);
    if (l->is_spm)
        JSON(&w, "decoder",
             "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
             "\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
             "{\"type\":\"Fuse\"}]}");
    else
        JSON(&w, "decoder", BYTE_LEVEL("true"));
    int rc = write_model(l, &w);
    jw_close(&w);
    return give_text(l, jw_end(&w), rc, ret, ret_len);
}

/* ---- opening -------------------------------------------------------------------------------- */

bool tok_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Blanks and U+2581 are the same. */
static bool same_token(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t i = 0, k = 0;
    while (i < a_len && k < b_len) {
        bool a_mark = a_len - i >= MARK_BYTES && memcmp(a + i, mark, MARK_BYTES) == 0;
        bool b_mark = b_len - k >= MARK_BYTES && memcmp(b + k, mark, MARK_BYTES) == 0;
        if ((a_mark ? ' ' : a[i]) != (b_mark ? ' ' : b[k])) return false;
        i += a_mark ? MARK_BYTES : 1;
        k += b_mark ? MARK_BYTES : 1;
    }
    return i == a_len && k == b_len;
}

/* A tokenizer.json from elsewhere must have the file's tokens. */
static int check_tokens(struct loader *l, const struct tok *t)
{
    for (uint32_t id = 0; id < l->n; id++) {
        size_t own_len, len = 0;
        char own_shown[64], shown[64];
        const char *own = tok_vocab_string(&l->vocab, (int32_t)id, &own_len);
        const char *s = tok_token_string(t, (int32_t)id, &len);
        if (!own || (s && same_token(s, len, own, own_len))) continue;
        return refuse(l, "tokenizer.json is of another model: id %u is \"%s\", in the file \"%s\"",
                      id, shown_text(shown, sizeof(shown), s ? s : "", len),
                      shown_text(own_shown, sizeof(own_shown), own, own_len));
    }
    return 0;
}

static int load_text(struct loader *l, struct tok *t, const char *dir)
{
    char *text = NULL;
    size_t len = 0;
    const char *given = NULL;
    int rc = dir ? file_load(dir, "tokenizer.json", MAX_TEXT_BYTES, &text, &len, l->err, l->errlen)
                 : gguf_string(l->g, "tokenizer.huggingface.json", &given, l->err, l->errlen);
    if (rc < 0) return rc;
    bool built = !dir && !given;
    if (built && ((rc = read_rule(l)) || (rc = write_tokenizer(l, &text, &len)))) return rc;
    snprintf(t->source, sizeof(t->source), "%s%s", built ? "rule " : "",
             built ? l->rule->names[0]
             : dir ? "tokenizer.json"
                   : "tokenizer.huggingface.json");
    rc = tok_load(t, given ? given : text, given ? strlen(given) : len, l->err, l->errlen);
    free(text);
    rc = name_file(l, rc);
    return rc || l->rule ? rc : check_tokens(l, t);
}

int tok_gguf_load(struct tok *t, const char *file, const char *dir, char *err, size_t errlen)
{
    struct loader l;
    int rc = open_loader(&l, file, err, errlen);
    if (!rc) rc = load_text(&l, t, dir);
    close_loader(&l);
    if (rc == TOK_ENOMEM) snprintf(err, errlen, "%.300s: out of memory", file);
    return rc;
}

/* ---- the text of a tokenizer_config.json ----------------------------------------------------- */

static int write_config(struct loader *l, char **ret, size_t *ret_len)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    static const char plain_key[] = "tokenizer.chat_template",
                      tools_key[] = "tokenizer.chat_template.tool_use";
    const char *plain = NULL, *tools = NULL;
    struct buf b;
    struct jw w;
    if (gguf_string(l->g, plain_key, &plain, l->err, l->errlen) < 0 ||
        gguf_string(l->g, tools_key, &tools, l->err, l->errlen) < 0)
        return TOK_EINVAL;
    buf_init(&b, MAX_TEXT_BYTES);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    for (int i = BOS; i <= PAD; i++)
        if (l->ids[i] >= 0) write_token(l, &w, names[i], l->ids[i]);
    if (plain || tools) {
        jw_open(&w, "chat_template", '{');
        if (plain) jw_text(&w, "default", plain);
        if (tools) jw_text(&w, "tool_use", tools);
        jw_close(&w);
    }
    jw_close(&w);
    return give_text(l, jw_end(&w), 0, ret, ret_len);
}

int tok_gguf_config(char **ret, size_t *ret_len, const char *file, char *err, size_t errlen)
{
    struct loader l;
    int rc = open_loader(&l, file, err, errlen);
    if (!rc) rc = write_config(&l, ret, ret_len);
    close_loader(&l);
    if (rc == TOK_ENOMEM) snprintf(err, errlen, "%.300s: out of memory", file);
    return rc;
}
