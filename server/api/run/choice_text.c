/* SPDX-License-Identifier: MIT */
/* Records to text, with the stop strings in it; see choice_text.h. */
#include "server/api/run/choice_text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

enum { PRIME_TOKENS = 8 };

/* ---- the log --------------------------------------------------------------------------------- */

/* A log begins at a multiple of 16 bytes and its rows of tops follow the records directly. */
_Static_assert(sizeof(struct gen_record) % _Alignof(struct eng_logprob) == 0, "rows of tops");
_Static_assert(_Alignof(struct gen_record) <= 16 && _Alignof(struct eng_logprob) <= 16, "logs");

static int64_t round_up(int64_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

int64_t choice_log_bytes(int64_t capacity, int64_t n_top)
{
    int64_t records = capacity * (int64_t)sizeof(struct gen_record);
    int64_t tops = n_top > 0 ? capacity * n_top * (int64_t)sizeof(struct eng_logprob) : 0;
    return round_up(records + tops);
}

void choice_log_init(struct gen_log *log, int64_t capacity, int64_t n_top, char **at)
{
    if (!capacity) return;
    log->capacity = capacity;
    log->top_width = n_top > 0 ? (int)n_top : 0;
    log->records = (struct gen_record *)(void *)*at;
    if (log->top_width) log->tops = (struct eng_logprob *)(void *)(log->records + capacity);
    *at += choice_log_bytes(capacity, n_top);
}

void choice_log_append(struct gen_log *log, const struct eng_event *ev)
{
    long long at = atomic_load_explicit(&log->n_written, memory_order_relaxed);
    assert(at < log->capacity);
    int n_top = ev->n_top < log->top_width ? ev->n_top : log->top_width;
    if (!ev->top) n_top = 0;
    log->records[at] =
        (struct gen_record){ev->id, ev->logprob, (int16_t)n_top, (int16_t)ev->predicted};
    if (n_top > 0)
        memcpy(log->tops + at * log->top_width, ev->top, (size_t)n_top * sizeof(*ev->top));
    atomic_store_explicit(&log->n_written, at + 1, memory_order_release);
}

/* ---- stop strings ---------------------------------------------------------------------------- */

static void fill_failure(const char *text, size_t len, unsigned short *failure)
{
    failure[0] = 0;
    size_t k = 0;
    for (size_t i = 1; i < len; i++) {
        while (k > 0 && text[i] != text[k])
            k = failure[k - 1];
        if (text[i] == text[k]) k++;
        failure[i] = (unsigned short)k;
    }
}

int textout_stops_init(struct textout_stops *s, const char *const *texts, const size_t *lens, int n)
{
    assert(n >= 0 && n <= SRV_MAX_STOPS);
    memset(s, 0, sizeof(*s));
    for (int i = 0; i < n; i++) {
        assert(lens[i] > 0 && lens[i] <= SRV_MAX_STOP_BYTES);
        unsigned short *failure = malloc(lens[i] * sizeof(*failure));
        if (!failure) {
            textout_stops_finish(s);
            return -1;
        }
        fill_failure(texts[i], lens[i], failure);
        s->stop[i].text = texts[i];
        s->stop[i].len = lens[i];
        s->stop[i].failure = failure;
        s->n = i + 1;
    }
    return 0;
}

void textout_stops_finish(struct textout_stops *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->stop[i].failure);
    s->n = 0;
}

void textout_init(struct textout *t, const struct textout_stops *stops, bool include_stop,
                  size_t max_bytes)
{
    memset(t, 0, sizeof(*t));
    t->stops = stops;
    t->include_stop = include_stop;
    t->stop_index = t->n_indent = -1;
    buf_init(&t->text, max_bytes);
}

/* Feeds one byte to every automaton; returns the longest stop that it completes, or -1. */
static int match_byte(struct textout *t, char byte)
{
    int found = -1;
    for (int i = 0; i < t->stops->n; i++) {
        size_t k = t->matched[i];
        assert(k < t->stops->stop[i].len);
        const char *text = t->stops->stop[i].text;
        while (k > 0 && text[k] != byte)
            k = t->stops->stop[i].failure[k - 1];
        if (text[k] == byte) k++;
        t->matched[i] = (unsigned short)k;
        if (k == t->stops->stop[i].len) {
            if (found < 0 || k > t->stops->stop[found].len) found = i;
            t->matched[i] = 0;
        }
    }
    return found;
}

