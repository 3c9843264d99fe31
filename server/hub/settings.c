/* SPDX-License-Identifier: MIT */
/* The environment of the hub; see settings.h. */
#include "server/hub/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "server/hub/hub_error.h"
#include "server/hub/names.h"

enum {
    TIMEOUT_SECONDS = 10,
    TIMEOUT_MAX_SECONDS = 86400,
    FIRST_WAIT_MS = 500,
    TOKEN_FILE_MAX_BYTES = 4 << 10,
};

typedef const char *(*env_fn)(const char *name);

/* NULL for a variable that is not set, or empty. */
static const char *get(env_fn env, const char *name)
{
    const char *value = env(name);
    return value && *value ? value : NULL;
}

/* Returns true for the values that huggingface_hub reads as on. */
static bool is_on(env_fn env, const char *name)
{
    static const char *const words[] = {"1", "on", "yes", "true"};
    const char *value = get(env, name);
    for (size_t i = 0; value && i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(value, words[i]) == 0) return true;
    return false;
}

static int read_endpoint(struct hub_settings *s, env_fn env, char *err)
{
    const char *value = get(env, "HF_ENDPOINT");
    if (!value) value = "https://huggingface.co";
    size_t len = strlen(value);
    while (len && value[len - 1] == '/')
        len--;
    bool fits = len < sizeof(s->endpoint) && strcspn(value, "?#") >= len;
    if (fits) snprintf(s->endpoint, sizeof(s->endpoint), "%.*s", (int)len, value);
    if (!fits || transfer_url_origin(s->endpoint, &s->origin)) {
        return hub_fail(err, HUB_EUSAGE,
                        "HF_ENDPOINT is not the address of a hub, such as "
                        "https://huggingface.co (without a user name)");
    }
    s->allow_http = strcmp(s->origin.scheme, "http") == 0;
    if (s->allow_http || strcmp(s->origin.scheme, "https") == 0) return 0;
    return hub_fail(err, HUB_EUSAGE, "HF_ENDPOINT has the scheme '%s'; http and https are possible",
                    s->origin.scheme);
}

/* Keeps a token without the white space around it. */
static int set_token(struct hub_settings *s, const char *text, const char *from, char *err)
{
    static const char blanks[] = " \t\r\n\v\f";
    text += strspn(text, blanks);
    size_t len = strlen(text);
    while (len && strchr(blanks, text[len - 1]))
        len--;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] >= ' ' && text[i] != 0x7f) continue;
        return hub_fail(err, HUB_EUSAGE, "the token in %.300s has control characters inside", from);
    }
    if (len >= sizeof(s->token)) {
        return hub_fail(err, HUB_EUSAGE,
                        "the token in %.300s has %zu bytes; at most %zu are possible", from, len,
                        sizeof(s->token) - 1);
    }
    snprintf(s->token, sizeof(s->token), "%.*s", (int)len, text);
    snprintf(s->token_from, sizeof(s->token_from), "%s", from);
    return 0;
}

static int read_token_file(struct hub_settings *s, env_fn env, char *err)
{
    static const char *const variables[] = {"HF_TOKEN_PATH", NULL};
    char path[PATH_MAX];
    struct stat st;
    if (is_on(env, "HF_HUB_DISABLE_IMPLICIT_TOKEN") ||
        hub_home_path(env, variables, "token", path, sizeof(path)))
        return 0;
    if (stat(path, &st) && (errno == ENOENT || errno == ENOTDIR || errno == EACCES)) return 0;
    char *text;
    if (file_load(NULL, path, TOKEN_FILE_MAX_BYTES, &text, NULL, err, HUB_ERR_SIZE))
        return HUB_EUSAGE;
    int rc = set_token(s, text, path, err);
    explicit_bzero(text, strlen(text));
    free(text);
    return rc;
}

static int read_token(struct hub_settings *s, env_fn env, char *err)
{
    static const char *const variables[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    for (int i = 0; i < 2; i++) {
        const char *value = get(env, variables[i]);
        int rc = value ? set_token(s, value, variables[i], err) : 0;
        if (rc || s->token[0]) return rc;
    }
    return read_token_file(s, env, err);
}

static int read_seconds(env_fn env, const char *name, int *ret_ms, char *err)
{
    const char *value = get(env, name);
    char *end = NULL;
    long seconds = value ? strtol(value, &end, 10) : 0;
    if (end && (*end || seconds < 0 || seconds > TIMEOUT_MAX_SECONDS)) {
        return hub_fail(err, HUB_EUSAGE, "%s: '%.40s' is not a number of seconds from 0 to %d",
                        name, value, TIMEOUT_MAX_SECONDS);
    }
    *ret_ms =
        1000 *
        (int)(seconds ? seconds : TIMEOUT_SECONDS); /* 0 means the default, as in huggingface_hub */
    return 0;
}

static int read_cache_root(struct hub_settings *s, env_fn env, char *err)
{
    if (hub_cache_root(env, s->cache_root, sizeof(s->cache_root)) == 0) return 0;
    return hub_fail(err, HUB_EUSAGE, "no place for models: set --cache-dir, HF_HUB_CACHE or HOME");
}

const char *hub_settings_offline(env_fn env)
{
    const char *name = get(env, "HF_HUB_OFFLINE") ? "HF_HUB_OFFLINE" : "TRANSFORMERS_OFFLINE";
    return is_on(env, name) ? name : NULL;
}

int hub_settings_read(struct hub_settings *ret, env_fn env, char *err)
{
    struct hub_settings s = {.first_wait_ms = FIRST_WAIT_MS};
    s.offline = hub_settings_offline(env);
    s.no_bars = is_on(env, "HF_HUB_DISABLE_PROGRESS_BARS");
    s.transfer.ca_file = get(env, "CURL_CA_BUNDLE");
    if (!s.transfer.ca_file) s.transfer.ca_file = get(env, "SSL_CERT_FILE");
    s.transfer.ca_dir = get(env, "SSL_CERT_DIR");
    s.umask = umask(0);
    umask(s.umask);
    int rc = read_cache_root(&s, env, err);
    if (!rc) rc = read_seconds(env, "HF_HUB_ETAG_TIMEOUT", &s.head_timeout_ms, err);
    if (!rc) rc = read_seconds(env, "HF_HUB_DOWNLOAD_TIMEOUT", &s.body_timeout_ms, err);
    if (!rc && !s.offline) rc = read_endpoint(&s, env, err);
    if (!rc && !s.offline) rc = read_token(&s, env, err);
    if (!rc) *ret = s;
    explicit_bzero(s.token, sizeof(s.token));
    return rc;
}

bool hub_settings_may_send_token(const struct hub_settings *s, const struct transfer_origin *to)
{
    bool own = strcmp(to->text, s->origin.text) == 0;
    return s->token[0] && own && (strcmp(to->scheme, "https") == 0 || to->loopback);
}
