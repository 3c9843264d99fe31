/* SPDX-License-Identifier: MIT */
/* Ids of the calls in an answer; see openai_json.h. */
#include "server/api/write/openai_json.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "server/models/served_model.h"

enum { SHORT_ID_CHARS = 9 };

static bool is_short_id(const char *id)
{
    size_t n = 0;
    while (isalnum((unsigned char)id[n]))
        n++;
    return n == SHORT_ID_CHARS && !id[n];
}

/* Returns true if an earlier call of the choice, or the request, has the id. */
static bool is_used(const struct srv_body *body, const struct gen_choice *c,
                    const struct choice_part *call)
{
    char quoted[SHORT_ID_CHARS + 3];
    snprintf(quoted, sizeof(quoted), "\"%.*s\"", SHORT_ID_CHARS, call->id);
    for (const struct choice_part *p = c->parts; p < call; p++)
        if (p->kind == CHOICE_CALL && !strcmp(p->id, call->id)) return true;
    return body->text && memmem(body->text, body->len, quoted, strlen(quoted)) != NULL;
}

static void random_letters(const struct srv_tools *t, int choice, int call, size_t n, char *ret)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const int32_t place[] = {choice, call};
    uint8_t digest[SHA256_BYTES];
    struct sha256 s;
    _Static_assert((int)SRV_CALL_ID_CHARS <= (int)SHA256_BYTES, "a byte for each letter");
    sha256_init(&s);
    sha256_update(&s, t->random, sizeof(t->random));
    sha256_update(&s, place, sizeof(place));
    sha256_final(&s, digest);
    for (size_t i = 0; i < n; i++)
        ret[i] = letters[digest[i] % (sizeof(letters) - 1)];
    ret[n] = '\0';
}

void srv_gen_call_id(const struct srv_gen *g, const struct gen_choice *c,
                     const struct choice_part *call, const char *prefix, char ret[SRV_CALL_ID_MAX])
{
    char letters[SRV_CALL_ID_CHARS + 1];
    bool short_id = g->tools.served->style.short_ids;
    if (is_short_id(call->id) && !is_used(&g->body, c, call)) {
        snprintf(ret, SRV_CALL_ID_MAX, "%.*s", SHORT_ID_CHARS, call->id);
        return;
    }
    random_letters(&g->tools, c->index, call->call, short_id ? SHORT_ID_CHARS : SRV_CALL_ID_CHARS,
                   letters);
    snprintf(ret, SRV_CALL_ID_MAX, "%s%s", short_id ? "" : prefix, letters);
}
