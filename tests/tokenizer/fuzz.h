/* Checks that the fuzz targets of tokenizers make after a file has been read. */
#ifndef TESTS_TOKENIZER_FUZZ_H
#define TESTS_TOKENIZER_FUZZ_H

#include "fuzz/fuzz.h"
#include "tessera/tokenizer.h"
#include "tokenizer/info.h"

/* Checks that a file was refused with a sentence of one of the readers. */
static inline void fuzz_check_tokenizer_refusal(tsr_status status)
{
    FUZZ_CHECK(status == TSR_ERR_INVALID || status == TSR_ERR_UNSUPPORTED ||
               status == TSR_ERR_NOT_FOUND);
    FUZZ_CHECK(strncmp(tsr_last_error(), "tokenizer: ", 11) == 0 ||
               strncmp(tsr_last_error(), "tokenizer_config.json: ", 23) == 0 ||
               strncmp(tsr_last_error(), "gguf: ", 6) == 0);
}

/* Decodes the ids one by one and all together. Both results must be the same. */
static inline void fuzz_check_decode(const tsr_tokenizer *tokenizer, const int32_t *ids,
                                     uint64_t count)
{
    tsr_decode_state state = {.struct_size = sizeof state, .control = TSR_DECODE_CONTROL_SPELL};
    size_t size = 0, at = 0;
    FUZZ_CHECK(tsr_tokenizer_decode(tokenizer, ids, count, TSR_DECODE_CONTROL_SPELL, 0, NULL,
                                    &size) == TSR_OK);
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL && tsr_tokenizer_decode(tokenizer, ids, count, TSR_DECODE_CONTROL_SPELL,
                                                    size, text, &size) == TSR_OK);
    for (uint64_t i = 0; i < count; i++) {
        const char *bytes = NULL;
        size_t length = 0;
        FUZZ_CHECK(tsr_tokenizer_decode_next(tokenizer, &state, ids[i], &bytes, &length) == TSR_OK);
        FUZZ_CHECK(length <= size - at);
        FUZZ_CHECK(length == 0 || memcmp(text + at, bytes, length) == 0);
        at += length;
    }
    FUZZ_CHECK(at == size);
    free(text);
}

/* Encodes a text with each combination of two options. All ids must be in range. */
static inline void fuzz_check_encode(const tsr_tokenizer *tokenizer, const void *text, size_t size)
{
    for (int way = 0; way < 4; way++) {
        const tsr_encode_params params = {
            .struct_size = sizeof params,
            .add = way & 1 ? TSR_ENCODE_ADD_NONE : TSR_ENCODE_ADD_DEFAULT,
            .control = way & 2 ? TSR_ENCODE_CONTROL_TOKEN : TSR_ENCODE_CONTROL_TEXT};
        int32_t *ids = NULL;
        uint64_t count = 0;
        tsr_status status = tsr_tokenizer_encode(tokenizer, text, size, &params, &ids, &count);
        if (status != TSR_OK) {
            FUZZ_CHECK(status == TSR_ERR_INVALID);
            FUZZ_CHECK(strncmp(tsr_last_error(), "tokenizer: ", 11) == 0);
            continue;
        }
        for (uint64_t i = 0; i < count; i++)
            FUZZ_CHECK(ids[i] >= 0 && ids[i] < tsr_tokenizer_size(tokenizer));
        fuzz_check_decode(tokenizer, ids, count);
        tsr_tokenizer_free_ids(&ids);
    }
}

/* Uses a tokenizer that was read from data[size]. The file itself is one of the texts. */
static inline void fuzz_check_tokenizer(const tsr_tokenizer *tokenizer, const uint8_t *data,
                                        size_t size)
{
    static const char text[] = "Hello, w\xc3\xb6rld's 1234  \xe2\x96\x81 e\xcc\x81\xcc\xa3\n\n <s>"
                               "</s><|eot_id|>\xff\x00\xe4\xb8\x80 ab";
    fuzz_check_encode(tokenizer, text, sizeof text);
    fuzz_check_encode(tokenizer, data, size < 2000 ? size : 2000);
    for (int32_t id = 0; id < tsr_tokenizer_size(tokenizer); id++) {
        const char *spelling = NULL;
        size_t length = 0;
        FUZZ_CHECK(spelling_of(tokenizer, id, &spelling, &length) == TSR_OK);
        FUZZ_CHECK(tsr_tokenizer_find(tokenizer, spelling, length) == id);
    }
}

#endif
