/* SPDX-License-Identifier: MIT */
/*
 * Building the syntax tree; see ast.h.
 */
#include "tokenizer/template/ast.h"

#include <assert.h>

#include "tokenizer/template/lexer.h"

struct jinja_node *jinja_node_new(struct jinja_cursor *c, enum jinja_kind kind, int line)
{
    struct jinja_node *node = JINJA_NEW(c->r, struct jinja_node);
    jinja_spend(c->r, 1);
    node->kind = kind;
    node->line = line;
    node->height = 1;
    return node;
}

void jinja_node_adopt(struct jinja_cursor *c, struct jinja_node *node,
                      const struct jinja_node *child)
{
    assert(child != node && child->height > 0);
    if (child->height >= node->height) node->height = child->height + 1;
    if (node->height > JINJA_MAX_NESTING)
        jinja_parse_fail(c, node->line, "nested deeper than %d", JINJA_MAX_NESTING);
}

void jinja_nodes_add(struct jinja_run *r, struct jinja_nodes *list, struct jinja_node *node)
{
    list->all = jinja_room(r, list->all, list->n, &list->cap, sizeof(*list->all));
    list->all[list->n++] = node;
}
