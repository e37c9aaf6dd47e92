/* Tests the data of trainings: what lines become, which tokens are trained, how rows are packed,
 * and tessera data check. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/finetune/data.h"
#include "cli/finetune/data_document.h"
#include "cli/tool.h"
#include "support/check_main.h"

#define TOKENIZER TEST_DATA "/tokenizer/mini-llama3.tokenizer.json"

/* Files ---------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/tessera-data-XXXXXX";
static char path[64], other[64];
static tsr_tokenizer *tokenizer;

static void setup(void)
{
    strcpy(folder, "/tmp/tessera-data-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.jsonl", folder);
    snprintf(other, sizeof other, "%s/b.jsonl", folder);
    ck_assert_int_eq(tsr_tokenizer_open(TOKENIZER, &tokenizer), TSR_OK);
}

static void teardown(void)
{
    char text[64];
    snprintf(text, sizeof text, "%s/c.txt", folder);
    (void)remove(path);
    (void)remove(other);
    (void)remove(text);
    (void)rmdir(folder);
    tsr_tokenizer_close(&tokenizer);
}

static void write_file(const char *to, const char *text)
{
    FILE *file = fopen(to, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, strlen(text), file), strlen(text));
    ck_assert_int_eq(fclose(file), 0);
}

/* Masks ---------------------------------------------------------------------------------------- */

/* Returns the text of a line's document, with the trained tokens in brackets, or why the line is
 * bad. */
static char *marked(const data_form *form, const char *line, int which)
{
    static char out[4096];
    data_document documents[2];
    data_problem problem;
    tsr_decode_state state = TSR_INIT(tsr_decode_state);
    const data_lines at = {.path = "x.jsonl", .text = (char *)line, .size = strlen(line)};
    state.control = TSR_DECODE_CONTROL_SPELL;
    out[0] = '\0';
    if (!data_document_read(form, &at, documents, &problem)) {
        snprintf(out, sizeof out, "%d: %s", (int)problem.kind, problem.text);
        return out;
    }
    const data_document *d = &documents[which];
    bool inside = false;
    for (uint64_t i = 0; i <= d->count; i++) {
        const char *bytes = "";
        size_t size = 0;
        const bool trained = i > 0 && i < d->count && d->weights[i] != 0;
        if (trained != inside)
            strcat(out, trained ? "[" : "]");
        inside = trained;
        if (i < d->count)
            ck_assert_int_eq(tsr_tokenizer_decode_next(tokenizer, &state, d->ids[i], &bytes, &size),
                             TSR_OK);
        strncat(out, bytes, size);
    }
    data_document_free(&documents[0]);
    data_document_free(&documents[1]);
    return out;
}

#define U "{\"role\": \"user\", \"content\": \"Hi\"}"
#define A "{\"role\": \"assistant\", \"content\": \"Yes\"}"
#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define TURN "<|begin_of_text|>" HEADER("user") "Hi<|eot_id|>" HEADER("assistant")
#define NEXT HEADER("user") "Hi<|eot_id|>" HEADER("assistant")

