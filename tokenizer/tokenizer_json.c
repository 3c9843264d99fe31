/* SPDX-License-Identifier: MIT */
/*
 * tokenizer.json -> struct tok. The big members, the vocabulary and the merges, are read as they
 * stream by; the small ones are found by their text and read as trees afterwards, when everything
 * they refer to is known.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/json_reader.h"
#include "base/json_tree.h"
#include "base/sha256.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_internal.h"

/* The text of a member; s is NULL if there is none. */
struct span {
    const char *s;
    size_t len;
};

/* Top-level members that are read as trees. */
enum { ADDED_TOKENS, NORMALIZER, PRE_TOKENIZER, POST_PROCESSOR, DECODER, VERSION, N_TREES };
static const char *const tree_names[N_TREES] = {
    "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "version",
};

/* Small members of the model. */
static const char *const option_names[] = {
    "type",          "dropout",
    "unk_token",     "continuing_subword_prefix",
    "fuse_unk",      "byte_fallback",
    "unk_id",        "max_input_chars_per_word",
    "ignore_merges", "end_of_word_suffix",
};
enum { N_OPTIONS = sizeof(option_names) / sizeof(option_names[0]) };

/* The reader's errors are handed on. */
_Static_assert((int)JR_EINVAL == (int)TOK_EINVAL && (int)JR_ENOMEM == (int)TOK_ENOMEM,
               "the same codes");

/* Deepest nesting inside a member that is read as a tree. */
enum { MAX_MEMBER_DEPTH = 128 };

struct loader {
    struct tok *t;
    struct jr json;
    struct span trees[N_TREES], options[N_OPTIONS];
    struct span merges; /* kept if they come before the vocabulary */
    bool has_model, has_vocab, has_merges;
    bool has_scores; /* the vocabulary is a list of tokens with scores */
    char *err;
    size_t errlen;
};

static int refuse(struct loader *l, const char *what)
{
    return jr_refuse(&l->json, TOK_EINVAL, "%s", what);
}

/* Makes an error of another function, which wrote its sentence, the reader's; 0: there is none. */
static void keep_error(struct loader *l, int rc)
{
    if (!l->json.failed) l->json.failed = rc;
}

/* ---- the big members ----------------------------------------------------------------------- */

static void read_vocab(struct loader *l)
{
    struct jr *j = &l->json;
    const char *s;
    size_t len;
    uint32_t id;
    jr_open(j, '{');
    if (l->has_vocab) refuse(l, "the member \"vocab\" occurs twice");
    while (jr_member(j, &s, &len) > 0) {
        /* the string may lie in the reader's scratch, which a number leaves alone */
        if (jr_uint(j, TOK_MAX_IDS - 1, &id) == 0)
            keep_error(l, tok_vocab_add(&l->t->vocab, s, len, id, l->err, l->errlen));
    }
    l->has_vocab = true;
}

/* ["token", score]; its id is the next. */
static void read_scored_token(struct loader *l)
{
    static const char form[] = "an entry of \"vocab\" should be a token and its score";
    struct tok_unigram *u = &l->t->unigram;
    struct jr *j = &l->json;
    const char *s;
    size_t len;
    jr_open(j, '[');
    if (jr_more(j, ']') == 0) refuse(l, form);
    if (jr_string(j, &s, &len) == 0)
        keep_error(l, tok_vocab_add(&l->t->vocab, s, len, u->n_scores, l->err, l->errlen));
    if (jr_more(j, ']') == 0) refuse(l, form);
    if (jr_number(j, &s, &len) == 0)
        keep_error(l, tok_unigram_add_score(u, s, len, l->err, l->errlen));
    if (jr_more(j, ']') > 0) refuse(l, form);
}

/* [["token", score], ...] */
static void read_scored_vocab(struct loader *l)
{
    jr_open(&l->json, '[');
    if (l->has_vocab) refuse(l, "the member \"vocab\" occurs twice");
    while (jr_more(&l->json, ']') > 0)
        read_scored_token(l);
    l->has_vocab = l->has_scores = true;
}

/* "left right": exactly one blank. */
static int add_joined_merge(struct loader *l, const char *s, size_t len)
{
    const char *blank = memchr(s, ' ', len);
    size_t left = blank ? (size_t)(blank - s) : 0;
    char shown[64];
    if (!blank || memchr(blank + 1, ' ', len - left - 1))
        return fail_with(TOK_EINVAL, l->err, l->errlen,
                         "merge %u (\"%s\"): it should be two tokens with a blank between",
                         l->t->bpe.n_merges, shown_text(shown, sizeof(shown), s, len));
    return tok_bpe_add_merge(&l->t->bpe, s, left, blank + 1, len - left - 1, l->err, l->errlen);
}

