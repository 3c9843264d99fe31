/* SPDX-License-Identifier: MIT */
/* The Prometheus text: everything at zero from the start, fixed series, histograms that add up. */
#include "test.h"

#include "base/buf.h"
#include "engine/engine.h"
#include "server/http/endpoint.h"
#include "server/metrics.h"

static char *render(struct srv_metrics *m, bool vllm, const char *model)
{
    struct buf b;
    struct srv_metrics_view view = {.model = model, .ready = true};
    buf_init(&b, 1 << 20);
    srv_metrics_render(m, &view, vllm, &b);
    REQUIRE(!b.failed);
    return b.data; /* the caller frees */
}

static double value_of(const char *text, const char *series)
{
    size_t len = strlen(series);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, series, len) == 0 && line[len] == ' ') return strtod(line + len, NULL);
    }
    print_error("no series %s\n", series);
    fail();
    return -1;
}

static int n_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void everything_is_there_at_zero(void **state)
{
    static const char *const series[] = {
        "hearth_http_requests_total{code=\"200\"}",
        "hearth_http_requests_total{code=\"429\"}",
        "hearth_endpoint_requests_total{endpoint=\"completions\"}",
        "hearth_requests_finished_total{reason=\"cancelled\"}",
        "hearth_time_to_first_token_seconds_count",
        "hearth_inter_token_latency_seconds_sum",
        "hearth_request_duration_seconds_bucket{le=\"+Inf\"}",
        "hearth_kv_pages_used",
        "hearth_generated_tokens_total",
        "vllm:num_requests_running{model_name=\"m\",engine=\"0\"}",
        "vllm:num_requests_waiting{model_name=\"m\",engine=\"0\"}",
        "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"}",
        "vllm:generation_tokens_total{model_name=\"m\",engine=\"0\"}",
        "vllm:request_success_total{model_name=\"m\",engine=\"0\",finished_reason=\"stop\"}",
        "vllm:e2e_request_latency_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"+Inf\"}",
        "vllm:iteration_tokens_total_bucket{model_name=\"m\",engine=\"0\",le=\"16384\"}",
        "vllm:iteration_tokens_total_count{model_name=\"m\",engine=\"0\"}",
        "vllm:request_params_n_bucket{model_name=\"m\",engine=\"0\",le=\"20\"}",
        "vllm:request_params_max_tokens_sum{model_name=\"m\",engine=\"0\"}",
        "vllm:prefix_cache_hits_total{model_name=\"m\",engine=\"0\"}",
    };
    struct srv_metrics *m = srv_metrics_create();
    char *text = render(m, true, "m");
    (void)state;
    for (size_t i = 0; i < N_OF(series); i++)
        REQUIRE_EQ_INT(value_of(text, series[i]), 0);
    free(text);
    srv_metrics_destroy(m);
}

static void requests_add_no_series(void **state)
{
    struct srv_metrics *m = srv_metrics_create();
    char *before = render(m, true, "m");
    (void)state;
    static const char *const endpoints[] = {"completions", "chat", "models", "something new", NULL};
    for (int status = 0; status < 700; status += 7) {
        struct srv_account a = {.endpoint = endpoints[status % 5],
                                .finish_reason = "stop",
                                .queue_us = 5,
                                .ttft_us = 9};
        srv_metrics_count_request(m, status, status % 3 == 0, &a, 100);
    }
    char *after = render(m, true, "m");
    REQUIRE_EQ_INT(n_lines(before), n_lines(after));
    free(before);
    free(after);
    srv_metrics_destroy(m);
}

