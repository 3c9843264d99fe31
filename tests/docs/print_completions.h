/* SPDX-License-Identifier: MIT */
/*
 * Completions of the command line for bash, zsh and fish, from the options table. Each function
 * writes one complete file of deploy/completions; ferror(out) tells whether it could.
 */
#pragma once

#include <stdio.h>

void print_bash_completion(FILE *out);
void print_zsh_completion(FILE *out);
void print_fish_completion(FILE *out);
