/* SPDX-License-Identifier: MIT */
/* Retry times and reservations of refused requests: the table, then a simulated overload. */
#include "test.h"

#include <stdbool.h>

#include "server/http/retry_slots.h"

enum { SEED = 7, SLOTS = 4, MS = 1000, SECOND = 1000000 };

static const uint64_t key[2] = {1, 2};
static const uint8_t tenant_a[32] = "a", tenant_b[32] = "b";

static struct srv_retry *open_retry(void)
{
    struct srv_retry *r = calloc(1, sizeof(*r));
    srv_retry_init(r, key);
    return r;
}

static void close_retry(struct srv_retry *r)
{
    srv_retry_finish(r);
    free(r);
}

static struct srv_returner name(const struct srv_retry *r, const char *body)
{
    return srv_retry_name(r, tenant_a, "/v1/completions", body, strlen(body));
}

static int ask(struct srv_retry *r, const char *body, uint64_t now, bool *ret_used)
{
    struct srv_returner who = name(r, body);
    int n_kept = srv_retry_ask(r, &who, now, SLOTS, true);
    *ret_used = who.has_reservation;
    return n_kept;
}

/* Refuses a request; returns the retry time it gets. */
static uint64_t refuse(struct srv_retry *r, const char *body, uint64_t now)
{
    struct srv_returner who = name(r, body);
    return now + (uint64_t)srv_retry_next_ms(r, &who, now) * MS;
}

static void names_tell_tenant_path_and_body_apart(void **state)
{
    struct srv_retry *r = open_retry();
    (void)state;
    uint64_t first = srv_retry_name(r, tenant_a, "/p", "body", 4).hash;
    REQUIRE(first == srv_retry_name(r, tenant_a, "/p", "body", 4).hash);
    REQUIRE(first != srv_retry_name(r, tenant_b, "/p", "body", 4).hash);
    REQUIRE(first != srv_retry_name(r, tenant_a, "/q", "body", 4).hash);
    REQUIRE(first != srv_retry_name(r, tenant_a, "/p", "bod", 3).hash);
    r->key[1]++;
    REQUIRE(first != srv_retry_name(r, tenant_a, "/p", "body", 4).hash);
    close_retry(r);
}

static void refused_clients_come_back_one_by_one(void **state)
{
    struct srv_retry *r = open_retry();
    uint64_t now = 1000 * (uint64_t)SECOND;
    int64_t last = 0;
    (void)state;
    for (int i = 0; i < 100; i++)
        srv_retry_note_end(r, now += SECOND / 2, true);
    for (int i = 0; i < 1100; i++) {
        int64_t ms = srv_retry_next_ms(r, NULL, now);
        REQUIRE(ms >= 1000 && ms <= 60000);
        if (i > 4 && i < 100)
            REQUIRE_MSG(ms > last && ms - last <= 540, "%lld after %lld", (long long)ms,
                        (long long)last);
        last = ms;
    }
    struct srv_returner who = name(r, "x");
    uint64_t stalled =
        now + 40 * (uint64_t)SECOND; /* nothing has ended since: twice as slow or more */
    r->last_us = 0;
    int64_t quick = srv_retry_next_ms(r, NULL, now);
    r->n_slots = SLOTS;
    r->last_us = 0;
    int64_t ms = srv_retry_next_ms(r, NULL, stalled);
    REQUIRE_MSG(quick == 1000 && ms > 10000 && ms < 11000, "%lld", (long long)ms);
    r->last_us = 0;
    srv_retry_ask(r, &who, now + 3600 * (uint64_t)SECOND, SLOTS, false); /* idle: no measurement */
    srv_retry_note_end(r, now + 3601 * (uint64_t)SECOND, true);
    REQUIRE(r->interval_us < 600000);
    REQUIRE(srv_retry_next_ms(r, NULL, now + 3601 * (uint64_t)SECOND) == 1000);
    close_retry(r);
}