static void a_request_is_counted_once_everywhere(void **state)
{
    struct srv_metrics *m = srv_metrics_create();
    struct srv_account a = {.endpoint = "chat",
                            .finish_reason = "length",
                            .n_prompt_tokens = 7,
                            .n_cached_tokens = 2,
                            .n_generated_tokens = 11,
                            .n_choices = 3,
                            .max_tokens = 60,
                            .queue_us = 100000,
                            .ttft_us = 300000};
    (void)state;
    srv_metrics_count_request(m, 200, false, &a, 1300000);
    a.queue_us = a.ttft_us = -1;
    srv_metrics_count_request(m, 429, false, &a, 10);
    srv_metrics_count_request(m, 200, true, &a, 10);
    char *text = render(m, true, "m");
    REQUIRE_EQ_INT(value_of(text, "hearth_http_requests_total{code=\"200\"}"), 2);
    REQUIRE_EQ_INT(value_of(text, "hearth_endpoint_requests_total{endpoint=\"chat\"}"), 3);
    REQUIRE_EQ_INT(value_of(text, "hearth_requests_finished_total{reason=\"length\"}"), 1);
    REQUIRE_EQ_INT(value_of(text, "hearth_requests_finished_total{reason=\"rejected\"}"), 1);
    REQUIRE_EQ_INT(value_of(text, "hearth_requests_finished_total{reason=\"cancelled\"}"), 1);
    REQUIRE_EQ_INT(value_of(text, "hearth_time_to_first_token_seconds_count"), 1);
    REQUIRE(value_of(text, "hearth_time_to_first_token_seconds_sum") == 0.3);
    REQUIRE_EQ_INT(value_of(text, "hearth_time_to_first_token_seconds_bucket{le=\"0.25\"}"), 0);
    REQUIRE_EQ_INT(value_of(text, "hearth_time_to_first_token_seconds_bucket{le=\"0.5\"}"), 1);
    REQUIRE_EQ_INT(value_of(text, "hearth_time_to_first_token_seconds_bucket{le=\"640\"}"), 1);
    REQUIRE_EQ_INT(value_of(text, "hearth_inter_token_latency_seconds_count"), 10);
    REQUIRE(value_of(text, "hearth_inter_token_latency_seconds_sum") == 1);
    REQUIRE_EQ_INT(
        value_of(text, "vllm:request_generation_tokens_sum{model_name=\"m\",engine=\"0\"}"), 22);
    REQUIRE_EQ_INT(
        value_of(text, "vllm:request_params_n_bucket{model_name=\"m\",engine=\"0\",le=\"2\"}"), 0);
    REQUIRE_EQ_INT(
        value_of(text, "vllm:request_params_n_bucket{model_name=\"m\",engine=\"0\",le=\"5\"}"), 2);
    REQUIRE_EQ_INT(value_of(text, "hearth_request_max_tokens_sum"), 120);
    free(text);
    srv_metrics_destroy(m);
}

/* Counts per size become cumulative buckets. */
static void steps_are_counted_by_size(void **state)
{
    struct srv_metrics *m = srv_metrics_create();
    struct srv_metrics_entry entry = {
        .name = "m",
        .state = "loaded",
        .stats = {.n_steps_of_size = {5, 0, 2, [ENG_STEP_SIZES - 1] = 1}, .n_step_tokens = 20000},
    };
    struct srv_metrics_view view = {.model = "m", .entries = &entry, .n_entries = 1};
    struct buf b;
    (void)state;
    buf_init(&b, 1 << 20);
    srv_metrics_render(m, &view, true, &b);
    const char *text = b.data;
    REQUIRE_EQ_INT(value_of(text, "hearth_engine_step_tokens_bucket{le=\"1\"}"), 5);
    REQUIRE_EQ_INT(value_of(text, "hearth_engine_step_tokens_bucket{le=\"8\"}"), 5);
    REQUIRE_EQ_INT(value_of(text, "hearth_engine_step_tokens_bucket{le=\"16\"}"), 7);
    REQUIRE_EQ_INT(value_of(text, "hearth_engine_step_tokens_bucket{le=\"16384\"}"), 7);
    REQUIRE_EQ_INT(value_of(text, "hearth_engine_step_tokens_bucket{le=\"+Inf\"}"), 8);
    REQUIRE_EQ_INT(value_of(text, "vllm:iteration_tokens_total_sum{model_name=\"m\",engine=\"0\"}"),
                   20000);
    REQUIRE_EQ_INT(
        value_of(text, "vllm:iteration_tokens_total_count{model_name=\"m\",engine=\"0\"}"), 8);
    buf_finish(&b);
    srv_metrics_destroy(m);
}

static void aliases_can_be_switched_off_and_labels_are_escaped(void **state)
{
    struct srv_metrics *m = srv_metrics_create();
    (void)state;
    char *text = render(m, false, "m");
    REQUIRE(strstr(text, "vllm:") == NULL);
    free(text);
    text = render(m, true, "a\"b\\c\nd");
    REQUIRE(strstr(text, "model_name=\"a\\\"b\\\\c\\nd\"") != NULL);
    free(text);
    srv_metrics_destroy(m);
}

