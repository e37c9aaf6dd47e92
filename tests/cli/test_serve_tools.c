/* Tests conversations with tools: the prompt must be what the templates of Qwen3, Llama 3.2,
 * Mistral Nemo, Mistral Small 3.2 and Devstral 2 give with npm's @huggingface/jinja, except for
 * what the library leaves out of all conversations: Llama's dates; and Mistral's system message is
 * in the user's first one. Tests that calls are found in replies. */
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

/* Two calls in a reply, and text before them. */
START_TEST(mistral_calls_are_those_of_templates)
{
    static const char body[] =
        "{\"tools\": [" TOOL "], \"messages\": [{\"role\": \"system\", \"content\": \"Be "
        "brief.\"}, {\"role\": \"user\", \"content\": \"Rome, Bern?\"}, {\"role\": \"assistant\", "
        "\"content\": \"I look.\", \"tool_calls\": [{\"id\": \"call-abcdefghi\", \"type\": "
        "\"function\", \"function\": {\"name\": \"get_weather\", \"arguments\": "
        "\"{\\\"city\\\":\\\"Rome\\\"}\"}}, {\"id\": \"123456789\", \"type\": \"function\", "
        "\"function\": {\"name\": \"get_weather\", \"arguments\": "
        "\"{\\\"city\\\":\\\"Bern\\\"}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": "
        "\"call-abcdefghi\", \"content\": \"warm\"}, {\"role\": \"tool\", \"tool_call_id\": "
        "\"123456789\", \"content\": \"cold\"}, {\"role\": \"assistant\", \"content\": \"Warm and "
        "cold.\"}, {\"role\": \"user\", \"content\": \"And Oslo?\"}]}";
    static const struct {
        tsr_chat_format format;
        const char *text;
    } cases[] = {
        {TSR_CHAT_MISTRAL_V11_TEKKEN,
         "[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Rome, Bern?[/INST][TOOL_CALLS]get_weather"
         "[CALL_ID]abcdefghi[ARGS]{\"city\": \"Rome\"}[TOOL_CALLS]get_weather[CALL_ID]123456789"
         "[ARGS]{\"city\": \"Bern\"}</s>[TOOL_RESULTS]abcdefghi[TOOL_CONTENT]warm[/TOOL_RESULTS]"
         "[TOOL_RESULTS]123456789[TOOL_CONTENT]cold[/TOOL_RESULTS]Warm and cold.</s>"
         "[AVAILABLE_TOOLS][" TOOL "][/AVAILABLE_TOOLS][INST]And Oslo?[/INST]"},
        {TSR_CHAT_MISTRAL_V13_TEKKEN,
         "[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][AVAILABLE_TOOLS][" TOOL "][/AVAILABLE_TOOLS]"
         "[INST]Rome, Bern?[/INST]I look.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rome\"}"
         "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Bern\"}</s>[TOOL_RESULTS]warm[/TOOL_RESULTS]"
         "[TOOL_RESULTS]cold[/TOOL_RESULTS]Warm and cold.</s>[INST]And Oslo?[/INST]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        serve_request *r = read_request(cases[i].format, body);
        ck_assert_str_eq(prompt_of(r), cases[i].text);
        serve_request_leave(r);
    }
}
END_TEST

/* Gives a request's choice a reply of at most `step` bytes at a time. */
static bool reply(serve_choice *c, const char *text, size_t step)
{
    const size_t size = strlen(text);
    for (size_t at = 0; at < size; at += step)
        serve_reply_add(&server, c, text + at, size - at < step ? size - at : step);
    return serve_reply_end(&server, c, true);
}

/* What a client makes of a stream. */
typedef struct assembled {
    char text[512], names[256], arguments[4][256];
    int calls, pieces;
} assembled;

static void add_delta(assembled *a, const json_t *delta)
{
    const json_t *call = json_array_get(json_object_get(delta, "tool_calls"), 0),
                 *function = json_object_get(call, "function");
    const char *content = json_string_value(json_object_get(delta, "content")),
               *name = json_string_value(json_object_get(function, "name")),
               *arguments = json_string_value(json_object_get(function, "arguments"));
    if (content != NULL)
        strncat(a->text, content, sizeof a->text - strlen(a->text) - 1);
    if (call == NULL)
        return;
    const int index = (int)json_integer_value(json_object_get(call, "index"));
    if (name != NULL) {
        ck_assert_int_eq(index, a->calls++);
        ck_assert_str_eq(arguments, "");
        ck_assert_ptr_nonnull(json_object_get(call, "id"));
        strncat(a->names, name, sizeof a->names - strlen(a->names) - 1);
        strncat(a->names, ";", 2);
    }
    ck_assert_int_eq(index, a->calls - 1);
    a->pieces += name == NULL;
    strncat(a->arguments[index], arguments, 255 - strlen(a->arguments[index]));
}

static void assemble(const serve_request *r, assembled *out)
{
    *out = (assembled){.calls = 0};
    for (const char *at = r->events.data; at != NULL && (at = strstr(at, "data: ")) != NULL;) {
        json_t *event = json_loads(at += 6, JSON_DISABLE_EOF_CHECK, NULL);
        ck_assert_ptr_nonnull(event);
        add_delta(out,
                  json_object_get(json_array_get(json_object_get(event, "choices"), 0), "delta"));
        json_decref(event);
    }
}

#define ASKS_OSLO "\"messages\": [{\"role\": \"user\", \"content\": \"Oslo?\"}]}"

START_TEST(calls_are_found)
{
    static const char city[] = "{\"city\": \"O\\\"{slo\"}";
    static const struct {
        tsr_chat_format format;
        const char *reply, *text, *names;
        int fragments; /* calls of which arguments come in fragments */
    } cases[] = {
        {TSR_CHAT_CHATML,
         "Well. <tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
         "\"O\\\"{slo\"}}\n</tool_call>",
         "Well. ", "get_weather;", 1},
        {TSR_CHAT_CHATML,
         "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\": \"O\\\"{slo\"}} "
         "</tool_call>\n<tool_call> {\"name\": \"b\", \"arguments\": {\"city\": "
         "\"O\\\"{slo\"}}",
         "", "get_weather;b;", 2},
        {TSR_CHAT_CHATML,
         "<tool_call>{\"arguments\": {\"city\": \"O\\\"{slo\"}, \"name\": "
         "\"get_weather\"}</tool_call><tool_call>{\"name\": \"b\", \"arguments\": {\"city\": "
         "\"O\\\"{slo\"}}</tool_call>end",
         "end", "get_weather;b;", 1},
        {TSR_CHAT_CHATML, "a <toolbox> b <tool_c", "a <toolbox> b <tool_c", "", 0},
        {TSR_CHAT_CHATML, "<tool_call>{\"name\": \"get_wea", "<tool_call>{\"name\": \"get_wea", "",
         0},
        {TSR_CHAT_CHATML, "<tool_call>[1]</tool_call> no", "<tool_call>[1]</tool_call> no", "", 0},
        {TSR_CHAT_LLAMA3,
         " {\"name\": \"get_weather\", \"parameters\": {\"city\": \"O\\\"{slo\"}} more", "",
         "get_weather;", 1},
        {TSR_CHAT_LLAMA3,
         "{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": "
         "\"O\\\"{slo\"}}",
         "", "get_weather;", 0},
        {TSR_CHAT_LLAMA3, "{\"name\": \"other\", \"parameters\": {}}",
         "{\"name\": \"other\", \"parameters\": {}}", "", 0},
        {TSR_CHAT_LLAMA3, "I {\"name\"}", "I {\"name\"}", "", 0},
        {TSR_CHAT_MISTRAL_V3,
         "[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"O\\\"{slo\"}, \"id\": "
         "\"a}b\"}, {\"name\": \"get_weather\", \"arguments\": {\"city\": "
         "\"O\\\"{slo\"}}]",
         "", "get_weather;get_weather;", 2},
        {TSR_CHAT_MISTRAL_V7,
         "[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"O\\\"{slo\"}}, "
         "{\"arguments\": {\"city\": \"O\\\"{slo\"}, \"name\": \"get_weather\"}]",
         "", "get_weather;get_weather;", 1},
        {TSR_CHAT_MISTRAL_V3, "[1, 2]", "[1, 2]", "", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step < 64; step = 2 * step + 1)
            for (int stream = 0; stream < 2; stream++) {
                serve_request *r = read_request(
                    cases[i].format, stream ? "{\"stream\": true, \"tools\": [" TOOL "], " ASKS_OSLO
                                            : "{\"tools\": [" TOOL "], " ASKS_OSLO);
                serve_choice *c = &r->choices[0];
                assembled got;
                const bool calls = reply(c, cases[i].reply, step);
                ck_assert_int_eq(calls, *cases[i].names != '\0');
                assemble(r, &got);
                char names[256] = "";
                for (size_t k = 0; k < json_array_size(c->calls); k++) {
                    const json_t *one = json_array_get(c->calls, k),
                                 *function = json_object_get(one, "function");
                    strcat(names, json_string_value(json_object_get(function, "name")));
                    strcat(names, ";");
                    for (size_t other = 0; other < k; other++)
                        ck_assert(
                            !json_equal(json_object_get(one, "id"),
                                        json_object_get(json_array_get(c->calls, other), "id")));
                    json_t *arguments = json_loads(
                        json_string_value(json_object_get(function, "arguments")), 0, NULL);
                    json_t *wanted = json_loads(city, 0, NULL);
                    ck_assert(json_equal(arguments, wanted));
                    json_decref(arguments);
                    json_decref(wanted);
                    if (stream)
                        ck_assert_str_eq(got.arguments[k],
                                         json_string_value(json_object_get(function, "arguments")));
                    ck_assert_uint_eq(strlen(json_string_value(json_object_get(one, "id"))),
                                      cases[i].format == TSR_CHAT_MISTRAL_V3 ||
                                              cases[i].format == TSR_CHAT_MISTRAL_V7
                                          ? 9
                                          : 33);
                }
                ck_assert_str_eq(names, cases[i].names);
                ck_assert_str_eq(stream                   ? got.text
                                 : c->answer.data != NULL ? c->answer.data
                                                          : "",
                                 cases[i].text);
                if (stream) {
                    ck_assert_str_eq(got.names, cases[i].names);
                    if (step == 1) /* each byte of the arguments is an event */
                        ck_assert_int_eq(got.pieces, cases[i].fragments * (int)strlen(city) +
                                                         got.calls - cases[i].fragments);
                }
                serve_request_leave(r);
            }
}
END_TEST

/* A call that is cut is not complete: finish_reason is then not tool_calls. */
START_TEST(a_call_may_be_cut)
{
    static const char cut[] = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"ci";
    serve_request *r = read_request(TSR_CHAT_CHATML, "{\"tools\": [" TOOL "], " ASKS_OSLO);
    serve_choice *c = &r->choices[0];
    serve_reply_add(&server, c, cut, strlen(cut));
    ck_assert(!serve_reply_end(&server, c, false));
    const json_t *function = json_object_get(json_array_get(c->calls, 0), "function");
    ck_assert_str_eq(json_string_value(json_object_get(function, "arguments")), "{\"ci");
    serve_request_leave(r);
}
END_TEST

/* Harmony and reasoning need their tokens ------------------------------------------------------ */

/* Opens a byte-level tokenizer with these added tokens, in place of the usual one. `template` may
 * be NULL. */
static void open_added_with(const char *const *added, const char *template)
{
    json_error_t error;
    char path[] = "/tmp/test-serve-tools-XXXXXX";
    json_t *json = json_load_file(TEST_DATA "/tokenizer/mini-gpt2.tokenizer.json", 0, &error);
    json_t *tokens = json_object_get(json, "added_tokens");
    size_t id = json_object_size(json_object_get(json_object_get(json, "model"), "vocab"));
    for (; *added != NULL; added++, id++)
        json_array_append_new(tokens, json_pack("{sI ss sb sb sb sb sb}", "id", (json_int_t)id,
                                                "content", *added, "single_word", 0, "lstrip", 0,
                                                "rstrip", 0, "normalized", 0, "special",
                                                strstr(*added, "think>") == NULL));
    ck_assert_ptr_nonnull(mkdtemp(path));
    char file[sizeof path + 30], config[sizeof path + 30];
    snprintf(file, sizeof file, "%s/tokenizer.json", path);
    snprintf(config, sizeof config, "%s/tokenizer_config.json", path);
    ck_assert_int_eq(json_dump_file(json, file, 0), 0);
    json_decref(json);
    json = json_pack("{ssssss*}", "bos_token", "<|endoftext|>", "eos_token", "<|endoftext|>",
                     "chat_template", template);
    ck_assert_int_eq(json_dump_file(json, config, 0), 0);
    json_decref(json);
    tsr_tokenizer_close(&server.tokenizer);
    ck_assert_msg(tsr_tokenizer_open(file, &server.tokenizer) == TSR_OK, "%s", tsr_last_error());
    remove(file);
    remove(config);
    remove(path);
}

static void open_added(const char *const *added)
{
    open_added_with(added, NULL);
}

static const char *const harmony_tokens[] = {"<|start|>",     "<|channel|>", "<|message|>",
                                             "<|end|>",       "<|return|>",  "<|call|>",
                                             "<|constrain|>", NULL};
static const char *const mistral_tokens[] = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]",
                                             "[THINK]",      "[/THINK]",  NULL};
