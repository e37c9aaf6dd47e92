/* The tokenizer files of llama2.c: the length of the longest token, and for each token its score,
 * length and bytes, without types. Source: github.com/karpathy/llama2.c, tokenizer.py. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "tokenizer/tokenizer_read.h"

#define HEAD 8 /* the bytes of a token's score and length, before its text */

static tsr_status read_tokens(tsr__file *file, tsr_tokenizer *tokenizer, float **scores)
{
    size_t capacity = 0, count = 0;
    uint8_t head[HEAD];
    char text[TSR_TOKENIZER_MAX_TOKEN_BYTES + 1];
    uint64_t offset = 4;
    TSR__TRY(tsr__file_read(file, 0, 4, "the length of the longest token", head));
    while (offset < file->size) {
        void *memory = *scores;
        TSR__TRY(tsr__file_read(file, offset, HEAD, "a token's score and length", head));
        uint64_t size = tsr__little_endian(head + 4, 4);
        uint32_t bits = (uint32_t)tsr__little_endian(head, 4);
        if (size > TSR_TOKENIZER_MAX_TOKEN_BYTES)
            return tsr__file_fail(file, TSR_ERR_INVALID, offset + 4,
                                  "token %zu has %" PRIu64 " bytes; %d are allowed", count, size,
                                  TSR_TOKENIZER_MAX_TOKEN_BYTES);
        TSR__TRY(tsr__file_read(file, offset + HEAD, size, "a token", text));
        TSR__TRY(tsr__grow(&memory, &capacity, count + 1, sizeof **scores));
        *scores = memory;
        memcpy(*scores + count, &bits, sizeof bits);
        /* Tokens 0 to 2 are <unk>, <s> and </s>; the file writes the latter two with line breaks
         * around them. In the other tokens it writes spaces, not "▁". */
        static const char *const first[] = {"<unk>", "<s>", "</s>"};
        char spelling[3 * TSR_TOKENIZER_MAX_TOKEN_BYTES + 1];
        size_t length = 0;
        for (size_t i = 0; i < size; i++) {
            bool is_space = text[i] == ' ';
            memcpy(spelling + length, is_space ? "▁" : text + i, is_space ? 3 : 1);
            length += is_space ? 3 : 1;
        }
        const char *name = count < 3 ? first[count] : spelling;
        tsr__token_type type = count == 0                                  ? TSR__TOKEN_UNKNOWN
                               : count < 3                                 ? TSR__TOKEN_CONTROL
                               : tsr__byte_spelling(spelling, length) >= 0 ? TSR__TOKEN_BYTE
                                                                           : TSR__TOKEN_NORMAL;
        TSR__TRY(tsr__vocabulary_add(&tokenizer->vocabulary, count, name,
                                     count < 3 ? strlen(name) : length, type));
        offset += HEAD + size;
        count++;
    }
    if (count < 3)
        return tsr__file_fail(file, TSR_ERR_INVALID, offset,
                              "%zu tokens; <unk>, <s> and </s> must be there", count);
    return TSR_OK;
}

static tsr_status read_llama2c_tokens(tsr__file *file, tsr_tokenizer *tokenizer, float **scores)
{
    TSR__TRY(read_tokens(file, tokenizer, scores));
    TSR__TRY(tsr__vocabulary_index(&tokenizer->vocabulary));
    tokenizer->unknown = 0;
    tokenizer->bos = 1;
    tokenizer->eos = 2;
    for (int id = 0; id < 3; id++) {
        const tsr__token *token = &tokenizer->vocabulary.tokens[id];
        const tsr__added_token added = {.id = id, .control = true};
        TSR__TRY(tsr__added_add(&tokenizer->added[0],
                                tsr__token_spelling(&tokenizer->vocabulary, id),
                                token->spelling_size, &added));
    }
    TSR__TRY(tsr__tokenizer_make_spm(tokenizer, *scores, true));
    TSR__TRY(tsr__tokenizer_add_around(tokenizer, tokenizer->bos, false));
    return tsr__tokenizer_complete(tokenizer);
}

tsr_status tsr__tokenizer_read_llama2c(tsr__file *file, tsr_tokenizer *tokenizer)
{
    float *scores = NULL;
    file->what = "tokenizer";
    tsr_status status = read_llama2c_tokens(file, tokenizer, &scores);
    tsr__free(scores);
    return status;
}
