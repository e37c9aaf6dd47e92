/* Added tokens and control tokens, which are searched in a text before the text is split into
 * words. */
#ifndef TSR_TOKENIZER_ADDED_TOKENS_H
#define TSR_TOKENIZER_ADDED_TOKENS_H

#include "tokenizer/vocabulary.h"

typedef struct tsr__added_token {
    uint64_t start; /* where the text to find starts in `strings` */
    uint32_t size;
    int32_t id;
    bool control;                 /* found only in the ranges that the caller of the search gives */
    bool single_word;             /* found only if no letter or digit is beside it */
    bool strip_left, strip_right; /* the token includes the spaces on its left or right */
} tsr__added_token;

typedef struct tsr__added {
    tsr__added_token *tokens; /* sorted by their texts */
    size_t count, capacity;
    tsr__strings strings;
    uint32_t first[257]; /* the tokens that start with byte b are first[b] … first[b + 1] - 1 */
} tsr__added;

void tsr__added_finish(tsr__added *added);

/* Adds a token that is found by text[size]. The caller fills `token` except for start and size. A
 * token without text is never found. */
tsr_status tsr__added_add(tsr__added *added, const char *text, size_t size,
                          const tsr__added_token *token) TSR_NODISCARD;
/* Sorts the tokens, before the first search. Of tokens with the same text, the one that was added
 * first counts. */
void tsr__added_sort(tsr__added *added);

/* A range of a text, in bytes. */
typedef struct tsr__text_range {
    size_t start, end;
} tsr__text_range;

/* The ranges of a text in which control tokens are recognised. They are in ascending order and do
 * not touch each other. */
typedef struct tsr__text_ranges {
    const tsr__text_range *ranges;
    size_t count; /* 0: nowhere */
} tsr__text_ranges;

extern const tsr__text_ranges tsr__everywhere;
/* Returns whether text[start … end - 1] lies completely in one of the ranges. */
bool tsr__text_ranges_contain(const tsr__text_ranges *ranges, size_t start, size_t end);

typedef struct tsr__found {
    size_t start, end;
    int32_t id;
} tsr__found;

/* Finds the added token that starts first in text[from … size - 1]. If several start there, finds
 * the longest. Control tokens are found only inside the ranges of `control`. Returns false if the
 * text contains no token. A token with strip_left does not include spaces before `from`. */
bool tsr__added_search(const tsr__added *added, const tsr__text_ranges *control, const char *text,
                       size_t size, size_t from, tsr__found *found);

#endif
