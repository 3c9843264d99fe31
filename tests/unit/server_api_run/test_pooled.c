/* SPDX-License-Identifier: MIT */
/* Rows of a request for vectors: their memory, their prompts, and what is too much. Linked with --wrap=eng_info. */
#include "server/api/run/pooled.h"

#include "open_request.h"

static void test_open(void **state)
{
    static const struct {
        size_t n;
        int64_t budget, in_use;
        int kind; /* -1: fine, else enum srv_error */
    } cases[] = {
        {4, 64, 0, -1},
        {4, 63, 0, SRV_ERR_TOO_LARGE},
        {4, 64, 1, SRV_ERR_QUEUE_FULL},
        {1, 64, 48, -1},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_request *req = open_request();
        struct srv_pooled p;
        struct param_error err = {0};
        test_info.memory.answer_bytes = cases[i].budget;
        atomic_store(&test_model.answer_bytes, cases[i].in_use);
        int rc = srv_pooled_open(&p, req, "input", cases[i].n, 4, &err);
        REQUIRE_MSG((rc == 0) == (cases[i].kind < 0), "%zu: %s", i, err.message);
        if (rc) REQUIRE_EQ_INT(err.kind, cases[i].kind);
        if (!rc)
            REQUIRE_EQ_INT(atomic_load(&test_model.answer_bytes),
                           cases[i].in_use + 16 * (int)cases[i].n);
        if (!rc) REQUIRE(p.rows && p.n == 0 && p.n_max == (int)cases[i].n && p.width == 4);
        atomic_store(&test_model.answer_bytes, 0);
        close_request(req);
    }
}

static void test_add(void **state)
{
    enum { CTX = 5 };
    struct srv_request *req = open_request();
    struct srv_pooled p;
    struct param_error err = {0};
    int32_t ids[] = {1, 2, 3, 4, 5, 6};
    (void)state;
    test_info.ctx_tokens = CTX;
    REQUIRE_EQ_INT(srv_pooled_open(&p, req, "input", 3, 4, &err), 0);
    REQUIRE_EQ_INT(srv_pooled_add(&p, ids, 2, &err), 0);
    REQUIRE_EQ_INT(srv_pooled_add(&p, ids + 1, CTX, &err), 0);
    ids[0] = ids[1] = 0; /* they are copied */
    REQUIRE(p.n == 2 && p.n_tokens == 2 + CTX);
    REQUIRE(p.rows[0].ids[0] == 1 && p.rows[0].ids[1] == 2 && p.rows[1].ids[0] == 2);
    p.rows[0].values[3] = 7;
    REQUIRE(p.rows[1].values[0] == 0 && p.rows[0].n_ids == 2);
    REQUIRE(srv_pooled_add(&p, ids, CTX + 1, &err) < 0 && err.kind == SRV_ERR_CONTEXT);
    REQUIRE_EQ_STR(err.path, "input");
    REQUIRE(p.n == 2 && p.n_tokens == 2 + CTX && p.rows[2].n_ids == CTX + 1);
    atomic_store(&test_model.answer_bytes, 0);
    close_request(req);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
