/* Parses any bytes as a tokenizer.json; bytes after a zero byte are its tokenizer_config.json. */
#include "tokenizer/fuzz.h"

#include "tokenizer/tokenizer_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tsr_tokenizer *tokenizer = tsr__tokenizer_create();
    FUZZ_CHECK(tokenizer != NULL);
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    size_t json_size = zero != NULL ? (size_t)(zero - data) : size;
    const char *config = zero != NULL ? (const char *)zero + 1 : NULL;
    tsr_status status = tsr__tokenizer_read_json(
        (const char *)data, json_size, config, zero != NULL ? size - json_size - 1 : 0, tokenizer);
    if (status == TSR_OK)
        fuzz_check_tokenizer(tokenizer, data, size);
    else
        fuzz_check_tokenizer_refusal(status);
    tsr_tokenizer_close(&tokenizer);
    return 0;
}
