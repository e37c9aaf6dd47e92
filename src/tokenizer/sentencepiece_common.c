/* A function that the readers of SentencePiece-style tokenizers share. */
#include <string.h>

#include "base/alloc.h"
#include "tokenizer/tokenizer_read.h"

tsr_status tsr__tokenizer_make_spm(tsr_tokenizer *tokenizer, const float *scores, bool adds_space)
{
    static const char space[] = "▁";
    tokenizer->kind = TSR_TOKENIZER_SPM;
    tokenizer->scores = tsr__calloc(tokenizer->vocabulary.count, sizeof *scores);
    if (tokenizer->scores == NULL)
        return TSR_ERR_NO_MEMORY;
    memcpy(tokenizer->scores, scores, tokenizer->vocabulary.count * sizeof *scores);
    tokenizer->spells_spaces = true;
    tokenizer->fuse_unknown = true;
    tokenizer->strips_start = tokenizer->strips_after_control = adds_space;
    if (adds_space)
        TSR__TRY(
            tsr__normalizer_add(&tokenizer->normalizer, TSR__PREPEND, "", 0, space, strlen(space)));
    TSR__TRY(
        tsr__normalizer_add(&tokenizer->normalizer, TSR__REPLACE, " ", 1, space, strlen(space)));
    return tsr__merges_by_scores(&tokenizer->merges, &tokenizer->vocabulary, scores);
}
