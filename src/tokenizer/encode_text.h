/* Encoding with choices that the public interface does not have, for chat messages. */
#ifndef TSR_TOKENIZER_ENCODE_TEXT_H
#define TSR_TOKENIZER_ENCODE_TEXT_H

#include "tokenizer/tokenizer.h"

typedef struct tsr__encode_how {
    tsr__text_ranges control; /* where control tokens are recognised */
    bool starts;              /* the text is the start of a sequence, not its continuation */
    bool adds_before,
        adds_after; /* adds the ids that the file has for the start and the end of texts */
} tsr__encode_how;

/* Does what tsr_tokenizer_encode does, with `how` instead of its parameters. `text` is not NULL. */
tsr_status tsr__tokenizer_encode_with(const tsr_tokenizer *tokenizer, const char *text, size_t size,
                                      const tsr__encode_how *how, int32_t **ids,
                                      uint64_t *count) TSR_NODISCARD;

/* Sets *out to whether merging alone makes each ordinary token of its bytes, so that `whole_words`
 * changes no ids. Only for TSR_TOKENIZER_BYTE_BPE. */
tsr_status tsr__tokenizer_merges_all(const tsr_tokenizer *tokenizer, bool *out) TSR_NODISCARD;

#endif
