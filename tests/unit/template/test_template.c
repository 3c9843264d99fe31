/* SPDX-License-Identifier: MIT */
/*
 * The template interpreter: every construct of tests/golden/chat/cases.jsonl against jinja2's
 * answer, errors with their lines, budgets, provenance, numbers.
 */
#include "test.h"

#include <math.h>
#include <time.h>

#include "tokenizer/template/dict.h"
#include "tokenizer/template/json.h"
#include "tokenizer/template/print.h"
#include "tokenizer/template/template.h"
#include "tokenizer/tokenizer.h"

enum { MEMORY_BYTES = 256 << 20, OUTPUT_BYTES = 1 << 20, STEPS = 2000000 };

/* ---- rendering one template ---------------------------------------------------------------- */

struct job {
    const char *source;
    size_t source_len;
    const char *context;     /* JSON, or NULL: none */
    struct jinja_dict *dict; /* instead of context */
    struct jinja_template *t;
    char *text;  /* owned */
    char *marks; /* owned: '#' for a byte of input, '.' for one of the template */
    char err[JINJA_ERR_BYTES];
};

static void render_body(struct jinja_run *r, void *arg)
{
    struct job *job = arg;
    struct tm now = {.tm_year = 125,
                     .tm_mon = 2,
                     .tm_mday = 9,
                     .tm_hour = 14,
                     .tm_min = 5,
                     .tm_sec = 6,
                     .tm_wday = 0,
                     .tm_yday = 67};
    struct jinja_value v;
    if (job->dict)
        v = jinja_from_dict(job->dict);
    else if (!job->context)
        v = jinja_from_dict(jinja_dict_new(r));
    else
        v = jinja_json_parse(r, job->context, strlen(job->context), JINJA_INPUT, "context");
    const struct jinja_str *s = jinja_template_render(r, job->t, v.u.dict, &now);
    job->text = calloc(1, s->len + 1);
    job->marks = calloc(1, s->len + 1);
    REQUIRE(job->text && job->marks);
    for (size_t i = 0; i < s->len; i++) {
        job->text[i] = s->s[i];
        job->marks[i] = jinja_str_origin_at(s, i) == JINJA_INPUT ? '#' : '.';
    }
}

static void job_finish(struct job *job)
{
    jinja_template_close(job->t);
    free(job->text);
    free(job->marks);
    job->t = NULL;
    job->text = job->marks = NULL;
}

/* Parses and renders with these budgets; the text, marks or err are in the job. */
static int render_bounded(struct job *job, size_t memory, size_t output, uint64_t steps)
{
    struct jinja_run r;
    size_t len = job->source_len ? job->source_len : strlen(job->source);
    int rc = jinja_template_open(&job->t, job->source, len, job->err, sizeof(job->err));
    if (rc) return rc;
    jinja_run_init(&r, memory, steps);
    r.max_output_bytes = output;
    rc = jinja_guard(&r, render_body, job);
    if (rc) jinja_copy_sentence(job->err, sizeof(job->err), r.err);
    jinja_run_finish(&r);
    return rc;
}

static int render(struct job *job)
{
    return render_bounded(job, MEMORY_BYTES, OUTPUT_BYTES, STEPS);
}

/* ---- the fixtures -------------------------------------------------------------------------- */

struct fixture {
    FILE *file;
    size_t n, n_wrong;
};

