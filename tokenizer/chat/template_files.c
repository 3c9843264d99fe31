/* SPDX-License-Identifier: MIT */
/*
 * The files of a model directory that chat rendering needs, chosen as transformers chooses:
 *
 * - templates: chat_template.jinja and additional_chat_templates/<name>.jinja, else "chat_template"
 *   of tokenizer_config.json (a string, a list of {name, template}, or an object by name). Of
 * several only `default` and `tool_use` can be chosen by a request.
 * - special tokens: tokenizer_config.json; special_tokens_map.json over it where the former has no
 *   added_tokens_decoder; the tokenizer class's own for what neither mentions.
 *
 * Of a GGUF file the special tokens are the file's, and so are the templates unless there are some
 * in the folder that goes with it.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/gguf_names.h"
#include "tokenizer/chat/chat_internal.h"
#include "tokenizer/gguf.h"
#include "tokenizer/template/dict.h"
#include "tokenizer/template/json.h"

enum {
    MAX_FILE_BYTES = 32 << 20,
    LOAD_MEMORY_BYTES = 1 << 30,
    LOAD_STEPS = 100 * 1000 * 1000,
};

/* OWN: of a GGUF file, as a tokenizer_config.json. */
enum { CONFIG, SPECIAL_MAP, TEMPLATE, TOOL_TEMPLATE, OWN, N_FILES };

static const char *const file_names[OWN] = {"tokenizer_config.json", "special_tokens_map.json",
                                            "chat_template.jinja",
                                            "additional_chat_templates/tool_use.jinja"};

/* The text of a file; data is NULL if there is none. */
struct file {
    char *data;
    size_t len;
};

struct loader {
    struct file files[N_FILES];
    char **info;            /* tok_chat_info_read; NULL: the templates are wanted */
    const char *plain_file; /* the caller's own, or NULL */
    bool no_dir;
    struct tok_chat_files *ret;
};

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

/* Tokens of tokenizer classes that no file mentions. */
static const struct {
    const char *class_name; /* with or without "Fast" */
    const char *token, *content;
} class_defaults[] = {
    {"LlamaTokenizer", "bos_token", "<s>"},
    {"LlamaTokenizer", "eos_token", "</s>"},
    {"LlamaTokenizer", "unk_token", "<unk>"},
    {"GPT2Tokenizer", "bos_token", "<|endoftext|>"},
    {"GPT2Tokenizer", "eos_token", "<|endoftext|>"},
    {"GPT2Tokenizer", "unk_token", "<|endoftext|>"},
    {"Qwen2Tokenizer", "eos_token", "<|endoftext|>"},
    {"Qwen2Tokenizer", "unk_token", "<|endoftext|>"},
    {"Qwen2Tokenizer", "pad_token", "<|endoftext|>"},
};

/* ---- files --------------------------------------------------------------------------------- */

/* Copies text out of a run; a text that is there already goes. */
static void set_text(struct jinja_run *r, char **slot, const char *s, size_t len, const char *what)
{
    if (len && memchr(s, '\0', len)) jinja_raise(r, "%s holds a NUL", what);
    char *text = malloc(len + 1);
    if (!text) jinja_fail(r, TOK_ENOMEM, "out of memory");
    if (len) memcpy(text, s, len);
    text[len] = '\0';
    free(*slot);
    *slot = text;
}

/* Returns an empty dict if there is no such file. */
static const struct jinja_dict *read_object(struct jinja_run *r, const struct file *f,
                                            const char *name)
{
    if (!f->data) return jinja_dict_new(r);
    struct jinja_value v = jinja_json_parse(r, f->data, f->len, JINJA_TRUSTED, name);
    if (!jinja_is(v, JINJA_DICT)) jinja_raise(r, "%s must be an object", name);
    return v.u.dict;
}

/* ---- templates ----------------------------------------------------------------------------- */

/* Either may be NULL: not there. */
static void take_template(struct jinja_run *r, struct tok_chat_files *f,
                          const struct jinja_value *name, const struct jinja_value *source)
{
    if (!name || !jinja_is(*name, JINJA_STR) || !source || !jinja_is(*source, JINJA_STR))
        jinja_raise(r, "chat_template in tokenizer_config.json must be text, or named texts");
    char **slot = tok_chat_is_text(name, "default")    ? &f->plain
                  : tok_chat_is_text(name, "tool_use") ? &f->with_tools
                                                       : NULL;
    if (slot) set_text(r, slot, source->u.str->s, source->u.str->len, "the chat template");
    f->plain_file = f->tools_file = file_names[CONFIG];
}

