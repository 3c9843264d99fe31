/* SPDX-License-Identifier: MIT */
/*
 * hearth batch IN -o OUT: a file of requests to a file of answers, by the routes of the server
 * without its sockets (lines.h). Lines in and out are those of OpenAI's batches:
 *
 *   {"custom_id", "method": "POST", "url": "/v1/...", "body": {...}}
 *   {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null}
 *
 * Answers come in the order of the lines, so a file that a kill has cut short is a beginning of the
 * whole: --resume cuts a torn line off and goes on after the last one. OUT with the suffix .hearth
 * holds the hash of IN meanwhile. With --errors the answers that failed are in that file, and the
 * two together are such a beginning. The time of creation of answers is that of IN, so that two
 * runs give the same bytes. A line that cannot run is answered in its place with status 400.
 *
 * A line {"custom_id", "params"}, of Anthropic's batches, is a request to /v1/messages.
 *
 * Threads: the main thread.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/shown.h"
#include "server/batch/line.h"
#include "server/batch/store.h"
#include "server/cli/cli.h"
#include "server/cli/lines.h"
#include "server/http/keys.h"
#include "server/http/request.h"

enum {
    EXIT_LINES_FAILED = 3,
    MAX_ANSWER_BYTES = 512 << 20, /* of a line of OUT */
    HASH_CHARS = 2 * SHA256_BYTES,
};

struct batch {
    struct lines lines;
    const struct srv_config *config;
    char *side;                /* OUT.hearth, owned; NULL: OUT is a pipe */
    char hash[HASH_CHARS + 1]; /* of IN, with --errors of one more letter; "" of a pipe */
    FILE *errors;              /* of --errors, or NULL */
    int64_t n_done;            /* lines that an earlier run has answered */
    void *ids;                 /* of batch_line_read */
};

static int fail_file(struct batch *b, const char *name)
{
    return lines_fail(&b->lines, "%s cannot be written: %s", name, strerror(errno));
}

/* ---- a line -------------------------------------------------------------------------------- */

/* Gives a line of Anthropic's batches the other form. */
static void take_params(struct line *i)
{
    json_auto_t *line = json_loadb(i->text.data, i->text.len, 0, NULL);
    json_t *id = json_object_get(line, "custom_id"), *params = json_object_get(line, "params");
    if (!id || !params || json_object_get(line, "method")) return;
    json_auto_t *other = json_pack("{s:O, s:s, s:s, s:O}", "custom_id", id, "method", "POST", "url",
                                   "/v1/messages", "body", params);
    char *text = json_dumps(other, JSON_COMPACT);
    buf_finish(&i->text);
    i->text = (struct buf){.data = text, .len = text ? strlen(text) : 0};
}

static int read_line(struct lines *l, struct line *i)
{
    struct batch *b = l->ctx;
    struct batch_refusal why;
    if (memmem(i->text.data, i->text.len, "\"params\"", 8)) take_params(i);
    if (batch_line_read(&i->parts, i->text.data, i->text.len, l->offline.core.server.routes,
                        &b->ids, &why))
        return lines_fail(l, "no memory");
    if (why.code) lines_refuse(i, "%s", why.message);
    if (l->n_read <= b->n_done) i->status = 200; /* its answer is in OUT */
    return 0;
}

static int write_line(struct lines *l, struct line *i, struct buf *to)
{
    static const char tokens[] = "\"total_tokens\":";
    struct batch *b = l->ctx;
    const struct batch_answer a = {.digest = i->digest,
                                   .line = &i->parts,
                                   .status = i->status,
                                   .request_id = i->request_id,
                                   .body = i->answer.data,
                                   .n_body = i->answer.len};
    l->n_units++;
    if (l->n_written < b->n_done) {
        l->all_bytes -= (int64_t)i->text.len + 1;
        l->n_bytes -= (int64_t)i->text.len + 1;
        return 0;
    }
    const char *used = memmem(i->answer.data, i->answer.len, tokens, sizeof(tokens) - 1);
    if (used) l->n_tokens += strtoll(used + sizeof(tokens) - 1, NULL, 10);
    l->n_failed += i->status >= 300;
    batch_answer_write(to, &a);
    if (i->status < 300 || !b->errors) return 0;
    /* The lines before are in their file first: a kill leaves a beginning. */
    bool good = !fflush(l->out) && fwrite(to->data, 1, to->len, b->errors) == to->len;
    buf_clear(to);
    return good && !fflush(b->errors) ? 0 : fail_file(b, b->config->errors);
}

