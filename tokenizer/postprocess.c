/* SPDX-License-Identifier: MIT */
/*
 * TemplateProcessing has a list of pieces for a single sequence: the sequence itself ("A") once,
 * and special tokens by name, whose ids are in "special_tokens". ByteLevel only moves offsets.
 */
#include "tokenizer/postprocess.h"

#include <stdio.h>
#include <string.h>

#include "tokenizer/json_component.h"
#include "tokenizer/token_ids.h"
#include "tokenizer/vocab.h"

#define MAX_SPECIAL_IDS 1024 /* before and after the sequence */

static int wrong(const char *what, char *err, size_t errlen)
{
    snprintf(err, errlen, "TemplateProcessing: %s", what);
    return TOK_EINVAL;
}

/* A list of ids may be named many times: the file's size does not bound the result. */
static int add_ids(struct tok_ids *to, const json_t *ids, char *err, size_t errlen)
{
    const json_t *id;
    size_t i;

    json_array_foreach(ids, i, id)
    {
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= TOK_MAX_IDS) {
            return wrong("an id of \"special_tokens\" is out of range", err, errlen);
        }
        if (to->n == MAX_SPECIAL_IDS) return wrong("more than 1024 special ids", err, errlen);
        int rc = tok_ids_add(to, &(int32_t){(int32_t)value}, 1);
        if (rc) return rc;
    }
    return 0;
}

static int add_special(struct tok_ids *to, const json_t *template, const json_t *special, char *err,
                       size_t errlen)
{
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *known = json_object_get(template, "special_tokens");
    const json_t *ids = json_object_get(name ? json_object_get(known, name) : NULL, "ids");

    if (!json_is_array(ids))
        return wrong("a special token of \"single\" has no \"ids\"", err, errlen);
    return add_ids(to, ids, err, errlen);
}

static int add_piece(struct tok_post *p, const json_t *json, const json_t *piece, char *err,
                     size_t errlen)
{
    const json_t *special = json_object_get(piece, "SpecialToken");
    const char *sequence =
        json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));

    if (special)
        return add_special(p->has_sequence ? &p->behind : &p->before, json, special, err, errlen);
    if (!sequence || strcmp(sequence, "A") != 0 || p->has_sequence) {
        return wrong("\"single\" should hold special tokens and the sequence A once", err, errlen);
    }
    p->has_sequence = true;
    return 0;
}

static int load_template(struct tok_post *p, const json_t *json, char *err, size_t errlen)
{
    const json_t *pieces = json_object_get(json, "single"), *piece;
    size_t i;

    if (!json_is_array(pieces)) return wrong("\"single\" should be an array", err, errlen);
    json_array_foreach(pieces, i, piece)
    {
        int rc = add_piece(p, json, piece, err, errlen);
        if (rc) return rc;
    }
    return p->has_sequence ? 0 : wrong("\"single\" lacks the sequence A", err, errlen);
}

static int load_processor(void *data, const char *type, const json_t *json, char *err,
                          size_t errlen)
{
    struct tok_post *p = data;

    if (strcmp(type, "ByteLevel") == 0) return 0;
    if (strcmp(type, "TemplateProcessing") != 0)
        return tok_component_unknown("post-processor", type, err, errlen);
    if (p->has_template) return wrong("there is more than one", err, errlen);
    p->has_template = true;
    return load_template(p, json, err, errlen);
}

int tok_post_load(struct tok_post *p, const json_t *json, char *err, size_t errlen)
{
    return tok_component_visit("post-processor", "processors", json, load_processor, p, err,
                               errlen);
}

void tok_post_finish(struct tok_post *p)
{
    tok_ids_finish(&p->before);
    tok_ids_finish(&p->behind);
}
