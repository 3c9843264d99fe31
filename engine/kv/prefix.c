/* SPDX-License-Identifier: MIT */
/* Prefix cache; see prefix.h for the invariants. At most one node per page: nodes never run out. */
#include "engine/kv/prefix.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_EVICTED = 8, /* evicted pages that are remembered, by pages that are held */
    N_KEEPERS = 256,
    KEEP_STEP_SECONDS = 10,
    MOST_EQUALS = 16, /* idle nodes of one second that are looked at */
};
static const uint64_t second_us = 1000000;

struct node {
    int32_t parent;
    int32_t child;        /* the newest one, or PREFIX_NONE */
    int32_t older, newer; /* children of the same parent; PREFIX_NONE at the ends */
    int32_t page;
    int32_t hash_next;            /* next node of the bucket, or of the free list */
    int32_t idle_prev, idle_next; /* in the idle list; PREFIX_NONE at its ends */
    int32_t snapshot;             /* its slot, or PREFIX_NONE */
    uint32_t idle_s;              /* when it became idle */
    bool on_disk;
    uint8_t keeper;
    uint64_t kept_until_us; /* 0: it is not kept */
    uint64_t hash;
    struct prefix_scope scope;
    int32_t tokens[KV_PAGE_TOKENS];
};

/* Idle nodes, least recently used first. */
struct idle {
    int32_t head, tail;
};

/* A slot for a snapshot. */
struct snapshot {
    int32_t node; /* PREFIX_NONE: free */
    double h;     /* see prefix.h */
};

struct prefix {
    struct kv_pages *pages;
    struct eng_stats *stats;
    uint64_t seed;
    struct node *nodes; /* [n_pages] */
    int32_t *buckets;   /* [bucket_mask + 1], first node or PREFIX_NONE */
    uint32_t bucket_mask;
    uint32_t (*evicted)[N_EVICTED]; /* [bucket_mask + 1], upper halves of hashes, newest first */
    int32_t first;                  /* the newest child of no node, or PREFIX_NONE */
    int32_t free_node;
    struct idle plain, kept;
    uint64_t now_us, next_end_us;   /* next_end_us: no keeping of an idle node ends before */
    int n_nodes_kept_of[N_KEEPERS]; /* keys by a byte: two with the same one share */
    struct snapshot *snapshots;     /* [n_snapshots] */
    int n_snapshots;
    size_t n_floats; /* of one */
    float *floats;   /* [n_snapshots][n_floats] */
    double given_up; /* h of the last snapshot that gave way */
};

static uint32_t bucket_count(int64_t n_pages)
{
    uint32_t n = 16;
    while ((int64_t)n < n_pages && n < 1u << 30)
        n *= 2;
    return n;
}

int64_t prefix_bytes(int64_t n_pages)
{
    return (int64_t)n_pages * (int64_t)sizeof(struct node) +
           (int64_t)bucket_count(n_pages) *
               (int64_t)(sizeof(int32_t) + N_EVICTED * sizeof(uint32_t));
}

int64_t prefix_snapshot_bytes(size_t n_floats)
{
    return (int64_t)(n_floats * sizeof(float) + sizeof(struct snapshot));
}

static bool make_snapshots(struct prefix *p, int n_snapshots, size_t n_floats)
{
    if (n_snapshots == 0) return true;
    p->n_snapshots = n_snapshots;
    p->n_floats = n_floats;
    p->snapshots = calloc((size_t)n_snapshots, sizeof(*p->snapshots));
    p->floats = calloc((size_t)n_snapshots, n_floats * sizeof(*p->floats));
    for (int i = 0; p->snapshots && i < n_snapshots; i++)
        p->snapshots[i].node = PREFIX_NONE;
    return p->snapshots && p->floats;
}

