/* SPDX-License-Identifier: MIT */
/*
 * Stands in for server/hub/transfer.c by the linker's --wrap: answers come from a function of the test,
 * and every request is noted. No network, no libcurl.
 */
#pragma once

#include <pthread.h>
#include <strings.h>

#include "server/hub/transfer.h"
#include "test.h"

struct fake_answer {
    int status;
    const char *headers; /* "Name: value\n" each; NULL: none */
    const char *body;
    size_t len;
    enum transfer_end end; /* after the body */
};

/* Set by a test. range: the value of that header, or NULL. */
static struct fake_answer (*fake_hub)(const char *url, const char *range);

static struct {
    char url[512], range[64];
    bool with_token;
} fake_log[64];
static int n_fake_log;

struct transfer {
    struct fake_answer answer;
    char value[512];
};

int __wrap_transfer_load(char *err, size_t errlen);
struct transfer *__wrap_transfer_create(const struct transfer_settings *settings);
void __wrap_transfer_destroy(struct transfer *t);
enum transfer_end __wrap_transfer_run(struct transfer *t, const struct transfer_exchange *x);
int __wrap_transfer_status(const struct transfer *t);
const char *__wrap_transfer_header(struct transfer *t, const char *name);
const char *__wrap_transfer_reason(const struct transfer *t);
int __wrap_transfer_url_join(const char *base, const char *relative, char *buf, size_t size);
int __wrap_transfer_url_origin(const char *url, struct transfer_origin *ret);

int __wrap_transfer_load(char *err, size_t errlen)
{
    (void)err, (void)errlen;
    return 0;
}

struct transfer *__wrap_transfer_create(const struct transfer_settings *settings)
{
    (void)settings;
    return calloc(1, sizeof(struct transfer));
}

void __wrap_transfer_destroy(struct transfer *t)
{
    free(t);
}

int __wrap_transfer_status(const struct transfer *t)
{
    return t->answer.status;
}

const char *__wrap_transfer_reason(const struct transfer *t)
{
    return t->answer.end == TRANSFER_OK ? "" : "as scripted";
}

const char *__wrap_transfer_header(struct transfer *t, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = t->answer.headers; p && *p; p = strchr(p, '\n') + 1) {
        if (strncasecmp(p, name, len) != 0 || p[len] != ':') continue;
        snprintf(t->value, sizeof(t->value), "%.*s", (int)strcspn(p + len + 2, "\n"), p + len + 2);
        return t->value;
    }
    return NULL;
}

static enum transfer_end fake_run(struct transfer *t, const struct transfer_exchange *x)
{
    const char *range = NULL;
    bool with_token = false;
    REQUIRE(n_fake_log < (int)N_OF(fake_log));
    for (const char *const *h = x->headers; *h; h++) {
        if (strncmp(*h, "Range: ", 7) == 0) range = *h + 7;
        with_token |= strncmp(*h, "Authorization: ", 15) == 0;
    }
    snprintf(fake_log[n_fake_log].url, sizeof(fake_log[0].url), "%s", x->url);
    snprintf(fake_log[n_fake_log].range, sizeof(fake_log[0].range), "%s", range ? range : "");
    fake_log[n_fake_log++].with_token = with_token;
    t->answer = fake_hub(x->url, range);
    if (!t->answer.status) return t->answer.end;
    if (!x->on_head(x->ctx, t)) return TRANSFER_REFUSED;
    for (size_t at = 0, n; at < t->answer.len; at += n) { /* in uneven pieces */
        n = t->answer.len - at < 7 ? t->answer.len - at : 7;
        if (!x->on_body(x->ctx, t->answer.body + at, n)) return TRANSFER_REFUSED;
    }
    return t->answer.end;
}

/* One at a time, whatever the number of clients. */
enum transfer_end __wrap_transfer_run(struct transfer *t, const struct transfer_exchange *x)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    enum transfer_end end = fake_run(t, x);
    pthread_mutex_unlock(&lock);
    return end;
}

/* An absolute URL stands for itself; "/x" is that path on the host of base; "bad" is no URL. */
int __wrap_transfer_url_join(const char *base, const char *relative, char *buf, size_t size)
{
    char whole[1024];
    int host = (int)(strcspn(base, ":") + 3);
    host += (int)strcspn(base + host, "/");
    if (strcmp(relative, "bad") == 0) return -1;
    snprintf(whole, sizeof(whole), "%.*s%s", *relative == '/' ? host : 0, base, relative);
    snprintf(buf, size, "%s", whole);
    return 0;
}

int __wrap_transfer_url_origin(const char *url, struct transfer_origin *ret)
{
    int scheme = (int)strcspn(url, ":");
    *ret = (struct transfer_origin){0};
    if (strncmp(url + scheme, "://", 3) != 0 || strchr(url, '@')) return -1;
    int host = (int)strcspn(url + scheme + 3, "/");
    snprintf(ret->scheme, sizeof(ret->scheme), "%.*s", scheme, url);
    snprintf(ret->text, sizeof(ret->text), "%.*s", scheme + 3 + host, url);
    ret->loopback = strstr(ret->text, "//127.") != NULL;
    return 0;
}
