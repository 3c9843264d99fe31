/* SPDX-License-Identifier: MIT */
/* Rules for names; see names.h. */
#include "server/hub/names.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/shown.h"
#include "server/hub/hub_error.h"

enum { PART_MAX = 96 };

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
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~' || strchr("~^:?*[\\", text[i])) return false;
    }
    if (strstr(text, "..") || strstr(text, "@{") || strcmp(text, "@") == 0) return false;
    for (;;) {
        size_t part = strcspn(text, "/");
        if (!is_revision_part(text, part)) return false;
        if (!text[part]) return true;
        text += part + 1;
    }
}

int hub_name_parse(struct hub_name *ret, const char *spec, char *err)
{
    size_t len = strcspn(spec, "@");
    const char *revision = spec[len] ? spec + len + 1 : "main";
    char shown[120];
    size_t tag = strcspn(spec, ":");
    if (spec[tag] && is_repo(spec, tag))
        return hub_fail(err, HUB_EUSAGE,
                        "'%.200s' asks for one file of GGUF: what is served is the repository's "
                        "safetensors, '%.*s' (--numerics int4 or int8 makes them smaller)",
                        spec, (int)tag, spec);
    if (!is_repo(spec, len))
        return hub_fail(err, HUB_EUSAGE, "'%s' is not a model name: use org/name or name",
                        shown_text(shown, sizeof(shown), spec, strlen(spec)));
    if (!is_revision(revision))
        return hub_fail(err, HUB_EUSAGE, "'%s' is not a revision: use a branch, a tag or a commit",
                        shown_text(shown, sizeof(shown), revision, strlen(revision)));
    snprintf(ret->repo, sizeof(ret->repo), "%.*s", (int)len, spec);
    snprintf(ret->revision, sizeof(ret->revision), "%s", revision);
    ret->has_revision = spec[len] != '\0';
    ret->is_commit = hub_is_commit(revision);
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
    const char *text = skip_scheme(spec), *part[4] = {""};
    int len[4] = {0};
    for (int i = 0; i < 4; i++) {
        size_t n = strlen(hosts[i]);
        while (n && hosts[i][n - 1] == '/')
            n--;
        if (n && strncasecmp(text, hosts[i], n) == 0 && text[n] == '/') part[0] = text + n + 1;
    }
    if (!*part[0]) return text == spec ? 0 : -1;
    for (int i = 0; i < 4; i++) {
        len[i] = (int)strcspn(part[i], "/?#");
        if (i < 3) part[i + 1] = part[i] + len[i] + (part[i][len[i]] == '/');
        if (part[i][len[i]] == '?' || part[i][len[i]] == '#') break;
    }
    bool has_revision =
        len[3] && (strncmp(part[2], "tree/", 5) == 0 || strncmp(part[2], "blob/", 5) == 0 ||
                   strncmp(part[2], "resolve/", 8) == 0);
    snprintf(ret, size, "%.*s%s%.*s%s%.*s", len[0], part[0], len[1] ? "/" : "", len[1], part[1],
             has_revision ? "@" : "", has_revision ? len[3] : 0, part[3]);
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

static int join(const char *dir, const char *below, const char *leaf, char *buf, size_t size)
{
    int len = snprintf(buf, size, "%s%s%s", dir, below, leaf);
    return len >= 0 && (size_t)len < size ? 0 : -1;
}

int hub_home_path(const char *(*env)(const char *name), const char *const *variables,
                  const char *leaf, char *buf, size_t size)
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
        if ((value = env(*variables)) && *value) return join(value, "", "", buf, size);
    for (size_t i = 0; i < sizeof(homes) / sizeof(homes[0]); i++)
        if ((value = env(homes[i].variable)) && *value)
            return join(value, homes[i].below, leaf, buf, size);
    return -1;
}

int hub_cache_root(const char *(*env)(const char *name), char *buf, size_t size)
{
    static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", NULL};
    return hub_home_path(env, variables, "hub", buf, size);
}