/* One template as text, several as a list of {name, template} or by name. */
static void templates_of_config(struct jinja_run *r, struct tok_chat_files *f,
                                const struct jinja_dict *config)
{
    const struct jinja_value *v = jinja_dict_get_name(r, config, "chat_template");
    if (!v || jinja_is(*v, JINJA_NONE))
        jinja_fail(r, TOK_ENOENT,
                   "the model has no chat template: neither chat_template.jinja nor "
                   "chat_template in tokenizer_config.json");
    if (jinja_is(*v, JINJA_STR)) {
        struct jinja_value name = jinja_lit(r, "default");
        take_template(r, f, &name, v);
    } else if (jinja_is(*v, JINJA_LIST)) {
        for (size_t i = 0; i < v->u.list->n; i++)
            take_template(r, f, tok_chat_member(r, v->u.list->items[i], "name"),
                          tok_chat_member(r, v->u.list->items[i], "template"));
    } else if (jinja_is(*v, JINJA_DICT)) {
        for (size_t i = 0; i < v->u.dict->n; i++)
            take_template(r, f, &v->u.dict->pairs[i].key, &v->u.dict->pairs[i].value);
    } else {
        jinja_raise(r, "chat_template in tokenizer_config.json must be text, or named texts");
    }
    if (!f->plain && !f->with_tools)
        jinja_raise(r, "the model has several chat templates, but none named default");
}

/* Whether the configuration has a template that is not this one, apart from its last line end. */
static bool has_another(struct jinja_run *r, const struct jinja_dict *config, const struct file *f)
{
    const struct jinja_value *v = jinja_dict_get_name(r, config, "chat_template");
    if (!v || jinja_is(*v, JINJA_NONE)) return false;
    if (!jinja_is(*v, JINJA_STR)) return true;
    size_t n = v->u.str->len, n_file = f->len;
    n -= n > 0 && v->u.str->s[n - 1] == '\n';
    n_file -= n_file > 0 && f->data[n_file - 1] == '\n';
    return n != n_file || memcmp(v->u.str->s, f->data, n) != 0;
}

/* Files win over the configuration, all of them together. */
static void read_templates(struct jinja_run *r, struct loader *l, const struct jinja_dict *config)
{
    const struct file *plain = &l->files[TEMPLATE], *tools = &l->files[TOOL_TEMPLATE];
    l->ret->plain_file = l->plain_file ? l->plain_file : file_names[TEMPLATE];
    l->ret->tools_file = file_names[TOOL_TEMPLATE];
    if (plain->data) set_text(r, &l->ret->plain, plain->data, plain->len, "the chat template");
    if (tools->data) set_text(r, &l->ret->with_tools, tools->data, tools->len, "tool_use.jinja");
    if (!plain->data && !tools->data) templates_of_config(r, l->ret, config);
    l->ret->has_another = !l->plain_file && plain->data && has_another(r, config, plain);
}

/* ---- special tokens ------------------------------------------------------------------------ */

/* The text of a token: a string, or an object with "content". NULL: none. */
static const struct jinja_str *token_text(struct jinja_run *r, struct jinja_value v)
{
    const struct jinja_value *s = jinja_is(v, JINJA_DICT) ? tok_chat_member(r, v, "content") : &v;
    return s && jinja_is(*s, JINJA_STR) && s->u.str->len ? s->u.str : NULL;
}

/* Tokenizer classes differ by "Fast" at most. */
static const char *class_default(const struct jinja_str *class_name, const char *token)
{
    for (size_t i = 0; i < sizeof(class_defaults) / sizeof(class_defaults[0]); i++) {
        size_t n = strlen(class_defaults[i].class_name);
        bool same = class_name->len >= n &&
                    memcmp(class_name->s, class_defaults[i].class_name, n) == 0 &&
                    (class_name->len == n ||
                     (class_name->len == n + 4 && memcmp(class_name->s + n, "Fast", 4) == 0));
        if (same && strcmp(class_defaults[i].token, token) == 0) return class_defaults[i].content;
    }
    return NULL;
}

