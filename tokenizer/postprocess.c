/* SPDX-License-Identifier: MIT */
/*
 * TemplateProcessing has a list of pieces for a single sequence and one for a pair: the sequences
 * ("A", "B") once, and special tokens by name, whose ids are in "special_tokens". Each piece has
 * a token type. BertProcessing and RobertaProcessing are two such templates with their own "cls"
 * and "sep". ByteLevel only moves offsets.
 */
#include "tokenizer/postprocess.h"

#include <string.h>

#include "base/fail.h"
#include "tokenizer/json_component.h"
#include "tokenizer/token_ids.h"
#include "tokenizer/vocab.h"

#define MAX_SPECIAL_IDS 1024 /* at each place of a form */

/* A form while it is loaded: what of it was met. */
struct loader {
    struct tok_post_form *form;
    const char *name; /* "single" or "pair" */
    const json_t *template;
    bool has_a, has_b;
    bool second; /* a piece of token type 1 */
    char *err;
    size_t errlen;
};

static int wrong(const struct loader *l, const char *what)
{
    return fail_with(TOK_EINVAL, l->err, l->errlen, "TemplateProcessing: \"%s\" %s", l->name, what);
}

static bool read_id(const json_t *json, int32_t *ret)
{
    json_int_t value = json_integer_value(json);
    if (!json_is_integer(json) || value < 0 || value >= TOK_MAX_IDS) return false;
    *ret = (int32_t)value;
    return true;
}

/* A list of ids may be named many times: the file's size does not bound the result. */
static int add_special(struct loader *l, const json_t *special)
{
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *known = json_object_get(l->template, "special_tokens"), *json;
    const json_t *ids = json_object_get(name ? json_object_get(known, name) : NULL, "ids");
    struct tok_post_form *f = l->form;
    struct tok_ids *to = !l->has_a ? &f->before : l->has_b ? &f->behind : &f->between;
    int32_t id;
    size_t i;
    if (!json_is_array(ids)) return wrong(l, "names a special token without \"ids\"");
    json_array_foreach(ids, i, json)
    {
        if (!read_id(json, &id)) return wrong(l, "names a special token whose id is out of range");
        if (to->n == MAX_SPECIAL_IDS) return wrong(l, "has more than 1024 special ids");
        int rc = tok_ids_add(to, &id, 1);
        if (rc) return rc;
        f->n_first += !l->second;
    }
    return 0;
}

static int add_sequence(struct loader *l, const json_t *sequence)
{
    const char *id = json_string_value(json_object_get(sequence, "id"));
    if (id && strcmp(id, "A") == 0 && !l->has_a && !l->second) {
        l->has_a = true;
        return 0;
    }
    if (!id || strcmp(id, "B") != 0 || !l->has_a || l->has_b)
        return wrong(l, "should hold special tokens and the sequence A once, for a pair then B");
    l->has_b = true;
    l->form->b_first = !l->second;
    return 0;
}

/* Token types go up from 0 to 1, once; those of one sequence say nothing. */
static int add_piece(struct loader *l, const json_t *piece, bool pair)
{
    const json_t *special = json_object_get(piece, "SpecialToken");
    const json_t *sequence = json_object_get(piece, "Sequence");
    const json_t *type = json_object_get(special ? special : sequence, "type_id");
    json_int_t second = pair ? json_integer_value(type) : 0;
    if (second != 1 && (second != 0 || l->second))
        return wrong(l, "has token types other than 0, then 1");
    l->second = second == 1;
    return special ? add_special(l, special) : add_sequence(l, sequence);
}

static int load_form(struct tok_post_form *f, const json_t *template, bool pair, char *err,
                     size_t errlen)
{
    struct loader l = {.form = f,
                       .name = pair ? "pair" : "single",
                       .template = template,
                       .has_b = !pair,
                       .err = err,
                       .errlen = errlen};
    const json_t *pieces = json_object_get(template, l.name), *piece;
    size_t i;
    if (!json_is_array(pieces)) return wrong(&l, "should be an array");
    json_array_foreach(pieces, i, piece)
    {
        int rc = add_piece(&l, piece, pair);
        if (rc) return rc;
    }
    if (l.has_a && l.has_b) return 0;
    return wrong(&l, pair ? "lacks the sequence A or B" : "lacks the sequence A");
}

/* cls A sep, and with B after it: B sep of type 1 (bert), or sep B sep of type 0. */
static int load_cls_sep(struct tok_post *p, const json_t *json, bool bert, char *err, size_t errlen)
{
    int32_t cls, sep;
    int rc = 0;
    if (!read_id(json_array_get(json_object_get(json, "cls"), 1), &cls) ||
        !read_id(json_array_get(json_object_get(json, "sep"), 1), &sep))
        return fail_with(TOK_EINVAL, err, errlen,
                         "%s: \"cls\" and \"sep\" should be a token with its id each",
                         bert ? "BertProcessing" : "RobertaProcessing");
    for (int i = 0; i < 2 && !rc; i++) {
        struct tok_post_form *f = i ? &p->pair : &p->single;
        rc = tok_ids_add(&f->before, &cls, 1);
        if (!rc) rc = tok_ids_add(&f->behind, &sep, 1);
    }
    if (!rc) rc = tok_ids_add(&p->pair.between, (int32_t[]){sep, sep}, bert ? 1 : 2);
    p->pair.n_first = bert ? 2 : 4;
    p->pair.b_first = !bert;
    return rc;
}

static int load_processor(void *data, const char *type, struct tok_component *c)
{
    bool bert = strcmp(type, "BertProcessing") == 0,
         roberta = strcmp(type, "RobertaProcessing") == 0;
    struct tok_post *p = data;
    if (strcmp(type, "ByteLevel") == 0) return 0;
    if (!bert && !roberta && strcmp(type, "TemplateProcessing") != 0)
        return tok_component_unknown(c, "post-processor", type);
    if (p->has_form)
        return fail_with(TOK_EINVAL, c->err, c->errlen, "%s: there is another one before it", type);
    p->has_form = true;
    if (bert || roberta) return load_cls_sep(p, c->json, bert, c->err, c->errlen);
    int rc = load_form(&p->single, c->json, false, c->err, c->errlen);
    if (rc) return rc;
    rc = load_form(&p->pair, c->json, true, p->pair_problem, sizeof(p->pair_problem));
    return rc == TOK_ENOMEM ? rc : 0;
}

int tok_post_load(struct tok_post *p, const json_t *json, char *err, size_t errlen)
{
    return tok_component_visit("post-processor", "processors", json, NULL, load_processor, p, err,
                               errlen);
}

static void finish_form(struct tok_post_form *f)
{
    tok_ids_finish(&f->before);
    tok_ids_finish(&f->between);
    tok_ids_finish(&f->behind);
}

void tok_post_finish(struct tok_post *p)
{
    finish_form(&p->single);
    finish_form(&p->pair);
}