/* ["left", "right"]; the left part is copied, for the reader may unescape both into one place. */
static int read_pair_merge(struct loader *l)
{
    struct jr *j = &l->json;
    const char *s;
    size_t left_len = 0, len = 0;
    jr_open(j, '[');
    bool pair = jr_more(j, ']') > 0 && jr_string(j, &s, &left_len) == 0;
    AUTO_FREE char *left = malloc(left_len + 1);
    if (!left) return TOK_ENOMEM;
    if (pair) memcpy(left, s, left_len);
    pair = pair && jr_more(j, ']') > 0 && jr_string(j, &s, &len) == 0 && jr_more(j, ']') == 0;
    if (j->failed == JR_ENOMEM) return j->failed;
    if (!pair) return fail_with(TOK_EINVAL, l->err, l->errlen, "a merge should be two strings");
    return tok_bpe_add_merge(&l->t->bpe, left, left_len, s, len, l->err, l->errlen);
}

/* All of one form, as the reference demands. Strings that begin with #version are comments. */
static void read_merges(struct loader *l)
{
    static const char comment[] = "#version";
    struct jr *j = &l->json;
    const char *s;
    size_t len;
    jr_open(j, '[');
    char form = jr_peek(j);
    while (jr_more(j, ']') > 0) {
        if (jr_peek(j) != form)
            refuse(l, "\"merges\" mixes strings and pairs");
        else if (form == '[')
            keep_error(l, read_pair_merge(l));
        else if (jr_string(j, &s, &len) == 0 &&
                 (len < sizeof(comment) - 1 || memcmp(s, comment, sizeof(comment) - 1) != 0))
            keep_error(l, add_joined_merge(l, s, len));
    }
}

static void skip_member(struct loader *l, struct span *ret)
{
    l->json.max_depth = l->json.depth + MAX_MEMBER_DEPTH;
    jr_skip(&l->json, &ret->s, &ret->len);
}

/* At once when the vocabulary is there, else later. */
static void meet_merges(struct loader *l)
{
    if (l->has_merges) refuse(l, "the member \"merges\" occurs twice");
    l->has_merges = true;
    if (l->has_vocab)
        read_merges(l);
    else
        skip_member(l, &l->merges);
}

static int read_late_merges(struct loader *l)
{
    if (!l->merges.s) return 0;
    jr_finish(&l->json);
    jr_init(&l->json, l->merges.s, l->merges.len, JR_NUL, l->err, l->errlen);
    read_merges(l);
    return l->json.failed;
}

/* ---- the walk ------------------------------------------------------------------------------ */

/* Notes the text of a member when its name is one of n; skips it in any case. */
static void note_member(struct loader *l, const char *const *names, struct span *spans, size_t n,
                        const char *key, size_t key_len)
{
    struct span unknown = {0}, *to = &unknown;
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == key_len && memcmp(names[i], key, key_len) == 0) to = &spans[i];
    if (to->s)
        jr_refuse(&l->json, TOK_EINVAL, "the member \"%.*s\" occurs twice", (int)key_len, key);
    skip_member(l, to);
}

static bool is(const char *key, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(key, name, len) == 0;
}

static void read_model(struct loader *l)
{
    const char *key;
    size_t len;
    jr_open(&l->json, '{');
    if (l->has_model) refuse(l, "the member \"model\" occurs twice");
    l->has_model = true;
    while (jr_member(&l->json, &key, &len) > 0) {
        if (!is(key, len, "vocab") && !is(key, len, "merges"))
            note_member(l, option_names, l->options, N_OPTIONS, key, len);
        else if (is(key, len, "merges"))
            meet_merges(l);
        else if (jr_peek(&l->json) == '[')
            read_scored_vocab(l);
        else
            read_vocab(l);
    }
}

static int read_top(struct loader *l)
{
    const char *key;
    size_t len;
    jr_open(&l->json, '{');
    while (jr_member(&l->json, &key, &len) > 0) {
        if (is(key, len, "model"))
            read_model(l);
        else
            note_member(l, tree_names, l->trees, N_TREES, key, len);
    }
    return jr_end(&l->json);
}

/* ---- the small members --------------------------------------------------------------------- */

/* Reads a member's text as a tree. *ret is owned (json_decref), NULL for an absent member. */
static int parse_tree(struct loader *l, const char *name, const struct span *span, json_t **ret)
{
    char quoted[40];
    *ret = NULL;
    if (!span->s) return 0;
    snprintf(quoted, sizeof(quoted), "\"%s\"", name);
    return jt_read_file(ret, quoted, span->s, span->len, JR_NUL | JT_ANY, l->err, l->errlen);
}

