/* The trie of a vocabulary: tokens with the same first bytes are looked at together. */
#ifndef TSR_TOKENIZER_TOKEN_TRIE_H
#define TSR_TOKENIZER_TOKEN_TRIE_H

#include <stdatomic.h>

#include "base/error.h"
#include "tokenizer/vocabulary.h"

/* Control tokens and those that are added to a vocabulary can also be meant as themselves. They
 * have a code of these bytes, which begins with one that no text in UTF-8 has. */
#define TSR__TOKEN_CODE 4
#define TSR__TOKEN_CODE_FIRST 0xff
static inline void tsr__token_code(int32_t id, uint8_t code[TSR__TOKEN_CODE])
{
    code[0] = TSR__TOKEN_CODE_FIRST;
    code[1] = (uint8_t)(id >> 16);
    code[2] = (uint8_t)(id >> 8);
    code[3] = (uint8_t)id;
}

bool tsr__token_has_code(const tsr__token *token);

/* What another module keeps as long as the trie: the first member of its struct. */
typedef struct tsr__trie_guest {
    void (*destroy)(struct tsr__trie_guest *guest);
} tsr__trie_guest;

/* The bytes of all tokens that are text in UTF-8, and all codes. Nodes are in the order of their
 * strings, so that the nodes below one follow it. */
typedef struct tsr__token_trie {
    uint32_t count;    /* nodes; node 0 is the root */
    uint8_t *bytes;    /* by node */
    uint32_t *depths;  /* by node: the length of its string */
    uint32_t *nexts;   /* by node: the first one that is not below it */
    uint32_t *deepest; /* by node: the greatest depth below it, or its own */
    uint32_t
        *firsts; /* [count + 1] by node: its tokens are tokens[firsts[n] … firsts[n + 1] − 1] */
    int32_t *tokens;
    uint32_t longest;                 /* the most bytes of a token */
    _Atomic(tsr__trie_guest *) guest; /* NULL: none */
} tsr__token_trie;

/* Gives the tokenizer's trie, which the first call builds. Any number of threads may call this.
 * Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__tokenizer_trie(const tsr_tokenizer *tokenizer, tsr__token_trie **out) TSR_NODISCARD;

/* Where a tokenizer keeps its trie. */
typedef struct tsr__trie_place tsr__trie_place;
/* Returns NULL if there is no memory. */
tsr__trie_place *tsr__trie_place_create(void) TSR_NODISCARD;
/* Destroys the place and the trie. NULL is allowed. */
void tsr__trie_place_destroy(tsr__trie_place *place);

#endif
