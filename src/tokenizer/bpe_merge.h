/* Byte pair encoding: merges neighbouring symbols, always the pair of the lowest rank. Of equal
 * ranks, the leftmost pair merges first. A heap holds the pairs, so n symbols take O(n log n). */
#ifndef TSR_TOKENIZER_BPE_MERGE_H
#define TSR_TOKENIZER_BPE_MERGE_H

#include "tokenizer/vocabulary.h"

/* Two neighbouring tokens that merge, and the token that they become. The pair of the lowest rank
 * in a text merges first. */
typedef struct tsr__pair {
    int32_t left, right, merged;
    uint32_t rank;
} tsr__pair;
/* Defines which pairs of symbols merge. If `ranks` is NULL, the pairs of the list merge: pairs with
 * the same left token are neighbours, sorted by the right token. Otherwise two symbols merge if
 * their texts together are a token. The rank of the pair is then ranks[id] of this token; the pair
 * does not merge if the rank is TSR__NEVER. */
typedef struct tsr__merges {
    tsr__pair *pairs;
    size_t count, capacity;
    uint32_t *starts; /* [tokens + 1]: where the pairs of each left token start */
    uint32_t *ranks;
} tsr__merges;
#define TSR__NEVER UINT32_MAX

void tsr__merges_finish(tsr__merges *merges);

/* Adds a pair to the list. The rank of the first pair is 0, that of the next 1, and so on. */
tsr_status tsr__merges_add(tsr__merges *merges, int32_t left, int32_t right,
                           int32_t merged) TSR_NODISCARD;
/* Adds merge `number` of a file, which is given by the spellings of two tokens. Errors:
 * TSR_ERR_INVALID if one of them, or both written together, is not a token. */
tsr_status tsr__merges_add_spelled(tsr__merges *merges, const tsr__vocabulary *vocabulary,
                                   uint64_t number, const char *left, size_t left_size,
                                   const char *right, size_t right_size) TSR_NODISCARD;
/* Sorts the list, before the first merge. `tokens` is the size of the vocabulary. A pair that
 * occurs several times keeps its last rank if `last_counts` is true, otherwise its first. */
tsr_status tsr__merges_sort(tsr__merges *merges, size_t tokens, bool last_counts) TSR_NODISCARD;

/* Sets *out to a copy of the list in the order of the ranks. The caller must free the copy. */
tsr_status tsr__merges_in_order(const tsr__merges *merges, tsr__pair **out) TSR_NODISCARD;

/* Ranks tokens by their scores: the highest score has rank 0, and equal scores have equal ranks.
 * Control, unknown and byte tokens are never the result of a merge. */
tsr_status tsr__merges_by_scores(tsr__merges *merges, const tsr__vocabulary *vocabulary,
                                 const float *scores) TSR_NODISCARD;

/* A range of the text that is being merged. `id` is −1 if the range is not a token. */
typedef struct tsr__symbol {
    uint32_t start, size; /* size 0: the symbol was merged into the one before it */
    uint32_t previous, next;
    int32_t id;
} tsr__symbol;
typedef struct tsr__candidate {
    uint64_t order; /* the rank in the upper and the left symbol in the lower 32 bits */
    uint32_t size;  /* of both symbols together; if it has changed, the candidate is stale */
    int32_t merged;
} tsr__candidate;
typedef struct tsr__merge_work {
    tsr__symbol *symbols;
    size_t count, capacity;
    tsr__candidate *heap;
    size_t heap_count, heap_capacity;
} tsr__merge_work;

void tsr__merge_work_finish(tsr__merge_work *work);

/* Appends a symbol of `size` bytes. In the text, the symbol must follow the last appended one. */
tsr_status tsr__merge_symbol(tsr__merge_work *work, size_t start, size_t size,
                             int32_t id) TSR_NODISCARD;

/* Merges the symbols of `work`, whose offsets are in `text`. Afterwards the symbols whose size is
 * not 0 are the result, in their order. */
tsr_status tsr__merge(const tsr__merges *merges, const tsr__vocabulary *vocabulary,
                      const char *text, tsr__merge_work *work) TSR_NODISCARD;

#endif