static size_t longest_match(const struct textout *t)
{
    size_t longest = 0;
    for (int i = 0; i < t->stops->n; i++)
        if (t->matched[i] > longest) longest = t->matched[i];
    return longest;
}

/* Takes a byte; returns true if a line begins with it that is not indented enough. */
static bool begins_short_line(struct textout *t, char byte)
{
    bool begins = t->n_indent >= 0 && byte != ' ' && byte != '\t';
    bool is_short = begins && t->n_indent < t->min_indent;
    if (byte == '\n')
        t->n_indent = 0, t->has_lines = true;
    else
        t->n_indent = begins || t->n_indent < 0 ? -1 : t->n_indent + 1;
    return is_short;
}

/* Ends the text there. */
static void end_text(struct textout *t, size_t cut)
{
    if (cut < t->n_released) cut = t->n_released;
    assert(cut <= t->text.len);
    t->text.len = cut;
    t->text.data[cut] = '\0';
    t->n_released = cut;
}

/* Back to the start of the character that byte `at` lies in. */
static size_t character_start(const struct textout *t, size_t at)
{
    while (at > t->n_released && at < t->text.len &&
           ((unsigned char)t->text.data[at] & 0xC0) == 0x80)
        at--;
    return at;
}

bool textout_push(struct textout *t, const char *piece, size_t len, bool armed)
{
    size_t before = t->text.len;
    buf_add(&t->text, piece, len);
    if (t->text.failed) return false;
    for (size_t i = 0; armed && i < len; i++) {
        int found = match_byte(t, piece[i]);
        size_t end = before + i + 1;
        t->dedented = begins_short_line(t, piece[i]) && found < 0;
        if (t->dedented) end_text(t, end - 1);
        if (t->dedented) return true;
        if (found < 0) continue;
        end_text(t, t->include_stop ? end : end - t->stops->stop[found].len);
        t->stop_index = found;
        return true;
    }
    assert(longest_match(t) <= t->text.len && t->n_released <= t->text.len);
    size_t free_to_go = t->text.len - longest_match(t);
    if (free_to_go > t->n_released) t->n_released = character_start(t, free_to_go);
    return false;
}

void textout_flush(struct textout *t)
{
    assert(t->n_released <= t->text.len);
    t->n_released = t->text.len;
    memset(t->matched, 0, (size_t)t->stops->n * sizeof(t->matched[0]));
}

/* ---- a choice -------------------------------------------------------------------------------- */

/* Of a reader with its parts and the places of tokens in what it was fed. */
static int64_t reader_bytes(const struct choice_rules *rules, int64_t capacity)
{
    if (!rules->reader.set) return 0;
    return round_up((int64_t)tools_reader_bytes(rules->reader.max_held)) +
           round_up(capacity * (int64_t)sizeof(uint32_t)) +
           round_up(CHOICE_MAX_PARTS * (int64_t)sizeof(struct choice_part));
}

int64_t choice_text_bytes(const struct choice_rules *rules, int64_t capacity, int64_t n_top)
{
    return choice_log_bytes(capacity, n_top) + round_up(capacity * (int64_t)sizeof(uint32_t)) +
           reader_bytes(rules, capacity);
}

static void on_event(void *ctx, const struct tools_event *event);

static void init_reader(struct gen_choice *c, int64_t capacity, char *at)
{
    struct tools_reader_params params = c->rules->reader;
    params.on_event = on_event;
    params.ctx = c;
    c->reader = tools_reader_init(at, &params);
    at += round_up((int64_t)tools_reader_bytes(params.max_held));
    c->raw = (uint32_t *)(void *)at;
    at += round_up(capacity * (int64_t)sizeof(uint32_t));
    c->parts = (struct choice_part *)(void *)at;
}

