/* SPDX-License-Identifier: MIT */
/*
 * Structured output: a JSON schema, a regular expression, a list of choices or a GBNF grammar is
 * compiled into a machine that says which tokens may come next, so that a finished answer is a
 * member of the language.
 *
 * The theory in short. A front end turns the text into rules. Their leaves (strings, numbers,
 * literals, regular expressions) are automata over bytes: deterministic, made of code point classes
 * by the subset construction [1], so that a state is a number or a few counters. What nests
 * (objects, arrays, sequences, repetitions, rules) is kept on stacks of immutable frames that
 * alternatives share [2]; a repetition is a counter in its frame and is never unrolled. A set of
 * configurations (state of a leaf, stack) is where the answer stands; a byte maps a set to the next
 * one. The compiler removes every rule and every automaton state from which no end can be reached,
 * and frames count depth and keys, so every configuration alive can be completed: there are no dead
 * ends. A token is allowed if its bytes lead to a set that is not empty. All tokens are tried at
 * once by walking a trie of the vocabulary [3]; inside strings nearly every token is plain text,
 * and bitsets of those are made once per vocabulary or once per automaton state [4].
 *
 * [1] Rabin, Scott 1959; classes as in Owens, Reppy, Turon, "Regular-expression derivatives
 * re-examined", 2009. [2] Tomita, "An efficient augmented-context-free parsing algorithm", 1987
 * (graph-structured stacks). [3] The idea of llguidance, github.com/guidance-ai/llguidance. [4]
 * Dong et al., "XGrammar", 2024 (context-independent tokens).
 *
 * Knows no HTTP, no tensors and no tokenizer: token bytes come through a function.
 *
 * Threads: a vocabulary is immutable. A compiled grammar is immutable but for caches that are
 * filled without locks; it may be used by any number of threads. A state belongs to one thread at a
 * time. Nothing is allocated after gram_compile.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/grammar/gram_types.h"

struct gram_state;

/* ---- vocabulary ---------------------------------------------------------------------------- */

struct gram_vocab_params {
    int32_t n_ids; /* ids are 0 .. n_ids - 1 */
    /*
     * The bytes that an id stands for in the middle of a text: copies at most size bytes, returns
     * the full length; 0 for ids that can never come (holes). A special token is 0 too, or 0xFF
     * and its text; see struct gram_part. Ids with a 0xFF elsewhere never come.
     */
    size_t (*bytes)(void *ctx, int32_t id, char *buf, size_t size);
    void *ctx;
    const int32_t *end_ids; /* ids that end an answer; allowed exactly where it is complete */
    size_t n_end_ids;
};

/* Longest token that can be generated under a grammar; longer ones are never allowed. */
#define GRAM_MAX_TOKEN_BYTES 512

/*
 * Reads all tokens. Returns owned: gram_vocab_destroy, after all its grammars. GRAM_EINVAL if no
 * id spells a single byte; GRAM_ENOMEM.
 */
int gram_vocab_create(struct gram_vocab **ret, const struct gram_vocab_params *params);
void gram_vocab_destroy(struct gram_vocab *v);
size_t gram_vocab_bytes(const struct gram_vocab *v);

/*
 * For plans: a vocabulary takes fewer bytes per id. Tokenizers of 512 to 151,665 ids took 53 to 69.
 */
enum { GRAM_VOCAB_BYTES_PER_ID = 80 };

/* Words of 64 bits in a mask: bit id % 64 of word id / 64 is set if the id is allowed. */
size_t gram_vocab_mask_words(const struct gram_vocab *v);
size_t gram_mask_words(const struct gram *g); /* of its vocabulary */

/* The id whose text is exactly this one byte, or -1: no text with this byte is ever required. */
int32_t gram_vocab_byte_id(const struct gram_vocab *v, uint8_t byte);

/* ---- compiling ----------------------------------------------------------------------------- */

/*
 * Compiles text[0..len), which need not be valid UTF-8 or JSON. Deterministic: the same input gives
 * the same grammar or the same error, unless it is stopped. Borrows the vocabulary as long as the
 * grammar lives. *ret is owned: gram_release. Returns 0 or the code in *err.
 */
int gram_compile(struct gram **ret, const struct gram_vocab *vocab, enum gram_kind kind,
                 const char *text, size_t len, const struct gram_options *options,
                 struct gram_error *err);

/* ---- composed languages -------------------------------------------------------------------- */

/*
 * Compiles the language of a tree, whose parts are only read during the call. One budget of steps
 * for all; equal schemas are compiled once. options->strict holds for every schema. A schema or an
 * expression that nothing fits, and a literal that no tokens spell, is an error wherever it is.
 */
int gram_compile_parts(struct gram **ret, const struct gram_vocab *vocab,
                       const struct gram_part *root, const struct gram_options *options,
                       struct gram_error *err);