static void check_case(struct jinja_run *r, struct jinja_value contexts, struct jinja_value row,
                       struct fixture *fx)
{
    const struct jinja_value *source = jinja_dict_get_name(r, row.u.dict, "template");
    const struct jinja_value *wanted = jinja_dict_get_name(r, row.u.dict, "text");
    const struct jinja_value *name = jinja_dict_get_name(r, row.u.dict, "name");
    int64_t context = jinja_dict_get_name(r, row.u.dict, "context")->u.i;
    struct jinja_dict *dict = jinja_dict_new(r);
    const struct jinja_dict *from = contexts.u.list->items[context].u.dict;
    for (size_t i = 0; i < from->n; i++)
        jinja_dict_put(r, dict, from->pairs[i].key, from->pairs[i].value);
    struct job job = {.source = source->u.str->s, .source_len = source->u.str->len, .dict = dict};
    if (!job.source_len) job.source = "";
    int rc = render(&job);
    size_t len = wanted ? wanted->u.str->len : 0;
    bool right =
        wanted ? rc == 0 && strlen(job.text) <= len && !memcmp(job.text, wanted->u.str->s, len)
               : rc != 0 && job.err[0];
    if (!right) {
        print_error("%.*s: %.*s\n  %s\n", (int)name->u.str->len, name->u.str->s,
                    (int)source->u.str->len, source->u.str->s, rc ? job.err : job.text);
        fx->n_wrong++;
    }
    fx->n++;
    job_finish(&job);
}

static void check_cases(struct jinja_run *r, void *arg)
{
    struct fixture *fx = arg;
    struct jinja_value contexts = jinja_none();
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, fx->file)) > 0) {
        struct jinja_value row = jinja_json_parse(r, line, (size_t)n, JINJA_INPUT, "fixture");
        if (jinja_is(contexts, JINJA_NONE))
            contexts = *jinja_dict_get_name(r, row.u.dict, "contexts");
        else
            check_case(r, contexts, row, fx);
    }
    free(line);
}

static void test_cases(void **state)
{
    char path[4096];
    struct jinja_run r;
    struct fixture fx = {0};
    (void)state;
    snprintf(path, sizeof(path), "%s/tests/golden/chat/cases.jsonl", test_source_root());
    fx.file = fopen(path, "r");
    REQUIRE_MSG(fx.file, "%s", path);
    jinja_run_init(&r, MEMORY_BYTES, UINT64_MAX);
    REQUIRE_EQ_INT(jinja_guard(&r, check_cases, &fx), 0);
    jinja_run_finish(&r);
    fclose(fx.file);
    REQUIRE(fx.n > 1500);
    REQUIRE_EQ_INT(fx.n_wrong, 0);
}

/* ---- errors -------------------------------------------------------------------------------- */

