/* Parses any bytes as the tokenizer of a GGUF file, as a tokenizer.model of SentencePiece, and as a
 * tok….bin of llama2.c. */
#include "tokenizer/fuzz.h"

#include "tokenizer/tokenizer_read.h"

typedef tsr_status (*read_fn)(tsr__file *file, tsr_tokenizer *tokenizer);

static void check(read_fn read, const uint8_t *data, size_t size)
{
    tsr_tokenizer *tokenizer = tsr__tokenizer_create();
    tsr__file file = {.what = "tokenizer",
                      .size = size,
                      .data = data != NULL ? data : (const uint8_t *)"",
                      .data_size = size,
                      .descriptor = -1};
    FUZZ_CHECK(tokenizer != NULL);
    tsr_status status = read(&file, tokenizer);
    if (status == TSR_OK)
        fuzz_check_tokenizer(tokenizer, data, size);
    else
        fuzz_check_tokenizer_refusal(status);
    tsr_tokenizer_close(&tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(tsr__tokenizer_read_gguf, data, size);
    check(tsr__tokenizer_read_model, data, size);
    check(tsr__tokenizer_read_llama2c, data, size);
    return 0;
}
