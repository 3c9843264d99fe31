/* SPDX-License-Identifier: MIT */
/* Names and settings; see settings.h. */
#include "server/hub/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/shown.h"

enum {
    PART_MAX = 96, /* of a model's name */
    TIMEOUT_SECONDS = 10,
    TIMEOUT_MAX_SECONDS = 86400,
    FIRST_WAIT_MS = 500,
    TOKEN_FILE_MAX_BYTES = 4 << 10,
};

/* ---- names ---------------------------------------------------------------------------------- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_part(const char *text, size_t len)
{
    if (len == 0 || len > PART_MAX || !is_word(text[0]) || !is_word(text[len - 1])) return false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (!is_word(c) && c != '.' && c != '-') return false;
        if (i && c != '_' && !is_word(c) && c == text[i - 1]) return false;
    }
    return true;
}

static bool is_repo(const char *text, size_t len)
{
    const char *slash = memchr(text, '/', len);
    size_t first = slash ? (size_t)(slash - text) : 0;
    if (slash && !is_part(text, first)) return false;
    const char *last = slash ? slash + 1 : text;
    size_t last_len = len - (size_t)(last - text);
    bool is_git = last_len > 4 && memcmp(last + last_len - 4, ".git", 4) == 0;
    return is_part(last, last_len) && !is_git;
}

/* One part of a revision between slashes. */
static bool is_revision_part(const char *text, size_t len)
{
    bool is_lock = len >= 5 && memcmp(text + len - 5, ".lock", 5) == 0;
    return len && text[0] != '.' && text[len - 1] != '.' && !is_lock;
}

static bool is_revision(const char *text)
{
    size_t len = strlen(text);
    if (len >= HUB_REVISION_SIZE || text[0] == '-') return false;
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~' || strchr("~^:?*[\\", text[i])) return false;
    if (strstr(text, "..") || strstr(text, "@{") || strcmp(text, "@") == 0) return false;
    for (;;) {
        size_t part = strcspn(text, "/");
        if (!is_revision_part(text, part)) return false;
        if (!text[part]) return true;
        text += part + 1;
    }
}

static bool is_tag(const char *text, size_t len)
{
    bool all = len > 0 && len < GGUF_TAG_SIZE;
    for (size_t i = 0; all && i < len; i++)
        all = is_word(text[i]) || text[i] == '-' || text[i] == '.';
    return all;
}

int hub_name_parse(struct hub_name *ret, const char *spec, char *err)
{
    size_t len = strcspn(spec, "@"), repo = strcspn(spec, ":@");
    const char *revision = spec[len] ? spec + len + 1 : "main";
    const char *tag = repo < len ? spec + repo + 1 : spec + len;
    char shown[120];
    if (!is_repo(spec, repo) || (repo < len && !is_tag(tag, (size_t)(spec + len - tag))))
        return hub_fail(err, HUB_EUSAGE,
                        "'%s' is not a model name: use org/name or name, with :TAG for one of its "
                        "GGUF files",
                        shown_text(shown, sizeof(shown), spec, strlen(spec)));
    if (!is_revision(revision))
        return hub_fail(err, HUB_EUSAGE, "'%s' is not a revision: use a branch, a tag or a commit",
                        shown_text(shown, sizeof(shown), revision, strlen(revision)));
    *ret =
        (struct hub_name){.has_revision = spec[len] != '\0', .is_commit = hub_is_commit(revision)};
    snprintf(ret->repo, sizeof(ret->repo), "%.*s", (int)repo, spec);
    snprintf(ret->tag, sizeof(ret->tag), "%.*s", (int)(spec + len - tag), tag);
    snprintf(ret->revision, sizeof(ret->revision), "%s", revision);
    return 0;
}

static const char *skip_scheme(const char *text)
{
    for (const char *const *s = (const char *const[]){"https://", "http://", NULL}; *s; s++)
        if (strncasecmp(text, *s, strlen(*s)) == 0) return text + strlen(*s);
    return text;
}

int hub_name_from_address(const char *spec, const char *endpoint, char *ret, size_t size)
{
    const char *hosts[] = {"huggingface.co", "www.huggingface.co", "hf.co",
                           skip_scheme(endpoint ? endpoint : "")};
    const char *text = skip_scheme(spec), *at = NULL;
    char org[PART_MAX + 2] = "", name[PART_MAX + 2] = "", page[8] = "", revision[HUB_REVISION_SIZE];
    for (int i = 0; i < 4; i++) {
        size_t n = strlen(hosts[i]);
        while (n && hosts[i][n - 1] == '/')
            n--;
        if (n && strncasecmp(text, hosts[i], n) == 0 && text[n] == '/') at = text + n + 1;
    }
    if (!at || !*at) return text == spec ? 0 : -1;
    int n = sscanf(at, "%97[^/?#]/%97[^/?#]/%7[a-z]/%255[^/?#]", org, name, page, revision);
    bool has_revision =
        n == 4 && (!strcmp(page, "tree") || !strcmp(page, "blob") || !strcmp(page, "resolve"));
    snprintf(ret, size, "%s%s%s%s%s", org, *name ? "/" : "", name, has_revision ? "@" : "",
             has_revision ? revision : "");
    return 1;
}

