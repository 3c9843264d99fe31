/* SPDX-License-Identifier: MIT */
/* Counting bytes; see progress.h. */
#include "server/hub/progress.h"

#include <string.h>

void hub_counts_init(struct hub_counts *c)
{
    memset(c, 0, sizeof(*c));
    pthread_mutex_init(&c->lock, NULL);
}

void hub_counts_finish(struct hub_counts *c)
{
    pthread_mutex_destroy(&c->lock);
}

void hub_counts_plan(struct hub_counts *c, int64_t n_bytes, int64_t n_total)
{
    pthread_mutex_lock(&c->lock);
    c->p.n_bytes = n_bytes;
    c->p.n_total = n_total;
    pthread_mutex_unlock(&c->lock);
}

/* The place of a file among the active ones, or n_active. */
static int find(const struct hub_progress *p, const struct hub_file *f)
{
    int i = 0;
    while (i < p->n_active && p->active[i].path != f->path)
        i++;
    return i;
}

/* More of a file is there than was counted; less is not a step back. */
static void raise(struct hub_progress *p, int i, int64_t n_there)
{
    int64_t more = n_there - p->active[i].n_bytes;
    if (more <= 0) return;
    p->active[i].n_bytes += more;
    p->n_bytes += more;
    if (p->n_bytes > p->n_total) p->n_bytes = p->n_total;
}

void hub_counts_begin(struct hub_counts *c, const struct hub_file *f, int64_t n_planned)
{
    pthread_mutex_lock(&c->lock);
    int i = c->p.n_active;
    if (i < HUB_ACTIVE_MAX) {
        c->p.n_active++;
        c->p.active[i].path = f->path;
        c->p.active[i].n_bytes = n_planned;
        c->p.active[i].n_total = f->size;
    }
    pthread_mutex_unlock(&c->lock);
}

void hub_counts_add(struct hub_counts *c, const struct hub_file *f, int64_t n_there, int64_t n_new)
{
    pthread_mutex_lock(&c->lock);
    int i = find(&c->p, f);
    c->p.n_fetched += n_new;
    if (i < c->p.n_active) raise(&c->p, i, n_there);
    pthread_mutex_unlock(&c->lock);
}

void hub_counts_end(struct hub_counts *c, const struct hub_file *f, bool complete)
{
    pthread_mutex_lock(&c->lock);
    int i = find(&c->p, f);
    if (i < c->p.n_active) {
        if (complete) raise(&c->p, i, f->size);
        c->p.active[i] = c->p.active[--c->p.n_active];
    }
    pthread_mutex_unlock(&c->lock);
}

void hub_counts_read(struct hub_counts *c, struct hub_progress *ret)
{
    pthread_mutex_lock(&c->lock);
    *ret = c->p;
    pthread_mutex_unlock(&c->lock);
}

int hub_progress_percent(const struct hub_progress *p)
{
    if (p->n_total <= 0) return 0;
    return (int)((double)p->n_bytes * 100 / (double)p->n_total);
}
