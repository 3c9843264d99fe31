/* SPDX-License-Identifier: MIT */
/* Histories of other providers: the words in place of media, what is named, messages of the chat dialect. */
#include "server/api/read/history.h"

#include "input_case.h"

#define LIST(...) "{\"messages\":[" __VA_ARGS__ "]}"
#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"
#define SAYS(role, content) "{\"role\":\"" role "\",\"content\":" content "}"
#define TOOL(content) "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":" content "}"
#define CALLS(calls) "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" calls "]}"
#define CALL(name, arguments)                                                                      \
    "{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"" name                           \
    "\",\"arguments\":\"" arguments "\"}}"

static const struct input_history histories[] = {
    {"{\"messages\":5}", "5", NULL},
    {LIST("5," SAYS("user", "[{\"type\":\"image_url\"}]") "," SAYS("tool", "[5,{\"type\":5}]")),
     "[5," SAYS("user", "[{\"type\":\"image_url\"}]") "," SAYS("tool", "[5,{\"type\":5}]") "]",
     NULL},
    /* refusals: a part, or a member where there is no content */
    {LIST(SAYS("assistant", "[" TEXT("a") ",{\"type\":\"refusal\",\"refusal\":\"No.\"}]")),
     "[" SAYS("assistant", "[" TEXT("a") "," TEXT("No.") "]") "]", NULL},
    {LIST("{\"role\":\"assistant\",\"content\":null,\"refusal\":\"No.\"}"),
     "[{\"role\":\"assistant\",\"content\":\"No.\",\"refusal\":\"No.\"}]", NULL},
    {LIST("{\"role\":\"assistant\",\"content\":\"a\",\"refusal\":\"No.\"}"),
     "[{\"role\":\"assistant\",\"content\":\"a\",\"refusal\":\"No.\"}]", NULL},
    /* parts of the assistant and of results */
    {LIST(SAYS("assistant", "[{\"type\":\"output_audio\"}," TEXT("a") "]")),
     "[" SAYS("assistant", "[" TEXT("a") "]") "]", "messages[0].content[0]=output_audio"},
    {LIST(SAYS("user", "\"q\"") "," TOOL("[" TEXT(
         "a") ",{\"type\":\"image_url\"},{\"type\":\"file\",\"file\":{"
              "\"filename\":\"f.pdf\"}},{\"type\":\"input_audio\"},{\"type\":\"wizard\"}]")),
     "[" SAYS("user", "\"q\"") "," TOOL("[" TEXT("a") "," TEXT("[image left out]") "," TEXT(
         "[file left out: f.pdf]") "," TEXT("[audio left out]") "]") "]",
     "messages[1].content[1]=image_url,messages[1].content[2]=file,messages[1].content[3]=input_"
     "audio,"
     "messages[1].content[4]=wizard"},
    /* custom tools */
    {LIST(CALLS(
         "{\"id\":\"a\",\"type\":\"custom\",\"custom\":{\"name\":\"edit\",\"input\":\"x\"}}," CALL(
             "add", "{}"))),
     "[" CALLS(CALL("edit", "{\\\"input\\\": \\\"x\\\"}") "," CALL("add", "{}")) "]", NULL},
};

static json_t *convert(const struct srv_body *body, struct param_unknown *ignored)
{
    json_t *list = NULL;
    int rc = history_of_chat(json_object_get(body->root, "messages"), "messages", ignored, &list);
    REQUIRE_EQ_INT(rc, 0);
    return list;
}

static void test_messages(void **state)
{
    struct param_unknown ignored = {0};
    (void)state;
    REQUIRE(!convert_text("{}", convert, &ignored));
    check_histories(histories, N_OF(histories), convert);
}

/* A list without them is the body's own: a template gets it as it was written. */
static void test_same(void **state)
{
    static const char text[] =
        LIST(SAYS("user", "\"a\"") "," CALLS(CALL("f", "{}")) "," TOOL("\"x\""));
    struct srv_body body;
    struct param_unknown ignored = {0};
    (void)state;
    REQUIRE_EQ_INT(srv_body_read(&body, text, strlen(text), PARAM_MAX_VALUES), 0);
    json_t *list = convert(&body, &ignored);
    REQUIRE(list == json_object_get(body.root, "messages"));
    json_decref(list);
    srv_body_finish(&body);
}

static const struct {
    const char *part, *text; /* NULL: nothing is said in its place */
} results[] = {
    {"{\"type\":\"input_image\"}", "[image left out]"},
    {"{\"type\":\"image_url\",\"image_url\":{}}", "[image left out]"},
    {"{\"type\":\"input_audio\"}", "[audio left out]"},
    {"{\"type\":\"video_url\"}", "[video left out]"},
    {"{\"type\":\"input_file\",\"filename\":\"a\\nb\"}", "[file left out: a\nb]"},
    {"{\"type\":\"file\",\"file\":{\"filename\":\"c\"}}", "[file left out: c]"},
    {"{\"type\":\"file\",\"file\":5}", "[file left out]"},
    {"{\"type\":\"document\",\"title\":\"d\"}", "[file left out: d]"},
    {"{\"type\":\"tool_reference\"}", NULL},
    {"{\"type\":\"\"}", NULL},
};

static void test_media(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(results); i++) {
        json_t *part = json_loads(results[i].part, 0, NULL), *parts = json_array();
        struct param_unknown ignored = {0};
        REQUIRE(part);
        history_leave_out_of_result(&ignored, "messages[1].content[0]", part, parts);
        const json_t *said = json_object_get(json_array_get(parts, 0), "text");
        REQUIRE_EQ_INT(ignored.n, 1);
        REQUIRE_EQ_INT(json_array_size(parts), results[i].text != NULL);
        if (results[i].text) REQUIRE_EQ_STR(json_string_value(said), results[i].text);
        json_decref(parts);
        json_decref(part);
    }
}

/* A type that cannot stand in a header is counted. */
static void test_names(void **state)
{
    struct param_unknown ignored = {0};
    (void)state;
    history_leave_out(&ignored, "input[3]", "compaction");
    history_leave_out(&ignored, "input[4]", "a,b\r\nc");
    REQUIRE_EQ_STR(ignored.list, "input[3]=compaction");
    REQUIRE_EQ_INT(ignored.n, 2);
    REQUIRE_EQ_INT(ignored.n_left, 1);
}

static void test_arguments(void **state)
{
    json_t *input = json_string("a\"\n"), *arguments = history_arguments("input", input);
    (void)state;
    REQUIRE_EQ_STR(json_string_value(arguments), "{\"input\": \"a\\\"\\n\"}");
    json_decref(arguments);
    json_decref(input);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),  cmocka_unit_test(test_same),
        cmocka_unit_test(test_media),     cmocka_unit_test(test_names),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
