/* SPDX-License-Identifier: MIT */
/* JSON lines in, JSON lines out; see filter.h. */
#include "tests/filters/filter.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "server/batch/line.h"

int filter_fail(struct filter_error *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof(e->text), format, args);
    va_end(args);
    return -1;
}

int filter_flag(const json_t *request, const char *name, bool preset, bool *ret,
                struct filter_error *e)
{
    const json_t *v = json_object_get(request, name);
    *ret = v && !json_is_null(v) ? json_is_true(v) : preset;
    if (!v || json_is_null(v) || json_is_boolean(v)) return 0;
    return filter_fail(e, "%s must be true or false", name);
}

static void write_error(struct jw *w, const char *message)
{
    jw_open(w, NULL, '{');
    jw_text(w, "error", message);
    jw_close(w);
}

static void answer(const struct filter *f, const struct buf *line, struct buf *out)
{
    struct filter_error e = {""};
    struct jw w;
    buf_clear(out);
    jw_init(&w, out);
    int rc = line->too_large ? filter_fail(&e, "the line is longer than %zu bytes", line->max)
                             : f->answer(f->ctx, line->data, line->len, &w, &e);
    if (!rc) jw_end(&w);
    if (!rc && !out->failed) return;
    buf_clear(out);
    jw_init(&w, out);
    (f->error ? f->error : write_error)(&w, rc && e.text[0] ? e.text : "no memory for the answer");
    jw_end(&w);
}

int filter_run(const struct filter *f)
{
    struct buf line, out;
    int more, rc = 0;
    buf_init(&line, f->max_line_bytes);
    buf_init(&out, f->max_answer_bytes);
    while (!rc && (more = batch_line_next(stdin, &line)) == 1) {
        answer(f, &line, &out);
        buf_puts(&out, "\n");
        if (out.failed || fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout))
            rc = -1;
    }
    buf_finish(&line);
    buf_finish(&out);
    if (!rc && more == 0) return EXIT_SUCCESS;
    shown_line(stderr, "hearth: cannot read the lines or write the answers");
    return EXIT_FAILURE;
}
