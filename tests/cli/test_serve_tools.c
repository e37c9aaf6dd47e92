/* Tests conversations with tools: the prompt must be what the templates of Qwen3, Llama 3.2 and
 * Mistral Nemo give with npm's @huggingface/jinja, except for what the library leaves out of all
 * conversations: Llama's dates; and Mistral's system message is in the user's first one. Tests that
 * calls are found in replies. */
#include <stdlib.h>
#include <string.h>

#include "cli/serve/serve.h"
#include "support/check_main.h"

static serve_server server = {.name = "m", .context = 100000, .vocabulary = 100000};

static void open_tokenizer(void)
{
    ck_assert_int_eq(
        tsr_tokenizer_open(TEST_DATA "/tokenizer/stories260K-vocab.gguf", &server.tokenizer),
        TSR_OK);
}

static void close_tokenizer(void)
{
    serve_grammars_finish();
    tsr_tokenizer_close(&server.tokenizer);
}

#define TOOL                                                                                       \
    "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": "         \
    "\"Weather of a city\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": "    \
    "{\"type\": \"string\"}}, \"required\": [\"city\"]}}}"

static const char conversation[] =
    "{\"tools\": [" TOOL "], \"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, "
    "{\"role\": \"user\", \"content\": \"Rome?\"}, {\"role\": \"assistant\", \"content\": null, "
    "\"tool_calls\": [{\"id\": \"abcdefghi\", \"type\": \"function\", \"function\": {\"name\": "
    "\"get_weather\", \"arguments\": \"{\\\"city\\\":\\\"Rome\\\"}\"}}]}, {\"role\": \"tool\", "
    "\"tool_call_id\": \"abcdefghi\", \"content\": \"warm\"}, {\"role\": \"assistant\", "
    "\"content\": "
    "\"It is warm.\"}, {\"role\": \"user\", \"content\": \"And Oslo?\"}]}";

static serve_request *read_request(tsr_chat_format format, const char *body)
{
    serve_problem problem = {0};
    inference_chosen.format = format;
    serve_request *r = serve_request_read(&server, true, body, strlen(body), &problem);
    ck_assert_msg(r != NULL, "%s: %s", body, problem.message);
    return r;
}

/* Returns the text of a request's prompt. */
static const char *prompt_of(const serve_request *r)
{
    static char text[16384];
    size_t size = 0;
    ck_assert_int_eq(tsr_tokenizer_decode(server.tokenizer, r->ids, (uint64_t)r->id_count,
                                          TSR_DECODE_CONTROL_SPELL, sizeof text - 1, text, &size),
                     TSR_OK);
    text[size] = '\0';
    /* this tokenizer adds BOS */
    ck_assert_int_eq(strncmp(text, "<s>", 3), 0);
    return text + 3;
}

START_TEST(conversations_are_those_of_templates)
{
    static const struct {
        tsr_chat_format format;
        const char *text;
    } cases[] = {
        {TSR_CHAT_CHATML,
         "<|im_start|>system\nBe brief.\n\n# Tools\n\nYou may call one or more functions to assist "
         "with the user query.\n\nYou are provided with function signatures within <tools></tools> "
         "XML tags:\n<tools>\n" TOOL "\n</tools>\n\nFor each function call, return a json object "
         "with function name and arguments "
         "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
         "\"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n<|im_start|>user\nRome?"
         "<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"get_weather\", "
         "\"arguments\": "
         "{\"city\": \"Rome\"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nwarm\n"
         "</tool_response><|im_end|>\n<|im_start|>assistant\nIt is "
         "warm.<|im_end|>\n<|im_start|>user\n"
         "And Oslo?<|im_end|>\n<|im_start|>assistant\n"},
        {TSR_CHAT_LLAMA3,
         "<|start_header_id|>system<|end_header_id|>\n\nEnvironment: "
         "ipython\n\nBe "
         "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nGiven the following "
         "functions, "
         "please respond with a JSON for a function call with its proper arguments that best "
         "answers "
         "the given prompt.\n\nRespond in the format {\"name\": function name, \"parameters\": "
         "dictionary of argument name and its value}.Do not use variables.\n\n{\n    \"type\": "
         "\"function\",\n    \"function\": {\n        \"name\": \"get_weather\",\n        "
         "\"description\": \"Weather of a city\",\n        \"parameters\": {\n            "
         "\"type\": "
         "\"object\",\n            \"properties\": {\n                \"city\": {\n                "
         "  "
         "  \"type\": \"string\"\n                }\n            },\n            \"required\": [\n "
         "  "
         "             \"city\"\n            ]\n        }\n    }\n}\n\nRome?<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \"get_weather\", "
         "\"parameters\": {\"city\": "
         "\"Rome\"}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>"
         "\n\n\"warm\"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nIt is "
         "warm.<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nAnd "
         "Oslo?<|eot_id|><|start_header_id|>assistant"
         "<|end_header_id|>\n\n"},
        {TSR_CHAT_MISTRAL_TEKKEN,
         "[INST]Be brief.\n\nRome?[/INST][TOOL_CALLS][{\"name\": \"get_weather\", "
         "\"arguments\": {\"city\": \"Rome\"}, \"id\": \"abcdefghi\"}]</s>[TOOL_RESULTS]"
         "{\"content\": warm, \"call_id\": \"abcdefghi\"}[/TOOL_RESULTS]It is warm.</s>"
         "[AVAILABLE_TOOLS][" TOOL "][/AVAILABLE_TOOLS][INST]And Oslo?[/INST]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        serve_request *r = read_request(cases[i].format, conversation);
        ck_assert_str_eq(prompt_of(r), cases[i].text);
        serve_request_leave(r);
    }
}
END_TEST

/* Gives a request's choice a reply, piece by piece. Returns what is text of the answer at once. */
static const char *reply(serve_choice *c, const char *const *pieces)
{
    static char text[1024];
    text[0] = '\0';
    for (; *pieces != NULL; pieces++) {
        const size_t certain = serve_hold_calls(&server, c, *pieces, strlen(*pieces));
        strncat(text, c->held.data, certain);
        c->held.size -= certain;
        memmove(c->held.data, c->held.data + certain, c->held.size + 1);
    }
    return text;
}

START_TEST(calls_are_found)
{
    static const struct {
        tsr_chat_format format;
        const char *pieces[8];
        const char *text; /* before the end of the reply */
        int calls;
        const char *held; /* if there are none */
    } cases[] = {
        {TSR_CHAT_CHATML,
         {"Well", ". <tool", "_call>\n{\"name\": \"get_weather\", ",
          "\"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"},
         "Well. ",
         1,
         ""},
        {TSR_CHAT_CHATML,
         {"<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": "
          "\"Oslo\"}}</tool_call>\n",
          "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}"},
         "",
         2,
         ""},
        {TSR_CHAT_CHATML, {"a <tool", "box> b"}, "a <toolbox> b", 0, ""},
        {TSR_CHAT_CHATML,
         {"<tool_call>{\"name\": \"get_wea"},
         "",
         0,
         "<tool_call>{\"name\": \"get_wea"},
        {TSR_CHAT_LLAMA3,
         {" {\"name\": \"get_weather\", ", "\"parameters\": {\"city\": \"Oslo\"}}"},
         "",
         1,
         ""},
        {TSR_CHAT_LLAMA3,
         {"{\"name\": \"other\", ", "\"parameters\": {}}"},
         "",
         0,
         "{\"name\": \"other\", \"parameters\": {}}"},
        {TSR_CHAT_LLAMA3, {"I ", "{\"name\"}"}, "I {\"name\"}", 0, ""},
        {TSR_CHAT_MISTRAL_V3,
         {"[{\"name\": \"get_weather\", \"arguments\": ", "{\"city\": \"Oslo\"}}]"},
         "",
         1,
         ""},
        {TSR_CHAT_MISTRAL_V3, {"[1, ", "2]"}, "", 0, "[1, 2]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        serve_request *r = read_request(
            cases[i].format, "{\"tools\": [" TOOL
                             "], \"messages\": [{\"role\": \"user\", \"content\": \"Oslo?\"}]}");
        serve_choice *c = &r->choices[0];
        ck_assert_str_eq(reply(c, cases[i].pieces), cases[i].text);
        ck_assert_int_eq(serve_take_calls(&server, c), cases[i].calls > 0);
        ck_assert_int_eq((int)json_array_size(c->calls), cases[i].calls);
        for (int k = 0; k < cases[i].calls; k++) {
            const json_t *one = json_array_get(c->calls, (size_t)k),
                         *function = json_object_get(one, "function");
            ck_assert_str_eq(json_string_value(json_object_get(function, "name")), "get_weather");
            ck_assert_str_eq(json_string_value(json_object_get(function, "arguments")),
                             "{\"city\":\"Oslo\"}");
            const char *id = json_string_value(json_object_get(one, "id"));
            ck_assert_uint_eq(strlen(id), cases[i].format == TSR_CHAT_MISTRAL_V3 ? 9 : 33);
            if (k > 0)
                ck_assert_str_ne(
                    id, json_string_value(json_object_get(json_array_get(c->calls, 0), "id")));
        }
        if (cases[i].calls == 0)
            ck_assert_str_eq(c->held.data, cases[i].held);
        serve_request_leave(r);
    }
}
END_TEST

START_TEST(required_calls_have_a_grammar)
{
    static const struct {
        const char *choice;
        tsr_chat_format format;
        const char *begins, *allows, *refuses;
    } cases[] = {
        {"\"required\"", TSR_CHAT_CHATML, "<tool_call>\n",
         "{\"name\": \"b\", \"arguments\": {\"n\": {\"n\": null}}}", "{\"name\": \"c\""},
        {"{\"type\": \"function\", \"function\": {\"name\": \"a\"}}", TSR_CHAT_LLAMA3,
         "<|end_header_id|>\n\n", "{\"name\": \"a\", \"parameters\": {\"x\": 1}}",
         "{\"name\": \"b\""},
        {"\"required\"", TSR_CHAT_MISTRAL_V3, "[TOOL_CALLS]",
         "[{\"name\": \"b\", \"arguments\": {\"n\": {\"n\": null}}}]", "{"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[1024];
        snprintf(
            body, sizeof body,
            "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a\"}}, {\"type\": "
            "\"function\", \"function\": {\"name\": \"b\", \"parameters\": {\"$defs\": {\"l\": "
            "{\"properties\": {\"n\": {\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": "
            "\"#/$defs/l\"}]}}}}, \"$ref\": \"#/$defs/l\"}}}], \"tool_choice\": %s, "
            "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}",
            cases[i].choice);
        serve_request *r = read_request(cases[i].format, body);
        tsr_grammar_state *state = NULL;
        const char *prompt = prompt_of(r);
        ck_assert_msg(
            strlen(prompt) > strlen(cases[i].begins) &&
                strcmp(prompt + strlen(prompt) - strlen(cases[i].begins), cases[i].begins) == 0,
            "%s", prompt);
        ck_assert_ptr_nonnull(r->grammar);
        for (int wrong = 0; wrong < 2; wrong++) {
            const char *text = wrong ? cases[i].refuses : cases[i].allows;
            ck_assert_int_eq(tsr_grammar_state_create(serve_grammar_of(r->grammar), NULL, &state),
                             TSR_OK);
            const tsr_status status = tsr_grammar_state_add_text(state, text, strlen(text));
            ck_assert_msg((status != TSR_OK) == wrong, "%s", text);
            ck_assert(wrong || tsr_grammar_state_end(state) == TSR_GRAMMAR_MUST_END);
            tsr_grammar_state_destroy(&state);
        }
        serve_request_leave(r);
    }
}
END_TEST

START_TEST(mistakes_are_named)
{
#define ASKS ", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}"
    static const struct {
        tsr_chat_format format;
        const char *body, *sentence;
    } cases[] = {
        {TSR_CHAT_CHATML, "{\"tools\": {}" ASKS, "tools is not a list of at most 128 functions"},
        {TSR_CHAT_CHATML,
         "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a b\"}}]" ASKS,
         "tool 0 is not {\"type\": \"function\""},
        {TSR_CHAT_CHATML, "{\"tools\": [" TOOL "], \"tool_choice\": \"some\"" ASKS,
         "tool_choice is neither none, auto, required nor"},
        {TSR_CHAT_CHATML,
         "{\"tools\": [" TOOL
         "], \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": "
         "\"x\"}}" ASKS,
         "tool_choice is neither none, auto, required nor"},
        {TSR_CHAT_CHATML, "{\"tool_choice\": \"required\"" ASKS, "tool_choice needs tools"},
        {TSR_CHAT_VICUNA, "{\"tools\": [" TOOL "]" ASKS,
         "tools are not supported with the model's chat format"},
        {TSR_CHAT_CHATML,
         "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a\", \"parameters\": "
         "{\"not\": {}}}}], \"tool_choice\": \"required\"" ASKS,
         "the keyword 'not' is not supported"},
        {TSR_CHAT_CHATML,
         "{\"tools\": [" TOOL
         "], \"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
         "\"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
         "\"1\"}}]}]}",
         "tool call 0 of message 1 is not"},
        {TSR_CHAT_CHATML, "{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}",
         "message 0 is the result's (5) instead of the user's"},
        {TSR_CHAT_CHATML,
         "{\"tools\": [" TOOL "], \"messages\": [{\"role\": \"cat\", \"content\": \"a\"}]}",
         "message 0 has the role 'cat'; system, developer, user, assistant and tool are possible"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        serve_problem problem = {0};
        inference_chosen.format = cases[i].format;
        serve_request *r =
            serve_request_read(&server, true, cases[i].body, strlen(cases[i].body), &problem);
        ck_assert_msg(r == NULL && problem.status == 400 &&
                          strstr(problem.message, cases[i].sentence) != NULL,
                      "%s: %s", cases[i].body, problem.message);
    }
    /* with "none", tools are not described */
    serve_request *r =
        read_request(TSR_CHAT_CHATML, "{\"tools\": [" TOOL "], \"tool_choice\": \"none\"" ASKS);
    ck_assert_ptr_null(strstr(prompt_of(r), "get_weather"));
    serve_request_leave(r);
}
END_TEST

TESTS(serve_tools)
{
    tcase_add_checked_fixture(tests, open_tokenizer, close_tokenizer);
    tcase_add_test(tests, conversations_are_those_of_templates);
    tcase_add_test(tests, calls_are_found);
    tcase_add_test(tests, required_calls_have_a_grammar);
    tcase_add_test(tests, mistakes_are_named);
}