static const struct {
    const char *line, *want;
} masks[] = {
    {"{\"messages\": [" U ", " A "]}", TURN "[Yes<|eot_id|>]"},
    {"{\"messages\": [" U ", " A ", " U ", " A "]}", TURN "[Yes<|eot_id|>]" NEXT "[Yes<|eot_id|>]"},
    /* what follows the last reply is not learnt */
    {"{\"messages\": [" U ", " A ", " U "]}", TURN "[Yes<|eot_id|>]"},
    {"{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, " U ", " A "]}",
     "<|begin_of_text|>" HEADER("system") "S<|eot_id|>" NEXT "[Yes<|eot_id|>]"},
    {"{\"messages\": [" U ", {\"role\": \"assistant\", \"content\": \"No\", \"weight\": 0}, " U
     ", " A "]}",
     TURN "No<|eot_id|>" NEXT "[Yes<|eot_id|>]"},
    {"{\"messages\": [" U ", {\"role\": \"assistant\", \"content\": \"No\", \"train\": false}, " U
     ", " A "]}",
     TURN "No<|eot_id|>" NEXT "[Yes<|eot_id|>]"},
    /* text that is spelled like a token stays text; lists of texts are joined */
    {"{\"messages\": [" U ", {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", "
     "\"text\": \"a<|eot\"}, {\"type\": \"text\", \"text\": \"_id|>\"}]}]}",
     TURN "[a<|eot_id|><|eot_id|>]"},
    {"{\"prompt\": [" U "], \"completion\": [" A "]}", TURN "[Yes<|eot_id|>]"},
    {"{\"prompt\": [" U ", " A ", " U "], \"completion\": [" A "]}",
     TURN "Yes<|eot_id|>" NEXT "[Yes<|eot_id|>]"},
    {"{\"prompt\": \"The dog\", \"completion\": \" ran\"}", "<|begin_of_text|>The dog[ ran]"},
    {"{\"prompt\": \"\", \"completion\": \"ran\"}", "<|begin_of_text|>[ran]"},
    {"{\"text\": \"The dog\"}", "<|begin_of_text|>[The dog]"},
    {"{\"messages\": [" U
     ", {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": "
     "\"f\", \"arguments\": {\"x\": 1}}}]}, {\"role\": \"tool\", \"content\": \"2\"}, " A "]}",
     TURN "[{\"name\": \"f\", \"parameters\": {\"x\": 1}}<|eot_id|>]" HEADER(
         "ipython") "\"2\"<|eot_id|>" HEADER("assistant") "[Yes<|eot_id|>]"},
    /* bad lines */
    {"{\"messages\": [" U ", ", "1: no JSON at byte "},
    {"[1]", "2: the line is no JSON object"},
    {"{\"a\": 1}", "2: the line has neither messages nor prompt and completion nor text"},
    {"{\"messages\": [{\"content\": \"x\"}]}", "2: message 0 has no role"},
    {"{\"messages\": [{\"role\": \"wizard\", \"content\": \"x\"}]}",
     "2: message 0 has the role 'wizard'; system, developer, user, assistant and tool are "
     "possible"},
    {"{\"messages\": [" U ", " U ", " A "]}",
     "2: message 1 is the user's, where the assistant's is needed"},
    {"{\"messages\": [" U ", " A ", " A "]}",
     "2: message 2 is the assistant's, where the user's is needed"},
    {"{\"messages\": [" U ", {\"role\": \"tool\", \"content\": \"2\"}]}",
     "2: message 1 is a tool's result, where a call of tools before it is needed"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": 1}, " A "]}",
     "2: the content of message 0 is neither a text nor a list of texts"},
    {"{\"messages\": [" U ", {\"role\": \"assistant\", \"content\": \"x\", \"weight\": -1}]}",
     "2: the weight of message 1 is no number from 0 to 1e6"},
    {"{\"messages\": [" U ", {\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": [1]}]}",
     "2: call 0 of message 1 is not {"},
    {"{\"prompt\": \"a\", \"completion\": [" A "]}",
     "2: prompt and completion are not both texts or both lists of messages"},
    {" \t", "3: the line is empty"},
    {"{\"text\": \"\"}", "3: the text is empty"},
    {"{\"messages\": []}", "3: there are no messages"},
    {"{\"messages\": [" U ", {\"role\": \"assistant\", \"content\": \"\"}]}",
     "3: the reply in message 1 is empty"},
    {"{\"prompt\": \"a\", \"completion\": \"\"}", "3: the completion is empty"},
    {"{\"messages\": [" U "]}", "4: there is no turn of the assistant"},
    {"{\"messages\": [" U ", {\"role\": \"assistant\", \"content\": \"x\", \"weight\": 0}]}",
     "4: no turn of the assistant is trained"},
};

START_TEST(trains_what_the_model_must_produce)
{
    const data_form form = {.tokenizer = tokenizer, .format = TSR_CHAT_LLAMA3};
    const char *got = marked(&form, masks[_i].line, 0), *want = masks[_i].want;
    const bool is_error = want[0] >= '1' && want[0] <= '9';
    ck_assert_msg(is_error ? strncmp(got, want, strlen(want)) == 0 : strcmp(got, want) == 0,
                  "%s\nbecame %s\nnot %s", masks[_i].line, got, want);
}
END_TEST

START_TEST(other_formats_and_all_tokens)
{
    data_form form = {.tokenizer = tokenizer, .format = TSR_CHAT_CHATML};
    const char *line = "{\"messages\": [" U ", " A ", " U ", " A "]}";
    ck_assert_str_eq(marked(&form, line, 0),
                     "<|begin_of_text|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
                     "[Yes<|im_end|>]\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
                     "[Yes<|im_end|>]");
    /* tools are described as servers do, also after an empty text of the system */
    const char *system = strstr(
        marked(&form,
               "{\"tools\": [{}], \"messages\": [{\"role\": \"system\", \"content\": \"\"}, " U
               ", " A "]}",
               0),
        "<|im_start|>system\n\n\n# Tools\n\nYou may call one or more functions");
    ck_assert_ptr_nonnull(system);
    ck_assert_ptr_nonnull(strstr(system, "XML tags:\n<tools>\n{}\n</tools>\n\nFor each"));
    ck_assert_ptr_nonnull(
        strstr(marked(&form, "{\"tools\": [{}], \"messages\": [" U ", " A "]}", 0),
               "<|im_start|>system\n# Tools\n\nYou may call"));
    /* a format that begins replies with an empty thought, which the model does not produce */
    form.format = TSR_CHAT_GEMMA4;
    ck_assert_ptr_nonnull(strstr(marked(&form, line, 0), "thought\n<channel|>[Yes<turn|>]"));
    /* a format in which the user's header ends a reply */
    form.format = TSR_CHAT_GLM4;
    ck_assert_ptr_nonnull(strstr(marked(&form, line, 0), "<|assistant|>\n[Yes<|user|>]\nHi"));
    form = (data_form){.tokenizer = tokenizer, .format = TSR_CHAT_LLAMA3, .loss_on_all = true};
    ck_assert_ptr_eq(strchr(marked(&form, line, 0) + strlen("<|begin_of_text|>["), '['), NULL);
    ck_assert_ptr_nonnull(strstr(marked(&form, "{\"prompt\": \"a\", \"completion\": \"b\"}", 0),
                                 "<|begin_of_text|>[ab]"));
    form = (data_form){.tokenizer = tokenizer}; /* no format is given, and there is no template */
    ck_assert_ptr_nonnull(strstr(marked(&form, line, 0), "2: "));
}
END_TEST

