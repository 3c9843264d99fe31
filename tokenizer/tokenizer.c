/* SPDX-License-Identifier: MIT */
/*
 * Opening and closing a tokenizer, and decoders. Encoding is in encode.c, questions about ids in
 * token_lookup.c, the file's format in tokenizer_json.c.
 */
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/gguf_names.h"
#include "tokenizer/gguf.h"
#include "tokenizer/tokenizer_internal.h"

#define MAX_FILE_BYTES (256u << 20)

/* ---- the file ------------------------------------------------------------------------------ */

/* A directory without tokenizer.json may have the vocabulary in a file that is not read. */
static int name_other_format(const char *dir, char *err, size_t errlen)
{
    static const char *const others[] = {"tokenizer.model", "tekken.json", "vocab.json"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (!file_exists(dir, others[i])) continue;
        snprintf(err, errlen,
                 "%.200s has %s but no tokenizer.json, which is what is read: transformers' "
                 "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes it",
                 dir, others[i]);
        break;
    }
    return TOK_ENOENT;
}

static int load_file(struct tok *t, const char *dir, char *err, size_t errlen)
{
    char path[4096], message[384];
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    if ((size_t)snprintf(path, sizeof(path), "%s/tokenizer.json", dir) >= sizeof(path))
        return fail_with(TOK_EINVAL, err, errlen, "%s: the path is too long", dir);
    int rc = file_load(NULL, path, MAX_FILE_BYTES, &text, &len, err, errlen);
    if (rc) return rc == TOK_ENOENT ? name_other_format(dir, err, errlen) : rc;
    rc = tok_load(t, text, len, message, sizeof(message));
    return rc ? fail_with(rc, err, errlen, "%s: %s", path, message) : 0;
}

int tok_open_from(struct tok **ret, const char *model, const char *dir, char *err, size_t errlen)
{
    char buf[4096];
    struct tok *t = calloc(1, sizeof(*t));
    if (!t) return fail_with(TOK_ENOMEM, err, errlen, "%s: out of memory", model);
    bool is_file = tok_is_file(model);
    if (is_file && !dir) {
        dir = gguf_folder_of(model, buf, sizeof(buf));
        if (dir && !file_exists(dir, "tokenizer.json")) dir = NULL;
    }
    int rc = is_file ? tok_gguf_load(t, model, dir, err, errlen)
                     : load_file(t, dir ? dir : model, err, errlen);
    if (rc) {
        tok_close(t);
        return rc;
    }
    *ret = t;
    return 0;
}

int tok_open(struct tok **ret, const char *model, char *err, size_t errlen)
{
    return tok_open_from(ret, model, NULL, err, errlen);
}

void tok_close(struct tok *t)
{
    if (!t) return;
    tok_decode_finish(&t->decode);
    tok_post_finish(&t->post);
    tok_pretok_finish(&t->pretok);
    tok_normalizer_finish(&t->normalizer);
    tok_added_finish(&t->added);
    tok_bpe_finish(&t->bpe);
    tok_wordpiece_finish(&t->wordpiece);
    tok_unigram_finish(&t->unigram);
    tok_vocab_finish(&t->vocab);
    tok_uni_finish(&t->uni);
    free(t);
}

const char *tok_source(const struct tok *t)
{
    return t->source[0] ? t->source : NULL;
}

const uint8_t *tok_fingerprint(const struct tok *t)
{
    return t->fingerprint;
}

/* ---- decoding ------------------------------------------------------------------------------ */

struct tok_decoder {
    const struct tok *t;
    bool skip_special;
    struct tok_decode_run run;
};

int tok_decoder_create(struct tok_decoder **ret, const struct tok *t, bool skip_special)
{
    struct tok_decoder *d = calloc(1, sizeof(*d));
    if (!d) return TOK_ENOMEM;
    d->t = t;
    d->skip_special = skip_special;
    tok_decode_reset(&t->decode, &d->run);
    *ret = d;
    return 0;
}

void tok_decoder_destroy(struct tok_decoder *d)
{
    if (!d) return;
    tok_decode_run_finish(&d->run);
    free(d);
}

void tok_decoder_reset(struct tok_decoder *d)
{
    tok_decode_reset(&d->t->decode, &d->run);
}

static int give(const struct tok_decoder *d, int rc, const char **ret_text, size_t *ret_len)
{
    if (rc) return rc;
    *ret_text = d->run.out.s ? d->run.out.s : "";
    *ret_len = d->run.out.len;
    return 0;
}

int tok_decoder_push(struct tok_decoder *d, int32_t id, const char **ret_text, size_t *ret_len)
{
    const struct tok_added_token *added = tok_added_by_id(&d->t->added, id);
    size_t len = added ? added->len : 0;
    const char *s = added ? added->content : tok_vocab_string(&d->t->vocab, id, &len);
    if (!s || (added && added->special && d->skip_special)) {
        d->run.out.len = 0;
        return give(d, 0, ret_text, ret_len);
    }
    return give(d, tok_decode_push(&d->t->decode, &d->run, s, len), ret_text, ret_len);
}

int tok_decoder_flush(struct tok_decoder *d, const char **ret_text, size_t *ret_len)
{
    return give(d, tok_decode_flush(&d->t->decode, &d->run), ret_text, ret_len);
}

int tok_decode(const struct tok *t, const int32_t *ids, size_t n, bool skip_special,
               char **ret_text, size_t *ret_len)
{
    struct tok_decoder d = {.t = t, .skip_special = skip_special};
    struct buf text = {.max = SIZE_MAX / 4};
    const char *s;
    size_t len;
    int rc = 0;
    tok_decoder_reset(&d);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = tok_decoder_push(&d, ids[i], &s, &len);
        if (!rc) buf_add(&text, s, len);
    }
    if (!rc) rc = tok_decoder_flush(&d, &s, &len);
    if (!rc) buf_add(&text, s, len);
    if (!rc && text.failed) rc = TOK_ENOMEM;
    tok_decode_run_finish(&d.run);
    if (rc) {
        buf_finish(&text);
        return rc;
    }
    *ret_text = text.data;
    *ret_len = text.len;
    return 0;
}
