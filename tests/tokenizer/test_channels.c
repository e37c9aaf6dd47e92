/* Tests that text streams keep the channels of replies apart. */
#include <stdio.h>
#include <string.h>

#include "support/golden.h"
#include "tessera/tokenizer.h"
#include "tokenizer/tokenizer_read.h"

#define THINK "<think>", "</think>"
#define THOUGHT "<|channel>", "<channel|>"
#define HARMONY "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|constrain|>"

#define MISTRAL "[TOOL_CALLS]", "[INST]", "[/INST]"

/* Makes a byte-level tokenizer with these added tokens. */
static tsr_tokenizer *make_tokenizer(const char *const *added)
{
    json_error_t error;
    json_t *json = json_load_file(TEST_DATA "/tokenizer/mini-gpt2.tokenizer.json", 0, &error);
    ck_assert_ptr_nonnull(json);
    json_t *tokens = json_object_get(json, "added_tokens");
    size_t id = json_object_size(json_object_get(json_object_get(json, "model"), "vocab"));
    for (; *added != NULL; added++, id++)
        json_array_append_new(
            tokens,
            json_pack("{sI ss sb sb sb sb sb}", "id", (json_int_t)id, "content", *added,
                      "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special",
                      strstr(*added, "think>") == NULL && strstr(*added, "｜") == NULL));
    char *text = json_dumps(json, 0);
    json_decref(json);
    tsr_tokenizer *tokenizer = tsr__tokenizer_create();
    ck_assert_ptr_nonnull(tokenizer);
    ck_assert_ok(tsr__tokenizer_read_json(text, strlen(text), NULL, 0, tokenizer));
    free(text);
    return tokenizer;
}

typedef struct example {
    const char *const *added;  /* the tokens of the vocabulary */
    const char *prompt, *text; /* `text` is generated */
    const char *stop;          /* a stop string, or NULL */
    const char *wanted[3];     /* the text of each channel */
} example;

static const char *const think[] = {THINK, NULL}, *const thought[] = {THOUGHT, NULL},
                         *const turns[] = {THINK, "<|user|>", "<|assistant|>", NULL},
                         *const deepseek[] = {THINK, "<｜Assistant｜>", NULL},
                         *const turn_thought[] = {THOUGHT, "<|user|>", "<|assistant|>", NULL},
                         *const harmony[] = {HARMONY, NULL}, *const half[] = {"<think>", NULL},
                         *const mistral[] = {MISTRAL, "[CALL_ID]", "[ARGS]", NULL},
                         *const no_ids[] = {MISTRAL, "[ARGS]", "[THINK]", "[/THINK]", NULL},
                         *const lists[] = {MISTRAL, "[CALL_ID]", NULL},
                         *const other[] = {"<|start|>", "<|message|>", NULL};

static const example examples[] = {
    {think,
     "Q",
     "\n<think>\nLet me see.\n\nYes.\n</think>\n\nAnswer\n",
     NULL,
     {"\nAnswer\n", "Let me see.\n\nYes.", ""}},
    {think, "Q", "Answer", NULL, {"Answer", "", ""}},
    /* The prompt begins the reasoning, and may end it. */
    {think, "Q<think>\n", "why</think>A", NULL, {"A", "why", ""}},
    {think, "Q<think></think>\n", "\nA", NULL, {"A", "", ""}},
    {think, "Q<think>", "\n\nwhy\n", NULL, {"", "why\n", ""}},
    /* Marks in texts before the reply's header do not count. */
    {turns, "<|user|><think>why<|assistant|>", "A", NULL, {"A", "", ""}},
    {turns, "<|user|>a</think><|assistant|>", "\n\nA", NULL, {"\n\nA", "", ""}},
    {turns, "<|user|><think>why<|assistant|>\n<think>\n", "so</think>A", NULL, {"A", "so", ""}},
    {deepseek, "<think>why<｜Assistant｜>", "A", NULL, {"A", "", ""}},
    {turn_thought, "<|user|><|channel>x<|assistant|>", "\nA", NULL, {"\nA", "", ""}},
    /* Stop strings count in the answer only. */
    {think, "Q", "<think>stop here</think>go stop", "stop", {"go ", "stop here", ""}},
    {think, "Q", "<think>sto</think>p", "stop", {"p", "sto", ""}},
    {think, "Q", "s\u00e9</think>\u00e9", NULL, {"s\u00e9\u00e9", "", ""}},
    {thought, "Q", "<|channel>thought\nwhy\n<channel|>A", NULL, {"A", "why", ""}},
    {thought, "Q<|channel>thought\n<channel|>", "A", NULL, {"A", "", ""}},
    {harmony,
     "<|start|>user<|message|>Q<|end|><|start|>assistant",
     "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>A"
     "<|return|>",
     NULL,
     {"A", "why", ""}},
    {harmony,
     "<|start|>assistant",
     "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}",
     NULL,
     {"", "", "{\"x\": 1}"}},
    {harmony,
     "<|start|>assistant",
     " to=functions.f<|channel|>commentary json<|message|>{}<|end|><|start|>assistant"
     "<|channel|>final<|message|>B",
     NULL,
     {"B", "", "{}"}},
    {harmony,
     "<|start|>assistant",
     "<|channel|>commentary<|message|>wait<|end|><|start|>assistant to=a",
     NULL,
     {"", "", "wait"}},
    {harmony, "<|start|>assistant", "<|message|>A", NULL, {"A", "", ""}},
    {harmony,
     "<|start|>assistant",
     "<|channel|>a name longer than the one kept<|message|>A",
     NULL,
     {"A", "", ""}},
    {mistral,
     "[INST]Q[/INST]",
     "A[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS] f [CALL_ID]x[ARGS]{\"y\": 1}",
     NULL,
     {"A", "", "{}{\"y\": 1}"}},
    {no_ids, "[TOOL_CALLS]f[INST]Q[/INST]", "A[TOOL_CALLS]f[ARGS]{}", NULL, {"A", "", "{}"}},
    {mistral, "[TOOL_CALLS]f[ARGS]{}[INST]Q[/INST]", "A[TOOL_CALLS]f", NULL, {"A", "", ""}},
    {no_ids,
     "[INST]a[THINK]b[/INST]",
     "[THINK]\nwhy\n[/THINK]A[TOOL_CALLS]f[ARGS]{}",
     NULL,
     {"A", "why", "{}"}},
    {mistral, "[INST]Q[/INST]", "[THINK]why[/THINK]A", NULL, {"[THINK]why[/THINK]A", "", ""}},
    /* A list of calls, as older models write it, is text. */
    {mistral, "[INST]Q[/INST]", "[TOOL_CALLS][{\"a\": 1}]", NULL, {"[{\"a\": 1}]", "", ""}},
    {lists, "Q", "[TOOL_CALLS]f[CALL_ID]1", NULL, {"f1", "", ""}},
    /* Vocabularies that lack one of the tokens have no channels. */
    {half, "Q", "<think>why", NULL, {"<think>why", "", ""}},
    {other, "<|start|>", "assistant<|message|>A", NULL, {"assistantA", "", ""}},
};