static int load_decoder(struct loader *l, const json_t *json)
{
    struct tok *t = l->t;
    AUTO(tok_decode_run_finish) struct tok_decode_run run = {0};
    int32_t n_ids = tok_vocab_size(t);
    int rc = tok_decode_load(&t->decode, &t->uni, json, l->err, l->errlen);
    for (int32_t id = 0; !rc && t->decode.by_token && id < n_ids; id++) {
        size_t len;
        const char *s = tok_token_string(t, id, &len);
        if (s) rc = tok_decode_check(&t->decode, &run, s, len, l->err, l->errlen);
    }
    return rc;
}

static int load_tree(struct loader *l, int which, const json_t *json)
{
    struct tok *t = l->t;
    const char *version = json ? json_string_value(json) : "1.0";
    switch (which) {
    case ADDED_TOKENS:
        return tok_added_load(&t->added, &t->uni, json, &t->vocab, &t->normalizer, l->err,
                              l->errlen);
    case NORMALIZER: return tok_normalizer_load(&t->normalizer, &t->uni, json, l->err, l->errlen);
    case PRE_TOKENIZER:
        return tok_pretok_load(&t->pretok, &t->uni, json,
                               t->model == TOK_MODEL_BPE && !t->bpe.byte_fallback, l->err,
                               l->errlen);
    case POST_PROCESSOR: return tok_post_load(&t->post, json, l->err, l->errlen);
    case DECODER: return load_decoder(l, json);
    default:
        if (version && strcmp(version, "1.0") == 0) return 0;
        return refuse(l, "\"version\" should be \"1.0\"");
    }
}

/* Loads one tree and says which member an error is about. */
static int load_member(struct loader *l, int which)
{
    char message[256];
    json_auto_t *json = NULL;
    int rc = parse_tree(l, tree_names[which], &l->trees[which], &json);
    if (rc) return rc;
    rc = load_tree(l, which, json);
    if (rc == TOK_ELIMIT) rc = TOK_EINVAL; /* the budget of an added token's normalization */
    if (rc == TOK_EINVAL) {
        snprintf(message, sizeof(message), "%s", l->err);
        snprintf(l->err, l->errlen, "\"%s\": %s", tree_names[which], message);
    }
    return rc;
}

/* Options that only their neutral value is supported of: null, "" and, for dropout, 0. */
static int check_neutral(struct loader *l, const json_t *options)
{
    static const char *const names[] = {"dropout", "continuing_subword_prefix",
                                        "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_t *json = json_object_get(options, names[i]);
        bool empty = json_is_string(json) && json_string_length(json) == 0;
        bool zero = i == 0 && json_is_number(json) && json_number_value(json) == 0;
        if (!json || json_is_null(json) || empty || zero) continue;
        return fail_with(TOK_EINVAL, l->err, l->errlen, "the model's \"%s\" is not supported",
                         names[i]);
    }
    return 0;
}

static int set_type(struct loader *l, const json_t *json)
{
    static const char *const names[] = {"BPE", "WordPiece", "Unigram"}; /* enum tok_model */
    const char *type = json ? json_string_value(json) : "BPE";
    char shown[64];
    for (int i = 0; type && i < 3; i++) {
        if (strcmp(type, names[i]) != 0) continue;
        l->t->model = (enum tok_model)i;
        return 0;
    }
    return fail_with(TOK_EINVAL, l->err, l->errlen,
                     "the model type \"%s\" is not supported (BPE, WordPiece and Unigram are)",
                     type ? shown_text(shown, sizeof(shown), type, strlen(type)) : "?");
}

static int find_unk(struct loader *l, const json_t *options, int32_t *ret)
{
    const json_t *json = json_object_get(options, "unk_token");
    if (!json_is_string(json)) return refuse(l, "the model's \"unk_token\" should be a string");
    *ret = tok_vocab_find(&l->t->vocab, json_string_value(json), json_string_length(json));
    return 0;
}

static bool is_given(const json_t *options, const char *name)
{
    const json_t *json = json_object_get(options, name);
    return json && !json_is_null(json);
}

static int set_bpe(struct loader *l, struct tok_component *options)
{
    struct tok_bpe *b = &l->t->bpe;
    b->unk_id = -1;
    b->has_unk = is_given(options->json, "unk_token");
    int rc = b->has_unk ? find_unk(l, options->json, &b->unk_id) : 0;
    b->fuse_unk = tok_member_bool_or(options, "fuse_unk", false);
    b->byte_fallback = tok_member_bool_or(options, "byte_fallback", false);
    b->ignore_merges = tok_member_bool_or(options, "ignore_merges", false);
    return rc || options->rc ? rc : check_neutral(l, options->json);
}

