/* SPDX-License-Identifier: MIT */
/*
 * The filters of hearth-filter: JSON lines on stdin to JSON lines on stdout, for the tests. Each
 * reads its options from the finished configuration, whose model is a directory, and returns the
 * exit status. Main thread.
 */
#pragma once

struct srv_config;

int filter_accept(const struct srv_config *config);
int filter_parse(const struct srv_config *config); /* model NULL: each line names a format */
int filter_render(const struct srv_config *config);
int filter_score(const struct srv_config *config);
int filter_tokenize(const struct srv_config *config);