static const char *const qwen_tokens[] = {"<think>", "</think>", "<|im_start|>", "<|im_end|>",
                                          NULL};

static void encode(const char *text, int32_t **ids, uint64_t *count)
{
    ck_assert_int_eq(tsr_tokenizer_encode(server.tokenizer, text, strlen(text),
                                          tsr_encode_params(.add = TSR_ENCODE_ADD_NONE,
                                                            .control = TSR_ENCODE_CONTROL_TOKEN),
                                          ids, count),
                     TSR_OK);
}

/* The text of a request's prompt, with a tokenizer that adds no BOS. */
static const char *whole_prompt(const serve_request *r)
{
    static char text[16384];
    size_t size = 0;
    ck_assert_int_eq(tsr_tokenizer_decode(server.tokenizer, r->ids, (uint64_t)r->id_count,
                                          TSR_DECODE_CONTROL_SPELL, sizeof text - 1, text, &size),
                     TSR_OK);
    text[size] = '\0';
    return text;
}

#define INTRODUCTION                                                                               \
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by "                \
    "OpenAI.\nKnowledge cutoff: 2024-06\n\nReasoning: medium\n\n# Valid channels: analysis, "      \
    "commentary, final. Channel must be included for every message."
#define TO_FUNCTIONS "\nCalls to these tools must go to the commentary channel: 'functions'."