static void test_errors(void **state)
{
    static const struct {
        const char *source, *message;
        int rc;
    } cases[] = {
        {"a\nb {{ 'x }}", "line 2: unexpected char '''", JINJA_EINVAL},
        {"{% if x %}\n\na",
         "line 3: Unexpected end of template. The innermost block that needs to be closed is "
         "'if'.",
         JINJA_EINVAL},
        {"\n{{ 'Stra\xc3\x9f'|upper }}",
         "line 2: the upper case of U+00DF is not supported in chat templates", JINJA_EINVAL},
        {"\n{{ '\xce\xa3'|lower }}",
         "line 2: the lower case of U+03A3 is not supported in chat templates", JINJA_EINVAL},
        {"\n{{ 1|nope }}", "line 2: No filter named 'nope'.", JINJA_EINVAL},
        {"\n{{ 1 is nope }}", "line 2: No test named 'nope'.", JINJA_EINVAL},
        {"\n\n{{ x | striptags }}", "line 3: No filter named 'striptags'.", JINJA_EINVAL},
        {"\n\n{% include 'x' %}", "line 3: Encountered unknown tag 'include'.", JINJA_EINVAL},
        {"{% extends 'x' %}", "line 1: Encountered unknown tag 'extends'.", JINJA_EINVAL},
        {"{% block a %}{% endblock %}", "line 1: Encountered unknown tag 'block'.", JINJA_EINVAL},
        {"{% call f() %}{% endcall %}", "line 1: Encountered unknown tag 'call'.", JINJA_EINVAL},
        {"{% import 'x' as y %}", "line 1: Encountered unknown tag 'import'.", JINJA_EINVAL},
        {"{% autoescape false %}{% endautoescape %}",
         "line 1: Encountered unknown tag 'autoescape'.", JINJA_EINVAL},
        {"{% with a = 1 %}{% endwith %}", "line 1: Encountered unknown tag 'with'.", JINJA_EINVAL},
        {"{% print 1 %}", "line 1: Encountered unknown tag 'print'.", JINJA_EINVAL},
        {"a\n {%- raw %}{% endraw %}", "line 1: 'raw' is not supported in chat templates",
         JINJA_EINVAL},
        {"{% for i in l recursive %}{% endfor %}",
         "line 1: 'recursive' is not supported in chat templates", JINJA_EINVAL},
        {"\n{% macro f() %}{{ kwargs }}{% endmacro %}",
         "line 2: 'kwargs' of a macro is not supported in chat templates", JINJA_EINVAL},
        {"{{ f(*a) }}", "line 1: arguments with '*' are not supported in chat templates",
         JINJA_EINVAL},
        {"{{ 1 if 2 // 3 else 1 }}", "line 1: the operator '//' is not supported in chat templates",
         JINJA_EINVAL},
        {"{{ [2] | sort(reverse=true) }}", "line 1: 'reverse' is not supported in chat templates",
         JINJA_EINVAL},
        {"{{ [2] | sort(attribute='a,b') }}",
         "line 1: sort by several attributes is not supported in chat templates", JINJA_EINVAL},
        {"{{ [1] < [2] }}", "line 1: '<' of lists is not supported in chat templates",
         JINJA_EINVAL},
        {"{{ '1.5' | int }}",
         "line 1: int of a text other than an integer is not supported in chat templates",
         JINJA_EINVAL},
        {"{{ namespace([]) }}", "line 1: a dict of pairs is not supported in chat templates",
         JINJA_EINVAL},
        {"{{ 2 ** 3 }}", "line 1: the operator '**' is not supported in chat templates",
         JINJA_EINVAL},
        {"{{ x if y else '%d' % 3 }}", "line 1: '%' on a string is not supported in chat templates",
         JINJA_EINVAL},
        {"{{ x is divisibleby 3 }}", "line 1: No test named 'divisibleby'.", JINJA_EINVAL},
        {"{{ '\\101' }}",
         "line 1: an escape in octal or of a character beyond ASCII is not supported in chat "
         "templates",
         JINJA_EINVAL},
        {"{{ range(3) }}", "line 1: printing a range is not supported in chat templates",
         JINJA_EINVAL},
        {"{{ 9223372036854775807 * 10 }}",
         "line 1: '*' with an integer beyond 64 bits is not supported in chat templates",
         JINJA_EINVAL},
        {"a\n{{ x.y }}", "line 2: 'x' is undefined", JINJA_EINVAL},
        {"a\n\n{{ {}.a.b }}", "line 3: 'dict object' has no attribute 'a'", JINJA_EINVAL},
        {"{% macro f() %}\n{{ none + 1 }}{% endmacro %}\n\n{{ f() }}",
         "line 2: unsupported operand type(s) for +: 'NoneType' and 'int'", JINJA_EINVAL},
        {"\n{{ raise_exception('no \xC3\xA9 here') }}", "no \xC3\xA9 here", JINJA_ERAISE},
        {"{{ [].append(1) }}", "line 1: access to attribute 'append' of 'list' object is unsafe.",
         JINJA_EINVAL},
        {"{{ '\\N{BULLET}' }}", "line 1: characters by name (\\N{...}) are not supported",
         JINJA_EINVAL},
        {"\xFF", "the template is not valid UTF-8", JINJA_EINVAL},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct job job = {.source = cases[i].source};
        int rc = render(&job);
        REQUIRE_MSG(rc == cases[i].rc, "case %zu: %d %s", i, rc, job.err);
        REQUIRE_EQ_STR(job.err, cases[i].message);
        job_finish(&job);
    }
}

/* ---- budgets ------------------------------------------------------------------------------- */

