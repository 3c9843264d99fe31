/* SPDX-License-Identifier: MIT */
/* Statuses as sentences; see status.h. */
#include "server/hub/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/shown.h"
#include "server/hub/client.h"
#include "server/hub/headers.h"

struct judged {
    const struct hub_client *client;
    const struct hub_request *request;
    const struct hub_answer *answer;
    struct hub_failure *f;
};

__attribute__((format(printf, 3, 4))) static void fail(struct judged *j, int rc, const char *format,
                                                       ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(j->f->err, sizeof(j->f->err), format, args);
    va_end(args);
    j->f->rc = rc;
}

/* A header's text, or "". */
static const char *header(const struct judged *j, const char *name)
{
    const char *value = transfer_header(j->answer->transfer, name);
    return value ? value : "";
}

static void say_gated(struct judged *j)
{
    const struct hub_client *c = j->client;
    const char *repo = c->name->repo, *endpoint = c->settings->endpoint;
    if (j->answer->with_token)
        fail(j, HUB_EDENIED,
             "%s is gated, and the account of the token in %.200s has no access: "
             "accept its licence at %s/%s",
             repo, c->settings->token_from, endpoint, repo);
    else
        fail(j, HUB_EDENIED, "%s is gated: accept its licence at %s/%s, then set HF_TOKEN", repo,
             endpoint, repo);
}

static void say_no_model(struct judged *j)
{
    const struct hub_client *c = j->client;
    fail(j, HUB_ENOTFOUND, "%s: no such model on %s, or a private one (%s)", c->name->repo,
         c->settings->endpoint,
         j->answer->with_token ? "the token does not open it" : "no token was sent");
}

static void say_denied(struct judged *j)
{
    const char *text = header(j, "X-Error-Message"); /* the hub's own explanation */
    char message[160];
    shown_text(message, sizeof(message), text, strlen(text));
    fail(j, HUB_EDENIED, "the hub refuses %s (status %d%s%s)", j->client->name->repo,
         j->answer->status, message[0] ? ": " : "", message);
}

static bool bad_token(const struct judged *j)
{
    return j->answer->status == 401 && j->answer->with_token &&
           strstr(header(j, "X-Error-Message"), "Invalid credentials");
}

/* 401, 403, 404 of the hub itself. */
static void judge_access(struct judged *j)
{
    const struct hub_client *c = j->client;
    const char *code = header(j, "X-Error-Code"), *what = j->request->what;
    int status = j->answer->status;
    if (bad_token(j))
        fail(j, HUB_EDENIED, "the hub does not accept the token in %.300s",
             c->settings->token_from);
    else if (strcmp(code, "GatedRepo") == 0)
        say_gated(j);
    else if (strcmp(code, "RevisionNotFound") == 0)
        fail(j, HUB_ENOTFOUND, "%s has no revision '%s'", c->name->repo, c->name->revision);
    else if (strcmp(code, "EntryNotFound") == 0 || (status == 404 && what))
        fail(j, HUB_EWRONG, "the hub lists %.200s, but does not have it", what ? what : "a file");
    else if (strcmp(code, "RepoNotFound") == 0 || status == 404 ||
             (status == 401 && !j->answer->with_token))
        say_no_model(j);
    else
        say_denied(j);
}

static bool is_passing(int status)
{
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
           status == 504;
}

static void judge_passing(struct judged *j)
{
    int status = j->answer->status;
    const char *host = j->answer->from_endpoint ? "the hub" : "the file store";
    j->f->retry_after_s = hub_retry_after(header(j, "Retry-After"), time(NULL));
    if (j->f->retry_after_s < 0) j->f->retry_after_s = hub_rate_limit(header(j, "RateLimit"));
    j->f->again = true;
    if (status == 429)
        fail(j, HUB_ENETWORK, "%s limits the rate of requests (status 429)", host);
    else
        fail(j, HUB_ENETWORK, "%s answers with status %d", host, status);
}

void hub_status_judge(const struct hub_client *c, const struct hub_request *r,
                      const struct hub_answer *a, struct hub_failure *f)
{
    struct judged j = {.client = c, .request = r, .answer = a, .f = f};
    int status = a->status;
    if (status / 100 == 2) return;
    if (is_passing(status)) {
        judge_passing(&j);
    } else if (a->from_endpoint && (status == 401 || status == 403 || status == 404)) {
        judge_access(&j);
    } else if (status == 403 && !a->from_endpoint) {
        fail(&j, HUB_ENETWORK, "the file store refuses the link (status 403)");
        f->again = true;
    } else if (status == 416 && r->from > 0) {
        fail(&j, HUB_ENETWORK, "nothing from byte %lld on (status 416)", (long long)r->from);
        f->again = true;
    } else {
        fail(&j, HUB_EWRONG, "%s answers with status %d",
             a->from_endpoint ? "the hub" : "the file store", status);
    }
}