struct sources {
    const struct jinja_dict *config,
        *map;                           /* map: overrides config where it has the name, or NULL */
    const struct jinja_str *class_name; /* or NULL */
};

/* The token map is read over the configuration, null included. */
static const struct jinja_value *find_setting(struct jinja_run *r, const struct sources *s,
                                              const char *name)
{
    const struct jinja_value *v = s->map ? jinja_dict_get_name(r, s->map, name) : NULL;
    return v ? v : jinja_dict_get_name(r, s->config, name);
}

/* A token that a file mentions, if only as null, has no default. */
static void add_token(struct jinja_run *r, struct jinja_dict *to, const struct sources *s,
                      const char *name)
{
    const struct jinja_value *v = find_setting(r, s, name);
    const struct jinja_str *text = v ? token_text(r, *v) : NULL;
    const char *otherwise = !v && s->class_name ? class_default(s->class_name, name) : NULL;
    if (otherwise) text = jinja_lit(r, otherwise).u.str;
    if (text) jinja_dict_put_name(r, to, name, jinja_from_str(text));
}

/* In order, each once. */
static void collect_tokens(struct jinja_run *r, struct jinja_list *to,
                           const struct jinja_dict *from)
{
    const struct jinja_value *v = jinja_dict_get_name(r, from, "additional_special_tokens");
    if (!v || !jinja_is(*v, JINJA_LIST)) return;
    for (size_t i = 0; i < v->u.list->n; i++) {
        const struct jinja_str *text = token_text(r, v->u.list->items[i]);
        if (text && !jinja_contains(r, jinja_from_list(to), jinja_from_str(text)))
            jinja_list_add(r, to, jinja_from_str(text));
    }
}

/* Tokens that a model names itself: {"image_token": "<image>"} */
static void add_extra_tokens(struct jinja_run *r, struct jinja_dict *to, const struct sources *s)
{
    const struct jinja_value *v = find_setting(r, s, "extra_special_tokens");
    if (!v || !jinja_is(*v, JINJA_DICT)) return;
    for (size_t i = 0; i < v->u.dict->n; i++) {
        const struct jinja_str *text = token_text(r, v->u.dict->pairs[i].value);
        if (text) jinja_dict_put(r, to, v->u.dict->pairs[i].key, jinja_from_str(text));
    }
}

static struct jinja_value special_tokens(struct jinja_run *r, const struct sources *s)
{
    struct jinja_dict *d = jinja_dict_new(r);
    struct jinja_list *more = jinja_list_new(r, 4);
    for (size_t i = 0; i < sizeof(token_names) / sizeof(token_names[0]); i++)
        add_token(r, d, s, token_names[i]);
    collect_tokens(r, more, s->config);
    if (s->map) collect_tokens(r, more, s->map);
    if (more->n) jinja_dict_put_name(r, d, "additional_special_tokens", jinja_from_list(more));
    add_extra_tokens(r, d, s);
    return jinja_from_dict(d);
}

/* ---- all ----------------------------------------------------------------------------------- */

static struct jinja_value info(struct jinja_run *r, const struct sources *s)
{
    static const char *const left_out[] = {"chat_template", "vocab_file", "merges_file",
                                           "tokenizer_file", "name_or_path"};
    static const char *const always[] = {"bos_token", "eos_token", "pad_token"};
    struct jinja_dict *d = jinja_dict_new(r);
    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
        jinja_dict_put_name(r, d, always[i], jinja_none());
    jinja_dict_put_name(r, d, "tokenizer_class", jinja_lit(r, "PreTrainedTokenizerFast"));
    for (size_t i = 0; i < s->config->n; i++) {
        struct jinja_value key = s->config->pairs[i].key, value = s->config->pairs[i].value;
        bool out = false;
        for (size_t k = 0; k < sizeof(left_out) / sizeof(left_out[0]); k++)
            out = out || jinja_str_is(key.u.str, left_out[k]);
        if (!out) jinja_dict_put(r, d, key, value);
    }
    jinja_dict_add_all(r, d, special_tokens(r, s).u.dict);
    return jinja_from_dict(d);
}