static void test_budgets(void **state)
{
    static const struct {
        const char *source;
        size_t memory, output;
        uint64_t steps;
    } cases[] = {
        {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
         MEMORY_BYTES, OUTPUT_BYTES, 100000},
        {"{% for i in range(99999) %}0123456789{% endfor %}", MEMORY_BYTES, 1000, STEPS},
        {"{{ 'x' * 100000000 }}", 1 << 20, OUTPUT_BYTES, STEPS * 100ull},
        {"{{ 'x' * 1000000000000000000 }}", MEMORY_BYTES, OUTPUT_BYTES, UINT64_MAX},
        {"{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
         "endfor %}",
         MEMORY_BYTES, OUTPUT_BYTES, UINT64_MAX},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", MEMORY_BYTES, OUTPUT_BYTES, STEPS},
        {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor "
         "%}"
         "{{ ns.l }}",
         MEMORY_BYTES, OUTPUT_BYTES, STEPS},
        {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor "
         "%}"
         "{{ ns.l == ns.l }}",
         MEMORY_BYTES, OUTPUT_BYTES, STEPS},
        {"{% set ns = namespace(g=[1]) %}{% for i in range(9999) %}{% set ns.g = ns.g|map('int') %}"
         "{% endfor %}{{ ns.g|list }}",
         MEMORY_BYTES, OUTPUT_BYTES, STEPS},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct job job = {.source = cases[i].source, .context = "{\"f\": 0.1}"};
        int rc = render_bounded(&job, cases[i].memory, cases[i].output, cases[i].steps);
        REQUIRE_MSG(rc == JINJA_ELIMIT, "case %zu: %d %s", i, rc, job.err);
        REQUIRE(job.err[0]);
        job_finish(&job);
    }
}

/* A text that grows, NUL-terminated. Owned: free(s). */
struct text {
    char *s;
    size_t len, cap;
};

__attribute__((format(printf, 2, 3))) static void text_add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    if (t->cap - t->len < 100) {
        t->cap = t->cap * 2 + 1000;
        t->s = realloc(t->s, t->cap);
        REQUIRE(t->s);
    }
    va_start(ap, fmt);
    int n = vsnprintf(t->s + t->len, t->cap - t->len, fmt, ap);
    va_end(ap);
    REQUIRE(n >= 0 && (size_t)n < t->cap - t->len);
    t->len += (size_t)n;
}

/* Work that one evaluation hides: it must cost at least so many steps. */
static void test_prices(void **state)
{
#define THOUSAND(body) "{% for i in range(1000) %}{% set y = " body " %}{% endfor %}"
#define ALL(list) "{% set l = " list " %}"
    static const struct {
        const char *source;
        uint64_t steps;
    } cases[] = {
        {THOUSAND("f | string"), 60000},
        {THOUSAND("[f] | tojson"), 60000},
        {THOUSAND("'{}'.format(f)"), 60000},
        {ALL("'9' * 300") THOUSAND("l | int"), 300000},
        {ALL("'\xC3\xA9' * 1000") THOUSAND("l[999:]"), 150000},
        {ALL("'\xC3\xA9' * 1000") THOUSAND("l[999]"), 150000},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct job job = {.source = cases[i].source, .context = "{\"f\": 0.1}"};
        int rc = render_bounded(&job, MEMORY_BYTES, OUTPUT_BYTES, cases[i].steps);
        REQUIRE_MSG(rc == JINJA_ELIMIT, "%s: %d %s", cases[i].source, rc, job.err);
        job_finish(&job);
    }
#undef THOUSAND
#undef ALL
}

/* Every scope that a loop enters again reads all variables of its body, used or not. */
static void test_price_of_scopes(void **state)
{
    enum { NAMES = 3000 };
    struct text source = {0};
    (void)state;
    text_add(&source, "{%% for i in range(1000) %%}{%% if false %%}");
    for (int i = 0; i < NAMES; i++)
        text_add(&source, "{{ v%d }}", i);
    text_add(&source, "{%% endif %%}{%% endfor %%}");
    struct job job = {.source = source.s};
    REQUIRE_EQ_INT(render_bounded(&job, MEMORY_BYTES, OUTPUT_BYTES, NAMES * 1000 / 20),
                   JINJA_ELIMIT);
    job_finish(&job);
    free(source.s);
}

