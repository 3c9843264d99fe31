/* SPDX-License-Identifier: MIT */
/*
 * Chat messages -> prompt text, by the template of a model directory. JSON crosses this header as
 * text; which bytes of a prompt came from the request comes with it, so that the tokenizer
 * recognises special tokens in the template's own text alone.
 *
 * Threads: an opened tok_chat is immutable and may be used from any number of threads at once.
 *
 * Errors: as in tokenizer/tokenizer.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tok_types.h"

struct tok_chat;

/*
 * The source of a template and the bounds of one render. Zero is the default of every field.
 *
 * Steps are the bound that decides: they are counted, so the same messages are accepted or refused
 * on every machine, however busy. The worst templates known take 2 million of them in 180 ms;
 * processor time is a last resort for slower machines, and wall time is never looked at. With the
 * templates of known model families 4,096 messages with a megabyte of text take at most 740,000
 * steps, 22 MiB and 40 ms.
 */
struct tok_chat_params {
    /* instead of the directory's own; NULL: chat_template.jinja, then tokenizer_config.json */
    const char *template_file;
    /* instead of any file; NULL: none. dir may then be NULL: the special tokens are Llama's */
    const char *template_text;
    /* of a GGUF file: where its template is looked for first; NULL: the folder that goes with it */
    const char *tokenizer_dir;
    size_t max_output_bytes; /* 0: 16 MiB */
    size_t max_memory_bytes; /* 0: 64 MiB, the messages and the text included */
    uint64_t max_steps;      /* 0: 2 million evaluation steps */
    unsigned max_cpu_ms;     /* 0: 250 ms of the calling thread */
};

/*
 * Reads and parses the chat template of a model, a directory or a GGUF file, and probes what the
 * server must do around it (system role, null content, content parts, arguments as object or
 * string). TOK_ENOENT: it has no template. TOK_EINVAL: it does not parse; err has the line. Returns
 * owned.
 */
int tok_chat_open(struct tok_chat **ret, const char *dir, const struct tok_chat_params *params,
                  char *err, size_t errlen);
void tok_chat_close(struct tok_chat *c);

/*
 * How calls of tools are written where the template has no form for them: `begin` and `end` around
 * the calls of a message, `separator` between two, and for each call `before_name`, its name,
 * `before_arguments`, its arguments, `after`. Borrowed; none of these is NULL.
 */
struct tok_chat_call_form {
    const char *begin, *end, *separator;
    const char *before_name, *before_arguments, *after;
    bool tags; /* the arguments are <parameter=K>V</parameter>, each on its lines, not an object */
    /* They are keywords, assign between a key and its value, comma between two. Values are as
     * Python writes them; with a quote as Gemma does: strings between two of them, bare keys. */
    const char *assign, *comma, *quote;
};

/* A list of tools for a template that has no place for one: a sentence, a JSON text that is written
 * as json.dumps does, a sentence. */
struct tok_chat_tool_text {
    const char *before, *tools, *after; /* borrowed */
};

/*
 * Tools put into the messages as text. The fixed parts count as the template's own, so that markers
 * in them become the tokens that the model writes; names, arguments, results and the list of tools
 * are text of the request.
 */
struct tok_chat_tool_writing {
    const struct tok_chat_call_form *calls; /* NULL: the template writes past calls */
    const struct tok_chat_tool_text
        *tools;   /* NULL: the template lists the tools, or there are none */
    bool results; /* past results become user messages; otherwise the template writes them */
};

struct tok_chat_input {
    const char *messages; /* JSON array; required unless context is set */
    const char *tools;    /* JSON array or NULL (none) */
    const char *kwargs;   /* JSON object of further variables, or NULL */
    const char *context;  /* JSON object: the template's whole set of variables, or NULL */
    bool add_generation_prompt;
    bool continue_final_message; /* the last message is left open; excludes add_generation_prompt */
    const struct tok_chat_tool_writing *writing; /* NULL: the template writes everything */
    uint64_t max_steps;                          /* fewer than the template's own bound; 0: that */
    bool verbatim; /* messages reach the template as they stand; otherwise they are first
                                 brought to what the probing at load found this template to need */
};

/* A rendered prompt; `input` are the ranges of text that came from the request. */
struct tok_prompt {
    char *text;
    size_t len;
    struct tok_range *input;
    size_t n_input;
};

/*
 * Renders. TOK_ERAISE: the template refused the messages; err is its own message. TOK_EINVAL: the
 * template failed on them. TOK_ELIMIT: a budget ran out. *ret is owned: tok_prompt_finish.
 */
int tok_chat_render(const struct tok_chat *c, const struct tok_chat_input *in,
                    struct tok_prompt *ret, char *err, size_t errlen);
void tok_prompt_finish(struct tok_prompt *p);

/* Template source, borrowed, NUL-terminated: for /props. */
const char *tok_chat_source(const struct tok_chat *c);

/* The file that it is from, without folders, or the key of a GGUF file. Borrowed. */
const char *tok_chat_file(const struct tok_chat *c);

/* The results of probing, for /props and the server's own checks. */
struct tok_chat_caps {
    bool system_role;      /* a system message is accepted */
    bool null_content;     /* content: null is accepted */
    bool content_parts;    /* content as a list of parts is understood */
    bool tools;            /* tools change the output */
    bool object_arguments; /* tool-call arguments are wanted as an object, not as JSON text */
    bool short_call_ids;   /* tool call ids must be nine letters or digits */
};
const struct tok_chat_caps *tok_chat_caps(const struct tok_chat *c);

/* True if chat_template.jinja is used and tokenizer_config.json has another template. */
bool tok_chat_has_another(const struct tok_chat *c);

/*
 * tokenizer_config.json as a JSON object, without templates and names of files, and the special
 * tokens that templates see in it as text: "bos_token", "eos_token" and "pad_token" always, or
 * null. *ret is owned (free); "{...}" with defaults where the directory has no such file.
 */
int tok_chat_info_read(char **ret, const char *dir, char *err, size_t errlen);