int choice_text_init(struct gen_choice *c, const struct choice_rules *rules, const int32_t *prompt,
                     int64_t n_prompt, int64_t capacity, int64_t n_top, char **at)
{
    c->stop_id = -1;
    c->rules = rules;
    c->parts = &c->only;
    textout_init(&c->text, &rules->stops, rules->include_stop, CHOICE_TEXT_MAX_BYTES);
    c->text.min_indent = rules->min_indent;
    choice_log_init(&c->log, capacity, n_top, at);
    c->offsets = (uint32_t *)(void *)*at;
    *at += round_up(capacity * (int64_t)sizeof(uint32_t));
    if (rules->reader.set) init_reader(c, capacity, *at);
    *at += reader_bytes(rules, capacity);
    int rc = tok_decoder_create(&c->decoder, rules->tok, rules->skip_special);
    /* The decoder gets the prompt's last tokens first, so that it keeps a space at the start of the
     * answer. */
    int64_t from = n_prompt > PRIME_TOKENS ? n_prompt - PRIME_TOKENS : 0;
    const char *text;
    size_t len;
    for (int64_t i = from; !rc && i < n_prompt; i++)
        rc = tok_decoder_push(c->decoder, prompt[i], &text, &len);
    return rc ? -1 : 0;
}

void choice_text_finish(struct gen_choice *c)
{
    buf_finish(&c->text.text);
    tok_decoder_destroy(c->decoder);
    c->decoder = NULL;
}

static bool is_stop_id(const struct choice_rules *rules, int32_t id)
{
    for (int list = 0; list < 2; list++)
        for (int i = 0; i < rules->n_ids[list]; i++)
            if (rules->ids[list][i] == id) return true;
    return false;
}

/* ---- parts --------------------------------------------------------------------------------- */

/* The last part if it is of this kind, else a new one. What was held back of the one before goes
 * out: no stop string reaches beyond a part. */
static struct choice_part *open_part(struct gen_choice *c, enum choice_kind kind)
{
    struct choice_part *last = c->n_parts > 0 ? &c->parts[c->n_parts - 1] : NULL;
    if (last && last->kind == kind && kind != CHOICE_CALL) return last;
    assert(c->n_parts < (c->reader ? CHOICE_MAX_PARTS : 1));
    if (last) textout_flush(&c->text);
    struct choice_part *part = &c->parts[c->n_parts++];
    *part = (struct choice_part){.kind = kind, .from = (uint32_t)c->text.text.len};
    return part;
}

/* Bytes [raw, raw + len) of what was fed come out next: tells where the tokens in them begin. */
static void place_tokens(struct gen_choice *c, uint64_t raw, size_t len)
{
    size_t at = c->text.text.len;
    for (; c->n_placed < c->n_tokens && c->raw[c->n_placed] < raw + len; c->n_placed++) {
        uint64_t begin = c->raw[c->n_placed];
        c->offsets[c->n_placed] = (uint32_t)(at + (begin > raw ? begin - raw : 0));
    }
    c->n_given = (uint32_t)(raw + len);
}

static void add_text(struct gen_choice *c, enum choice_kind kind, const struct tools_event *e)
{
    open_part(c, kind);
    place_tokens(c, e->offset, e->len);
    textout_push(&c->text, e->text, e->len, kind == CHOICE_CONTENT && c->armed);
}

static void begin_call(struct gen_choice *c, const struct tools_event *e)
{
    struct choice_part *part = open_part(c, CHOICE_CALL);
    assert(e->len <= TOOLS_MAX_NAME);
    memcpy(part->name, e->text, e->len);
    if (e->id_len <= TOOLS_MAX_NAME && e->id) memcpy(part->id, e->id, e->id_len);
    part->call = c->n_calls++;
}

/* All that was fed by now is in the call, or in markers. */
static void add_arguments(struct gen_choice *c, const struct tools_event *e)
{
    for (; c->n_placed < c->n_tokens; c->n_placed++)
        c->offsets[c->n_placed] = (uint32_t)c->text.text.len;
    c->n_given = c->n_fed;
    textout_push(&c->text, e->text, e->len, false);
}

