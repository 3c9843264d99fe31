/* SPDX-License-Identifier: MIT */
/*
 * Objects under construction: their keys, and the goals of keys' values. names.c, members.c, keys.c
 * and objects.c, each resting on those before it.
 */
#pragma once

#include "tokenizer/grammar/schema/goals.h"

/* A schema that some `properties` gives to a key. */
struct gram_key_schema {
    struct gram_key_schema *next;
    const struct gram_item *item;
    struct gram_js *schema;
};

/* A key that is named somewhere. */
struct gram_named_key {
    const char *name;
    uint32_t len;
    bool declared; /* has a place in the order; else it may come among the free keys */
    bool required, forbidden, watched;
    bool wanted;    /* another key demands it */
    uint32_t value; /* GRAM_NONE: impossible */
    struct gram_key_schema *schemas, *last_schema;
};

struct gram_key_list {
    struct gram_named_key *keys;
    uint32_t n, cap;
    struct gram_table names;
};

/* An object while its alternative is read. */
struct gram_object_facts {
    struct gram_build *b;
    const struct gram_alt *alt;
    const struct gram_item **items; /* [alt->n], in text order */
    struct gram_key_list list;
    struct gram_count count;
    /* patterns of patternProperties, each once, as parts of the automaton of free keys */
    struct gram_js *patterns[GRAM_MAX_PARTS];
    uint32_t n_patterns;
    bool has_unknown;              /* a pattern was left out */
    bool has_names;                /* propertyNames restricts keys */
    bool closed;                   /* no keys but those that it names, and of patterns */
    struct gram_dfa *name_checker; /* NULL: not needed yet */
};

/* Expressions that run side by side over a key; from some of them follows whether it may be. */
struct gram_name_parts {
    struct gram_build *b;
    struct gram_name_rule *rules;
    struct gram_ex_part parts[GRAM_MAX_PARTS];
    uint32_t n_parts;
};

/* Adds a part; returns its number. */
uint32_t gram_name_part(struct gram_name_parts *p, struct gram_js *at, const struct gram_ex *x,
                        bool search);

/* Adds all of propertyNames. */
void gram_name_rules(struct gram_name_parts *p, const struct gram_object_facts *f);

/* propertyNames allows a key that matches these parts. */
bool gram_names_hold(const struct gram_name_parts *p, uint64_t matched);

/* The key of a name, made if need be. The pointer is good until the next one is made. */
struct gram_named_key *gram_named_key(struct gram_build *b, struct gram_key_list *list,
                                      const char *name, uint32_t len);

/* The value rule of a key by its name, all keywords looked at; GRAM_NONE if it is false. */
uint32_t gram_value_of_key(struct gram_object_facts *f, const struct gram_named_key *key);

/* The value rule of keys that match the patterns of a set and are not declared. */
uint32_t gram_value_of_class(const struct gram_object_facts *f, uint64_t patterns);

/* Finds the patterns of the object, and whether its names are restricted. */
void gram_collect_patterns(struct gram_object_facts *f);

/* The first propertyNames of an object that has one. */
struct gram_js *gram_names_of(const struct gram_object_facts *f);

/* propertyNames allows the name. */
bool gram_name_fits(struct gram_object_facts *f, const char *name, uint32_t len);

/*
 * Sets what free keys the object has. Keys of a small finite language are added to the list as
 * words instead.
 */
void gram_find_free_keys(struct gram_object_facts *f, struct gram_object *o);
