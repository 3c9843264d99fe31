/* SPDX-License-Identifier: MIT */
/* The marks of models that fill in the middle, looked up in a vocabulary; see tokenizer.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

enum { N_SPELLINGS = 2 };

#define MARKS(prefix, suffix, middle)                                                              \
    [TOK_FIM_PREFIX] = {prefix}, [TOK_FIM_SUFFIX] = {suffix}, [TOK_FIM_MIDDLE] = {middle}
#define FILES(repo, other_repo, file, other_file)                                                  \
    [TOK_FIM_REPO] = {repo, other_repo}, [TOK_FIM_FILE] = {file, other_file}
#define ENDS(pad, end) [TOK_FIM_PAD] = {pad}, [TOK_FIM_END] = {end}

static const struct family {
    const char *marks[TOK_FIM_MARKS][N_SPELLINGS];
    bool suffix_first, blank;
} families[] = {
    /* Qwen2.5-Coder, CodeGemma */
    {.marks = {MARKS("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
               FILES("<|repo_name|>", NULL, "<|file_sep|>", "<|file_separator|>"),
               ENDS("<|fim_pad|>", "<|endoftext|>")}},
    /* StarCoder2, Granite-Code */
    {.marks = {MARKS("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
               FILES("<repo_name>", "<reponame>", "<file_sep>", "<filename>"),
               ENDS("<fim_pad>", "<|endoftext|>")}},
    /* CodeLlama: the suffix goes on where the hole ends, so no blank is put in front of it */
    {.marks = {MARKS("▁<PRE>", "▁<SUF>", "▁<MID>"), ENDS(NULL, "▁<EOT>")}, .blank = true},
    /* DeepSeek-Coder: begin, hole, end */
    {.marks = {MARKS("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), ENDS(NULL, "<|EOT|>")}},
    /* Seed-Coder */
    {.marks = {MARKS("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>")}, .suffix_first = true},
    /* Codestral: the answer follows the prefix */
    {.marks = {MARKS("[PREFIX]", "[SUFFIX]", NULL)}, .suffix_first = true},
};

static void set_mark(struct tok_fim *fim, const struct tok *t, int mark, int32_t id)
{
    fim->id[mark] = id;
    /* a special token is never found in the text of a client */
    if (id >= 0 && !tok_is_special(t, id))
        fim->text[mark] = tok_token_string(t, id, &fim->len[mark]);
}

/* Returns true if the vocabulary has the family's marks. */
static bool set_family(struct tok_fim *fim, const struct tok *t, int32_t n_ids,
                       const struct family *f)
{
    for (int mark = 0; mark < TOK_FIM_MARKS; mark++) {
        int32_t id = -1;
        for (int i = 0; i < N_SPELLINGS && id < 0 && f->marks[mark][i]; i++)
            id = tok_token_id(t, f->marks[mark][i], strlen(f->marks[mark][i]));
        if (id >= n_ids) id = -1;
        set_mark(fim, t, mark, id);
        if (id < 0 && mark <= TOK_FIM_MIDDLE && f->marks[mark][0]) return false;
    }
    fim->suffix_first = f->suffix_first;
    fim->blank = f->blank;
    return true;
}

static struct tok_fim no_marks(void)
{
    struct tok_fim fim = {.suffix_first = false};
    for (int mark = 0; mark < TOK_FIM_MARKS; mark++)
        fim.id[mark] = -1;
    return fim;
}

/* PREFIX,SUFFIX,MIDDLE[,REPO,FILE][,spm]; an empty word is a mark that the model does not have. */
static int set_option(struct tok_fim *fim, const struct tok *t, int32_t n_ids, const char *option,
                      char *err, size_t errlen)
{
    int n = 0;
    for (const char *word = option; word; n++) {
        size_t len = strcspn(word, ",");
        bool last = !word[len];
        int32_t id = len ? tok_token_id(t, word, len) : -1;
        if (last && n >= 2 && len == 3 && !memcmp(word, "spm", 3))
            fim->suffix_first = true;
        else if (n > TOK_FIM_FILE || id >= n_ids || (id < 0 && (len || n < TOK_FIM_MIDDLE))) {
            snprintf(err, errlen, "--fim-marks: '%.*s' is not a token of this model",
                     (int)(len < 40 ? len : 40), word);
            return TOK_EINVAL;
        } else
            set_mark(fim, t, n, id);
        word = last ? NULL : word + len + 1;
    }
    if (fim->id[TOK_FIM_SUFFIX] >= 0 && (fim->id[TOK_FIM_MIDDLE] >= 0 || fim->suffix_first))
        return 0;
    snprintf(err, errlen, "--fim-marks: '%.40s' must be PREFIX,SUFFIX,MIDDLE[,REPO,FILE][,spm]",
             option);
    return TOK_EINVAL;
}

int tok_fim_find(struct tok_fim *ret, const struct tok *t, int32_t n_ids, const char *option,
                 char *err, size_t errlen)
{
    *ret = no_marks();
    if (option) return set_option(ret, t, n_ids, option, err, errlen);
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (set_family(ret, t, n_ids, &families[i])) return 0;
        *ret = no_marks();
    }
    return 0;
}

/* Returns true if the text begins with a mark that the tokenizer would find in it. */
static bool begins_with_mark(const struct tok_fim *fim, const char *text, size_t len)
{
    for (int mark = 0; mark < TOK_FIM_MARKS; mark++)
        if (fim->text[mark] && fim->len[mark] <= len && *text == *fim->text[mark] &&
            !memcmp(text, fim->text[mark], fim->len[mark]))
            return true;
    return false;
}

int tok_fim_encode(const struct tok *t, const struct tok_fim *fim, const char *text, size_t len,
                   struct tok_ids *ids, char *err, size_t errlen)
{
    size_t from = 0, n = ids->n;
    int rc = 0;
    for (size_t i = 0; i < len && !rc; i++) {
        if (!begins_with_mark(fim, text + i, len - i)) continue;
        size_t to = i + utf8_len((unsigned char)text[i]); /* the mark is cut in two */
        rc = tok_encode(t, text + from, to - from, 0, ids, err, errlen);
        from = to;
    }
    if (!rc) rc = tok_encode(t, text + from, len - from, 0, ids, err, errlen);
    if (rc) ids->n = n;
    return rc;
}

/* After another character the tokenizer puts no blank in front of a text. */
int tok_fim_encode_suffix(const struct tok *t, const struct tok_fim *fim, const char *text,
                          size_t len, struct tok_ids *ids, char *err, size_t errlen)
{
    static const char face[] = "☺";
    size_t n = ids->n, n_face = sizeof(face) - 1;
    if (!fim->blank) return tok_fim_encode(t, fim, text, len, ids, err, errlen);
    char *behind = malloc(n_face + len);
    if (!behind) return TOK_ENOMEM;
    memcpy(behind, face, n_face);
    memcpy(behind + n_face, text, len);
    int rc = tok_encode(t, face, n_face, 0, ids, err, errlen);
    size_t n_ids = ids->n - n;
    ids->n = n;
    if (!rc) rc = tok_fim_encode(t, fim, behind, n_face + len, ids, err, errlen);
    free(behind);
    if (rc) return rc;
    ids->n -= n_ids;
    memmove(ids->ids + n, ids->ids + n + n_ids, (ids->n - n) * sizeof(*ids->ids));
    return 0;
}