/* The integer that hashes to h (the inverse of jinja_num_hash). */
static int64_t unhash(uint64_t h)
{
    uint64_t inverse = 0xFF51AFD7ED558CCDu;
    for (int i = 0; i < 6; i++)
        inverse *= 2 - 0xFF51AFD7ED558CCDu * inverse;
    h ^= h >> 33;
    h *= inverse;
    return (int64_t)(h ^ h >> 33);
}

/* Keys of a request that all want the same place of the table. */
static void test_price_of_collisions(void **state)
{
    enum { KEYS = 20000 };
    struct text context = {0};
    struct jinja_run r;
    (void)state;
    jinja_run_init(&r, 0, 0);
    REQUIRE_EQ_INT((int64_t)jinja_num_hash(&r, jinja_int(unhash(77))), 77);
    text_add(&context, "{\"l\": [");
    for (uint64_t i = 0; i < KEYS; i++)
        text_add(&context, "%s%lld", i ? "," : "", (long long)unhash(i << 32));
    text_add(&context, "]}");
    struct job job = {.source = "{% set d = l | unique | list %}", .context = context.s};
    REQUIRE_EQ_INT(render(&job), JINJA_ELIMIT);
    job_finish(&job);
    free(context.s);
}

struct cpu_job {
    struct job job;
    unsigned ms;
};

static void render_on_clock(struct jinja_run *r, void *arg)
{
    struct cpu_job *c = arg;
    if (c->ms) jinja_run_bound_cpu(r, c->ms);
    render_body(r, &c->job);
}

/* A run that nothing else bounds ends by the clock; a short one never looks at it. */
static void test_cpu_bound(void **state)
{
    static const struct {
        const char *source;
        unsigned ms;
        int rc;
    } cases[] = {
        {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", 1,
         JINJA_ELIMIT},
        {"{% for i in range(99999) %}{% set y = 'a' * 9999 %}{% endfor %}", 1, JINJA_ELIMIT},
        {"{% for i in range(1000) %}{% endfor %}", 1, 0},
        {"{% for i in range(99999) %}{% endfor %}", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct cpu_job c = {.job = {.source = cases[i].source}, .ms = cases[i].ms};
        struct jinja_run r;
        jinja_run_init(&r, SIZE_MAX, UINT64_MAX);
        REQUIRE_EQ_INT(jinja_template_open(&c.job.t, cases[i].source, strlen(cases[i].source),
                                           c.job.err, sizeof(c.job.err)),
                       0);
        REQUIRE_EQ_INT(jinja_guard(&r, render_on_clock, &c), cases[i].rc);
        REQUIRE(!cases[i].rc || strstr(r.err, "more than 1 ms of processor time"));
        jinja_run_finish(&r);
        job_finish(&c.job);
    }
}

/* n times `open`, then `middle`, then n times `close`. */
static char *nest(const char *open, const char *middle, const char *close, size_t n)
{
    size_t len = n * (strlen(open) + strlen(close)) + strlen(middle) + 1;
    char *text = calloc(1, len), *at = text;
    REQUIRE(text);
    for (size_t i = 0; i < n; i++)
        at += snprintf(at, len - (size_t)(at - text), "%s", open);
    at += snprintf(at, len - (size_t)(at - text), "%s", middle);
    for (size_t i = 0; i < n; i++)
        at += snprintf(at, len - (size_t)(at - text), "%s", close);
    return text;
}

static void test_nesting(void **state)
{
    static const struct {
        const char *open, *middle, *close;
        size_t n;
        int rc;
    } cases[] = {
        {"{{ (", "1", ") }}", 1, 0},
        {"{% if true %}", "x", "{% endif %}", 60, 0},
        {"{% if true %}", "x", "{% endif %}", 30000, JINJA_EINVAL},
        {"{% for i in [1] %}", "x", "{% endfor %}", 5000, JINJA_EINVAL},
        {"{% macro f() %}", "x", "{% endmacro %}", 5000, JINJA_EINVAL},
        {"{% filter upper %}", "x", "{% endfilter %}", 5000, JINJA_EINVAL},
    };
    static const struct {
        const char *open, *middle, *close;
    } expressions[] = {
        {"(", "1", ")"},      {"[", "", "]"},     {"{1:", "1", "}"}, {"-", "1", ""},
        {"not ", "1", ""},    {"1+", "1", ""},    {"1~", "1", ""},   {"1 if 1 else ", "1", ""},
        {"", "x", ".a"},      {"", "x", "[0]"},   {"", "x", "|int"}, {"f(", "", ")"},
        {"", "x", " is odd"}, {"", "1", " if 1"}, {"", "1", "[1:"}};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct job job = {.source =
                              nest(cases[i].open, cases[i].middle, cases[i].close, cases[i].n)};
        int rc = render(&job);
        REQUIRE_MSG(rc == cases[i].rc, "case %zu: %d %s", i, rc, job.err);
        free((char *)(uintptr_t)job.source);
        job_finish(&job);
    }
    for (size_t i = 0; i < N_OF(expressions); i++) {
        char *middle =
            nest(expressions[i].open, expressions[i].middle, expressions[i].close, 50000);
        struct job job = {.source = nest("{{ ", middle, " }}", 1)};
        int rc = render(&job);
        REQUIRE_MSG(rc == JINJA_EINVAL || (rc == 0 && expressions[i].open[0] == '1'),
                    "expression %zu: %d %s", i, rc, job.err);
        free((char *)(uintptr_t)job.source);
        free(middle);
        job_finish(&job);
    }
}