static bool is_hex(const char *text, size_t len)
{
    return strlen(text) == len && strspn(text, "0123456789abcdef") == len;
}

bool hub_is_commit(const char *text)
{
    return is_hex(text, HUB_COMMIT_LEN);
}

bool hub_is_etag(const char *text)
{
    return is_hex(text, 40) || is_hex(text, 64);
}

void hub_folder_name(const char *repo, char buf[HUB_FOLDER_SIZE])
{
    size_t org = strcspn(repo, "/");
    const char *name = repo[org] ? repo + org + 1 : "";
    snprintf(buf, HUB_FOLDER_SIZE, "models--%.*s%s%s", (int)org, repo, *name ? "--" : "", name);
}

int hub_folder_parse(const char *folder, char ret[HUB_REPO_SIZE])
{
    static const char prefix[] = "models--";
    if (strncmp(folder, prefix, sizeof(prefix) - 1) != 0) return -1;
    const char *org = folder + sizeof(prefix) - 1, *dashes = strstr(org, "--");
    int org_len = dashes ? (int)(dashes - org) : (int)strlen(org);
    int len = snprintf(ret, HUB_REPO_SIZE, "%.*s%s%s", org_len, org, dashes ? "/" : "",
                       dashes ? dashes + 2 : "");
    return len >= 0 && len < HUB_REPO_SIZE && is_repo(ret, (size_t)len) ? 0 : -1;
}

/* ---- the environment ------------------------------------------------------------------------ */

typedef const char *(*env_fn)(const char *name);

/* NULL for a variable that is not set, or empty. */
static const char *get(env_fn env, const char *name)
{
    const char *value = env ? env(name) : getenv(name);
    return value && *value ? value : NULL;
}

static int join(const char *dir, const char *below, const char *leaf, char *buf, size_t size)
{
    int len = snprintf(buf, size, "%s%s%s", dir, below, leaf);
    return len >= 0 && (size_t)len < size ? 0 : -1;
}

/*
 * A path as huggingface_hub finds it: the value of the first of the variables (NULL-terminated)
 * that is set, else `leaf` in its home directory. -1 if there is none or it does not fit.
 */
static int home_path(env_fn env, const char *const *variables, const char *leaf, char *buf,
                     size_t size)
{
    static const struct {
        const char *variable, *below;
    } homes[] = {
        {"HF_HOME", "/"},
        {"XDG_CACHE_HOME", "/huggingface/"},
        {"HOME", "/.cache/huggingface/"},
    };
    const char *value;
    for (; *variables; variables++)
        if ((value = get(env, *variables))) return join(value, "", "", buf, size);
    for (size_t i = 0; i < sizeof(homes) / sizeof(homes[0]); i++)
        if ((value = get(env, homes[i].variable)))
            return join(value, homes[i].below, leaf, buf, size);
    return -1;
}

int hub_cache_root(env_fn env, char *buf, size_t size, char *err)
{
    static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", NULL};
    if (home_path(env, variables, "hub", buf, size) == 0) return 0;
    return hub_fail(err, HUB_EUSAGE, "no place for models: set --cache-dir, HF_HUB_CACHE or HOME");
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
    if (!fits || transfer_url_origin(s->endpoint, &s->origin))
        return hub_fail(err, HUB_EUSAGE,
                        "HF_ENDPOINT is not the address of a hub, such as "
                        "https://huggingface.co (without a user name)");
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
    if (len >= sizeof(s->token))
        return hub_fail(err, HUB_EUSAGE,
                        "the token in %.300s has %zu bytes; at most %zu are possible", from, len,
                        sizeof(s->token) - 1);
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
        home_path(env, variables, "token", path, sizeof(path)))
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
    if (end && (*end || seconds < 0 || seconds > TIMEOUT_MAX_SECONDS))
        return hub_fail(err, HUB_EUSAGE, "%s: '%.40s' is not a number of seconds from 0 to %d",
                        name, value, TIMEOUT_MAX_SECONDS);
    *ret_ms =
        1000 *
        (int)(seconds ? seconds : TIMEOUT_SECONDS); /* 0 means the default, as in huggingface_hub */
    return 0;
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
    int rc = hub_cache_root(env, s.cache_root, sizeof(s.cache_root), err);
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