/* All calls of a reply are trained, with the text before them where the format has it. */
START_TEST(calls_of_mistral_are_trained)
{
#define CALLS(id)                                                                                  \
    "{\"tools\": [{}], \"messages\": [" U ", {\"role\": \"assistant\", \"content\": \"I look.\", " \
    "\"tool_calls\": [{" id "\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1}}}, {"       \
    "\"id\": \"call-123456789\", \"function\": {\"name\": \"g\", \"arguments\": \"{}\"}}]}, "      \
    "{\"role\": \"tool\", \"tool_call_id\": \"abcdefghi\", \"content\": \"2\"}, {\"role\": "       \
    "\"tool\", "                                                                                   \
    "\"tool_call_id\": \"call-123456789\", \"content\": \"3\"}, " A ", " U ", " A "]}"
    static const struct {
        tsr_chat_format format;
        const char *want;
    } cases[] = {
        {TSR_CHAT_MISTRAL_V7_TEKKEN,
         "<s>[INST]Hi[/INST][[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}, \"id\": "
         "\"abcdefghi\"}, {\"name\": \"g\", \"arguments\": {}, \"id\": \"123456789\"}]</s>]"
         "[TOOL_RESULTS] {\"content\": 2, \"call_id\": \"abcdefghi\"}[/TOOL_RESULTS][TOOL_RESULTS] "
         "{\"content\": 3, \"call_id\": \"123456789\"}[/TOOL_RESULTS][Yes</s>][AVAILABLE_TOOLS] "
         "[{}]"
         "[/AVAILABLE_TOOLS][INST]Hi[/INST][Yes</s>]"},
        {TSR_CHAT_MISTRAL_V11_TEKKEN,
         "<s>[INST]Hi[/INST][[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"x\": 1}[TOOL_CALLS]g[CALL_ID]"
         "123456789[ARGS]{}</s>][TOOL_RESULTS]abcdefghi[TOOL_CONTENT]2[/TOOL_RESULTS][TOOL_RESULTS]"
         "123456789[TOOL_CONTENT]3[/TOOL_RESULTS][Yes</s>][AVAILABLE_TOOLS][{}][/AVAILABLE_TOOLS]"
         "[INST]Hi[/INST][Yes</s>]"},
        {TSR_CHAT_MISTRAL_V13_TEKKEN,
         "<s>[AVAILABLE_TOOLS][{}][/AVAILABLE_TOOLS][INST]Hi[/INST][I "
         "look.[TOOL_CALLS]f[ARGS]{\"x\": "
         "1}[TOOL_CALLS]g[ARGS]{}</s>][TOOL_RESULTS]2[/TOOL_RESULTS][TOOL_RESULTS]3[/TOOL_RESULTS]"
         "[Yes</s>][INST]Hi[/INST][Yes</s>]"},
    };
    tsr_tokenizer_close(&tokenizer);
    ck_assert_int_eq(tsr_tokenizer_open(TEST_DATA "/tokenizer/stories260K-vocab.gguf", &tokenizer),
                     TSR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const data_form form = {.tokenizer = tokenizer, .format = cases[i].format};
        ck_assert_str_eq(marked(&form, CALLS("\"id\": \"abcdefghi\", "), 0), cases[i].want);
    }
    data_form form = {.tokenizer = tokenizer, .format = TSR_CHAT_MISTRAL_V11_TEKKEN};
    ck_assert_str_eq(marked(&form, CALLS(""), 0),
                     "2: call 0 of message 1 is not {\"function\": {\"name\": …, \"arguments\": "
                     "{…}}} with an id");
    form.format = TSR_CHAT_HARMONY;
    ck_assert_str_eq(marked(&form, CALLS(""), 0),
                     "2: the format harmony has no messages with tools");
}
END_TEST