struct prefix *prefix_create(struct kv_pages *pages, uint64_t seed, int n_snapshots,
                             size_t n_floats, struct eng_stats *stats)
{
    struct prefix *p = calloc(1, sizeof(*p));
    if (!p) return NULL;
    int n_pages = kv_pages_total(pages);
    uint32_t n_buckets = bucket_count(n_pages);
    p->pages = pages;
    p->stats = stats;
    stats->n_snapshots_total = n_snapshots;
    p->seed = seed;
    p->bucket_mask = n_buckets - 1;
    p->plain = p->kept = (struct idle){PREFIX_NONE, PREFIX_NONE};
    p->first = PREFIX_NONE;
    p->next_end_us = UINT64_MAX;
    p->nodes = calloc((size_t)n_pages, sizeof(*p->nodes));
    p->buckets = malloc(n_buckets * sizeof(*p->buckets));
    p->evicted = calloc(n_buckets, sizeof(*p->evicted));
    if (!make_snapshots(p, n_snapshots, n_floats) || !p->nodes || !p->buckets || !p->evicted) {
        prefix_destroy(p);
        return NULL;
    }
    memset(p->buckets, 0xff, n_buckets * sizeof(*p->buckets)); /* PREFIX_NONE */
    p->free_node = PREFIX_NONE;
    for (int32_t i = n_pages - 1; i >= 0; i--) {
        p->nodes[i].hash_next = p->free_node;
        p->free_node = i;
    }
    return p;
}

void prefix_destroy(struct prefix *p)
{
    if (!p) return;
    free(p->nodes);
    free(p->buckets);
    free(p->evicted);
    free(p->snapshots);
    free(p->floats);
    free(p);
}

bool prefix_scope_equal(const struct prefix_scope *a, const struct prefix_scope *b)
{
    return a->private_id == b->private_id && memcmp(a->tenant, b->tenant, sizeof(a->tenant)) == 0;
}

/* ---- looking up ---------------------------------------------------------------------------- */

_Static_assert(KV_PAGE_TOKENS % 2 == 0, "tokens are hashed in pairs");
_Static_assert(sizeof(((struct prefix_scope *)0)->tenant) % 8 == 0, "tenants are hashed in words");