static void a_reservation_is_used_once_and_in_time(void **state)
{
    struct srv_retry *r = open_retry();
    uint64_t now = 100 * (uint64_t)SECOND;
    bool has_reservation;
    (void)state;
    uint64_t due = refuse(r, "x", now);
    REQUIRE(due >= now + SECOND && due <= now + 60 * (uint64_t)SECOND);
    ask(r, "x", due - 500 * MS, &has_reservation);
    REQUIRE(!has_reservation);
    REQUIRE_EQ_INT(ask(r, "y", due, &has_reservation), 1); /* another body */
    REQUIRE(!has_reservation);
    REQUIRE_EQ_INT(ask(r, "x", due, &has_reservation), 0);
    REQUIRE(has_reservation);
    ask(r, "x", due, &has_reservation);
    REQUIRE(!has_reservation);
    due = refuse(r, "x", now);
    ask(r, "x", due + 30 * (uint64_t)SECOND, &has_reservation); /* too late */
    REQUIRE(!has_reservation);
    REQUIRE_EQ_INT(r->n_reservations, 0);
    close_retry(r);
}

static void equal_requests_have_one_reservation_each(void **state)
{
    struct srv_retry *r = open_retry();
    uint64_t now = SECOND, due = 0;
    bool has_reservation;
    (void)state;
    for (int i = 0; i < 3; i++)
        due = refuse(r, "same", now);
    for (int i = 0; i < 4; i++) {
        ask(r, "same", due, &has_reservation);
        REQUIRE_EQ_INT(has_reservation, i < 3);
    }
    close_retry(r);
}

static void a_request_refused_again_gets_an_early_time(void **state)
{
    struct srv_retry *r = open_retry();
    uint64_t now = SECOND, due = 0;
    bool has_reservation;
    (void)state;
    for (int i = 0; i < 20; i++)
        due = refuse(r, "x", now);
    REQUIRE(due > now + 15 * (uint64_t)SECOND);
    struct srv_returner who = name(r, "x");
    srv_retry_ask(r, &who, due, SLOTS, true);
    REQUIRE(who.has_reservation);
    int64_t ms = srv_retry_next_ms(r, &who, due);
    REQUIRE(ms >= 1000 && ms <= 1500);
    ask(r, "x", due + (uint64_t)ms * MS, &has_reservation);
    REQUIRE(has_reservation);
    close_retry(r);
}

static void the_table_and_a_key_s_share_are_bounded(void **state)
{
    struct srv_retry *r = open_retry();
    char body[16];
    (void)state;
    for (int i = 0; i < 3 * SRV_RESERVATIONS_OF_KEY_MAX; i++) {
        snprintf(body, sizeof(body), "%d", i);
        uint64_t due = refuse(r, body, SECOND);
        REQUIRE(due <= 61 * (uint64_t)SECOND);
    }
    REQUIRE_EQ_INT(r->n_reservations, SRV_RESERVATIONS_OF_KEY_MAX);
    struct srv_returner other = srv_retry_name(r, tenant_b, "/p", "x", 1);
    srv_retry_next_ms(r, &other, SECOND);
    REQUIRE_EQ_INT(r->n_reservations, SRV_RESERVATIONS_OF_KEY_MAX + 1);
    for (int i = 0; i < 2 * SRV_RESERVATIONS_MAX; i++) {
        uint8_t tenant[32] = {1, (uint8_t)i, (uint8_t)(i >> 8)};
        struct srv_returner one = srv_retry_name(r, tenant, "/p", "x", 1);
        srv_retry_next_ms(r, &one, SECOND);
    }
    REQUIRE_EQ_INT(r->n_reservations, SRV_RESERVATIONS_MAX);
    bool has_reservation;
    REQUIRE_EQ_INT(ask(r, "none", 200 * (uint64_t)SECOND, &has_reservation), 0);
    REQUIRE_EQ_INT(r->n_reservations, 0); /* all have expired */
    close_retry(r);
}

/* ---- a simulated server: slots, a queue, and clients that send again at once --------------- */

