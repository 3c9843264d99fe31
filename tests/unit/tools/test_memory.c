/* SPDX-License-Identifier: MIT */
/*
 * Every allocating call of the library comes through here (the linker sends it, see meson.build).
 *
 * Nothing is allocated while a text is guided and read. If memory runs out, at any allocation of a
 * set or of a compilation, that is an error and leaves nothing behind.
 */
#include "test.h"

#include "tools/read_text.h"
#include "toy_vocab.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static int n_allocations;
static int fail_at; /* the number of the call that fails; 0: none */

static bool may_allocate(void)
{
    return ++n_allocations != fail_at;
}

void *__wrap_malloc(size_t n)
{
    return may_allocate() ? __real_malloc(n) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_allocate() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *p, size_t n)
{
    return may_allocate() ? __real_realloc(p, n) : NULL;
}

static void test_sets_without_memory(void **state)
{
    (void)state;
    struct reading r;
    int n_failed = 0;
    reading_init(&r, TOOLS_QWEN_XML, true);
    for (int k = 1;; k++) {
        struct tools_set *set = NULL;
        n_allocations = 0;
        fail_at = k;
        int rc = tools_set_create(&set, &r.request);
        bool reached = n_allocations >= k;
        fail_at = 0;
        REQUIRE(rc == 0 || rc == TOK_ENOMEM);
        n_failed += rc != 0;
        if (!rc) tools_set_destroy(set);
        if (!reached) break;
    }
    REQUIRE_MSG(n_failed > 5, "%d", n_failed);
}

static void compile_without_memory(const struct gram_vocab *v, const struct reading *r)
{
    int n_failed = 0;
    for (int k = 1;; k++) {
        struct gram *g = NULL;
        struct gram_error err;
        struct gram_options options = {.strict = false};
        n_allocations = 0;
        fail_at = k;
        int rc = tools_compile(&g, v, &r->request, &r->markers, false, NULL, &options, &err);
        bool reached = n_allocations >= k;
        fail_at = 0;
        REQUIRE_MSG(!rc || (rc == GRAM_ENOMEM && err.code == rc && err.message[0] && !g), "%d: %s",
                    rc, err.message);
        n_failed += rc != 0;
        gram_release(g);
        if (!reached) break;
    }
    REQUIRE_MSG(n_failed > 20, "%d", n_failed);
}

static void test_compiling_without_memory(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    for (int format = TOOLS_HERMES; format < TOOLS_N_FORMATS; format++) {
        struct reading r;
        reading_init(&r, (enum tools_format)format, true);
        compile_without_memory(v, &r);
    }
    gram_vocab_destroy(v);
}

static void count_event(void *ctx, const struct tools_event *e)
{
    *(size_t *)ctx += e->len;
}

static void test_nothing_is_allocated_for_text(void **state)
{
    (void)state;
    static const char text[] =
        "<think>a</think> b\n<tool_call>\n<function=write>\n<parameter=path>\n"
        "x\n</parameter>\n</function>\n</tool_call>\n<function=any>";
    struct reading r;
    size_t n = 0;
    reading_init(&r, TOOLS_QWEN_XML, true);
    reading_prepare(&r);
    struct tools_reader_params params = {
        .set = r.set, .markers = &r.markers, .max_held = 1000, .on_event = count_event, .ctx = &n};
    void *memory = malloc(tools_reader_bytes(1000));
    n_allocations = 0;
    struct tools_reader *reader = tools_reader_init(memory, &params);
    for (int i = 0; i < 1000; i++)
        tools_reader_text(reader, text, sizeof(text) - 1);
    tools_reader_end(reader);
    REQUIRE_EQ_INT(n_allocations, 0);
    REQUIRE_MSG(n > 50000, "%zu", n);
    free(memory);
    tools_set_destroy(r.set);
}

/* An id that the mask allows, at random; -1: there is none but the end. */
static int32_t draw(const uint64_t *bits, uint64_t *seed)
{
    int32_t from = (int32_t)toy_draw(seed, TOY_IDS);
    for (int32_t i = 0; i < TOY_IDS; i++) {
        int32_t id = (from + i) % TOY_IDS;
        if (id != TOY_END && toy_allows(bits, id)) return id;
    }
    return -1;
}

/* Guides tokens drawn at random and reads their text, with steps back as for a draft model. */
static void guide_and_read(struct tools_guide *g, struct tools_reader *reader)
{
    uint64_t bits[TOY_MASK_WORDS], seed = 7;
    char text[64];
    for (int i = 0; i < 600 && tools_guide_mask(g, bits, NULL) == TOOLS_NEXT_MASK; i++) {
        int32_t id = draw(bits, &seed);
        if (id < 0) break;
        if (i % 3 == 0) {
            uint64_t mark = tools_guide_mark(g);
            REQUIRE(tools_guide_take(g, id));
            tools_guide_rollback(g, mark);
        }
        REQUIRE(tools_guide_take(g, id));
        tools_reader_text(reader, text, toy_bytes(NULL, id, text, sizeof(text)));
    }
    tools_reader_end(reader);
}

static void test_nothing_is_allocated_for_guided_tokens(void **state)
{
    (void)state;
    struct gram_vocab *v = toy_vocab();
    void *guide = aligned_alloc(64, (tools_guide_bytes() + 63) / 64 * 64);
    void *memory = malloc(tools_reader_bytes(TOOLS_GUIDED_HELD));
    for (int format = TOOLS_HERMES; format < TOOLS_N_FORMATS; format++) {
        struct reading r;
        struct gram *gram = NULL;
        struct gram_error err;
        struct gram_options options = {.strict = false};
        size_t n = 0;
        reading_init(&r, (enum tools_format)format, false);
        r.request.choice = TOOLS_CHOICE_REQUIRED;
        reading_prepare(&r);
        REQUIRE(!tools_compile(&gram, v, &r.request, &r.markers, false, NULL, &options, &err));
        struct tools_reader_params params = {.set = r.set,
                                             .markers = &r.markers,
                                             .guided = true,
                                             .max_held = TOOLS_GUIDED_HELD,
                                             .on_event = count_event,
                                             .ctx = &n};
        n_allocations = 0;
        struct tools_guide *g = tools_guide_init(guide, gram, &r.markers, false, false, -1);
        guide_and_read(g, tools_reader_init(memory, &params));
        REQUIRE_EQ_INT(n_allocations, 0);
        REQUIRE_MSG(n > 20, "%zu", n);
        gram_release(gram);
        tools_set_destroy(r.set);
    }
    free(memory);
    free(guide);
    gram_vocab_destroy(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_without_memory),
        cmocka_unit_test(test_compiling_without_memory),
        cmocka_unit_test(test_nothing_is_allocated_for_text),
        cmocka_unit_test(test_nothing_is_allocated_for_guided_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
