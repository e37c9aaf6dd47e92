/* Compiles any bytes as a grammar, and as a JSON schema after a first byte '{'. Follows what it
 * allows. */
#include "fuzz/fuzz.h"

#include "tessera/grammar.h"
#include "tokenizer/tokenizer.h"

/* A vocabulary of all bytes, and of some strings that grammars of JSON have. */
static tsr_tokenizer *make_tokenizer(void)
{
    static const char *const words[] = {"{\"", "\":", "\", \"", "aa", "true", " ", "<|end|>"};
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

/* Takes tokens that masks allow. Each must be accepted. */
static void follow(const tsr_tokenizer *tokenizer, tsr_grammar *grammar)
{
    tsr_grammar_state *state = NULL;
    uint32_t mask[16], choice = 1;
    const int32_t tokens = tsr_tokenizer_size(tokenizer);
    tsr_status status = tsr_grammar_state_create(grammar, NULL, &state);
    for (int step = 0; step < 24 && status == TSR_OK; step++) {
        int32_t taken = -1;
        status = tsr_grammar_state_mask(state, 16, mask);
        if (status != TSR_OK)
            break;
        choice = choice * 1103515245 + 12345;
        for (int32_t i = 0; i < tokens && taken < 0; i++) {
            const int32_t id = (int32_t)((choice >> 8) % (uint32_t)tokens + (uint32_t)i) % tokens;
            if (mask[id / 32] >> (id % 32) & 1 && !tsr_tokenizer_is_end(tokenizer, id))
                taken = id;
        }
        if (taken < 0)
            break;
        status = tsr_grammar_state_add(state, taken);
    }
    FUZZ_CHECK(status == TSR_OK || status == TSR_ERR_OVERFLOW);
    tsr_grammar_state_destroy(&state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tsr_tokenizer *tokenizer;
    tsr_grammar *grammar = NULL;
    if (tokenizer == NULL)
        tokenizer = make_tokenizer();
    const bool schema = size > 0 && data[0] == '{';
    const tsr_status status = tsr_grammar_create(
        tsr_grammar_params(.tokenizer = tokenizer, .text = size > 0 ? (const char *)data : "",
                           .size_bytes = size,
                           .kind = schema ? TSR_GRAMMAR_JSON_SCHEMA : TSR_GRAMMAR_GBNF),
        &grammar);
    if (status == TSR_OK) {
        follow(tokenizer, grammar);
    } else {
        FUZZ_CHECK(status == TSR_ERR_INVALID || status == TSR_ERR_UNSUPPORTED);
        FUZZ_CHECK(strncmp(tsr_last_error(), schema ? "schema: " : "grammar: ", schema ? 8 : 9) ==
                   0);
    }
    tsr_grammar_destroy(&grammar);
    return 0;
}
