/* SPDX-License-Identifier: MIT */
/* The table of steps; see call_steps.h. */
#include "tokenizer/tools/call_steps.h"

#include "tokenizer/tools/tools.h"

/* clang-format off */
#define TEXT(literal, next) {literal, NO_MARKER, next, ALWAYS, 0}
#define WHEN(when, literal, next) {literal, NO_MARKER, next, when, 0}
#define MARK(marker, next) {NULL, marker, next, ALWAYS, 0}
#define MEMBER(name, next, member) {"\"" name "\"", NO_MARKER, next, ALWAYS, member}
#define SPACES true, false
#define TIGHT false, false

const struct step_row call_steps[N_STEPS] = {
    [STEP_BLOCK] = {SPACES, 2, {TEXT("[", STEP_LIST), TEXT("{", STEP_KEY)}},
    [STEP_BARE] = {SPACES, 2, {WHEN(IF_MORE, "{", STEP_KEY), MARK(TOOLS_MARK_CLOSE, BLOCK_DONE)}},

    [STEP_LIST] = {SPACES, 2, {TEXT("{", STEP_KEY), WHEN(IF_TEXT, "]", STEP_LIST_END)}},
    [STEP_NEXT] = {SPACES, 2, {WHEN(IF_MORE, ",", STEP_ITEM), TEXT("]", STEP_LIST_END)}},
    [STEP_ITEM] = {SPACES, 1, {TEXT("{", STEP_KEY)}},
    [STEP_LIST_END] = {SPACES, 1, {MARK(TOOLS_MARK_CLOSE, BLOCK_DONE)}},

    [STEP_MISTRAL] = {true, true, 1, {TEXT("[", STEP_LIST)}},
    [STEP_NAMED] = {TIGHT, 3, {MARK(TOOLS_MARK_ARGS, STEP_BARE_ARGS),
                               MARK(TOOLS_MARK_CALL_ID, READ_PLAIN_ID), TEXT("{", READ_ARGS)}},
    [STEP_WITH_ID] = {TIGHT, 2, {MARK(TOOLS_MARK_ARGS, STEP_BARE_ARGS), TEXT("{", READ_ARGS)}},
    [STEP_BARE_ARGS] = {SPACES, 1, {TEXT("{", READ_ARGS)}},

    [STEP_TAG] = {SPACES, 1, {TEXT("{", STEP_KEY)}},
    [STEP_CALL] = {SPACES, 1, {WHEN(IF_MORE, ";", STEP_SEP)}},
    [STEP_SEP] = {SPACES, 2, {TEXT("{", STEP_KEY), MARK(TOOLS_MARK_PYTHON_TAG, STEP_TAG)}},

    [STEP_XML] = {SPACES, 1, {TEXT("<function=", READ_XML_NAME)}},
    [STEP_XML_BODY] = {SPACES, 2, {TEXT("<parameter=", READ_XML_KEY),
                                   TEXT("</function>", CALL_COMPLETE)}},
    [STEP_CLOSE] = {SPACES, 1, {MARK(TOOLS_MARK_CLOSE, BLOCK_DONE)}},

    [STEP_PYTHON] = {SPACES, 1, {TEXT("[", STEP_PYTHON_LIST)}},
    [STEP_PYTHON_LIST] = {true, true, 2, {TEXT("{", STEP_KEY),
                                          WHEN(IF_TEXT, "]", STEP_LIST_END)}},
    [STEP_PYTHON_NEXT] = {SPACES, 3, {WHEN(IF_MORE, ",", STEP_PYTHON_ITEM),
                                      TEXT("]", STEP_LIST_END),
                                      MARK(TOOLS_MARK_CLOSE, BLOCK_DONE)}},
    [STEP_PYTHON_ITEM] = {true, true, 1, {TEXT("{", STEP_KEY)}},

    [STEP_GEMMA] = {SPACES, 1, {TEXT("call:", READ_PLAIN_NAME)}},

    [STEP_KEY] = {SPACES, 5, {MEMBER("name", STEP_NAME_COLON, MEMBER_NAME),
                              MEMBER("arguments", STEP_ARGS_COLON, MEMBER_ARGS),
                              MEMBER("parameters", STEP_ARGS_COLON, MEMBER_ARGS),
                              MEMBER("type", STEP_TYPE_COLON, MEMBER_TYPE),
                              MEMBER("id", STEP_ID_COLON, MEMBER_ID)}},
    [STEP_MEMBER] = {SPACES, 2, {WHEN(IF_UNSEEN, ",", STEP_KEY),
                                 WHEN(IF_WHOLE, "}", CALL_COMPLETE)}},
    [STEP_NAME_COLON] = {SPACES, 1, {TEXT(":", STEP_NAME)}},
    [STEP_NAME] = {SPACES, 1, {TEXT("\"", READ_NAME)}},
    [STEP_ARGS_COLON] = {SPACES, 1, {TEXT(":", STEP_ARGS)}},
    [STEP_ARGS] = {SPACES, 3, {TEXT("{", READ_ARGS), TEXT("\"", READ_STRING),
                               TEXT("null", READ_NULL)}},
    [STEP_TYPE_COLON] = {SPACES, 1, {TEXT(":", READ_TYPE)}},
    [STEP_ID_COLON] = {SPACES, 1, {TEXT(":", READ_ID)}},
};
/* clang-format on */