/* Multiply and fold, starting from the seed: spreads well and cannot be predicted from outside. */
static uint64_t mix(uint64_t h, uint64_t w)
{
    unsigned __int128 product =
        (unsigned __int128)(h ^ w ^ 0x9E3779B97F4A7C15ull) * 0xD6E8FEB86659FD93ull;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Of all tokens from the first on, so that it stays the same when nodes come and go. */
static uint64_t hash_key(const struct prefix *p, int32_t parent, const struct prefix_scope *scope,
                         const int32_t *tokens)
{
    uint64_t h = mix(p->seed, parent == PREFIX_NONE ? 0 : p->nodes[parent].hash), w;
    h = mix(h, scope->private_id);
    for (size_t i = 0; i < sizeof(scope->tenant); i += sizeof(w)) {
        memcpy(&w, scope->tenant + i, sizeof(w));
        h = mix(h, w);
    }
    for (int i = 0; i < KV_PAGE_TOKENS; i += 2)
        h = mix(h, (uint64_t)(uint32_t)tokens[i] << 32 | (uint32_t)tokens[i + 1]);
    return h;
}

static int32_t find_hashed(const struct prefix *p, uint64_t hash, int32_t parent,
                           const struct prefix_scope *scope, const int32_t *tokens)
{
    for (int32_t i = p->buckets[hash & p->bucket_mask]; i != PREFIX_NONE;
         i = p->nodes[i].hash_next) {
        const struct node *n = &p->nodes[i];
        if (n->hash == hash && n->parent == parent && prefix_scope_equal(&n->scope, scope) &&
            memcmp(n->tokens, tokens, sizeof(n->tokens)) == 0)
            return i;
    }
    return PREFIX_NONE;
}

int32_t prefix_find(const struct prefix *p, int32_t parent, const struct prefix_scope *scope,
                    const int32_t *tokens)
{
    return find_hashed(p, hash_key(p, parent, scope, tokens), parent, scope, tokens);
}

static int32_t *newest_child(struct prefix *p, int32_t parent)
{
    return parent == PREFIX_NONE ? &p->first : &p->nodes[parent].child;
}

static bool was_evicted(const struct prefix *p, uint64_t hash)
{
    const uint32_t *known = p->evicted[hash & p->bucket_mask];
    for (int i = 0; i < N_EVICTED; i++)
        if (known[i] == (uint32_t)(hash >> 32)) return true;
    return false;
}

static void note_evicted(struct prefix *p, uint64_t hash)
{
    if (was_evicted(p, hash)) return;
    uint32_t *known = p->evicted[hash & p->bucket_mask];
    memmove(known + 1, known, (N_EVICTED - 1) * sizeof(*known));
    known[0] = (uint32_t)(hash >> 32);
}

enum eng_miss prefix_why(struct prefix *p, int32_t parent, const struct prefix_scope *scope,
                         const int32_t *tokens, int *ret_n_equal)
{
    enum { MOST_CHILDREN = 64 };
    uint64_t hash = hash_key(p, parent, scope, tokens);
    int32_t i = *newest_child(p, parent);
    bool any = false;
    *ret_n_equal = 0;
    if (was_evicted(p, hash)) return ENG_MISS_EVICTED;
    for (int k = 0; k < MOST_CHILDREN && i != PREFIX_NONE; k++, i = p->nodes[i].older) {
        int n = 0;
        if (!prefix_scope_equal(&p->nodes[i].scope, scope)) continue;
        while (n < KV_PAGE_TOKENS && p->nodes[i].tokens[n] == tokens[n])
            n++;
        if (n > *ret_n_equal) *ret_n_equal = n;
        any = true;
    }
    return any ? ENG_MISS_CONTENT : ENG_MISS_NONE;
}

/* ---- the idle list ------------------------------------------------------------------------- */

static struct idle *list_of(struct prefix *p, int32_t i)
{
    return p->nodes[i].kept_until_us ? &p->kept : &p->plain;
}

static void idle_append(struct prefix *p, int32_t i)
{
    struct idle *list = list_of(p, i);
    p->nodes[i].idle_prev = list->tail;
    p->nodes[i].idle_next = PREFIX_NONE;
    p->nodes[i].idle_s = (uint32_t)(p->now_us / second_us);
    if (list->tail != PREFIX_NONE)
        p->nodes[list->tail].idle_next = i;
    else
        list->head = i;
    list->tail = i;
    p->stats->n_pages_cached++;
}

static void idle_remove(struct prefix *p, int32_t i)
{
    struct node *n = &p->nodes[i];
    struct idle *list = list_of(p, i);
    assert(p->stats->n_pages_cached > 0);
    if (n->idle_prev != PREFIX_NONE)
        p->nodes[n->idle_prev].idle_next = n->idle_next;
    else
        list->head = n->idle_next;
    if (n->idle_next != PREFIX_NONE)
        p->nodes[n->idle_next].idle_prev = n->idle_prev;
    else
        list->tail = n->idle_prev;
    p->stats->n_pages_cached--;
}

/* ---- keeping ------------------------------------------------------------------------------- */

/* Of a node that is in no idle list. */
static void end_keeping(struct prefix *p, struct node *n)
{
    if (!n->kept_until_us) return;
    n->kept_until_us = 0;
    p->stats->n_pages_kept--;
    p->n_nodes_kept_of[n->keeper]--;
}

bool prefix_keep(struct prefix *p, int32_t node, uint64_t key, int64_t seconds)
{
    struct node *n = &p->nodes[node];
    const uint64_t step = KEEP_STEP_SECONDS * second_us;
    const uint64_t until = (p->now_us + (uint64_t)seconds * second_us + step - 1) / step * step;
    const int left = 3 * (kv_pages_total(p->pages) / 4) - p->stats->n_pages_kept;
    assert(kv_page_refs(p->pages, n->page) > 1);
    if (!n->kept_until_us) {
        uint8_t keeper = (uint8_t)key;
        if (p->n_nodes_kept_of[keeper] >= 2 * left) return false;
        n->keeper = keeper;
        p->stats->n_pages_kept++;
        p->n_nodes_kept_of[keeper]++;
    }
    if (until > n->kept_until_us) n->kept_until_us = until;
    if (until < p->next_end_us) p->next_end_us = until;
    return true;
}

/* Nodes that are kept as long or longer come later in the list: the order of ancestors stays. */
void prefix_tick(struct prefix *p, uint64_t now_us)
{
    int32_t next;
    p->now_us = now_us;
    if (now_us < p->next_end_us) return;
    p->next_end_us = UINT64_MAX;
    for (int32_t i = p->kept.head; i != PREFIX_NONE; i = next) {
        uint64_t until = p->nodes[i].kept_until_us;
        next = p->nodes[i].idle_next;
        if (until > now_us) {
            if (until < p->next_end_us) p->next_end_us = until;
            continue;
        }
        idle_remove(p, i);
        end_keeping(p, &p->nodes[i]);
        idle_append(p, i);
    }
}

void prefix_note_disk(struct prefix *p, int32_t node)
{
    p->nodes[node].on_disk = true;
}

/* ---- the tree ------------------------------------------------------------------------------ */

static void add_child(struct prefix *p, int32_t i)
{
    struct node *n = &p->nodes[i];
    int32_t *newest = newest_child(p, n->parent);
    n->older = *newest;
    n->newer = PREFIX_NONE;
    if (n->older != PREFIX_NONE) p->nodes[n->older].newer = i;
    *newest = i;
}

static void remove_child(struct prefix *p, int32_t i)
{
    const struct node *n = &p->nodes[i];
    if (n->older != PREFIX_NONE) p->nodes[n->older].newer = n->newer;
    if (n->newer != PREFIX_NONE)
        p->nodes[n->newer].older = n->older;
    else
        *newest_child(p, n->parent) = n->older;
}

/* ---- snapshots ----------------------------------------------------------------------------- */

/* Tokens between a node's end and the nearest snapshot before it, or the start. */
static double tokens_saved(const struct prefix *p, int32_t node)
{
    int n_pages = 0;
    do {
        node = p->nodes[node].parent;
        n_pages++;
    } while (node != PREFIX_NONE && p->nodes[node].snapshot == PREFIX_NONE);
    return (double)n_pages * KV_PAGE_TOKENS;
}

bool prefix_has_snapshot(const struct prefix *p, int32_t node)
{
    return p->nodes[node].snapshot != PREFIX_NONE;
}

const float *prefix_see_snapshot(const struct prefix *p, int32_t node)
{
    int32_t i = p->nodes[node].snapshot;
    return i == PREFIX_NONE ? NULL : p->floats + (size_t)i * p->n_floats;
}

const float *prefix_use_snapshot(struct prefix *p, int32_t node)
{
    int32_t i = p->nodes[node].snapshot;
    assert(i != PREFIX_NONE);
    p->stats->n_snapshot_hits++;
    p->snapshots[i].h = p->given_up + tokens_saved(p, node);
    return p->floats + (size_t)i * p->n_floats;
}

void prefix_drop_snapshot(struct prefix *p, int32_t node)
{
    int32_t i = p->nodes[node].snapshot;
    if (i == PREFIX_NONE) return;
    p->snapshots[i].node = p->nodes[node].snapshot = PREFIX_NONE;
    p->stats->n_snapshots--;
}

static void evict_snapshot(struct prefix *p, int32_t node)
{
    p->stats->n_snapshots_evicted += prefix_has_snapshot(p, node);
    prefix_drop_snapshot(p, node);
}

float *prefix_keep_snapshot(struct prefix *p, int32_t node)
{
    int32_t least = 0;
    if (p->n_snapshots == 0 || prefix_has_snapshot(p, node)) return NULL;
    for (int32_t i = 0; i < p->n_snapshots && p->snapshots[least].node != PREFIX_NONE; i++)
        if (p->snapshots[i].node == PREFIX_NONE || p->snapshots[i].h < p->snapshots[least].h)
            least = i;
    struct snapshot *s = &p->snapshots[least];
    if (s->node != PREFIX_NONE) {
        p->given_up = s->h;
        evict_snapshot(p, s->node);
    }
    p->stats->n_snapshots++;
    *s = (struct snapshot){node, p->given_up + tokens_saved(p, node)};
    p->nodes[node].snapshot = least;
    return p->floats + (size_t)least * p->n_floats;
}

/* Takes an idle node out of the tree; its page becomes free. */
static void evict(struct prefix *p, int32_t i)
{
    struct node *n = &p->nodes[i];
    assert(n->child == PREFIX_NONE && kv_page_refs(p->pages, n->page) == 1);
    remove_child(p, i);
    idle_remove(p, i);
    end_keeping(p, n);
    evict_snapshot(p, i);
    note_evicted(p, n->hash);
    int32_t *link = &p->buckets[n->hash & p->bucket_mask];
    while (*link != i) {
        assert(*link != PREFIX_NONE);
        link = &p->nodes[*link].hash_next;
    }
    *link = n->hash_next;
    n->hash_next = p->free_node;
    p->free_node = i;
    kv_page_unref(p->pages, n->page);
}

/* ---- sharing ------------------------------------------------------------------------------- */

int32_t prefix_page(const struct prefix *p, int32_t node)
{
    return p->nodes[node].page;
}

int32_t prefix_acquire(struct prefix *p, int32_t node)
{
    assert(node >= 0 && node < kv_pages_total(p->pages));
    int32_t page = p->nodes[node].page;
    if (kv_page_refs(p->pages, page) == 1) idle_remove(p, node);
    kv_page_ref(p->pages, page);
    return page;
}

int32_t prefix_publish(struct prefix *p, int32_t parent, const struct prefix_scope *scope,
                       const int32_t *tokens, int32_t *page)
{
    assert(*page >= 0 && kv_page_refs(p->pages, *page) > 0);
    uint64_t hash = hash_key(p, parent, scope, tokens);
    int32_t i = find_hashed(p, hash, parent, scope, tokens);
    if (i != PREFIX_NONE) {
        kv_page_unref(p->pages, *page);
        *page = prefix_acquire(p, i);
        return i;
    }
    i = p->free_node; /* exists: every node in use has a page of its own */
    assert(i != PREFIX_NONE);
    struct node *n = &p->nodes[i];
    p->free_node = n->hash_next;
    n->parent = parent;
    n->child = n->snapshot = PREFIX_NONE;
    n->on_disk = false;
    add_child(p, i);
    n->page = *page;
    n->hash = hash;
    n->scope = *scope;
    memcpy(n->tokens, tokens, sizeof(n->tokens));
    n->hash_next = p->buckets[hash & p->bucket_mask];
    p->buckets[hash & p->bucket_mask] = i;
    kv_page_ref(p->pages, *page);
    return i;
}

void prefix_release(struct prefix *p, int32_t node, int32_t page)
{
    kv_page_unref(p->pages, page);
    if (node == PREFIX_NONE || kv_page_refs(p->pages, page) != 1) return;
    uint64_t until = p->nodes[node].kept_until_us;
    if (until <= p->now_us) end_keeping(p, &p->nodes[node]);
    if (until > p->now_us && until < p->next_end_us) p->next_end_us = until;
    idle_append(p, node);
}

/* The idle leaf to evict, or PREFIX_NONE. */
static int32_t choose_victim(const struct prefix *p)
{
    int32_t head = p->plain.head != PREFIX_NONE ? p->plain.head : p->kept.head, i = head;
    for (int k = 0; k < MOST_EQUALS && i != PREFIX_NONE; k++, i = p->nodes[i].idle_next) {
        if (p->nodes[i].idle_s != p->nodes[head].idle_s) break;
        if (p->nodes[i].on_disk && p->nodes[i].child == PREFIX_NONE) return i;
    }
    return head;
}

int32_t prefix_page_get(struct prefix *p)
{
    int32_t page = kv_page_get(p->pages);
    if (page >= 0) return page;
    int32_t victim = choose_victim(p);
    if (victim != PREFIX_NONE) evict(p, victim);
    return kv_page_get(p->pages);
}

void prefix_forget(struct prefix *p, uint64_t private_id)
{
    int32_t next;
    for (int32_t i = p->plain.head; i != PREFIX_NONE; i = next) {
        next = p->nodes[i].idle_next;
        if (p->nodes[i].scope.private_id == private_id) evict(p, i);
    }
}
