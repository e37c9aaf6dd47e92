/* Reads any bytes as the body of a request to tessera serve. The first byte chooses the path and
 * the chat format. What is accepted has tokens of the vocabulary that fit the context, and what is
 * refused has a status and a sentence. */
#include "cli/serve/serve.h"
#include "fuzz/fuzz.h"
#include "tokenizer/tokenizer.h"

/* A vocabulary of all bytes, and of control tokens of chats. */
static tsr_tokenizer *make_tokenizer(void)
{
    static const char *const words[] = {"{\"",           "\":",         "aa",
                                        "<|im_start|>",  "<|im_end|>",  "<|eot_id|>",
                                        "<|endoftext|>", "<tool_call>", "</tool_call>"};
    tsr_tokenizer *tokenizer = tsr__tokenizer_create();
    FUZZ_CHECK(tokenizer != NULL);
    tokenizer->kind = TSR_TOKENIZER_SPM;
    uint64_t id = 0;
    for (; id < 256; id++) {
        char spelling[8];
        snprintf(spelling, sizeof spelling, "<0x%02X>", (unsigned)id);
        FUZZ_CHECK(tsr__vocabulary_add(&tokenizer->vocabulary, id, spelling, 6, TSR__TOKEN_BYTE) ==
                   TSR_OK);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        FUZZ_CHECK(tsr__vocabulary_add(&tokenizer->vocabulary, id++, words[i], strlen(words[i]),
                                       words[i][0] == '<' ? TSR__TOKEN_CONTROL
                                                          : TSR__TOKEN_NORMAL) == TSR_OK);
    FUZZ_CHECK(tsr__vocabulary_index(&tokenizer->vocabulary) == TSR_OK);
    FUZZ_CHECK(tsr__tokenizer_complete(tokenizer) == TSR_OK);
    return tokenizer;
}

static void check_refusal(const serve_problem *problem)
{
    FUZZ_CHECK(problem->status == 400 || problem->status == 404);
    FUZZ_CHECK(problem->message[0] != '\0');
    json_t *json = serve_error_json(problem); /* NULL if the sentence is not UTF-8 */
    FUZZ_CHECK(json != NULL);
    json_decref(json);
}

static void check_request(const serve_server *server, serve_request *r)
{
    FUZZ_CHECK(r->id_count > 0 && r->id_count < server->context);
    for (int64_t i = 0; i < r->id_count; i++)
        FUZZ_CHECK(r->ids[i] >= 0 && r->ids[i] < server->vocabulary);
    FUZZ_CHECK(r->choice_count >= 1 && r->choice_count <= 128);
    FUZZ_CHECK(r->max_tokens >= 0);
    for (int64_t i = 0; i < r->sampling.bias_count; i++) {
        FUZZ_CHECK(r->biases[i].token >= 0 && r->biases[i].token < server->vocabulary);
        for (int64_t k = 0; k < i; k++)
            FUZZ_CHECK(r->biases[i].token != r->biases[k].token);
    }
    for (int i = 0; i < r->stop_count; i++)
        FUZZ_CHECK(r->stops[i][0] != '\0');
    json_t *json = serve_reply_json(server, r); /* of texts that are empty */
    FUZZ_CHECK(json != NULL);
    json_decref(json);
    serve_request_leave(r);
}

static void check_document(json_t *document, const serve_problem *problem)
{
    if (document == NULL)
        check_refusal(problem);
    json_decref(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const tsr_chat_format formats[] = {TSR_CHAT_CHATML,  TSR_CHAT_LLAMA3,
                                              TSR_CHAT_VICUNA,  TSR_CHAT_MISTRAL_TEKKEN,
                                              TSR_CHAT_HARMONY, TSR_CHAT_MISTRAL_V11_TEKKEN};
    static serve_server server = {.name = "m", .context = 4096};
    serve_problem problem = {0};
    if (server.tokenizer == NULL) {
        server.tokenizer = make_tokenizer();
        server.vocabulary = tsr_tokenizer_size(server.tokenizer);
    }
    if (size == 0)
        return 0;
    const char *body = (const char *)data + 1;
    const int path = *data % 4;
    inference_chosen.format = formats[*data / 4 % (sizeof formats / sizeof *formats)];
    if (path == 2) {
        check_document(serve_tokenize(&server, body, size - 1, &problem), &problem);
    } else if (path == 3) {
        check_document(serve_detokenize(&server, body, size - 1, &problem), &problem);
    } else {
        serve_request *r = serve_request_read(&server, path == 0, body, size - 1, &problem);
        if (r == NULL)
            check_refusal(&problem);
        else
            check_request(&server, r);
    }
    return 0;
}