/* The text is what gpt-oss's template gives with npm's @huggingface/jinja and with Python's jinja2,
 * except for the date, which is left out. */
START_TEST(harmony_is_that_of_its_template)
{
    open_added(harmony_tokens);
    serve_request *r = read_request(
        TSR_CHAT_HARMONY,
        "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "
        "\"description\": \"Weather of a city\", \"parameters\": {\"type\": \"object\", "
        "\"properties\": {\"city\": {\"type\": \"string\", \"description\": \"The city\"}, "
        "\"unit\": {\"type\": \"string\", \"enum\": [\"c\", \"f\"], \"default\": \"c\"}, \"days\": "
        "{\"type\": \"integer\", \"default\": 3}, \"tags\": {\"type\": \"array\", \"items\": "
        "{\"type\": \"string\"}}, \"where\": {\"type\": \"object\", \"properties\": {\"x\": "
        "{\"type\": \"number\"}, \"y\": {\"type\": \"number\"}}, \"required\": [\"x\"]}, \"rows\": "
        "{\"type\": \"array\", \"items\": {\"type\": \"object\", \"properties\": {\"a\": "
        "{\"type\": "
        "\"string\"}}}}, \"either\": {\"oneOf\": [{\"type\": \"string\", \"description\": \"s\", "
        "\"default\": \"q\"}, {\"type\": \"number\"}]}, \"many\": {\"type\": [\"string\", "
        "\"null\"]}, \"some\": {\"oneOf\": [{\"type\": \"object\"}, {\"type\": \"number\"}]}}, "
        "\"required\": [\"city\"]}}}, {\"type\": \"function\", \"function\": {\"name\": \"now\", "
        "\"description\": \"The time\"}}], \"messages\": [{\"role\": \"system\", \"content\": \"Be "
        "brief.\"}, {\"role\": \"user\", \"content\": \"Rome?\"}, {\"role\": \"assistant\", "
        "\"content\": null, \"reasoning_content\": \"old\", \"tool_calls\": [{\"id\": \"x\", "
        "\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"arguments\": "
        "\"{\\\"city\\\":\\\"Rome\\\"}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"x\", "
        "\"content\": \"warm\"}, {\"role\": \"assistant\", \"content\": \"It is warm.\"}, "
        "{\"role\": "
        "\"user\", \"content\": \"And Oslo?\"}, {\"role\": \"assistant\", \"content\": \"I "
        "look.\", "
        "\"reasoning_content\": \"new\", \"tool_calls\": [{\"id\": \"y\", \"type\": \"function\", "
        "\"function\": {\"name\": \"get_weather\", \"arguments\": "
        "\"{\\\"city\\\":\\\"Oslo\\\"}\"}}, {\"id\": \"z\", \"type\": \"function\", "
        "\"function\": {\"name\": \"now\", \"arguments\": \"{}\"}}]}, {\"role\": \"tool\", "
        "\"tool_call_id\": \"z\", \"content\": \"noon\"}, {\"role\": \"tool\", \"tool_call_id\": "
        "\"y\", \"content\": \"cold\"}]}");
    ck_assert_str_eq(
        whole_prompt(r), INTRODUCTION TO_FUNCTIONS
        "<|end|><|start|>developer<|message|># Instructions\n\nBe brief.\n\n# Tools\n\n## "
        "functions\n\nnamespace functions {\n\n// Weather of a city\ntype get_weather = (_: {\n// "
        "The city\ncity: string,\nunit?: \"c\" | \"f\", // default: c,\ndays?: number, // default: "
        "3,\ntags?: string[],\nwhere?: {\nx: \n                number, y?: \n                "
        "number},\nrows?: {\na?: \n                string}[],\neither?: string// s                "
        "    // default: \"q\" | \nnumber,\nmany?: string | null,\nsome?: object | \nnumber,\n}) "
        "=> "
        "any;\n\n// The time\ntype now = () => any;\n\n} // namespace functions<|end|>"
        "<|start|>user<|message|>Rome?<|end|><|start|>assistant to=functions.get_weather<|channel|>"
        "commentary json<|message|>{\"city\": \"Rome\"}<|call|><|start|>functions.get_weather "
        "to=assistant<|channel|>commentary<|message|>\"warm\"<|end|><|start|>assistant<|channel|>"
        "final<|message|>It is warm.<|end|><|start|>user<|message|>And Oslo?<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>new<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant to=functions.get_weather<|channel|>commentary "
        "json<|message|>{\"city\": "
        "\"Oslo\"}<|call|><|start|>functions.get_weather to=assistant<|channel|>commentary"
        "<|message|>\"cold\"<|end|><|start|>assistant to=functions.now<|channel|>commentary json"
        "<|message|>{}<|call|><|start|>functions.now to=assistant<|channel|>commentary<|message|>"
        "\"noon\"<|end|><|start|>assistant");
    serve_request_leave(r);
    /* without tools, efforts only; an answer at once */
    r = read_request(TSR_CHAT_HARMONY,
                     "{\"reasoning_effort\": \"none\", \"messages\": [{\"role\": \"user\", "
                     "\"content\": \"Q\"}]}");
    ck_assert_str_eq(whole_prompt(r), INTRODUCTION "<|end|><|start|>user<|message|>Q<|end|>"
                                                   "<|start|>assistant<|channel|>final<|message|>");
    serve_request_leave(r);
}
END_TEST

