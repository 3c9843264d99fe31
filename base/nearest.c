/* SPDX-License-Identifier: MIT */
/* Edit distance over three rows of its table; see nearest.h. */
#include "base/nearest.h"

#include <stdlib.h>

enum { MAX_COMPARED = 48, MAX_EDITS = 3 };

static int min(size_t a, size_t b)
{
    return (int)(a < b ? a : b);
}

/*
 * Insertions, deletions, substitutions and exchanges of neighbours between the first MAX_COMPARED
 * characters of two texts. above[k] is the row k + 1 characters of a before this one.
 */
static int distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int rows[3][MAX_COMPARED + 1];
    int n = min(b_len, MAX_COMPARED), m = min(a_len, MAX_COMPARED);
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    for (int i = 1; i <= m; i++) {
        int *row = rows[i % 3];
        const int *above[2] = {rows[(i + 2) % 3], rows[(i + 1) % 3]};
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int best = min(above[0][j], row[j - 1]) + 1;
            best = min(best, above[0][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = min(best, above[1][j - 2] + 1);
            row[j] = best;
        }
    }
    return rows[m % 3][n];
}

void srv_nearest_init(struct srv_nearest *n, const char *typed, size_t typed_len)
{
    int near = typed_len < 3 ? 0 : min(min(typed_len + 1, 100) / 3, MAX_EDITS);
    *n = (struct srv_nearest){.typed = typed, .typed_len = typed_len, .edits = near + 1};
}

void srv_nearest_offer(struct srv_nearest *n, const char *name, size_t name_len)
{
    int longer = min(name_len, MAX_COMPARED) - min(n->typed_len, MAX_COMPARED);
    if (abs(longer) >= n->edits) return; /* as many insertions or deletions, at least */
    int edits = distance(n->typed, n->typed_len, name, name_len);
    if (edits >= n->edits) return;
    n->edits = edits;
    n->name = name;
    n->name_len = name_len;
}