/* Answers follow an empty reasoning if the model's template begins prompts with <think>. */
START_TEST(answers_have_no_reasoning)
{
    static const char *const added[] = {"<think>", "</think>"};
    char file[80], config[80];
    json_t *json = json_load_file(TEST_DATA "/tokenizer/mini-gpt2.tokenizer.json", 0, NULL);
    json_t *tokens = json_object_get(json, "added_tokens");
    size_t id = json_object_size(json_object_get(json_object_get(json, "model"), "vocab"));
    for (size_t i = 0; i < 2; i++, id++)
        json_array_append_new(tokens, json_pack("{sI ss sb sb sb sb sb}", "id", (json_int_t)id,
                                                "content", added[i], "single_word", 0, "lstrip", 0,
                                                "rstrip", 0, "normalized", 0, "special", 0));
    snprintf(file, sizeof file, "%s/tokenizer.json", folder);
    snprintf(config, sizeof config, "%s/tokenizer_config.json", folder);
    ck_assert_int_eq(json_dump_file(json, file, 0), 0);
    json_decref(json);
    write_file(config, "{\"chat_template\": \"<|im_start|>{% if add_generation_prompt %}{{ "
                       "'<|im_start|>assistant\\\\n<think>\\\\n' }}\"}");
    tsr_tokenizer_close(&tokenizer);
    ck_assert_int_eq(tsr_tokenizer_open(file, &tokenizer), TSR_OK);
    ck_assert_int_eq(remove(file), 0);
    ck_assert_int_eq(remove(config), 0);
    const data_form form = {.tokenizer = tokenizer};
    ck_assert_str_eq(marked(&form, "{\"messages\": [" U ", " A "]}", 0),
                     "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
                     "<think>\n\n</think>\n\n[Yes<|im_end|>]");
}
END_TEST

START_TEST(pairs_have_a_chosen_and_a_rejected_reply)
{
    const data_form form = {.tokenizer = tokenizer, .format = TSR_CHAT_LLAMA3, .pairs = true};
    const char *texts = "{\"prompt\": \"The\", \"chosen\": \" dog\", \"rejected\": \" cat\"}",
               *messages = "{\"chosen\": [" U ", " A "], \"rejected\": [" U
                           ", {\"role\": \"assistant\", \"content\": \"No\"}]}";
    ck_assert_str_eq(marked(&form, texts, 0), "<|begin_of_text|>The[ dog]");
    ck_assert_str_eq(marked(&form, texts, 1), "<|begin_of_text|>The[ cat]");
    ck_assert_str_eq(marked(&form, messages, 0), TURN "[Yes<|eot_id|>]");
    ck_assert_str_eq(marked(&form, messages, 1), TURN "[No<|eot_id|>]");
    ck_assert_ptr_nonnull(strstr(marked(&form, "{\"text\": \"a\"}", 0), "2: a pair has"));
    ck_assert_ptr_nonnull(strstr(marked(&form, "{\"prompt\": \"a\", \"chosen\": \"b\"}", 0),
                                 "2: prompt and rejected are not both texts"));
}
END_TEST

/* Rows ----------------------------------------------------------------------------------------- */

enum { DOCUMENTS = 3000, CONTEXT = 256 };

static uint64_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return *state >> 33;
}

/* Writes texts whose lengths are distributed as those of chats: many short ones, a few of nearly
 * the context. Each begins with its number. */
static void write_texts(const char *to, int count, int first)
{
    FILE *file = fopen(to, "wb");
    uint64_t state = 7;
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < count; i++) {
        const double u = (double)(draw(&state) + 1) / 0x1p31, v = (double)draw(&state) / 0x1p31,
                     normal = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
        int words = (int)(40 * exp(0.8 * normal));
        words = words > 200 ? 200 : words;
        fprintf(file, "{\"text\": \"%d", first + i);
        for (int w = 0; w < words; w++)
            fprintf(file, " a");
        fprintf(file, "\"}\n");
    }
    ck_assert_int_eq(fclose(file), 0);
}

static data_set *open_set(const data_options *options)
{
    data_set *set = NULL;
    ck_assert_int_eq(data_open(options, tokenizer, TSR_CHAT_LLAMA3, &set), 0);
    return set;
}

/* Returns the number at the start of the document that begins at a place of a batch. */
static int number_at(const data_batch *b, int64_t place)
{
    char text[64] = "";
    size_t size = 0;
    int64_t end = place;
    while (end < (place / b->context + 1) * b->context && end - place < 8 &&
           b->starts[end] == b->starts[place])
        end++;
    ck_assert_int_eq(tsr_tokenizer_decode(tokenizer, b->ids + place, (uint64_t)(end - place),
                                          TSR_DECODE_CONTROL_SKIP, sizeof text - 1, text, &size),
                     TSR_OK);
    text[size] = '\0';
    return atoi(text);
}

