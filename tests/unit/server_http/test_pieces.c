/* SPDX-License-Identifier: MIT */
/* Whole answers at once and in pieces: every piece once, in order, no faster than the client. */
#include "server/http/pieces.h"

#include "open_request.h"

/* Writes `n` pieces of `len` bytes, the letters from 'a' on. */
struct writer {
    int n, len, n_written;
};

static bool write_piece(void *ctx, struct buf *b)
{
    struct writer *w = ctx;
    for (int i = 0; i < w->len; i++)
        buf_printf(b, "%c", 'a' + w->n_written);
    return ++w->n_written >= w->n;
}

static void test_whole(void **state)
{
    static const struct {
        struct writer writer;
        size_t max;
        int status;
        const char *answer;
    } cases[] = {
        {{.n = 1, .len = 2}, 100, 200, "aa"},
        {{.n = 3, .len = 2}, 100, 200, "aabbcc"},
        {{.n = 3, .len = 2}, 7, 200, "aabbcc"},
        {{.n = 9, .len = 2}, 7, 413, NULL},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_request *req = open_request();
        struct writer writer = cases[i].writer;
        struct srv_pieces p = {write_piece, &writer, cases[i].max, false};
        srv_pieces_reply_whole(req, &p);
        char *answer = take_answer(req);
        REQUIRE_EQ_INT(req->status, cases[i].status);
        REQUIRE_EQ_INT(req->answer, SRV_ANSWER_WHOLE);
        if (cases[i].answer) REQUIRE_EQ_STR(answer, cases[i].answer);
        free(answer);
        close_request(req);
    }
}

static void test_in_pieces(void **state)
{
    struct srv_request *req = open_request();
    struct writer writer = {.n = 3, .len = 2};
    struct srv_pieces p = {write_piece, &writer, 7, false};
    (void)state;
    REQUIRE(srv_pieces_reply(req, &p) && p.begun);
    char *answer = take_answer(req);
    REQUIRE_EQ_STR(answer, "aabbcc");
    REQUIRE(req->answer == SRV_ANSWER_PIECES && req->status == 200 && !test_cut);
    free(answer);
    close_request(req);
}

static void test_the_client_is_behind(void **state)
{
    enum { N = 20, LEN = 10000 };
    struct srv_request *req = open_request();
    struct writer writer = {.n = N, .len = LEN};
    struct srv_pieces p = {write_piece, &writer, LEN + 1, false};
    size_t total = 0;
    bool written = false;
    (void)state;
    for (int i = 0; i < N && !written; i++) {
        int before = writer.n_written;
        written = srv_pieces_reply(req, &p);
        REQUIRE(writer.n_written > before && (written || req->wants_room));
        REQUIRE((size_t)(writer.n_written - before - 1) * LEN < SRV_STREAM_ROOM_BYTES);
        char *answer = take_answer(req);
        REQUIRE_EQ_INT(strlen(answer), (size_t)(writer.n_written - before) * LEN);
        REQUIRE_EQ_INT(answer[0], 'a' + before);
        total += strlen(answer);
        free(answer);
    }
    REQUIRE(written);
    REQUIRE_EQ_INT(total, (size_t)N * LEN);
    close_request(req);
}

/* The status is out: a piece that cannot be made cuts the connection. */
static void test_a_piece_fails(void **state)
{
    struct srv_request *req = open_request();
    struct writer writer = {.n = 3, .len = 20};
    struct srv_pieces p = {write_piece, &writer, 7, false};
    (void)state;
    REQUIRE(srv_pieces_reply(req, &p));
    REQUIRE(test_cut && writer.n_written == 1);
    close_request(req);
}

static void test_the_client_has_left(void **state)
{
    struct srv_request *req = open_request();
    struct writer writer = {.n = 3, .len = 2};
    struct srv_pieces p = {write_piece, &writer, 7, false};
    (void)state;
    srv_request_gone(req);
    REQUIRE(srv_pieces_reply(req, &p));
    REQUIRE(!test_cut && writer.n_written == 1);
    close_request(req);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_in_pieces),
        cmocka_unit_test(test_the_client_is_behind),
        cmocka_unit_test(test_a_piece_fails),
        cmocka_unit_test(test_the_client_has_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