/* ---- provenance ---------------------------------------------------------------------------- */

static void test_marks(void **state)
{
    static const struct {
        const char *source, *text, *marks;
    } cases[] = {
        {"a{{ x }}b", "aYZb", ".##."},
        {"{{ 'a' + x + 'b' }}", "aYZb", ".##."},
        {"{{ 'a' ~ x ~ n ~ 1 }}", "aYZ71", ".###."},
        {"{{ ('a' + x)[1:] }}", "YZ", "##"},
        {"{{ ('  ' + x + ' ') | trim }}", "YZ", "##"},
        {"{{ x | upper ~ 'q' | upper }}", "YZQ", "##."},
        {"{{ (x + 'q') | lower }}", "yzq", "##."},
        {"{{ 'a-b' | replace('-', x) }}", "aYZb", ".##."},
        {"{{ 'abc' | replace(y, '') }}", "bc", "##"},
        {"{{ x | replace('Y', 'q') }}", "qZ", ".#"},
        {"{{ (x + ',a,' + x).split(',') | join('/') }}", "YZ/a/YZ", "##...##"},
        {"{{ [x, 'a'] | join(x) }}", "YZYZa", "####."},
        {"{{ x | tojson }}", "\"YZ\"", "####"},
        {"{{ {'k': x} | tojson }}", "{\"k\": \"YZ\"}", "......####."},
        {"{{ d | tojson }}", "{\"a\": [1, true]}", "################"},
        {"{{ d | string }}", "{'a': [1, True]}", "################"},
        {"{{ [x] }}", "['YZ']", ".####."},
        {"{{ d.a[0] }}{{ d.a[1] }}{{ z }}", "1TrueNone", "#########"},
        {"{{ n + 1 }}{{ n | string }}{{ '7' | int }}{{ n | int }}", "8777", "##.#"},
        {"{{ '{}|{a}'.format(x, a=x) }}", "YZ|YZ", "##.##"},
        {"{{ x | indent(1, true) }}", " YZ", ".##"},
        {"{% macro f(a) %}[{{ a }}]{% endmacro %}{{ f(x) }}", "[YZ]", ".##."},
        {"{% set q %}<{{ x }}>{% endset %}{{ q }}", "<YZ>", ".##."},
        {"{% filter lower %}A{{ x }}{% endfilter %}", "ayz", ".##"},
        {"{% for c in x %}{{ c }}.{% endfor %}", "Y.Z.", "#.#."},
        {"{% for k in d %}{{ k }}{% endfor %}", "a", "#"},
        {"{% set ns = namespace(s='') %}{% for i in [1, 2] %}{% set ns.s = ns.s + 'a' + x %}{% "
         "endfor %}"
         "{{ ns.s }}",
         "aYZaYZ", ".##.##"},
        {"{{ x * 2 + 'a' * 2 }}", "YZYZaa", "####.."},
        {"{{ x | list | first }}{{ x | last }}{{ 'ab' | first }}", "YZa", "##."},
        {"{{ x | length }}{{ loop is defined }}", "2False", "......"},
        {"{{ strftime_now('%Y') }}{{ strftime_now(y) }}", "2025a", "....#"},
        {"{{ {'Y': 'safe', 'a': 'b'}[y] }}", "b", "."},
        {"{{ x | default('q') }}{{ nope | default('q') }}", "YZq", "##."},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct job job = {.source = cases[i].source,
                          .context = "{\"x\": \"YZ\", \"y\": \"a\", \"n\": 7, \"z\": null, "
                                     "\"d\": {\"a\": [1, true]}}"};
        int rc = render(&job);
        REQUIRE_MSG(rc == 0, "case %zu: %s", i, job.err);
        REQUIRE_EQ_STR(job.text, cases[i].text);
        REQUIRE_EQ_STR(job.marks, cases[i].marks);
        job_finish(&job);
    }
}

