/* SPDX-License-Identifier: MIT */
/* The tokenizer of a GGUF file; see gguf.h. */
#include "tokenizer/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/gguf.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_internal.h"

/* Types of tokens, as the format numbers them. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

enum { MAX_TEXT_BYTES = 256 << 20, MARK_BYTES = 3 };

#define MARK "\xe2\x96\x81" /* U+2581, a blank in SentencePiece's vocabularies */

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
    const char *pre_tokenizer, *normalizer; /* JSON; NULL: none */
    bool ignore_merges, add_bos;
} rules[] = {
    {.names = {"smollm"},
     .pre_tokenizer =
         SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}", BYTE_LEVEL("true"))},
    {.names = {"llama-bpe", "llama3", "llama-v3"},
     .pre_tokenizer = WORDS("\\\\p{N}{1,3}"),
     .ignore_merges = true,
     .add_bos = true},
    {.names = {"qwen2"}, .pre_tokenizer = WORDS("\\\\p{N}"), .normalizer = "{\"type\":\"NFC\"}"},
    {.names = {"tekken"},
     .pre_tokenizer = SPLIT(FRONT UPPER "*" LOWER "+|" FRONT UPPER "+" LOWER "*|\\\\p{N}|" MARKS
                                        "[\\\\r\\\\n/]" BLANKS),
     .ignore_merges = true,
     .add_bos = true},
    {.names = {"gpt-2"}, .pre_tokenizer = BYTE_LEVEL("true")},
};

/*
 * SentencePiece without a blank in front, as the tokenizer.json of Gemma has it. Blanks are U+2581
 * before the split looks for them, so merges run over whole texts.
 */
#define REPLACE(from, to)                                                                          \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"
static const struct rule sentencepiece = {
    .pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},"
                     "\"behavior\":\"MergedWithPrevious\",\"invert\":false}",
    .normalizer = REPLACE(" ", MARK),
    .add_bos = true};

/* ---- reading -------------------------------------------------------------------------------- */

struct loader {
    struct gguf *g;
    const struct rule *rule;
    struct tok_vocab vocab;       /* as tokenizer.json has it: not the UNUSED ones */
    const struct gguf_key *types; /* NULL: the file has none */
    const struct gguf_key *ranks; /* scores of SentencePiece, else merges */
    size_t n;                     /* ids */
    int32_t ids[N_IDS];           /* -1: none */
    const char *model;            /* borrowed from g; NULL: the file has none */
    bool is_spm, is_gemma4;       /* is it "llama" or "gemma4"; is it "gemma4" */
    bool added[2];                /* whether BOS, EOS go around a text */
    char *err;
    size_t errlen;
};

#define refuse(l, format, ...)                                                                     \
    fail_with(TOK_EINVAL, (l)->err, (l)->errlen, "%.300s: " format, (l)->g->name, ##__VA_ARGS__)

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

/* Whether merges follow from scores. */
static bool has_scores(const struct loader *l)
{
    return l->is_spm && !l->is_gemma4;
}

/* Blanks as U+2581; returns the length. `out` has room for MARK_BYTES * len. */
static size_t mark_blanks(char *out, const char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        size_t k = s[i] == ' ' ? MARK_BYTES : 1;
        memcpy(out + n, k > 1 ? MARK : s + i, k);
        n += k;
    }
    return n;
}