enum { CLIENTS = 40, QUEUE = 8, SERVICE_MS = 400, STEP_MS = 5, RUN_MS = 120000 };

struct sim {
    struct srv_retry *r;
    int waiting[QUEUE], n_waiting;
    int slot[SLOTS]; /* a client, or -1 */
    int64_t ends_ms[SLOTS];
    int64_t back_ms[CLIENTS]; /* when it sends again; -1: it is inside */
    bool has_time[CLIENTS];
    int n_done, n_back, n_admitted;
    unsigned random;
};

static void start_waiting(struct sim *s, int64_t now)
{
    for (int i = 0; i < SLOTS; i++) {
        if (s->slot[i] >= 0 && s->ends_ms[i] <= now) {
            srv_retry_note_end(s->r, (uint64_t)now * MS, s->n_waiting > 0);
            s->back_ms[s->slot[i]] = now;
            s->has_time[s->slot[i]] = false;
            s->slot[i] = -1;
            s->n_done++;
        }
        if (s->slot[i] >= 0 || s->n_waiting == 0) continue;
        s->slot[i] = s->waiting[0];
        s->random = s->random * 1664525u + 1013904223u;
        s->ends_ms[i] = now + SERVICE_MS / 2 + (s->random >> 8) % SERVICE_MS;
        memmove(s->waiting, s->waiting + 1, (size_t)--s->n_waiting * sizeof(s->waiting[0]));
    }
}

static void send_one(struct sim *s, int client, int64_t now, bool keep)
{
    char body[16];
    snprintf(body, sizeof(body), "%d", client);
    struct srv_returner who = name(s->r, body);
    int n_kept = srv_retry_ask(s->r, &who, (uint64_t)now * MS, SLOTS, s->n_waiting > 0);
    if (n_kept > QUEUE - QUEUE / 4) n_kept = QUEUE - QUEUE / 4;
    bool admitted = s->n_waiting + (keep ? n_kept : 0) < QUEUE;
    s->n_back += s->has_time[client];
    s->n_admitted += s->has_time[client] && admitted;
    s->back_ms[client] = -1;
    if (admitted) {
        s->waiting[s->n_waiting++] = client;
        return;
    }
    s->back_ms[client] = now + srv_retry_next_ms(s->r, &who, (uint64_t)now * MS);
    s->has_time[client] = true;
}

/* The share of clients with a retry time that were admitted when they came back. */
static double simulate(bool keep, int *ret_done)
{
    struct sim s = {.r = open_retry(), .random = SEED};
    for (int i = 0; i < SLOTS; i++)
        s.slot[i] = -1;
    for (int64_t now = 1000; now < RUN_MS; now += STEP_MS) {
        start_waiting(&s, now);
        for (int c = 0; c < CLIENTS; c++)
            if (s.back_ms[c] >= 0 && s.back_ms[c] <= now) send_one(&s, c, now, keep);
    }
    *ret_done = s.n_done;
    close_retry(s.r);
    return (double)s.n_admitted / s.n_back;
}

static void most_that_come_back_get_in(void **state)
{
    int n_done, n_done_without;
    (void)state;
    double share = simulate(true, &n_done), without = simulate(false, &n_done_without);
    print_message("admitted of those that came back: %.0f %%, without places kept %.0f %%; "
                  "served %d and %d\n",
                  share * 100, without * 100, n_done, n_done_without);
    REQUIRE(share >= 0.95);
    REQUIRE(without < 0.8);
    REQUIRE(n_done >= n_done_without * 98 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_tell_tenant_path_and_body_apart),
        cmocka_unit_test(refused_clients_come_back_one_by_one),
        cmocka_unit_test(a_reservation_is_used_once_and_in_time),
        cmocka_unit_test(equal_requests_have_one_reservation_each),
        cmocka_unit_test(a_request_refused_again_gets_an_early_time),
        cmocka_unit_test(the_table_and_a_key_s_share_are_bounded),
        cmocka_unit_test(most_that_come_back_get_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
