/* Cuts a text into the words that byte pair encoding works on. Each step cuts the pieces of the
 * step before: what its expression matches becomes a piece, and what is between the matches
 * another. Each expression is a function; word_expressions.h finds it by the name that GGUF files
 * use or by the regular expression in tokenizer.json. */
#ifndef TSR_TOKENIZER_SPLIT_WORDS_H
#define TSR_TOKENIZER_SPLIT_WORDS_H

#include "tokenizer/vocabulary.h"

/* A character of a text, and the offset in bytes where it starts. */
typedef struct tsr__letter {
    uint32_t code, start;
    uint32_t classes;
} tsr__letter;

/* Returns the number of characters that the expression matches at `at`, or 0. The expression does
 * not see characters from `end` on. The caller sets *skip to 1. If there is no match, the function
 * may set *skip to n, which says that no match starts at any of at … at + n - 1 either. */
typedef size_t (*tsr__matcher)(const tsr__letter *text, size_t at, size_t end, size_t *skip);

#define TSR__MAX_WORD_STEPS 8
#define TSR__WORDS_NAME 24
typedef struct tsr__words {
    char name[TSR__WORDS_NAME]; /* empty if there are no steps */
    tsr__matcher steps[TSR__MAX_WORD_STEPS];
    int count;
} tsr__words;

void tsr__words_set_name(tsr__words *words, const char *name);

/* The pieces of a text: piece i ends at byte offset ends[i], where the next one starts. The other
 * fields are work memory of tsr__words_cut. */
typedef struct tsr__pieces {
    tsr__letter *letters;
    size_t letter_capacity;
    size_t *ends, *other;
    size_t count, capacity, other_capacity;
} tsr__pieces;
void tsr__pieces_finish(tsr__pieces *pieces);

/* Cuts text[size] into pieces. The result is in `pieces`, which may come from an earlier call; an
 * empty text has no pieces. */
tsr_status tsr__words_cut(const tsr__words *words, const char *text, size_t size,
                          tsr__pieces *pieces) TSR_NODISCARD;

#endif