static void on_event(void *ctx, const struct tools_event *e)
{
    struct gen_choice *c = ctx;
    if (c->text.stop_index >= 0) return;
    switch (e->type) {
    case TOOLS_REASONING: add_text(c, CHOICE_REASONING, e); break;
    case TOOLS_CONTENT: add_text(c, CHOICE_CONTENT, e); break;
    case TOOLS_CALL_BEGIN: begin_call(c, e); break;
    case TOOLS_CALL_ARGUMENTS: add_arguments(c, e); break;
    case TOOLS_CALL_END:
        c->parts[c->n_parts - 1].ended = true;
        c->parts[c->n_parts - 1].complete = e->complete;
        break;
    }
}

int choice_next_part(const struct gen_choice *c, enum choice_kind kind, int from)
{
    while (from < c->n_parts && c->parts[from].kind != kind)
        from++;
    return from < c->n_parts ? from : -1;
}

int choice_token_part(const struct gen_choice *c, int64_t i)
{
    if (!c->reader) return 0;
    uint32_t fed = c->raw[i];
    while (i + 1 < c->n_tokens && c->raw[i + 1] == fed)
        i++; /* the first bytes of a character: it comes out with its last ones */
    size_t from = c->offsets[i], to = i + 1 < c->n_tokens ? c->offsets[i + 1] : c->text.text.len;
    for (int k = choice_next_part(c, CHOICE_CONTENT, 0); k >= 0;
         k = choice_next_part(c, CHOICE_CONTENT, k + 1))
        if (from < choice_part_end(c, k) && to > c->parts[k].from) return k;
    return -1;
}

/* ---- records ------------------------------------------------------------------------------- */

static void take_text(struct gen_choice *c, const char *text, size_t len)
{
    if (len == 0) return;
    if (c->reader) {
        c->n_fed += (uint32_t)len;
        tools_reader_text(c->reader, text, len);
    } else {
        open_part(c, CHOICE_CONTENT);
        textout_push(&c->text, text, len, c->armed);
    }
}

/* Adds the text that the decoder still holds: an incomplete UTF-8 sequence. */
static void flush_decoder(struct gen_choice *c)
{
    const char *text = "";
    size_t len = 0;
    if (!tok_decoder_flush(c->decoder, &text, &len)) take_text(c, text, len);
}

/* The marker that the id stands for, or -1. */
static int find_marker(const struct gen_choice *c, int32_t id)
{
    for (int m = 0; c->reader && m < TOOLS_N_MARKERS; m++)
        if (c->rules->reader.markers->id[m] == id) return m;
    return -1;
}

static void take_id(struct gen_choice *c, int32_t id)
{
    const char *text = "";
    size_t len = 0;
    int marker = find_marker(c, id);
    if (marker < 0) {
        if (!tok_decoder_push(c->decoder, id, &text, &len)) take_text(c, text, len);
        return;
    }
    flush_decoder(c);
    c->n_fed += (uint32_t)strlen(c->rules->marker_text[marker]);
    tools_reader_marker(c->reader, (enum tools_marker)marker);
}

/* A call that was cut makes the answer one that was cut, whatever ended it. */
static const char *final_reason(const struct gen_choice *c, const char *reason)
{
    const struct choice_part *last = c->n_parts > 0 ? &c->parts[c->n_parts - 1] : NULL;
    if (c->text.stop_index >= 0) return "stop";
    if (last && last->kind == CHOICE_CALL && !last->complete) return "length";
    return c->n_calls > 0 && !strcmp(reason, "stop") ? "tool_calls" : reason;
}

static void end_choice(struct gen_choice *c, const char *reason)
{
    assert(!c->ended);
    if (c->reader && c->text.stop_index < 0) tools_reader_end(c->reader);
    c->ended = true;
    c->finish_reason = final_reason(c, reason);
    if (c->text.stop_index >= 0) c->stop_string = c->text.stops->stop[c->text.stop_index].text;
    textout_flush(&c->text);
    for (; c->reader && c->n_placed < c->n_tokens; c->n_placed++)
        c->offsets[c->n_placed] = (uint32_t)c->text.text.len;
    tok_decoder_destroy(c->decoder);
    c->decoder = NULL;
}

