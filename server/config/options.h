/* SPDX-License-Identifier: MIT */
/*
 * One row per option; private to server/config and to the program that prints docs/. All that data
 * can say about an option is in its row.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum srv_option_type {
    SRV_OPT_STRING, /* const char * */
    SRV_OPT_CHOICE, /* const char *, one of `choices` */
    SRV_OPT_INT,    /* int */
    SRV_OPT_INT64,  /* int64_t */
    SRV_OPT_BYTES,  /* int64_t, may end in K, M, G or T */
    SRV_OPT_NUMBER, /* double */
    SRV_OPT_BOOL,   /* bool: on/off; --no-NAME switches off */
    SRV_OPT_LIST,   /* struct srv_list: repeated, or separated by commas */
};

enum srv_option_flags {
    SRV_OPT_FLAG_ONLY = 1, /* neither in the environment nor in files */
    SRV_OPT_ENV_ONLY = 2,  /* a secret: never on the command line, never printed */
    SRV_OPT_HIDDEN = 4,    /* for tests: accepted everywhere, shown nowhere */
    SRV_OPT_UNSET = 8,     /* a number >= 0; SRV_UNSET if not given or empty */
};

struct srv_option {
    const char *group; /* heading in --help and section in the ini file */
    const char *key;
    const char *aliases; /* further flag names, separated by spaces, or NULL */
    enum srv_option_type type;
    size_t offset;       /* of the field in struct srv_config */
    double min, max;     /* numbers; inclusive */
    const char *preset;  /* the default as text, or NULL: unset */
    const char *choices; /* SRV_OPT_CHOICE: separated by spaces */
    unsigned commands;   /* bit (1 << enum srv_command) for each subcommand that knows it */
    unsigned flags;
    const char *help;
};

/* Returns true if a section [model NAME] may hold the option. */
bool srv_option_is_of_a_model(const struct srv_option *o);

extern const struct srv_option srv_options[];
extern const int srv_n_options;

/* Writes the option's environment variable into buf. */
void srv_option_env_name(const struct srv_option *o, char *buf, size_t size);