/* Gives a request's choice the tokens of a reply. */
static bool reply_tokens(serve_choice *c, const char *text)
{
    int32_t *ids = NULL;
    uint64_t count = 0;
    const char *piece;
    size_t size;
    bool stopped;
    ck_assert_int_eq(
        tsr_text_stream_create(
            tsr_text_stream_params(.tokenizer = server.tokenizer, .channels = true), &c->stream),
        TSR_OK);
    for (int64_t i = 0; i < c->request->id_count; i++)
        ck_assert_int_eq(tsr_text_stream_add_prompt(c->stream, c->request->ids[i], &piece, &size),
                         TSR_OK);
    encode(text, &ids, &count);
    for (uint64_t i = 0; i <= count; i++) {
        ck_assert_int_eq(i < count ? tsr_text_stream_add(c->stream, ids[i], &piece, &size, &stopped)
                                   : tsr_text_stream_end(c->stream, &piece, &size),
                         TSR_OK);
        serve_reply_add(&server, c, piece, size);
    }
    tsr_tokenizer_free_ids(&ids);
    return serve_reply_end(&server, c, true);
}

/* What the model thought since the user's last message stays in Qwen's prompts, and all that it
 * thought in those of Mistral's models; without the tokens around it, nothing. */
START_TEST(reasoning_is_kept)
{
    static const char body[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
        "\"reasoning_content\": \"old\", \"content\": \"Yes?\"}, {\"role\": \"user\", \"content\": "
        "\"Rome?\"}, {\"role\": \"assistant\", \"reasoning_content\": \"\\nnew\\n\", \"content\": "
        "\"\\nI look.\", \"tool_calls\": [{\"id\": \"abcdefghi\", \"type\": \"function\", "
        "\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, {\"role\": \"tool\", "
        "\"tool_call_id\": \"abcdefghi\", \"content\": \"warm\"}]}",
                      plain[] =
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
                          "\"assistant\", \"reasoning_content\": \"old\", \"content\": "
                          "\"Yes?\"}, {\"role\": \"user\", \"content\": \"No.\"}]}",
                      call[] = "{\"name\": \"f\", \"arguments\": {}}";
    static const struct {
        const char *const *added;
        tsr_chat_format format;
        const char *body, *begin, *call, *end;
    } cases[] = {
        {qwen_tokens, TSR_CHAT_CHATML, body,
         "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\n"
         "Rome?<|im_end|>\n<|im_start|>assistant\n<think>\nnew\n</think>\n\nI look.\n<tool_call>\n",
         call,
         "\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nwarm\n</tool_response>"
         "<|im_end|>\n<|im_start|>assistant\n"},
        {qwen_tokens + 2, TSR_CHAT_CHATML, body,
         "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\n"
         "Rome?<|im_end|>\n<|im_start|>assistant\n\nI look.\n<tool_call>\n",
         call,
         "\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nwarm\n</tool_response>"
         "<|im_end|>\n<|im_start|>assistant\n"},
        {mistral_tokens, TSR_CHAT_MISTRAL_V13_TEKKEN, body,
         "[INST]Hi[/INST][THINK]old[/THINK]Yes?<|endoftext|>[INST]Rome?[/INST][THINK]\nnew\n[/"
         "THINK]"
         "\nI look.[TOOL_CALLS]f[ARGS]",
         "{}", "<|endoftext|>[TOOL_RESULTS]warm[/TOOL_RESULTS]"},
        {mistral_tokens, TSR_CHAT_MISTRAL_V13_TEKKEN, plain,
         "[INST]Hi[/INST][THINK]old[/THINK]Yes?<|endoftext|>[INST]No.[/INST]", "", ""},
        {qwen_tokens, TSR_CHAT_CHATML, plain,
         "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\n"
         "No.<|im_end|>\n<|im_start|>assistant\n",
         "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char wanted[1024];
        open_added(cases[i].added);
        serve_request *r = read_request(cases[i].format, cases[i].body);
        const char *got = whole_prompt(r);
        snprintf(wanted, sizeof wanted, "%s%s%s", cases[i].begin, cases[i].call, cases[i].end);
        ck_assert_msg(strstr(got, wanted) != NULL && strlen(got) <= strlen(wanted) + 13,
                      "case %zu: %s", i, got);
        serve_request_leave(r);
    }
}
END_TEST

/* Formats that name each call by tokens: harmony, and the newer ones of Mistral. */
START_TEST(named_calls_are_found)
{
    static const struct {
        tsr_chat_format format;
        const char *reply, *answer, *reasoning, *names, *arguments;
    } cases[] = {
        {TSR_CHAT_HARMONY,
         "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>",
         "", "why", "get_weather;", "{\"city\": \"Oslo\"}"},
        {TSR_CHAT_HARMONY,
         " to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": "
         "\"Oslo\"}<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary "
         "json<|message|> {\"city\": 1}<|call|>",
         "", "", "get_weather;get_weather;", "{\"city\": \"Oslo\"}{\"city\": 1}"},
        {TSR_CHAT_HARMONY,
         "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant<|channel|>final<|message|>"
         "Done.<|return|>",
         "Wait.\n\nDone.", "", "", ""},
        {TSR_CHAT_HARMONY,
         "<|channel|>commentary to=browser.search<|message|>x<|end|><|start|>assistant<|channel|>"
         "final<|message|>[A]<|return|>",
         "[A]", "", "", ""},
        {TSR_CHAT_MISTRAL_V11_TEKKEN,
         "[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{\"city\": \"Oslo\"}[TOOL_CALLS]"
         "get_weather[CALL_ID]123456789[ARGS]{\"city\": \"}\"}<|endoftext|>",
         "", "", "get_weather;get_weather;", "{\"city\": \"Oslo\"}{\"city\": \"}\"}"},
        {TSR_CHAT_MISTRAL_V13_TEKKEN,
         "I look.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Oslo\"}[TOOL_CALLS] other[ARGS] "
         "{\"b\": [{}]} end",
         "I look.", "", "get_weather;other;", "{\"city\": \"Oslo\"}{\"b\": [{}]}"},
        {TSR_CHAT_MISTRAL_V13_TEKKEN,
         "[THINK]why [\n[/THINK]I look.[TOOL_CALLS]get_weather[ARGS]{\"city\": 1}<|endoftext|>",
         "I look.", "why [", "get_weather;", "{\"city\": 1}"},
        {TSR_CHAT_MISTRAL_V13_TEKKEN, "get_weather{\"city\": 1}", "get_weather{\"city\": 1}", "",
         "", ""},
        {TSR_CHAT_MISTRAL_V13_TEKKEN, "[TOOL_CALLS]a b[ARGS]null", "", "", "", ""},
        {TSR_CHAT_MISTRAL_V7_TEKKEN,
         "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": "
         "\"Oslo\"}}]<|endoftext|>",
         "", "", "get_weather;", "{\"city\": \"Oslo\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool mistral = cases[i].format != TSR_CHAT_HARMONY;
        open_added(mistral ? mistral_tokens : harmony_tokens);
        for (int stream = 0; stream < 2; stream++) {
            serve_request *r = read_request(
                cases[i].format, stream ? "{\"stream\": true, \"tools\": [" TOOL "], " ASKS_OSLO
                                        : "{\"tools\": [" TOOL "], " ASKS_OSLO);
            serve_choice *c = &r->choices[0];
            assembled got;
            char names[256] = "", arguments[256] = "";
            ck_assert_int_eq(reply_tokens(c, cases[i].reply), *cases[i].names != '\0');
            assemble(r, &got);
            for (size_t k = 0; k < json_array_size(c->calls); k++) {
                const json_t *call = json_array_get(c->calls, k),
                             *function = json_object_get(call, "function");
                strcat(names, json_string_value(json_object_get(function, "name")));
                strcat(names, ";");
                strcat(arguments, json_string_value(json_object_get(function, "arguments")));
                ck_assert_uint_eq(json_string_length(json_object_get(call, "id")),
                                  mistral ? 9 : 33);
            }
            ck_assert_str_eq(names, cases[i].names);
            ck_assert_str_eq(arguments, cases[i].arguments);
            ck_assert_str_eq(stream                   ? got.text
                             : c->answer.data != NULL ? c->answer.data
                                                      : "",
                             cases[i].answer);
            if (stream) {
                ck_assert_str_eq(got.names, cases[i].names);
                ck_assert(got.calls == 0 || got.pieces > 2 * got.calls);
            } else if (*cases[i].reasoning != '\0') {
                ck_assert_str_eq(c->reasoning.data, cases[i].reasoning);
            }
            serve_request_leave(r);
        }
    }
}
END_TEST

/* Returns whether a request's grammar allows a reply, whose control tokens are tokens. */
static bool allows(const serve_request *r, const char *text)
{
    tsr_grammar_state *state = NULL;
    int32_t *ids = NULL;
    uint64_t count = 0;
    bool good = true;
    encode(text, &ids, &count);
    ck_assert_ptr_nonnull(r->grammar);
    ck_assert_int_eq(tsr_grammar_state_create(serve_grammar_of(r->grammar), NULL, &state), TSR_OK);
    for (uint64_t i = 0; i < count && good; i++)
        good = tsr_grammar_state_add(state, ids[i]) == TSR_OK;
    good = good && tsr_grammar_state_end(state) == TSR_GRAMMAR_MUST_END;
    tsr_grammar_state_destroy(&state);
    tsr_tokenizer_free_ids(&ids);
    return good;
}

#define TOOLS_A_B                                                                                  \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a\"}}, {\"type\": "           \
    "\"function\", \"function\": {\"name\": \"b\", \"parameters\": {\"$defs\": {\"l\": "           \
    "{\"properties\": {\"n\": {\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": "                      \
    "\"#/$defs/l\"}]}}}}, \"$ref\": \"#/$defs/l\"}}}], "
#define ASK_HI "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}"
#define ANALYSIS "<|channel|>analysis<|message|>a { b<|end|><|start|>assistant"

/* What a grammar allows of a whole reply, reasoning included. */
START_TEST(grammars_begin_after_reasoning)
{
    static const char *const thinks[] = {"<think>", "</think>", NULL}, *const none[] = {"<|x|>",
                                                                                        NULL};
    static const char required[] = "{\"tool_choice\": \"required\", " TOOLS_A_B ASK_HI,
                      named[] = "{\"tool_choice\": {\"type\": \"function\", \"function\": "
                                "{\"name\": \"a\"}}, " TOOLS_A_B ASK_HI,
                      json[] = "{\"response_format\": {\"type\": \"json_object\"}, " ASK_HI,
                      gbnf[] = "{\"grammar\": \"root ::= \\\"yes\\\" | no\\nno ::= "
                               "\\\"no\\\"\", " ASK_HI,
                      at_once[] = "{\"reasoning_effort\": \"none\", \"grammar\": \"root ::= "
                                  "\\\"yes\\\"\", " ASK_HI,
                      kwargs[] = "{\"chat_template_kwargs\": {\"enable_thinking\": false}, "
                                 "\"grammar\": \"root ::= \\\"yes\\\"\", " ASK_HI;
    static const struct {
        const char *const *added;
        tsr_chat_format format;
        const char *body;
        const char *allowed[3], *refused[3];
    } cases[] = {
        {none, TSR_CHAT_CHATML, json, {"{\"a\": 1}"}, {"<think></think>{}", "[]"}},
        {none,
         TSR_CHAT_CHATML,
         required,
         {"<tool_call>\n{\"name\": \"b\", \"arguments\": {\"n\": {\"n\": null}}}\n</tool_call>"},
         {"<tool_call>\n{\"name\": \"c\"", "{\"name\": \"a\", \"arguments\": {}}"}},
        {none,
         TSR_CHAT_LLAMA3,
         named,
         {"{\"name\": \"a\", \"parameters\": {\"x\": 1}}"},
         {"{\"name\": \"b\", \"parameters\": {}}"}},
        {none,
         TSR_CHAT_MISTRAL_V3,
         required,
         {"[{\"name\": \"b\", \"arguments\": {\"n\": {\"n\": null}}}]"},
         {"{}"}},
        {thinks,
         TSR_CHAT_CHATML,
         json,
         {"<think>\nhm < /think> {\n</think>\n\n{}", "{}", "<think></think>{}"},
         {"<think>\n{}", "a</think>{}", "<think></think>\n\n\n{}"}},
        {thinks, TSR_CHAT_CHATML, gbnf, {"<think>no</think>no", "yes"}, {"<think>no", "maybe"}},
        {thinks, TSR_CHAT_CHATML, kwargs, {"yes"}, {"<think></think>yes"}},
        {thinks,
         TSR_CHAT_CHATML,
         required,
         {"<think>a</think>\n\n<tool_call>\n{\"name\": \"a\", \"arguments\": "
          "{}}\n</tool_call>"},
         {"<think>a</think>{}"}},
        {thinks, TSR_CHAT_GLM45, gbnf, {"\n<think>a</think>\nyes", "yes"}, {"\n\nyes"}},
        {thinks, TSR_CHAT_MINIMAX_M2, gbnf, {"why\n</think>\n\nyes"}, {"yes"}},
        {harmony_tokens,
         TSR_CHAT_HARMONY,
         json,
         {ANALYSIS "<|channel|>final<|message|>{}", "<|channel|>final<|message|>{\"a\": []}"},
         {"{}", ANALYSIS "{}", "<|channel|>commentary<|message|>{}"}},
        {harmony_tokens, TSR_CHAT_HARMONY, at_once, {"yes"}, {"<|channel|>final<|message|>yes"}},
        {mistral_tokens,
         TSR_CHAT_MISTRAL_V11_TEKKEN,
         required,
         {"[TOOL_CALLS]b[CALL_ID]abcDEF123[ARGS]{\"n\": {\"n\": null}}"},
         {"[TOOL_CALLS]b[CALL_ID]abc[ARGS]{}", "[TOOL_CALLS]a[ARGS]{}", "a{}"}},
        {mistral_tokens,
         TSR_CHAT_MISTRAL_V13_TEKKEN,
         named,
         {"[TOOL_CALLS]a[ARGS]{\"x\": 1}", "[THINK]b[/THINK][TOOL_CALLS]a[ARGS]{}"},
         {"[TOOL_CALLS]b[ARGS]{}", "[TOOL_CALLS]a[CALL_ID]abcDEF123[ARGS]{}"}},
        {harmony_tokens,
         TSR_CHAT_HARMONY,
         required,
         {ANALYSIS " to=functions.a<|channel|>commentary json<|message|>{\"x\": 1}",
          " to=functions.b<|channel|>commentary json<|message|>{\"n\": {\"n\": null}}"},
         {"<|channel|>final<|message|>{}",
          " to=functions.b<|channel|>commentary json<|message|>{\"x\": 1}",
          " to=functions.c<|channel|>commentary json<|message|>{}"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_added(cases[i].added);
        serve_request *r = read_request(cases[i].format, cases[i].body);
        for (int k = 0; k < 3 && cases[i].allowed[k] != NULL; k++)
            ck_assert_msg(allows(r, cases[i].allowed[k]), "case %zu: %s", i, cases[i].allowed[k]);
        for (int k = 0; k < 3 && cases[i].refused[k] != NULL; k++)
            ck_assert_msg(!allows(r, cases[i].refused[k]), "case %zu: %s", i, cases[i].refused[k]);
        serve_request_leave(r);
        serve_grammars_finish();
    }
    /* The prompt begins the reasoning, as the template does. */
    open_added_with(thinks, "<|im_start|>{% if add_generation_prompt %}{{ "
                            "'<|im_start|>assistant\\n<think>\\n' }}{% endif %}");
    serve_request *r = read_request(TSR_CHAT_MODEL, json);
    const char *prompt = whole_prompt(r);
    ck_assert_str_eq(prompt + strlen(prompt) - 8, "<think>\n");
    ck_assert(allows(r, "why</think>\n\n{}") && !allows(r, "{}") && !allows(r, "why{}"));
    serve_request_leave(r);
    r = read_request(TSR_CHAT_MODEL, kwargs);
    prompt = whole_prompt(r);
    ck_assert_str_eq(prompt + strlen(prompt) - 19, "<think>\n\n</think>\n\n");
    ck_assert(allows(r, "yes"));
    serve_request_leave(r);
    serve_grammars_finish();
}
END_TEST

/* Returns a body with a tool of so many properties. */
static char *many_properties(int count)
{
    json_t *properties = json_object();
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        json_object_set_new(properties, name, json_object());
    }
    json_t *body = json_pack("{s[{sss{sss{so}}}]}", "tools", "type", "function", "function", "name",
                             "f", "parameters", "properties", properties);
    char *text = json_dumps(body, 0);
    ck_assert_ptr_nonnull(text);
    json_decref(body);
    return text;
}

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
        {TSR_CHAT_CHATML, "{\"reasoning_effort\": \"much\"" ASKS,
         "reasoning_effort is 'much'; none, minimal, low, medium and high are possible"},
        {TSR_CHAT_CHATML, "{\"chat_template_kwargs\": {\"x\": 1}" ASKS,
         "of chat_template_kwargs, only enable_thinking (true or false) and reasoning_effort are "
         "supported, not 'x'"},
        {TSR_CHAT_CHATML, "{\"chat_template_kwargs\": []" ASKS,
         "chat_template_kwargs is not an object"},
        {TSR_CHAT_HARMONY,
         "{\"tools\": [" TOOL "], \"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
         "{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"x\", \"function\": {\"name\": "
         "\"f\", \"arguments\": \"{}\"}}, {\"id\": \"y\", \"function\": {\"name\": \"f\", "
         "\"arguments\": \"{}\"}}]}]}",
         "no message of the role tool with the id of tool call 0 follows message 1"},
        {TSR_CHAT_HARMONY, "{\"tools\": [" TOOL "], \"tool_choice\": \"required\"" ASKS,
         "there is no token '<|channel|>'"},
        {TSR_CHAT_MISTRAL_V11_TEKKEN, "{\"tools\": [" TOOL "], \"tool_choice\": \"required\"" ASKS,
         "tools: there is no token '[TOOL_CALLS]' for a required call"},
        {TSR_CHAT_MISTRAL_V11_TEKKEN,
         "{\"tools\": [" TOOL "], \"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
         "{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
         "\"arguments\": \"{}\"}}]}]}",
         "tool call 0 of message 1 is not"},
        {TSR_CHAT_CHATML, "{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}",
         "message 0 is the result's (5) instead of the user's"},
        {TSR_CHAT_CHATML,
         "{\"tools\": [" TOOL "], \"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}",
         "message 1 is the assistant's (2) instead of the user's (counted with the messages that "
         "tools add)"},
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
    serve_problem problem = {0};
    char *many = many_properties(4097);
    ck_assert_ptr_null(serve_request_read(&server, true, many, strlen(many), &problem));
    ck_assert_str_eq(problem.message,
                     "the parameters of tool 0 have 4097 properties; at most 4096 are possible");
    free(many);
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
    tcase_add_test(tests, a_call_may_be_cut);
    tcase_add_test(tests, harmony_is_that_of_its_template);
    tcase_add_test(tests, named_calls_are_found);
    tcase_add_test(tests, reasoning_is_kept);
    tcase_add_test(tests, mistral_calls_are_those_of_templates);
    tcase_add_test(tests, grammars_begin_after_reasoning);
    tcase_add_test(tests, mistakes_are_named);
}