/* Every sample belongs to the family announced right before it, and no family comes twice. */
static void check_families(char *text)
{
    char family[128] = "", seen[32768] = "\n";
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            char entry[140];
            snprintf(family, sizeof(family), "%.*s", (int)strcspn(line + 7, " "), line + 7);
            snprintf(entry, sizeof(entry), "\n%s\n", family);
            REQUIRE_MSG(!strstr(seen, entry), "%s twice", family);
            snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s\n", family);
        } else if (line[0] != '#') {
            REQUIRE_MSG(strncmp(line, family, strlen(family)) == 0, "%s after %s", line, family);
        }
    }
}

static void families_are_whole(void **state)
{
    struct srv_metrics *m = srv_metrics_create();
    char *text = render(m, true, "m");
    (void)state;
    check_families(text);
    free(text);
    srv_metrics_destroy(m);
}

/* Each model's numbers of its engine have its name; the others are there once. */
static void several_models_have_labels(void **state)
{
    struct srv_metrics *m = srv_metrics_create();
    struct srv_metrics_entry entries[] = {
        {.name = "a", .state = "loaded", .bytes = {3, 4, 5}, .n_loads = {2, 1}},
        {.name = "b\"", .state = "failed", .n_waiters = 6},
    };
    struct srv_metrics_view view = {
        .model = "a", .entries = entries, .n_entries = 2, .n_loaded = 1};
    struct buf b;
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct eng_stats *s = &entries[i].stats;
        *s = (struct eng_stats){.n_running = 7, .n_pages_total = 8, .n_pages_used = 2};
        s->n_misses[ENG_MISS_EVICTED] = 9;
        s->n_drafts_of_length[1] = s->n_drafts[ENG_DRAFT_TEXT] = 10 + i;
        s->n_draft_tokens[ENG_DRAFT_TEXT] = 2 * s->n_drafts[ENG_DRAFT_TEXT];
        s->n_drafts[ENG_DRAFT_SELF] = 100;
        s->kv_disk.n_faults[0] = 3;
        s->compute_us = 1500000;
    }
    buf_init(&b, 1 << 20);
    srv_metrics_render(m, &view, true, &b);
    static const struct {
        const char *series;
        double value;
    } expected[] = {
        {"hearth_models_loaded", 1},
        {"hearth_model_state{model=\"a\",state=\"loaded\"}", 1},
        {"hearth_model_state{model=\"b\\\"\",state=\"loaded\"}", 0},
        {"hearth_model_bytes{model=\"a\",kind=\"other\"}", 5},
        {"hearth_model_loads_total{model=\"a\",result=\"failed\"}", 1},
        {"hearth_model_waiters{model=\"b\\\"\"}", 6},
        {"hearth_sequences_running{model=\"a\"}", 7},
        {"vllm:num_requests_running{model_name=\"b\\\"\",engine=\"0\"}", 7},
        {"vllm:kv_cache_usage_perc{model_name=\"a\",engine=\"0\"}", 0.25},
        {"hearth_prefix_miss_total{model=\"a\",reason=\"evicted\"}", 9},
        {"hearth_kv_disk_bad_files_total{model=\"a\",reason=\"unreadable\"}", 3},
        {"hearth_drafts_total{model=\"b\\\"\",source=\"text\"}", 11},
        {"vllm:spec_decode_num_drafts_total{model_name=\"a\",engine=\"0\"}", 110},
        {"hearth_draft_length_tokens_bucket{model=\"a\",le=\"1\"}", 0},
        {"hearth_draft_length_tokens_bucket{model=\"a\",le=\"+Inf\"}", 10},
        {"hearth_draft_length_tokens_sum{model=\"b\\\"\"}", 22},
        {"hearth_engine_busy_seconds_total{model=\"a\"}", 1.5},
        {"hearth_time_to_first_token_seconds_count", 0},
    };
    for (size_t i = 0; i < N_OF(expected); i++)
        REQUIRE_MSG(value_of(b.data, expected[i].series) == expected[i].value, "%s",
                    expected[i].series);
    check_families(b.data);
    buf_finish(&b);
    srv_metrics_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_there_at_zero),
        cmocka_unit_test(requests_add_no_series),
        cmocka_unit_test(a_request_is_counted_once_everywhere),
        cmocka_unit_test(steps_are_counted_by_size),
        cmocka_unit_test(aliases_can_be_switched_off_and_labels_are_escaped),
        cmocka_unit_test(families_are_whole),
        cmocka_unit_test(several_models_have_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
