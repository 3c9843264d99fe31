/* SPDX-License-Identifier: MIT */
/* /props and /slots: what they say of a model, of one that is not loaded, of several. */
#include "local_server.h"

static int open_two(void **state)
{
    char line[1800];
    int n = snprintf(line, sizeof(line),
                     "serve --threads 1 --parallel 3 --top-p 0.5 --seed 7 --model a=%s",
                     carried("demo"));
    (void)state;
    snprintf(line + n, sizeof(line) - (size_t)n, " --models-max 1 --model b=%s",
             carried("demo-embed"));
    return open_server(line);
}

static void of_a_model(void **state)
{
    static const struct exchange rows[] = {
        {NULL,
         200,
         {{"server", "hearth"},
          {"version", HEARTH_VERSION},
          {"model", "a"},
          {"is_sleeping", "false"},
          {"role", "router"},
          {"max_instances", "1"}}},
        {NULL,
         200,
         {{"total_slots", "3"},
          {"n_ctx", "2048"},
          {"default_generation_settings.n_ctx", "2048"},
          {"n_vocab", "1024"},
          {"threads", "1"},
          {"architecture", "LlamaForCausalLM"}}},
        {NULL,
         200,
         {{"default_sampling.top_p", "0.5"},
          {"default_sampling.seed", "7"},
          {"default_sampling.max_tokens", "null"},
          {"default_sampling.temperature", "1.0"},
          {"draft_model", "null"},
          {"fim", "null"}}},
        {NULL,
         200,
         {{"structured_output.kinds.4", "grammar"},
          {"chat_template", "*"},
          {"chat_template_caps.system_role", "*"},
          {"memory.weights_bytes", "*"},
          {"swap.previous", "null"},
          {"kv_disk", "-"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/props", rows);
    REQUIRE_EXCHANGES("/v1/props?model=a", rows);
    REQUIRE(strtoll(at("memory.weights_bytes"), NULL, 10) > 1000000);
}

static void of_one_that_is_not_loaded(void **state)
{
    static const struct exchange rows[] = {{NULL,
                                            200,
                                            {{"model", "b"},
                                             {"is_sleeping", "true"},
                                             {"role", "router"},
                                             {"n_ctx", "-"},
                                             {"swap.state", "*"}}}};
    (void)state;
    REQUIRE_EXCHANGES("/props?model=b", rows);
}

static void the_slots(void **state)
{
    static const struct exchange all[] = {{NULL,
                                           200,
                                           {{"0.model", "a"},
                                            {"0.total", "3"},
                                            {"0.running", "0"},
                                            {"0.slots.0", "-"},
                                            {"0.draining", "-"},
                                            {"1", "-"}}}};
    static const struct exchange one[] = {
        {NULL, 200, {{"model", "a"}, {"total", "3"}, {"waiting", "0"}, {"pages.tokens", "*"}}}};
    static const struct exchange unloaded[] = {{NULL, 200, {{"model", "-"}, {"total", "-"}}}};
    (void)state;
    REQUIRE_EXCHANGES("/slots", all);
    REQUIRE_EXCHANGES("/v1/slots?model=a", one);
    REQUIRE_EXCHANGES("/slots?model=b", unloaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_model),
        cmocka_unit_test(of_one_that_is_not_loaded),
        cmocka_unit_test(the_slots),
    };
    return cmocka_run_group_tests(tests, open_two, close_server);
}