/* Counts how often each document is in rows, and checks the rows. */
static void count_documents(const data_batch *b, int *times)
{
    int64_t unmasked = 0, tokens = 0;
    for (int64_t i = 0; i < b->rows * b->context; i++) {
        const int64_t row = i / b->context, t = i % b->context;
        ck_assert_int_ge(b->starts[i], t > 0 ? b->starts[i - 1] : 0);
        ck_assert_int_le(b->starts[i], t);
        unmasked += b->labels[i] != -100;
        /* all tokens of texts are trained; a label is the next token of the same document */
        if (b->labels[i] == -100)
            continue;
        tokens++;
        if (t + 1 < b->context && b->starts[i + 1] == b->starts[i])
            ck_assert_int_eq(b->labels[i], b->ids[i + 1]);
        if (b->starts[i] == t)
            times[number_at(b, row * b->context + t)]++;
    }
    ck_assert_int_eq(unmasked, b->unmasked);
    ck_assert_int_eq(tokens, b->tokens);
}

START_TEST(rows_are_full_and_have_each_document_once)
{
    const char *const files[] = {path};
    static int times[DOCUMENTS];
    int64_t rows, labels;
    data_counts counts;
    data_batch all, part;
    write_texts(path, DOCUMENTS, 0);
    data_options options = {.files = files, .file_count = 1, .context = CONTEXT, .seed = 3};
    data_set *set = open_set(&options), *again = open_set(&options);
    data_get_counts(set, DATA_TRAIN, &counts);
    ck_assert_uint_eq(counts.documents, DOCUMENTS);
    ck_assert_uint_eq(counts.tokens, counts.trained);
    ck_assert_int_eq(data_rows(set, DATA_TRAIN, 0, &rows), 0);
    ck_assert_int_eq(data_get_batch(set, DATA_TRAIN, 0, rows, &all), 0);
    memset(times, 0, sizeof times);
    count_documents(&all, times);
    for (int i = 0; i < DOCUMENTS; i++)
        ck_assert_msg(times[i] == 1, "document %d is there %d times", i, times[i]);
    ck_assert_uint_eq((uint64_t)all.tokens, counts.tokens);
    ck_assert_double_ge((double)all.tokens / (double)(rows * CONTEXT), 0.95);
    ck_assert_int_eq(data_count_labels(set, DATA_TRAIN, 0, rows, &labels), 0);
    ck_assert_int_eq(labels, all.unmasked);
    /* ranges of rows, in any order and from another data set, are parts of the same rows */
    for (int64_t first = rows - 3; first >= 0; first -= rows / 5) {
        ck_assert_int_eq(data_get_batch(again, DATA_TRAIN, first, 3, &part), 0);
        ck_assert_mem_eq(part.ids, all.ids + first * CONTEXT, 3 * CONTEXT * sizeof *part.ids);
        ck_assert_mem_eq(part.labels, all.labels + first * CONTEXT, 3 * CONTEXT * 4);
        ck_assert_mem_eq(part.starts, all.starts + first * CONTEXT, 3 * CONTEXT * 4);
        ck_assert_int_eq(data_count_labels(again, DATA_TRAIN, first, 3, &labels), 0);
        ck_assert_int_eq(labels, part.unmasked);
        data_batch_free(&part);
    }
    /* the next epoch follows, in another order */
    int64_t more;
    ck_assert_int_eq(data_rows(set, DATA_TRAIN, 1, &more), 0);
    ck_assert_int_eq(data_get_batch(set, DATA_TRAIN, rows, more, &part), 0);
    ck_assert_int_eq(part.epoch, 1);
    memset(times, 0, sizeof times);
    count_documents(&part, times);
    for (int i = 0; i < DOCUMENTS; i++)
        ck_assert_int_eq(times[i], 1);
    ck_assert_mem_ne(part.ids, all.ids, CONTEXT * sizeof *part.ids);
    data_batch_free(&part);
    data_batch_free(&all);
    data_close(&again);
    data_close(&set);
}
END_TEST

START_TEST(one_document_is_in_a_row_without_packing)
{
    const char *const files[] = {path};
    data_batch b;
    int64_t rows;
    write_file(path, "{\"text\": \"a b c d e\"}\n{\"text\": \"a b\"}\n");
    data_options options = {
        .files = files, .file_count = 1, .context = 8, .unpacked = true, .unshuffled = true};
    data_set *set = open_set(&options);
    ck_assert_int_eq(data_rows(set, DATA_TRAIN, 0, &rows), 0);
    ck_assert_int_eq(rows, 2);
    ck_assert_int_eq(data_get_batch(set, DATA_TRAIN, 1, 2, &b), 0);
    ck_assert_ptr_null(b.starts);
    ck_assert_ptr_null(b.weights);
    ck_assert_int_eq(b.tokens, b.unmasked);
    ck_assert_int_eq(b.ids[0], b.ids[8]); /* BOS */
    ck_assert_int_eq(b.labels[7], -100);
    ck_assert_int_eq(b.ids[7], 0);
    data_batch_free(&b);
    data_close(&set);
}
END_TEST