static void encode(const tsr_tokenizer *tokenizer, const char *text, int32_t **ids, uint64_t *count)
{
    ck_assert_ok(tsr_tokenizer_encode(
        tokenizer, text, strlen(text),
        tsr_encode_params(.add = TSR_ENCODE_ADD_NONE, .control = TSR_ENCODE_CONTROL_TOKEN), ids,
        count));
}

START_TEST(channels_are_kept_apart)
{
    const example *e = &examples[_i];
    tsr_tokenizer *tokenizer = make_tokenizer(e->added);
    tsr_text_stream *stream = NULL;
    int32_t *prompt = NULL, *ids = NULL;
    uint64_t prompt_count = 0, count = 0;
    char got[3][256] = {"", "", ""};
    const char *text = NULL;
    size_t size = 0;
    bool stopped = false;
    encode(tokenizer, e->prompt, &prompt, &prompt_count);
    encode(tokenizer, e->text, &ids, &count);
    ck_assert_ok(tsr_text_stream_create(
        tsr_text_stream_params(.tokenizer = tokenizer, .stops = &e->stop,
                               .stop_count = e->stop != NULL, .channels = true),
        &stream));
    for (uint64_t i = 0; i < prompt_count; i++)
        ck_assert_ok(tsr_text_stream_add_prompt(stream, prompt[i], &text, &size));
    for (uint64_t i = 0; i <= count && !stopped; i++) {
        ck_assert_ok(i < count ? tsr_text_stream_add(stream, ids[i], &text, &size, &stopped)
                               : tsr_text_stream_end(stream, &text, &size));
        const int channel = (int)tsr_text_stream_channel(stream);
        ck_assert(channel >= 0 && channel < 3);
        const bool called = channel == TSR_TEXT_COMMENTARY && strstr(e->text, "=functions.f");
        const bool named = channel == TSR_TEXT_COMMENTARY && strstr(e->text, "[ARGS]");
        if (size > 0)
            ck_assert_str_eq(tsr_text_stream_recipient(stream), called  ? "functions.f"
                                                                : named ? "f"
                                                                        : "");
        ck_assert_uint_lt(strlen(got[channel]) + size, sizeof got[channel]);
        strncat(got[channel], text, size);
    }
    ck_assert_int_eq(stopped, e->stop != NULL && strcmp(e->wanted[0], "go ") == 0);
    for (int i = 0; i < 3; i++)
        ck_assert_str_eq(got[i], e->wanted[i]);
    tsr_text_stream_destroy(&stream);
    tsr_tokenizer_free_ids(&prompt);
    tsr_tokenizer_free_ids(&ids);
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

START_TEST(without_channels_all_is_the_answer)
{
    tsr_tokenizer *tokenizer = make_tokenizer(think);
    tsr_text_stream *stream = NULL;
    int32_t *ids = NULL;
    uint64_t count = 0;
    char got[64] = "";
    encode(tokenizer, "<think>\nwhy\n</think>\n\nA", &ids, &count);
    ck_assert_ok(tsr_text_stream_create(tsr_text_stream_params(.tokenizer = tokenizer), &stream));
    for (uint64_t i = 0; i < count; i++) {
        const char *text = NULL;
        size_t size = 0;
        bool stopped = false;
        ck_assert_ok(tsr_text_stream_add(stream, ids[i], &text, &size, &stopped));
        ck_assert_int_eq(tsr_text_stream_channel(stream), TSR_TEXT_ANSWER);
        strncat(got, text, size);
    }
    ck_assert_str_eq(got, "<think>\nwhy\n</think>\n\nA");
    ck_assert_int_eq(tsr_text_stream_channel(NULL), TSR_TEXT_ANSWER);
    ck_assert_str_eq(tsr_text_stream_recipient(NULL), "");
    tsr_text_stream_destroy(&stream);
    tsr_tokenizer_free_ids(&ids);
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

TESTS(channels)
{
    tcase_add_loop_test(tests, channels_are_kept_apart, 0,
                        (int)(sizeof examples / sizeof *examples));
    tcase_add_test(tests, without_channels_all_is_the_answer);
}