static void load(struct jinja_run *r, void *arg)
{
    struct loader *l = arg;
    const struct jinja_dict *config = read_object(r, &l->files[CONFIG], file_names[CONFIG]);
    const struct jinja_dict *own = read_object(r, &l->files[OWN], "the file's keys");
    struct sources s = {.config = l->files[OWN].data ? own : config};
    if (!l->files[OWN].data && !jinja_dict_get_name(r, config, "added_tokens_decoder"))
        s.map = read_object(r, &l->files[SPECIAL_MAP], file_names[SPECIAL_MAP]);
    const struct jinja_value *class_name = jinja_dict_get_name(r, s.config, "tokenizer_class");
    if (class_name && jinja_is(*class_name, JINJA_STR)) s.class_name = class_name->u.str;
    if (l->no_dir) s.class_name = jinja_lit(r, "LlamaTokenizer").u.str;
    if (l->files[OWN].data && !jinja_dict_get_name(r, config, "chat_template")) config = own;
    if (!l->info) read_templates(r, l, config);
    if (config == own && l->ret && l->ret->plain_file == file_names[CONFIG])
        l->ret->plain_file = l->ret->tools_file = "tokenizer.chat_template";
    struct jinja_value facts = l->info ? info(r, &s) : special_tokens(r, &s);
    const struct jinja_str *text = tok_chat_json(r, facts).u.str;
    set_text(r, l->info ? l->info : &l->ret->variables, text->s, text->len, "the special tokens");
}

/* With a template of the caller's the directory's own templates are not looked at. */
static int read_files(struct loader *l, const char *dir, const struct tok_chat_params *params,
                      char *err, size_t errlen)
{
    const char *template_file = params->template_file;
    bool own = !template_file && !params->template_text;
    int rc = 0;
    char folder[PATH_MAX];
    if (dir && tok_is_file(dir)) {
        rc = tok_gguf_config(&l->files[OWN].data, &l->files[OWN].len, dir, err, errlen);
        dir = params->tokenizer_dir ? params->tokenizer_dir
                                    : gguf_folder_of(dir, folder, sizeof(folder));
    }
    for (int i = 0; i < OWN && !rc && dir; i++) {
        if ((!own || l->info) && i >= TEMPLATE) break;
        rc = file_load_optional(dir, file_names[i], MAX_FILE_BYTES, &l->files[i].data,
                                &l->files[i].len, err, errlen);
    }
    if (rc || own) return rc;
    struct file *f = &l->files[TEMPLATE];
    if (params->template_text) {
        f->data = strdup(params->template_text);
        f->len = strlen(params->template_text);
        return f->data ? 0 : TOK_ENOMEM;
    }
    rc = file_load_optional(NULL, template_file, MAX_FILE_BYTES, &f->data, &f->len, err, errlen);
    if (rc || f->data) return rc;
    return fail_with(TOK_ENOENT, err, errlen, "chat template file %s: no such file", template_file);
}

static int run_loader(struct loader *l, const char *dir, const struct tok_chat_params *params,
                      char *err, size_t errlen)
{
    AUTO_FREE struct jinja_run *r = calloc(1, sizeof(*r));
    if (!r) return fail_with(TOK_ENOMEM, err, errlen, "out of memory");
    jinja_run_init(r, LOAD_MEMORY_BYTES, LOAD_STEPS);
    int rc = read_files(l, dir, params, err, errlen);
    if (!rc) {
        rc = jinja_guard(r, load, l);
        if (rc) jinja_copy_sentence(err, errlen, r->err);
    }
    jinja_run_finish(r);
    for (int i = 0; i < N_FILES; i++)
        free(l->files[i].data);
    return rc;
}

int tok_chat_files_read(struct tok_chat_files *ret, const char *dir,
                        const struct tok_chat_params *params, char *err, size_t errlen)
{
    struct loader l = {.no_dir = !dir, .ret = ret};
    l.plain_file = params->template_text ? "the text given" : params->template_file;
    return run_loader(&l, dir, params, err, errlen);
}

int tok_chat_info_read(char **ret, const char *dir, char *err, size_t errlen)
{
    static const struct tok_chat_params none;
    char *text = NULL;
    struct loader l = {.info = &text};
    int rc = run_loader(&l, dir, &none, err, errlen);
    if (rc)
        free(text);
    else
        *ret = text;
    return rc;
}

void tok_chat_files_finish(struct tok_chat_files *f)
{
    free(f->plain);
    free(f->with_tools);
    free(f->variables);
    *f = (struct tok_chat_files){0};
}