START_TEST(long_texts_are_divided_and_conversations_cut)
{
    const char *const files[] = {path};
    const char *bad = "{\"messages\": [" U ", " A "]}\n";
    data_counts counts;
    data_batch b;
    int64_t rows;
    data_set *set = NULL;
    write_file(path, "{\"text\": \"a b c d e f g h i j k\"}\n");
    data_options options = {
        .files = files, .file_count = 1, .context = 4, .unshuffled = true, .unpacked = true};
    set = open_set(&options);
    data_get_counts(set, DATA_TRAIN, &counts);
    ck_assert_uint_eq(counts.divided, 1);
    ck_assert_int_eq(data_rows(set, DATA_TRAIN, 0, &rows), 0);
    ck_assert_int_ge(rows, 3);
    ck_assert_int_eq(data_get_batch(set, DATA_TRAIN, 0, rows, &b), 0);
    /* each token is predicted once */
    for (int64_t i = 0; i + 1 < b.tokens; i++)
        ck_assert_int_eq(b.labels[i], b.ids[i + 1]);
    data_batch_free(&b);
    data_close(&set);
    write_file(path, bad);
    options.context = 30;
    ck_assert_int_eq(data_open(&options, tokenizer, TSR_CHAT_LLAMA3, &set), 1);
    options.context = 300;
    set = open_set(&options);
    data_get_counts(set, DATA_TRAIN, &counts);
    const uint64_t all = counts.tokens;
    data_close(&set);
    options.context = (int64_t)all - 1;
    options.cut = true;
    set = open_set(&options);
    data_get_counts(set, DATA_TRAIN, &counts);
    ck_assert_uint_eq(counts.cut, 1);
    ck_assert_uint_eq(counts.lost, 1);
    ck_assert_uint_eq(counts.tokens, all - 1);
    data_close(&set);
    options.context = 10; /* no reply is left */
    ck_assert_int_eq(data_open(&options, tokenizer, TSR_CHAT_LLAMA3, &set), 1);
}
END_TEST

START_TEST(a_part_is_held_out_by_contents)
{
    const char *const files[] = {path, other};
    static int train[2 * DOCUMENTS], held[2 * DOCUMENTS];
    data_batch b;
    data_counts counts[2];
    int64_t rows;
    /* the second file has the first one's documents again */
    write_texts(path, 500, 0);
    write_texts(other, 500, 0);
    data_options options = {
        .files = files, .file_count = 2, .context = CONTEXT, .seed = 5, .held_out = 0.1};
    data_set *set = open_set(&options);
    data_get_counts(set, DATA_TRAIN, &counts[0]);
    data_get_counts(set, DATA_HELD_OUT, &counts[1]);
    ck_assert_uint_eq(counts[0].documents + counts[1].documents, 1000);
    ck_assert_uint_ge(counts[1].documents, 60);
    ck_assert_uint_le(counts[1].documents, 140);
    for (int side = 0; side < 2; side++) {
        const data_part which = side ? DATA_HELD_OUT : DATA_TRAIN;
        ck_assert_int_eq(data_rows(set, which, 0, &rows), 0);
        ck_assert_int_eq(data_get_batch(set, which, 0, rows, &b), 0);
        count_documents(&b, side ? held : train);
        data_batch_free(&b);
    }
    for (int i = 0; i < 500; i++)
        ck_assert_int_eq((train[i] == 2 && held[i] == 0) || (train[i] == 0 && held[i] == 2), 1);
    /* rows after the held-out ones are padding */
    ck_assert_int_eq(data_get_batch(set, DATA_HELD_OUT, rows, 2, &b), 0);
    ck_assert_int_eq(b.unmasked + b.tokens, 0);
    data_batch_free(&b);
    data_close(&set);
    /* a file of its own */
    options.file_count = 1;
    options.held_out = 0;
    options.held_out_file = other;
    set = open_set(&options);
    data_get_counts(set, DATA_HELD_OUT, &counts[1]);
    ck_assert_uint_eq(counts[1].documents, 500);
    data_close(&set);
}
END_TEST

START_TEST(weights_say_how_often_a_file_is_used)
{
    const char *const files[] = {path, other};
    const double weights[] = {0.5, 2};
    static int times[2][200];
    data_batch b;
    int64_t rows[2], first = 0;
    write_texts(path, 100, 0);
    write_texts(other, 100, 100);
    const data_options options = {
        .files = files, .weights = weights, .file_count = 2, .context = CONTEXT, .seed = 1};
    data_set *set = open_set(&options);
    for (int epoch = 0; epoch < 2; epoch++) {
        ck_assert_int_eq(data_rows(set, DATA_TRAIN, epoch, &rows[epoch]), 0);
        ck_assert_int_eq(data_get_batch(set, DATA_TRAIN, first, rows[epoch], &b), 0);
        count_documents(&b, times[epoch]);
        data_batch_free(&b);
        first += rows[epoch];
    }
    int of_first = 0, differ = 0;
    for (int i = 0; i < 100; i++) {
        ck_assert_int_le(times[0][i], 1);
        of_first += times[0][i];
        differ += times[0][i] != times[1][i];
        ck_assert_int_eq(times[0][100 + i], 2);
    }
    ck_assert_int_eq(of_first, 50);
    ck_assert_int_gt(differ, 10); /* other documents in the second epoch */
    data_close(&set);
}
END_TEST