/* ---- files --------------------------------------------------------------------------------- */

static bool is_pipe(const char *name)
{
    return strcmp(name, "-") == 0;
}

static int open_input(struct batch *b)
{
    struct lines *l = &b->lines;
    const char *name = b->config->batch_in;
    char piece[64 << 10];
    uint8_t digest[SHA256_BYTES];
    struct stat st;
    struct sha256 h;
    size_t n;
    l->in = is_pipe(name) ? stdin : fopen(name, "rbe");
    if (!l->in || fstat(fileno(l->in), &st)) return lines_fail(l, "%s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode)) return 0;
    sha256_init(&h);
    while ((n = fread(piece, 1, sizeof(piece), l->in)) > 0)
        sha256_update(&h, piece, n);
    if (b->config->errors) sha256_update(&h, "e", 1);
    sha256_final(&h, digest);
    hex_write(b->hash, digest, sizeof(digest));
    l->created_s = st.st_mtime;
    l->all_bytes = st.st_size;
    bool good = !ferror(l->in) && !fseek(l->in, 0, SEEK_SET);
    return good ? 0 : lines_fail(l, "%s cannot be read", name);
}

/* OUT.hearth says that the answers in OUT are those of IN. */
static int check_side(struct batch *b)
{
    struct lines *l = &b->lines;
    AUTO_FREE char *found = NULL;
    if (file_load_optional(NULL, b->side, HASH_CHARS, &found, NULL, l->err, sizeof(l->err)))
        return -1;
    bool is_there = found && strlen(found) == HASH_CHARS; /* a kill may have cut it */
    bool is_same = is_there && strcmp(found, b->hash) == 0;
    if (b->config->resume && !is_there)
        return lines_fail(l, "%s: no run was begun that could go on: %s is not there", l->out_name,
                          b->side);
    if (b->config->resume && !is_same)
        return lines_fail(l,
                          "%s was begun with another input than %s, or that has changed, or it was "
                          "begun with%s --errors",
                          l->out_name, b->config->batch_in, b->config->errors ? "out" : "");
    if (is_there && !b->config->resume)
        return lines_fail(l,
                          "%s was begun by a run that has not ended: --resume goes on with it; "
                          "remove %s to begin again",
                          l->out_name, b->side);
    return 0;
}

static int write_side(struct batch *b)
{
    if (!b->side || b->config->resume) return 0;
    FILE *f = fopen(b->side, "wbe");
    bool good = f && fputs(b->hash, f) >= 0;
    if (f && fclose(f)) good = false;
    return good ? 0 : fail_file(b, b->side);
}

/* Counts whole lines of the answers in a file, and those that failed; cuts off a torn one. */
static int count_answers(struct batch *b, FILE *f)
{
    static const char good[] = "\"status_code\":2";
    struct lines *l = &b->lines;
    AUTO(buf_finish) struct buf line = {.max = MAX_ANSWER_BYTES};
    long end = 0;
    while (batch_line_next(f, &line) == 1) {
        long at = ftell(f);
        if (fseek(f, at - 1, SEEK_SET) || getc(f) != '\n') break;
        end = at;
        b->n_done++;
        l->n_failed += !memmem(line.data, line.len, good, sizeof(good) - 1);
    }
    if (ferror(f) || ftruncate(fileno(f), end) || fseek(f, end, SEEK_SET))
        return lines_fail(l, "%s cannot be read or cut: %s", l->out_name, strerror(errno));
    return 0;
}

/* Opens a file of answers, unless that would destroy what another has. NULL after lines_fail. */
static FILE *open_answers(struct batch *b, const char *name)
{
    struct lines *l = &b->lines;
    FILE *const others[] = {l->in, l->out};
    struct stat own, other;
    bool is_new = stat(name, &own) || !S_ISREG(own.st_mode);
    for (int i = 0; i < 2 && !is_new; i++)
        if (others[i] && !fstat(fileno(others[i]), &other) && own.st_dev == other.st_dev &&
            own.st_ino == other.st_ino) {
            lines_fail(l, "%s is a file of this run already: name another one", name);
            return NULL;
        }
    FILE *f = fopen(name, b->config->resume ? "r+be" : "wbe");
    if (!f) fail_file(b, name);
    return f;
}

static int open_output(struct batch *b)
{
    struct lines *l = &b->lines;
    bool resume = b->config->resume;
    if (resume && (is_pipe(l->out_name) || !*b->hash))
        return lines_fail(l, "--resume needs files, not -");
    if (is_pipe(l->out_name)) l->out = stdout;
    if (!l->out && asprintf(&b->side, "%s.hearth", l->out_name) < 0)
        return lines_fail(l, "no memory");
    if (b->side && check_side(b)) return -1;
    if (!l->out && !(l->out = open_answers(b, l->out_name))) return -1;
    if (b->config->errors && !(b->errors = open_answers(b, b->config->errors))) return -1;
    if (!resume) return 0; /* the files are empty */
    return count_answers(b, l->out) || (b->errors && count_answers(b, b->errors)) ? -1 : 0;
}

static int run(struct batch *b)
{
    struct lines *l = &b->lines;
    if (open_input(b) || open_output(b) || lines_open(l, b->config) || write_side(b) ||
        lines_run(l))
        return -1;
    if (l->n_read < b->n_done)
        return lines_fail(l, "%s has more lines than %s", l->out_name, b->config->batch_in);
    if (b->errors && fclose(b->errors)) return fail_file(b, b->config->errors);
    if (fclose(l->out)) return fail_file(b, l->out_name);
    if (b->side) unlink(b->side);
    return 0;
}

/* --erase-key: what its keys have in --batch-dir goes, batches before the files that they need. */
static int erase(const struct srv_config *c)
{
    char err[700] = "--erase-key needs --batch-dir, the directory of a server that has ended";
    struct srv_keys *keys = NULL;
    struct store *store = NULL;
    const struct store_item *i;
    int n = 0;
    int rc = !c->batch_dir || access(c->batch_dir, F_OK) ||
             srv_keys_create(&keys, "erase-key", c->erase_key, NULL, true, err, sizeof(err)) ||
             store_open(&store, c->batch_dir, 0, err, sizeof(err));
    for (int f = STORE_FOLDERS; !rc && f--;)
        for (size_t at = 0; !rc && (i = store_next(store, f, NULL, false, &at));) {
            if (!srv_keys_own(keys, i->owner, STORE_OWNER)) continue;
            rc = store_remove(store, f, NULL, i->id);
            at--; /* the next one has its place */
            n++;
            if (rc) snprintf(err, sizeof(err), "%s: %s", c->batch_dir, strerror(errno));
        }
    store_close(store);
    srv_keys_destroy(keys);
    if (rc) return srv_cmd_fail(EXIT_FAILURE, "%s", err);
    shown_line(stdout, "erased %d files and batches of %s", n, c->batch_dir);
    return EXIT_SUCCESS;
}

int srv_cmd_batch(const struct srv_config *config)
{
    struct batch b = {.config = config,
                      .lines = {.out_name = config->output,
                                .unit = "lines",
                                .by_key = strcmp(config->order, "prefix") == 0,
                                .read = read_line,
                                .write = write_line,
                                .ctx = &b}};
    if (config->erase_key && !config->batch_in && !config->output) return erase(config);
    if (!config->batch_in || !config->output || config->erase_key) {
        shown_line(stderr, "hearth: batch needs a file of requests and -o with one of answers; -: "
                           "stdin, stdout; or --erase-key alone");
        return SRV_EXIT_USAGE;
    }
    int rc = run(&b);
    lines_close(&b.lines, rc);
    batch_line_forget(&b.ids);
    free(b.side);
    return rc ? EXIT_FAILURE : b.lines.n_failed ? EXIT_LINES_FAILED : EXIT_SUCCESS;
}
