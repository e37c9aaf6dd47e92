/* Single values of a tokenizer and its tokens. */
#ifndef TESTS_TOKENIZER_INFO_H
#define TESTS_TOKENIZER_INFO_H

#include "tessera/tokenizer.h"

static inline tsr_tokenizer_info info_of(const tsr_tokenizer *tokenizer)
{
    tsr_tokenizer_info info = TSR_INIT(tsr_tokenizer_info);
    if (tsr_tokenizer_get_info(tokenizer, &info) != TSR_OK)
        info = (tsr_tokenizer_info){.bos = -1, .eos = -1, .pad = -1, .unknown = -1};
    return info;
}

/* Sets *text and *size to the spelling of a token. */
static inline tsr_status spelling_of(const tsr_tokenizer *tokenizer, int32_t id, const char **text,
                                     size_t *size)
{
    tsr_token_info token = TSR_INIT(tsr_token_info);
    const tsr_status status = tsr_tokenizer_get_token(tokenizer, id, &token);
    if (status == TSR_OK) {
        *text = token.text;
        *size = token.size_bytes;
    }
    return status;
}

static inline bool is_control(const tsr_tokenizer *tokenizer, int32_t id)
{
    tsr_token_info token = TSR_INIT(tsr_token_info);
    return tsr_tokenizer_get_token(tokenizer, id, &token) == TSR_OK && token.control;
}

#endif