START_TEST(pairs_are_two_rows)
{
    const char *const files[] = {path};
    data_batch b;
    int64_t rows, labels;
    write_file(path, "{\"prompt\": \"The\", \"chosen\": \" dog ran\", \"rejected\": \" cat\"}\n"
                     "{\"prompt\": \"A\", \"chosen\": \" b\", \"rejected\": \" c d\"}\n");
    data_options options = {
        .files = files, .file_count = 1, .context = 16, .pairs = true, .unshuffled = true};
    data_set *set = open_set(&options);
    ck_assert_int_eq(data_rows(set, DATA_TRAIN, 0, &rows), 0);
    ck_assert_int_eq(rows, 4);
    ck_assert_int_eq(data_get_batch(set, DATA_TRAIN, 0, 4, &b), 0);
    ck_assert_ptr_null(b.starts);
    for (int row = 0; row < 4; row += 2)
        ck_assert_mem_eq(b.ids + row * 16, b.ids + (row + 1) * 16, 2 * sizeof *b.ids);
    ck_assert_int_eq(data_count_labels(set, DATA_TRAIN, 0, 4, &labels), 0);
    ck_assert_int_eq(labels, b.unmasked);
    ck_assert_int_eq(data_count_labels(set, DATA_TRAIN, 1, 2, &labels), 1);
    data_batch_free(&b);
    data_close(&set);
}
END_TEST

START_TEST(weights_of_replies_and_plain_text)
{
    char text[64];
    const char *files[] = {path};
    data_batch b;
    int64_t rows;
    int halves = 0;
    data_counts counts;
    write_file(path, "{\"messages\": [" U
                     ", {\"role\": \"assistant\", \"content\": \"x\", \"weight\": 0.5}]}\n");
    data_options options = {.files = files, .file_count = 1, .context = 128};
    data_set *set = open_set(&options);
    ck_assert_int_eq(data_get_batch(set, DATA_TRAIN, 0, 1, &b), 0);
    ck_assert_ptr_nonnull(b.weights);
    for (int i = 0; i < 128; i++)
        halves += b.labels[i] != -100 && b.weights[i] == 0.5F;
    ck_assert_int_eq(halves, b.unmasked);
    data_batch_free(&b);
    data_close(&set);
    /* sections of a text file end with a line; together they have all of it */
    snprintf(text, sizeof text, "%s/c.txt", folder);
    FILE *file = fopen(text, "wb");
    for (int i = 0; i < 1000; i++)
        fprintf(file, "line %d\n", i);
    fclose(file);
    files[0] = text;
    options.context = 32;
    options.unshuffled = options.unpacked = true;
    set = open_set(&options);
    data_get_counts(set, DATA_TRAIN, &counts);
    ck_assert_uint_eq(counts.documents, 3);
    ck_assert_int_eq(data_rows(set, DATA_TRAIN, 0, &rows), 0);
    ck_assert_int_eq(data_get_batch(set, DATA_TRAIN, 0, rows, &b), 0);
    ck_assert_uint_eq((uint64_t)b.tokens, counts.tokens);
    data_batch_free(&b);
    data_close(&set);
}
END_TEST

START_TEST(bad_lines_and_options_are_refused)
{
    const char *files[] = {path};
    const double negative[] = {-1};
    data_set *set = NULL;
    data_counts counts;
    data_batch b;
    write_file(path, "{\"text\": \"a b\"}\nbad\n\n");
    data_options options = {.files = files, .file_count = 1, .context = 16, .quiet = true};
    ck_assert_int_eq(data_open(&options, tokenizer, TSR_CHAT_LLAMA3, &set), 1);
    options.skip_bad = true;
    set = open_set(&options);
    data_get_counts(set, DATA_TRAIN, &counts);
    ck_assert_uint_eq(counts.lines, 3);
    ck_assert_uint_eq(counts.documents, 1);
    ck_assert_uint_eq(counts.bad, 2);
    ck_assert_uint_eq(counts.empty, 1);
    /* the file changes */
    write_file(path, "{\"text\": \"a b c\"}\n");
    ck_assert_int_eq(data_get_batch(set, DATA_TRAIN, 0, 1, &b), 1);
    data_close(&set);
    write_file(path, "bad\n");
    ck_assert_int_eq(data_open(&options, tokenizer, TSR_CHAT_LLAMA3, &set), 1);
    write_file(path, "{\"text\": \"a b\"}\n");
    options.context = 0;
    ck_assert_int_eq(data_open(&options, tokenizer, TSR_CHAT_LLAMA3, &set), 1);
    options.context = 16;
    options.held_out = 0.7;
    ck_assert_int_eq(data_open(&options, tokenizer, TSR_CHAT_LLAMA3, &set), 1);
    options.held_out = 1e-12; /* nothing is held out */
    ck_assert_int_eq(data_open(&options, tokenizer, TSR_CHAT_LLAMA3, &set), 1);
    options.held_out = 0;
    options.weights = negative;
    ck_assert_int_eq(data_open(&options, tokenizer, TSR_CHAT_LLAMA3, &set), 1);
    files[0] = "/proc/nowhere";
    options.weights = NULL;
    ck_assert_int_eq(data_open(&options, tokenizer, TSR_CHAT_LLAMA3, &set), 1);
    ck_assert_ptr_null(set);
}
END_TEST