/* ---- numbers ------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void test_float_repr(void **state)
{
    uint64_t seed = 88172645463325252u;
    char buf[JINJA_FLOAT_BYTES];
    struct jinja_run r;
    (void)state;
    jinja_run_init(&r, MEMORY_BYTES, UINT64_MAX);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = next_random(&seed);
        double d;
        memcpy(&d, &bits, sizeof(d));
        if (i % 3 == 0) d = (double)(int64_t)(bits >> 20) / 1000.0;
        if (!isfinite(d)) continue;
        jinja_float_repr(&r, d, buf);
        REQUIRE_MSG(strtod(buf, NULL) == d, "%.17g is %s", d, buf);
        REQUIRE_MSG(strpbrk(buf, ".e"), "%.17g is %s", d, buf);
    }
}

/* Python's repr of powers of two whose nearest 16 digits do not read back. */
static void test_float_repr_of_powers_of_two(void **state)
{
    static const struct {
        int exponent;
        const char *text;
    } cases[] = {
        {-1017, "7.120236347223045e-307"},
        {-1007, "7.291122019556398e-304"},
        {-97, "6.310887241768095e-30"},
        {-44, "5.684341886080802e-14"},
        {-1074, "5e-324"},
        {1023, "8.98846567431158e+307"},
        {0, "1.0"},
        {10, "1024.0"},
    };
    char buf[JINJA_FLOAT_BYTES];
    struct jinja_run r;
    (void)state;
    jinja_run_init(&r, MEMORY_BYTES, UINT64_MAX);
    for (size_t i = 0; i < N_OF(cases); i++) {
        jinja_float_repr(&r, ldexp(1, cases[i].exponent), buf);
        REQUIRE_EQ_STR(buf, cases[i].text);
    }
}

/* ---- strings that share a buffer ----------------------------------------------------------- */