/* Returns true if the token completes a stop string. */
static bool take_record(struct gen_choice *c, const struct choice_rules *rules, int64_t at)
{
    const struct gen_record *record = &c->log.records[at];
    assert(at == c->n_tokens && at < c->log.capacity);
    c->armed = at >= rules->min_tokens;
    if (c->reader)
        c->raw[at] = c->n_fed;
    else
        c->offsets[c->n_placed++] = (uint32_t)c->text.text.len;
    c->n_tokens = at + 1;
    c->sum_logprob += record->logprob;
    c->n_accepted += record->predicted > 0;
    c->n_rejected += record->predicted < 0;
    /* The id decides: the engine's CHOICE_DONE may come after the token. */
    bool is_stop = is_stop_id(rules, record->id);
    if (is_stop) c->stop_id = record->id;
    if (is_stop && !rules->include_stop) {
        flush_decoder(c);
        end_choice(c, "stop");
        return false;
    }
    bool was_reasoning = c->reader && tools_reader_reasoning(c->reader);
    take_id(c, record->id);
    if (was_reasoning || (c->reader && tools_reader_reasoning(c->reader))) c->n_reasoning = at + 1;
    bool stopped = c->text.stop_index >= 0 || c->text.dedented;
    if (stopped || is_stop) end_choice(c, c->text.dedented ? "length" : "stop");
    return stopped;
}

/* Reads the new records; returns true if a stop string was found. */
static bool read_log(struct gen_choice *c, const struct choice_rules *rules)
{
    bool stopped = false;
    int finish = atomic_load_explicit(&c->finish, memory_order_acquire);
    int64_t n = atomic_load_explicit(&c->log.n_written, memory_order_acquire);
    assert(c->log.n_read <= n && n <= c->log.capacity);
    for (; c->log.n_read < n; c->log.n_read++)
        if (!c->ended) stopped |= take_record(c, rules, c->log.n_read);
    if (c->ended || !finish || finish == ENG_FINISH_CANCELLED) return stopped;
    c->armed = c->n_tokens >= rules->min_tokens;
    flush_decoder(c);
    end_choice(c, finish == ENG_FINISH_STOP ? "stop" : "length");
    return false;
}

/* A token without text at the end of what is out: a stop string that begins there takes it too. */
static bool may_fall(const struct gen_choice *c, int64_t i)
{
    return c->text.stops->n > 0 && c->offsets[i] >= c->text.n_released;
}

static int64_t showable_tokens(const struct gen_choice *c)
{
    int64_t n = c->n_shown;
    if (c->ended) {
        if (!c->stop_string) return c->n_tokens;
        while (n < c->n_tokens && c->offsets[n] < c->text.text.len)
            n++;
        return n;
    }
    while (n + 1 < c->n_placed && c->offsets[n + 1] <= c->text.n_released && !may_fall(c, n))
        n++;
    bool all_out = c->n_placed == c->n_tokens && c->n_given == c->n_fed;
    bool is_last = n + 1 == c->n_tokens && all_out && c->text.text.len <= c->text.n_released;
    return n + (is_last && !may_fall(c, n));
}

static int64_t eventable_tokens(const struct gen_choice *c, int64_t n_showable)
{
    if (c->ended) return c->n_tokens;
    bool is_last = n_showable > 0 && n_showable == c->n_tokens;
    return is_last && c->offsets[n_showable - 1] == c->text.text.len ? n_showable - 1 : n_showable;
}

bool choice_text_advance(struct gen_choice *c, const struct choice_rules *rules)
{
    bool stopped = read_log(c, rules);
    c->n_showable = showable_tokens(c);
    c->n_eventable = eventable_tokens(c, c->n_showable);
    assert(c->n_shown <= c->n_tokens && c->n_showable <= c->n_tokens);
    return stopped;
}

void choice_text_cut(struct gen_choice *c)
{
    if (c->ended) return;
    flush_decoder(c);
    end_choice(c, "length");
    c->n_showable = c->n_eventable = c->n_tokens;
}
