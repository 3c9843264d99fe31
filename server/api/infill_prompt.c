/* SPDX-License-Identifier: MIT */
/* See infill_prompt.h. Files have the form that Qwen2.5-Coder was trained with, as llama-server
 * writes it. */
#include "server/api/infill_prompt.h"

#include <stdio.h>
#include <string.h>

#include "server/api/read/json_fields.h"
#include "server/models/served_model.h"
#include "tokenizer/tokenizer.h"

enum { MARKS = TOK_FIM_MIDDLE + 1 };

/* A file in front of the prompt: its name and its text, behind a mark. */
struct extra {
    const int32_t *ids;
    size_t n;
};

struct making {
    struct srv_request *req;
    const struct tok *tok;
    const struct tok_fim *fim;
    const struct infill_input *in;
    struct tok_ids begin, repo, file, prefix; /* owned */
    const int32_t *prefix_ids;                /* [n_prefix] */
    size_t n_prefix;
    struct extra *extras; /* [n_extras], used from first on */
    size_t n_extras, first, n_extra_ids;
    size_t n_cut_prefix, n_cut_suffix;
    int32_t *ids; /* the whole prompt */
    size_t n;
};

/* ---- texts to ids -------------------------------------------------------------------------- */

static int encode(struct making *m, const char *field, const char *text, size_t len,
                  struct tok_ids *ids)
{
    char message[200] = "";
    int rc = ids == m->in->suffix_ids
                 ? tok_fim_encode_suffix(m->tok, m->fim, text, len, ids, message, sizeof(message))
                 : tok_fim_encode(m->tok, m->fim, text, len, ids, message, sizeof(message));
    return param_encode_failed(rc, field, message);
}

/* A name on a line of its own, if the model has the mark that belongs in front of it. */
static int encode_name(struct making *m, int mark, const char *field, const char *name,
                       struct tok_ids *ids)
{
    size_t len = name ? strlen(name) : 0;
    if (m->fim->id[mark] < 0 || !name) return 0;
    char *line = srv_request_alloc(m->req, len + 1);
    if (!line) return param_no_memory();
    memcpy(line, name, len);
    line[len] = '\n';
    return encode(m, field, line, len + 1, ids);
}

static int encode_extra(struct making *m, size_t i, struct tok_ids *ids)
{
    static const char between[] = "\n\n--- snippet ---\n\n";
    const json_t *item = json_array_get(m->in->extra, i);
    const json_t *text = json_object_get(item, "text"), *name = json_object_get(item, "filename");
    char field[PARAM_PATH_MAX];
    snprintf(field, sizeof(field), "input_extra[%zu]", i);
    if (!json_is_string(text) || (name && !json_is_string(name)))
        return param_fail(SRV_ERR_INVALID_TYPE, field,
                          "'%s' must be an object with a string 'text' and perhaps a string "
                          "'filename'.",
                          field);
    bool named = m->fim->id[TOK_FIM_FILE] >= 0;
    if (named ? encode_name(m, TOK_FIM_FILE, field, name ? json_string_value(name) : "tmp", ids)
              : encode(m, field, between, sizeof(between) - 1, ids))
        return -1;
    return encode(m, field, json_string_value(text), json_string_length(text), ids);
}

/* From the newest on, as far as there is room; none is cut in two. */
static int encode_extras(struct making *m, size_t room)
{
    int rc = 0;
    m->n_extras = m->first = json_array_size(m->in->extra);
    m->extras = srv_request_alloc(m->req, (m->n_extras + 1) * sizeof(*m->extras));
    if (!m->extras) return param_no_memory();
    while (m->first > 0 && !rc) {
        struct tok_ids ids = {0};
        rc = encode_extra(m, m->first - 1, &ids);
        size_t n = ids.n + (m->fim->id[TOK_FIM_FILE] >= 0);
        bool fits = !rc && (!m->in->max_tokens || m->n_extra_ids + n <= room);
        if (fits) {
            struct extra *e = &m->extras[m->first - 1];
            *e = (struct extra){srv_request_copy(m->req, ids.ids, ids.n * sizeof(*ids.ids)), ids.n};
            rc = e->ids ? 0 : param_no_memory();
            m->n_extra_ids += n;
            m->first--;
        }
        tok_ids_finish(&ids);
        if (!fits) break;
    }
    return rc;
}

/* ---- the prompt ---------------------------------------------------------------------------- */

/* Everything but the extras: what they leave, and how prefix and suffix are cut. */
static size_t measure(struct making *m)
{
    size_t n_fixed = m->begin.n + m->repo.n + m->file.n + MARKS + 2, most = m->in->max_tokens;
    size_t rest = most > n_fixed ? most - n_fixed : 0, n_prefix = m->n_prefix,
           n_suffix = m->in->suffix_ids->n;
    if (!most) return 0;
    if (n_prefix + n_suffix <= rest) return rest - n_prefix - n_suffix;
    size_t least = rest > n_prefix && rest - n_prefix > rest / 4 ? rest - n_prefix : rest / 4;
    if (n_suffix > least) n_suffix = least;
    if (n_prefix > rest - n_suffix) n_prefix = rest - n_suffix;
    m->n_cut_prefix = m->n_prefix - n_prefix;
    m->n_cut_suffix = m->in->suffix_ids->n - n_suffix;
    return 0;
}