static int set_wordpiece(struct loader *l, struct tok_component *options)
{
    struct tok_wordpiece *w = &l->t->wordpiece;
    w->max_chars = tok_member_uint(options, "max_input_chars_per_word", UINT32_MAX);
    w->prefix = tok_member_text(options, "continuing_subword_prefix");
    return find_unk(l, options->json, &w->unk_id);
}

static int set_unigram(struct loader *l, struct tok_component *options)
{
    struct tok_unigram *u = &l->t->unigram;
    bool has_unk = is_given(options->json, "unk_id");
    u->byte_fallback = tok_member_bool_or(options, "byte_fallback", false);
    u->unk_id = has_unk ? (int32_t)tok_member_uint(options, "unk_id", TOK_MAX_IDS - 1) : -1;
    return 0;
}

/* The parts that the model's type asks for are there, and no others. */
static int check_parts(struct loader *l)
{
    bool unigram = l->t->model == TOK_MODEL_UNIGRAM, bpe = l->t->model == TOK_MODEL_BPE;
    if (!l->has_vocab) return refuse(l, "the model has no \"vocab\"");
    if (l->has_scores != unigram)
        return refuse(l, unigram ? "a Unigram model's \"vocab\" should be a list"
                                 : "the model's \"vocab\" should be an object");
    if (l->has_merges != bpe)
        return refuse(l, bpe ? "the model has no \"merges\"" : "only BPE models have \"merges\"");
    return 0;
}

static int set_options(struct loader *l)
{
    static int (*const set[])(struct loader *, struct tok_component *) = {
        [TOK_MODEL_BPE] = set_bpe,
        [TOK_MODEL_WORDPIECE] = set_wordpiece,
        [TOK_MODEL_UNIGRAM] = set_unigram,
    };
    json_auto_t *options = json_object();
    struct tok_component c = {.json = options, .err = l->err, .errlen = l->errlen};
    int rc = options ? 0 : TOK_ENOMEM;
    for (int i = 0; i < N_OPTIONS && !rc; i++) {
        json_t *json;
        rc = parse_tree(l, option_names[i], &l->options[i], &json);
        if (json && json_object_set_new(options, option_names[i], json)) rc = TOK_ENOMEM;
    }
    if (!rc) rc = set_type(l, json_object_get(options, "type"));
    if (!rc) rc = set[l->t->model](l, &c);
    return rc || c.rc ? (rc ? rc : c.rc) : check_parts(l);
}

static int prepare_model(struct loader *l)
{
    struct tok *t = l->t;
    switch (t->model) {
    case TOK_MODEL_WORDPIECE:
        return tok_wordpiece_prepare(&t->wordpiece, &t->vocab, &t->added, l->err, l->errlen);
    case TOK_MODEL_UNIGRAM: return tok_unigram_prepare(&t->unigram, &t->added, l->err, l->errlen);
    case TOK_MODEL_BPE: break;
    }
    t->bpe.byte_mode = t->pretok.raw_bytes;
    return tok_bpe_prepare(&t->bpe, l->err, l->errlen);
}

static int load(struct loader *l)
{
    struct tok *t = l->t;
    t->bpe.vocab = t->unigram.vocab = &t->vocab;
    int rc = read_top(l);
    if (!rc && !l->has_model) rc = refuse(l, "there is no \"model\"");
    if (!rc) rc = set_options(l);
    if (!rc) rc = read_late_merges(l);
    if (rc) return rc;
    static const int order[N_TREES] = {VERSION,      NORMALIZER,     PRE_TOKENIZER,
                                       ADDED_TOKENS, POST_PROCESSOR, DECODER};
    for (int i = 0; i < N_TREES && !rc; i++)
        rc = load_member(l, order[i]);
    if (rc) return rc;
    return prepare_model(l);
}

int tok_load(struct tok *t, const char *text, size_t len, char *err, size_t errlen)
{
    struct loader l = {.t = t, .err = err, .errlen = errlen};
    jr_init(&l.json, text, len, JR_NUL, err, errlen);
    if (!utf8_valid(text, len)) return refuse(&l, "it is not valid UTF-8");
    int rc = tok_uni_init(&t->uni);
    if (rc) return rc;
    rc = load(&l);
    jr_finish(&l.json);
    if (rc == TOK_ENOMEM) snprintf(err, errlen, "out of memory");
    if (!rc) sha256(t->fingerprint, text, len);
    return rc;
}