/* Any thread, once no other uses it. NULL is fine. */
void gram_release(struct gram *g);

/* JSON pointers of the keywords that are only approximated, in text order. Borrowed from g. */
size_t gram_n_relaxed(const struct gram *g);
const char *gram_relaxed(const struct gram *g, size_t i);

/* Memory of the grammar, and of its mask cache, which is touched only when it is used. */
size_t gram_bytes(const struct gram *g);
size_t gram_cache_bytes(const struct gram *g);

/* ---- one answer ---------------------------------------------------------------------------- */

enum gram_next {
    GRAM_NEXT_MASK,  /* the bits say which ids may come */
    GRAM_NEXT_END,   /* the answer is complete and nothing can follow; bits: the end ids alone */
    GRAM_NEXT_FAIL,  /* nothing is possible: an error of this library */
    GRAM_NEXT_LATER, /* given up, see struct gram_pace; nothing changed */
};

/*
 * How long a mask may take, in steps of about 50 ns, which are counted down in `left`. When none
 * is left `more` is called, anywhere in the middle of the mask: it may take its time, go on with
 * this call on another thread, or never come back to it. True: `left` is set again; false: give up.
 */
struct gram_pace {
    int64_t left;
    bool (*more)(struct gram_pace *pace);
};

/*
 * A capture is a part of a grammar whose place in the answer is reported: number, begin or end, and
 * the offset in bytes from the start of the answer. Reports come during gram_take, in order, as
 * soon as all alternatives still alive agree on them. After a rollback, what comes after the mark
 * is reported again.
 */
typedef void (*gram_capture_fn)(void *ctx, uint32_t number, bool begin, uint64_t offset);

/* Bytes that a state needs, aligned to 64; the same for every grammar of every vocabulary. */
size_t gram_state_bytes(void);

/*
 * Puts a state at the beginning of an answer. `memory` has gram_state_bytes() and belongs to the
 * caller, who just drops it at the end. Borrows g. capture may be NULL.
 */
struct gram_state *gram_state_init(void *memory, const struct gram *g, gram_capture_fn capture,
                                   void *ctx);

/* Writes all words of the mask, end ids included where the answer is complete. pace may be NULL. */
enum gram_next gram_mask_paced(struct gram_state *s, uint64_t *bits, struct gram_pace *pace);

/* The same, however long it takes. */
static inline enum gram_next gram_mask(struct gram_state *s, uint64_t *bits)
{
    return gram_mask_paced(s, bits, NULL);
}

/* Takes an id that the mask allows. False, and nothing changes, for any other; end ids too. */
bool gram_take(struct gram_state *s, int32_t id);

/* The same for bytes: all of them or none. */
bool gram_take_bytes(struct gram_state *s, const char *bytes, size_t n);

/*
 * The ids of the bytes that must come next, if there are such, as text is usually cut: the longest
 * token first. The last of them is left out, since it may turn out longer, and so is what lies more
 * than GRAM_FORCED_BYTES ahead. At most n; returns their number. Changes nothing.
 */
enum { GRAM_FORCED_BYTES = 32 };
size_t gram_forced(struct gram_state *s, int32_t *ids, size_t n);

/*
 * The shortest way to complete an answer, or one that is not much longer, in the style of its white
 * space; nothing if it is complete. All change nothing and allocate nothing.
 *
 * gram_rest: about how many bytes that takes, 0 if it is complete. At most 4 times as many and 16.
 * gram_close: how many ids, cut as in gram_forced, and the first n of them; SIZE_MAX if they are
 * more than limit, if one of them is banned (bans NULL: none is), or if none is found.
 * *ret_values: values that are begun in it.
 */
struct gram_bans {
    bool (*has)(const void *ctx, int32_t id);
    const void *ctx;
};
uint64_t gram_rest(struct gram_state *s);
size_t gram_close(struct gram_state *s, size_t limit, const struct gram_bans *bans, int32_t *ids,
                  size_t n, uint32_t *ret_values);

/* Returns true if the answer is complete. */
bool gram_accepting(const struct gram_state *s);

/*
 * A place to come back to. The last GRAM_MAX_MARKS marks are kept, each as long as at most
 * GRAM_MARK_BYTES of answer lie after it. gram_rollback returns false, and changes nothing, for a
 * mark that is not kept; it forgets the marks made after its own.
 */
#define GRAM_MAX_MARKS 8
#define GRAM_MARK_BYTES 1024
uint64_t gram_mark(struct gram_state *s);
bool gram_rollback(struct gram_state *s, uint64_t mark);

/* Keeps no mark any longer. The next one is made at the present place, so going back is short. */
void gram_forget_marks(struct gram_state *s);

/*
 * Times that alternatives were dropped because there were more than 256 or a byte took too many
 * steps, and masks that allow tokens of one byte alone because all would have taken too many.
 */
uint64_t gram_overflows(const struct gram_state *s);
