/* Cuts a text into the words that byte pair encoding works on. Each step cuts the pieces of the
 * step before: what its expression matches becomes a piece, and what is between the matches
 * another. The expressions are functions of their own, known by the names that GGUF files use and
 * by the regular expressions of tokenizer.json. */
#ifndef TSR_TOKENIZER_WORDS_H
#define TSR_TOKENIZER_WORDS_H

#include "tokenizer/vocabulary.h"

/* The characters of a text. */
typedef struct tsr__letter {
    uint32_t code, start;
    uint32_t classes;
} tsr__letter;

/* Returns the number of characters that the expression matches at `at`, or 0. It sees the
 * characters up to `end` - 1 only. If there is no match, *skip may be set to a larger number of
 * characters at whose starts there is none. */
typedef size_t (*tsr__matcher)(const tsr__letter *text, size_t at, size_t end, size_t *skip);

#define TSR__MAX_WORD_STEPS 8
#define TSR__WORDS_NAME 24
typedef struct tsr__words {
    char name[TSR__WORDS_NAME]; /* empty without steps */
    tsr__matcher steps[TSR__MAX_WORD_STEPS];
    int count;
} tsr__words;

void tsr__words_set_name(tsr__words *words, const char *name);

/* Pieces of a text, as the offsets in bytes where they end. */
typedef struct tsr__pieces {
    tsr__letter *letters;
    size_t letter_capacity;
    size_t *ends, *other;
    size_t count, capacity, other_capacity;
} tsr__pieces;
void tsr__pieces_finish(tsr__pieces *pieces);

/* Cuts text[size]. The result is in `pieces`; a text without characters has no pieces. */
tsr_status tsr__words_cut(const tsr__words *words, const char *text, size_t size,
                          tsr__pieces *pieces) TSR_NODISCARD;

#endif
