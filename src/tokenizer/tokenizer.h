/* The internal struct of tokenizers. The readers of files fill it; encoding and decoding use it. */
#ifndef TSR_TOKENIZER_TOKENIZER_H
#define TSR_TOKENIZER_TOKENIZER_H

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_merge.h"
#include "tokenizer/normalize.h"
#include "tokenizer/split_words.h"
#include "tokenizer/token_trie.h"
#include "tokenizer/vocabulary.h"

struct tsr_tokenizer {
    tsr_tokenizer_kind kind;
    tsr__vocabulary vocabulary;
    tsr__merges merges;
    float *scores;                  /* [tokens]; NULL if the kind is not TSR_TOKENIZER_SPM */
    int32_t bos, eos, pad, unknown; /* -1: none */
    int32_t bytes[256];             /* the token of each byte, or -1 */
    bool fuse_unknown;              /* neighbouring unknown characters become one token */
    bool whole_words; /* a word that is a token is taken whole, not merged from symbols */

    /* the tokens that are searched in a text: added[0] before normalisation, added[1] after it */
    tsr__added added[2];
    tsr__normalizer normalizer;
    /* Changes text between tokens of added[1], after `normalizer`. Its steps only concern spaces
     * and "▁", so a text becomes at most 6 times as long. */
    tsr__normalizer late;
    tsr__word_splitter words;

    char *chat_template; /* from the GGUF file, or from a file beside the tokenizer's; NULL: none */

    /* the ids that are added to each text: `before` ids in front of it, and then `after` ids that
     * follow it */
    int32_t *around;
    size_t before, after, around_capacity;

    tsr__trie_place *trie;

    bool spells_spaces; /* "▁" in a spelling stands for a space */
    /* Decoding removes one space at the start of the text, or after each control token. */
    bool strips_start, strips_after_control;
};

/* Creates an empty tokenizer, without special ids. Returns NULL if there is no memory. */
tsr_tokenizer *tsr__tokenizer_create(void) TSR_NODISCARD;

/* Adds an id to those that are added before or after each text. The ids before the text must be
 * added first. Errors: TSR_ERR_INVALID if there are TSR__MAX_AROUND already. Without this limit, a
 * small file could take much memory: its template may name the same long list of ids many times. */
#define TSR__MAX_AROUND 64
tsr_status tsr__tokenizer_add_around(tsr_tokenizer *tokenizer, int32_t id,
                                     bool after) TSR_NODISCARD;

/* Completes a tokenizer: computes the bytes of each token, finds the tokens of single bytes, and
 * sorts the added tokens. The vocabulary must have been indexed before. */
tsr_status tsr__tokenizer_complete(tsr_tokenizer *tokenizer) TSR_NODISCARD;

/* Returns whether generation ends with a control token of this spelling. */
bool tsr__is_end_spelling(const char *text, size_t size);

/* Returns the byte that a spelling from "<0x00>" to "<0xFF>" stands for, or -1. */
int tsr__byte_spelling(const char *text, size_t size);

static inline bool tsr__is_control(const tsr__token *token)
{
    return token->type == TSR__TOKEN_CONTROL || token->type == TSR__TOKEN_UNKNOWN;
}

/* Returns whether texts are searched for a token before anything is merged. */
static inline bool tsr__is_added(const tsr__token *token)
{
    return tsr__is_control(token) || token->type == TSR__TOKEN_USER;
}

/* Checks that an id is in range. */
tsr_status tsr__check_id(const tsr_tokenizer *tokenizer, int32_t id) TSR_NODISCARD;

#endif