static int add_token(struct loader *l, uint32_t id, const char *s, size_t len)
{
    char marked[MARK_BYTES * TOK_MAX_ADDED_BYTES];
    if (len == 0 || len > TOK_MAX_ADDED_BYTES)
        return refuse(l, "key tokenizer.ggml.tokens: id %u has %zu bytes; 1 to %d are read", id,
                      len, TOK_MAX_ADDED_BYTES);
    if (has_scores(l) && type_of(l, id) == USER_DEFINED) {
        len = mark_blanks(marked, s, len);
        s = marked;
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
    *l = (struct loader){.err = err, .errlen = errlen};
    int rc = gguf_open(&l->g, NULL, file, 0, err, errlen);
    if (!rc) rc = gguf_string(l->g, "tokenizer.ggml.model", &l->model, err, errlen) < 0;
    if (rc) return rc < 0 ? rc : TOK_EINVAL;
    l->is_gemma4 = l->model && strcmp(l->model, "gemma4") == 0;
    l->is_spm = l->is_gemma4 || (l->model && strcmp(l->model, "llama") == 0);
    rc = read_tokens(l);
    return rc ? rc : read_ids(l);
}

static int close_loader(struct loader *l, const char *file, int rc)
{
    gguf_close(l->g);
    tok_vocab_finish(&l->vocab);
    if (rc == TOK_ENOMEM) snprintf(l->err, l->errlen, "%.300s: out of memory", file);
    return rc;
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
    bool blank = !l->is_gemma4;
    if (!l->model) return refuse(l, "key tokenizer.ggml.model is missing");
    if (strcmp(l->model, "gpt2") == 0) return find_rule(l);
    if (!l->is_spm)
        return refuse_rule(l, "tokenizer.ggml.model", l->model, "is a tokenizer that is not built");
    int rc = gguf_bool(l->g, "tokenizer.ggml.add_space_prefix", &blank, l->err, l->errlen);
    if (rc < 0) return rc;
    l->rule = &sentencepiece;
    return blank ? refuse_rule(l, "tokenizer.ggml.model", l->model,
                               "with a blank in front of a text does not say how text is split")
                 : 0;
}

/* add_bos_token and add_eos_token; by default a begin-of-text as the rule has it. */
static int read_flags(struct loader *l)
{
    static const char *const keys[] = {"tokenizer.ggml.add_bos_token",
                                       "tokenizer.ggml.add_eos_token"};
    l->added[BOS] = l->rule->add_bos && l->ids[BOS] >= 0;
    for (int i = BOS; i <= EOS; i++) {
        if (gguf_bool(l->g, keys[i], &l->added[i], l->err, l->errlen) < 0) return TOK_EINVAL;
        if (l->added[i] && l->ids[i] < 0)
            return refuse(l, "key tokenizer.ggml.%s_token_id is missing, and one is to be added",
                          id_names[i]);
    }
    return 0;
}

static int read_rule(struct loader *l)
{
    int rc = choose_rule(l);
    if (!rc) rc = read_flags(l);
    if (rc) return rc;
    if (!l->types) return refuse(l, "key tokenizer.ggml.token_type is missing");
    const char *ranks = has_scores(l) ? "tokenizer.ggml.scores" : "tokenizer.ggml.merges";
    rc = read_array(l, ranks, has_scores(l) ? GGUF_F64 : GGUF_STRING, &l->ranks);
    return rc || l->ranks ? rc : refuse(l, "key %s is missing", ranks);
}

/* ---- merges of SentencePiece ---------------------------------------------------------------- */

/* A token in two parts that are tokens as well. */
struct merge {
    float score;
    uint32_t whole;
    uint16_t left_bytes, left_chars, right_chars;
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

/* The ways to make a token of two others, as merges[*n] and on. */
static int split_token(struct loader *l, uint32_t id, struct merge *merges, size_t *n)
{
    size_t len = 0;
    const char *s = tok_vocab_string(&l->vocab, (int32_t)id, &len);
    int64_t type = type_of(l, id);
    if (type != NORMAL && type != USER_DEFINED) return 0;
    struct merge one = {.score = type == NORMAL ? (float)gguf_number_at(l->ranks, id) : 0,
                        .whole = id};
    size_t n_chars = utf8_count(s, len);
    for (size_t i = 1; i < len; i++) {
        if (((unsigned char)s[i] & 0xC0) == 0x80) continue;
        one.left_bytes = (uint16_t)i;
        one.left_chars++;
        one.right_chars = (uint16_t)(n_chars - one.left_chars);
        if (tok_vocab_find(&l->vocab, s, i) < 0 || tok_vocab_find(&l->vocab, s + i, len - i) < 0)
            continue;
        if (*n == TOK_MAX_IDS)
            return refuse(l, "its tokens are made of others in more than %u ways", TOK_MAX_IDS);
        merges[(*n)++] = one;
    }
    return 0;
}

static int write_split_merges(struct loader *l, struct jw *w)
{
    AUTO_FREE struct merge *merges = malloc(TOK_MAX_IDS * sizeof(*merges));
    size_t n = 0;
    int rc = merges ? 0 : TOK_ENOMEM;
    for (uint32_t id = 0; !rc && id < l->n; id++)
        rc = split_token(l, id, merges, &n);
    if (!rc) qsort(merges, n, sizeof(*merges), compare_merges);
    for (size_t i = 0; !rc && i < n; i++) {
        size_t len, left = merges[i].left_bytes;
        const char *s = tok_vocab_string(&l->vocab, (int32_t)merges[i].whole, &len);
        jw_open(w, NULL, '[');
        jw_string(w, NULL, s, left);
        jw_string(w, NULL, s + left, len - left);
        jw_close(w);
    }
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

/*
 * Marks of calls and thoughts are special in Gemma 4's tokenizer.json; its converter types them as
 * USER_DEFINED so that llama.cpp shows them.
 */
static void write_added(const struct loader *l, struct jw *w)
{
    jw_open(w, "added_tokens", '[');
    for (uint32_t id = 0; id < l->n; id++) {
        int64_t type = type_of(l, id);
        if (type != CONTROL && type != USER_DEFINED) continue;
        jw_fields(w, "{ id %jd single_word %i lstrip %i rstrip %i normalized %i special %i",
                  (intmax_t)id, false, false, false, false, type == CONTROL || l->is_gemma4);
        write_token(l, w, "content", (int32_t)id);
        jw_close(w);
    }
    jw_close(w);
}

#define SPECIAL(name, type) "{\"SpecialToken\":{\"id\":\"" name "\",\"type_id\":" type "}}"
#define AROUND(text, type)                                                                         \
    SPECIAL("bos", type)                                                                           \
    ",{\"Sequence\":{\"id\":\"" text "\",\"type_id\":" type "}}," SPECIAL("eos", type)

/* One that is not added is an empty list of ids. */
static void write_post_processor(const struct loader *l, struct jw *w)
{
    jw_fields(w, "post_processor { type %s", "TemplateProcessing");
    JSON(w, "single", "[" AROUND("A", "0") "]");
    JSON(w, "pair", "[" AROUND("A", "0") "," AROUND("B", "1") "]");
    jw_open(w, "special_tokens", '{');
    for (int i = BOS; i <= EOS; i++) {
        jw_open(w, id_names[i], '{');
        jw_ints(w, "ids", &l->ids[i], l->added[i]);
        jw_close(w);
    }
    jw_fields(w, "} }");
}

static int write_model(struct loader *l, struct jw *w)
{
    int rc = 0;
    jw_fields(w, "model { type %s fuse_unk %i byte_fallback %i ignore_merges %i", "BPE", l->is_spm,
              l->is_spm, l->rule->ignore_merges);
    if (l->is_spm && l->ids[UNK] >= 0) write_token(l, w, "unk_token", l->ids[UNK]);
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
    const unsigned char *at = l->ranks->data;
    for (size_t i = 0; !has_scores(l) && i < l->ranks->n; i++) {
        size_t len;
        const char *s = gguf_next_string(&at, &len);
        jw_string(w, NULL, s, len);
    }
    if (has_scores(l)) rc = write_split_merges(l, w);
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

#define SPM_DECODER                                                                                \
    "{\"type\":\"Sequence\",\"decoders\":[" REPLACE(MARK, " ") ",{\"type\":\"ByteFallback\"},"     \
                                                               "{\"type\":\"Fuse\"}]}"

static int write_tokenizer(struct loader *l, char **ret, size_t *ret_len)
{
    struct buf b = {.max = MAX_TEXT_BYTES};
    struct jw w = {.out = &b};
    jw_open(&w, NULL, '{');
    jw_text(&w, "version", "1.0");
    write_added(l, &w);
    if (l->rule->normalizer) JSON(&w, "normalizer", l->rule->normalizer);
    JSON(&w, "pre_tokenizer", l->rule->pre_tokenizer);
    if (l->added[BOS] || l->added[EOS]) write_post_processor(l, &w);
    JSON(&w, "decoder", l->is_spm ? SPM_DECODER : BYTE_LEVEL("true"));
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
static bool same_token(const char *s, size_t len, const char *own, size_t own_len)
{
    enum { MAX = MARK_BYTES * TOK_MAX_ADDED_BYTES };
    char a[MARK_BYTES * MAX], b[MARK_BYTES * MAX];
    if (len > MAX || own_len > MAX) return false;
    len = mark_blanks(a, s, len);
    return len == mark_blanks(b, own, own_len) && memcmp(a, b, len) == 0;
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
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    const char *given = NULL;
    int rc = dir ? file_load(dir, "tokenizer.json", MAX_TEXT_BYTES, &text, &len, l->err, l->errlen)
                 : gguf_string(l->g, "tokenizer.huggingface.json", &given, l->err, l->errlen);
    if (rc < 0) return rc;
    bool built = !dir && !given;
    if (built && ((rc = read_rule(l)) || (rc = write_tokenizer(l, &text, &len)))) return rc;
    snprintf(t->source, sizeof(t->source), "%s%s", built ? "rule " : "",
             l->is_spm && built ? l->model
             : built            ? l->rule->names[0]
             : dir              ? "tokenizer.json"
                                : "tokenizer.huggingface.json");
    rc = tok_load(t, given ? given : text, given ? strlen(given) : len, l->err, l->errlen);
    rc = name_file(l, rc);
    return rc || l->rule ? rc : check_tokens(l, t);
}

int tok_gguf_load(struct tok *t, const char *file, const char *dir, char *err, size_t errlen)
{
    struct loader l;
    int rc = open_loader(&l, file, err, errlen);
    if (!rc) rc = load_text(&l, t, dir);
    return close_loader(&l, file, rc);
}

/* ---- the text of a tokenizer_config.json ----------------------------------------------------- */

static int write_config(struct loader *l, char **ret, size_t *ret_len)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    static const char plain_key[] = "tokenizer.chat_template",
                      tools_key[] = "tokenizer.chat_template.tool_use";
    const char *plain = NULL, *tools = NULL;
    struct buf b = {.max = MAX_TEXT_BYTES};
    struct jw w = {.out = &b};
    if (gguf_string(l->g, plain_key, &plain, l->err, l->errlen) < 0 ||
        gguf_string(l->g, tools_key, &tools, l->err, l->errlen) < 0)
        return TOK_EINVAL;
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
    return close_loader(&l, file, rc);
}
