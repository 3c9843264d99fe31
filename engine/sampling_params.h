/* SPDX-License-Identifier: MIT */
/*
 * The sampling parameters that are one number each. All that names them, bounds them or lists them
 * is made from these rows: the members of struct eng_sampling and their check, the defaults of
 * servers and models, options, fields of requests, /props, openapi.json and docs/api.md.
 *
 * The chain (sample.c), in this order: the guide's mask, allowed ids, logit bias, banned ids,
 * penalties, temperature, top-k, typical-p, top-p, min-p, draw.
 *
 *   ROW(name, type of the member, least, most, neutral value, other spelling in requests, meaning)
 *
 * Lists for macros and no code, so that server/config may include it.
 */
#pragma once

/* clang-format off */

/* With an option of the same name each; its row is in server/config/options.c. */
#define ENG_SAMPLING_OPTIONS(ROW) \
    ROW(temperature, float, 0, 100, 1, NULL, "0: always the likeliest token, exactly") \
    ROW(top_p, float, 0, 1, 1, NULL, "sample from this probability mass") \
    ROW(top_k, int, -1, 2147483647, 0, NULL, "sample from so many tokens; 0 and -1: all") \
    ROW(min_p, float, 0, 1, 0, NULL, \
        "drop tokens below this share of the likeliest token's probability")

/* A model's generation_config.json sets these and those above; /props shows them. */
#define ENG_SAMPLING_DEFAULTS(ROW) \
    ENG_SAMPLING_OPTIONS(ROW) \
    ROW(typical_p, float, 0, 1, 1, NULL, "locally typical sampling") \
    ROW(repetition_penalty, float, 0.01, 100, 1, "repeat_penalty", \
        "divide positive logits of tokens seen so far, multiply negative ones")

/* Requests set all. */
#define ENG_SAMPLING_PARAMS(ROW) \
    ENG_SAMPLING_DEFAULTS(ROW) \
    ROW(frequency_penalty, float, -2, 2, 0, NULL, \
        "lower the logit of a generated token per occurrence") \
    ROW(presence_penalty, float, -2, 2, 0, NULL, "lower the logit of a generated token once")

/* clang-format on */