static void put(struct making *m, const int32_t *ids, size_t n)
{
    if (n > 0) memcpy(m->ids + m->n, ids, n * sizeof(*ids));
    m->n += n;
}

static void put_mark(struct making *m, int mark)
{
    if (m->fim->id[mark] >= 0) put(m, &m->fim->id[mark], 1);
}

static void put_side(struct making *m, int mark)
{
    put_mark(m, mark);
    if (mark == TOK_FIM_PREFIX)
        put(m, m->prefix_ids + m->n_cut_prefix, m->n_prefix - m->n_cut_prefix);
    else
        put(m, m->in->suffix_ids->ids, m->in->suffix_ids->n - m->n_cut_suffix);
}

static int assemble(struct making *m)
{
    bool suffix_first = m->fim->suffix_first;
    size_t most =
        m->begin.n + m->repo.n + m->file.n + m->n_prefix + m->in->suffix_ids->n + m->n_extra_ids;
    m->ids = srv_request_alloc(m->req, (most + MARKS + 2) * sizeof(*m->ids));
    if (!m->ids) return param_no_memory();
    put(m, m->begin.ids, m->begin.n);
    if (m->in->repo) put_mark(m, TOK_FIM_REPO);
    put(m, m->repo.ids, m->repo.n);
    for (size_t i = m->first; i < m->n_extras; i++) {
        put_mark(m, TOK_FIM_FILE);
        put(m, m->extras[i].ids, m->extras[i].n);
    }
    if (m->in->file) put_mark(m, TOK_FIM_FILE);
    put(m, m->file.ids, m->file.n);
    put_side(m, suffix_first ? TOK_FIM_SUFFIX : TOK_FIM_PREFIX);
    put_side(m, suffix_first ? TOK_FIM_PREFIX : TOK_FIM_SUFFIX);
    put_mark(m, TOK_FIM_MIDDLE);
    return 0;
}

static int check(const struct making *m, const char *field)
{
    const json_t *extra = m->in->extra;
    if (m->fim->id[TOK_FIM_PREFIX] < 0)
        return param_fail(SRV_ERR_UNSUPPORTED, field,
                          "This model has no tokens that mark the text before and after a hole, so "
                          "'%s' is not supported; --fim-marks names such tokens.",
                          field);
    if (extra && !json_is_array(extra)) return param_wrong_type("input_extra", "an array");
    return 0;
}

static int encode_sides(struct making *m, const char *prefix_field, const char *suffix_field)
{
    const struct infill_input *in = m->in;
    char message[200];
    if (in->prefix && encode(m, prefix_field, in->prefix, in->n_prefix, &m->prefix)) return -1;
    if (in->prompt && encode(m, "prompt", in->prompt, strlen(in->prompt), &m->prefix)) return -1;
    m->prefix_ids = in->prefix ? m->prefix.ids : in->prefix_ids;
    m->n_prefix = in->prefix ? m->prefix.n : in->n_prefix_ids;
    if (!in->no_begin &&
        tok_encode(m->tok, "", 0, TOK_ADD_SPECIAL, &m->begin, message, sizeof(message)))
        return param_no_memory();
    return (!in->suffix_ids->n &&
            encode(m, suffix_field, in->suffix, strlen(in->suffix), in->suffix_ids)) ||
                   encode_name(m, TOK_FIM_REPO, "repo_name", in->repo, &m->repo) ||
                   encode_name(m, TOK_FIM_FILE, "filename", in->file, &m->file)
               ? -1
               : 0;
}

static void note_cut(struct making *m, struct infill_prompt *ret)
{
    char text[96];
    ret->cut = m->n_cut_prefix || m->n_cut_suffix || m->first;
    snprintf(text, sizeof(text), "prefix=%zu,suffix=%zu,files=%zu", m->n_cut_prefix,
             m->n_cut_suffix, m->first);
    if (ret->cut) srv_reply_header(m->req, "x-infill-cut", text);
}

int infill_prompt_make(struct srv_request *req, const struct infill_input *in,
                       struct infill_prompt *ret)
{
    const struct srv_model *model = srv_facts(req)->model;
    struct making m = {.req = req, .tok = model->tok, .fim = &model->fim, .in = in};
    bool files = in->file != NULL;
    const char *suffix_field = files ? "input_suffix" : "suffix";
    int rc = check(&m, suffix_field);
    if (!rc) rc = encode_sides(&m, files ? "input_prefix" : "prompt", suffix_field);
    if (!rc) rc = encode_extras(&m, measure(&m));
    if (!rc) rc = assemble(&m);
    if (!rc) {
        note_cut(&m, ret);
        ret->ids = m.ids;
        ret->n_ids = (int64_t)m.n;
    }
    tok_ids_finish(&m.begin);
    tok_ids_finish(&m.repo);
    tok_ids_finish(&m.file);
    tok_ids_finish(&m.prefix);
    return rc;
}