static void check_concat(struct jinja_run *r, void *arg)
{
    const struct jinja_str *a = jinja_str_new(r, "a", 1, JINJA_TRUSTED);
    const struct jinja_str *x = jinja_str_new(r, "x", 1, JINJA_INPUT);
    const struct jinja_str *ab = jinja_str_concat(r, a, a), *views[200];
    (void)arg;
    for (size_t i = 0; i < N_OF(views); i++) {
        ab = jinja_str_concat(r, ab, i % 2 ? x : a);
        views[i] = ab;
        const struct jinja_str *fork =
            jinja_str_concat(r, views[i / 2], x); /* not the end any more */
        REQUIRE(jinja_str_origin_at(fork, fork->len - 1) == JINJA_INPUT);
    }
    for (size_t i = 0; i < N_OF(views); i++) {
        REQUIRE_EQ_INT(views[i]->len, i + 3);
        REQUIRE_EQ_INT(views[i]->s[i + 2], i % 2 ? 'x' : 'a');
        REQUIRE_EQ_INT(jinja_str_origin_at(views[i], i + 2), i % 2 ? JINJA_INPUT : JINJA_TRUSTED);
    }
}

static void test_concat(void **state)
{
    struct jinja_run r;
    (void)state;
    jinja_run_init(&r, MEMORY_BYTES, UINT64_MAX);
    REQUIRE_EQ_INT(jinja_guard(&r, check_concat, NULL), 0);
    jinja_run_finish(&r);
}

/* A prompt put together bit by bit costs about its length, not the square of it. */
static void test_accumulation(void **state)
{
    struct job job = {.source = "{% set ns = namespace(s='') %}{% for i in range(20000) %}"
                                "{% set ns.s = ns.s + 'twenty bytes of text' %}{% endfor %}"
                                "{{ ns.s | length }}"};
    (void)state;
    int rc = render_bounded(&job, 32 << 20, OUTPUT_BYTES, STEPS);
    REQUIRE_MSG(rc == 0, "%s", job.err);
    REQUIRE_EQ_STR(job.text, "400000");
    job_finish(&job);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void parse_json(struct jinja_run *r, void *arg)
{
    const char *text = arg;
    jinja_json_parse(r, text, strlen(text), JINJA_INPUT, "text");
}

static void test_json_errors(void **state)
{
    static const char *const wrong[] = {
        "",       " ",   "{",       "[1,]",      "{\"a\":1,}",  "{a:1}",       "{'a':1}",
        "01",     "1.",  ".5",      "+1",        "1e",          "-",           "tru",
        "nul",    "\"a", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"",
        "\"\t\"", "1 2", "[1 2]",   "{\"a\" 1}", "]",           "\"\xFF\"",    "{\"a\":1 \"b\":2}",
        "[",      "[1",  "\"\\",
    };
    static const char *const right[] = {
        "0",
        "-0",
        "1e5",
        "1.5E-3",
        "null",
        " [ ] ",
        "{ }",
        "\"\\u00e9\\ud83d\\ude00\\n\"",
        "NaN",
        "-Infinity",
        "123456789012345678901234567890",
        "{\"a\":1,\"a\":2}",
        "[[[[[[]]]]]]",
        "1e999",
    };
    (void)state;
    for (size_t i = 0; i < N_OF(wrong) + N_OF(right); i++) {
        struct jinja_run r;
        bool is_wrong = i < N_OF(wrong);
        const char *text = is_wrong ? wrong[i] : right[i - N_OF(wrong)];
        jinja_run_init(&r, MEMORY_BYTES, STEPS);
        int rc = jinja_guard(&r, parse_json, (void *)(uintptr_t)text);
        jinja_run_finish(&r);
        REQUIRE_MSG(rc == (is_wrong ? JINJA_EINVAL : 0), "%s: %d %s", text, rc, r.err);
    }
    char *deep = nest("[", "", "]", 100000);
    struct jinja_run r;
    jinja_run_init(&r, MEMORY_BYTES, STEPS);
    REQUIRE_EQ_INT(jinja_guard(&r, parse_json, deep), JINJA_EINVAL);
    jinja_run_finish(&r);
    free(deep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_prices),
        cmocka_unit_test(test_price_of_scopes),
        cmocka_unit_test(test_price_of_collisions),
        cmocka_unit_test(test_cpu_bound),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_float_repr),
        cmocka_unit_test(test_float_repr_of_powers_of_two),
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_json_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