/* The command ---------------------------------------------------------------------------------- */

START_TEST(check_prints_what_a_training_would_make)
{
    char arguments[256];
    write_file(path,
               "{\"messages\": [" U ", " A "]}\n{\"text\": \"a b\"}\n{\"text\": \"a b\"}\nbad\n");
    snprintf(arguments, sizeof arguments,
             "data check %s --model " TOKENIZER " --format llama3 --context 40 --show 1", path);
    tool_result result = tool_run(arguments);
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_str_eq(result.err, "");
    static const char *const words[] = {"a.jsonl:1: ",
                                        TURN "[Yes<|eot_id|>]\n",
                                        "3 documents of 4 lines: ",
                                        "\n1 documents are the same as an earlier one\n",
                                        "1 documents are longer than the context of 40 tokens: ",
                                        "lengths, in tokens\n",
                                        "1 of 4 lines cannot be used:\n  1 no JSON\n",
                                        "a.jsonl:4: no JSON at byte "};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        ck_assert_msg(strstr(result.out, words[i]) != NULL, "no '%s' in %s", words[i], result.out);
    tool_result_free(&result);
    strcat(arguments, " --json");
    json_t *document = tool_json(arguments, "tessera.data.check");
    ck_assert_double_eq(tool_number(document, "documents"), 3);
    ck_assert_double_eq(tool_number(document, "duplicates"), 1);
    ck_assert_double_eq(tool_number(document, "longer_than_context"), 1);
    ck_assert_double_eq(tool_number(tool_member(document, "bad"), "no_json"), 1);
    const json_t *shown = json_array_get(tool_member(document, "shown"), 0);
    ck_assert_uint_eq(json_array_size(tool_member(shown, "ids")),
                      json_array_size(tool_member(shown, "trained")));
    json_decref(document);
}
END_TEST

/* Without --context, a row has as many tokens as the model was made for. */
START_TEST(check_knows_the_models_context)
{
    char arguments[256];
    write_file(path, "{\"text\": \"a b\"}\n");
    snprintf(arguments, sizeof arguments, "data check %s --json --model " TOKENIZER, path);
    json_t *document = tool_json(arguments, "tessera.data.check");
    ck_assert_double_eq(tool_number(document, "context"), 1024);
    json_decref(document);
    snprintf(arguments, sizeof arguments,
             "data check %s --json --model " TEST_DATA "/model/stories260K-f16.gguf", path);
    document = tool_json(arguments, "tessera.data.check");
    ck_assert_double_eq(tool_number(document, "context"), 512);
    json_decref(document);
}
END_TEST

START_TEST(check_refuses_wrong_arguments)
{
    tool_refuses("data", "tessera: data: missing check\n");
    tool_refuses("data chekc", "tessera: data: unknown command 'chekc'; it is check\n");
    tool_refuses("data check --model x", "tessera: data check: missing FILE\n");
    tool_refuses("data check x",
                 "tessera: data check: missing --model PATH, whose tokenizer is used\n");
    tool_reports("data check /proc/nowhere --model " TOKENIZER,
                 "tessera: data check: cannot read /proc/nowhere: No such file or directory\n");
    tool_fails("data check x --model /proc/nowhere", "/proc/nowhere");
}
END_TEST

TESTS(data)
{
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, trains_what_the_model_must_produce, 0, sizeof masks / sizeof *masks);
    tcase_add_test(tests, other_formats_and_all_tokens);
    tcase_add_test(tests, calls_of_mistral_are_trained);
    tcase_add_test(tests, answers_have_no_reasoning);
    tcase_add_test(tests, pairs_have_a_chosen_and_a_rejected_reply);
    tcase_add_test(tests, rows_are_full_and_have_each_document_once);
    tcase_add_test(tests, one_document_is_in_a_row_without_packing);
    tcase_add_test(tests, long_texts_are_divided_and_conversations_cut);
    tcase_add_test(tests, a_part_is_held_out_by_contents);
    tcase_add_test(tests, weights_say_how_often_a_file_is_used);
    tcase_add_test(tests, pairs_are_two_rows);
    tcase_add_test(tests, weights_of_replies_and_plain_text);
    tcase_add_test(tests, bad_lines_and_options_are_refused);
    tcase_add_test(tests, check_prints_what_a_training_would_make);
    tcase_add_test(tests, check_knows_the_models_context);
    tcase_add_test(tests, check_refuses_wrong_arguments);
}
