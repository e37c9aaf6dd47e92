/* The pre-tokenizer: splits a text into the words that byte pair encoding works on. Each step
 * splits the words of the step before: each match of the step's expression becomes a word, and so
 * does each gap between matches. Each expression is a function, called its matcher.
 * word_expressions.h finds matchers by the names that GGUF files use or by the regular expressions
 * in tokenizer.json. */
#ifndef TSR_TOKENIZER_SPLIT_WORDS_H
#define TSR_TOKENIZER_SPLIT_WORDS_H

#include "tokenizer/vocabulary.h"

/* A character of a text, and the offset in bytes where it starts. */
typedef struct tsr__letter {
    uint32_t code, start;
    uint32_t classes;
} tsr__letter;

/* Returns the number of characters that the expression matches at `position`, or 0. The expression
 * does not see characters from `end` on. The caller sets *skip to 1. If there is no match, the
 * function may set *skip to n, which says that no match starts at position … position + n − 1. */
typedef size_t (*tsr__matcher)(const tsr__letter *text, size_t position, size_t end, size_t *skip);

#define TSR__MAX_WORD_STEPS 8
#define TSR__WORDS_NAME 24
/* The steps in which a tokenizer cuts a text into words. */
typedef struct tsr__word_splitter {
    char name[TSR__WORDS_NAME]; /* empty if there are no steps */
    tsr__matcher steps[TSR__MAX_WORD_STEPS];
    int count;
} tsr__word_splitter;

void tsr__word_splitter_set_name(tsr__word_splitter *splitter, const char *name);

/* The words of a text: word i ends at byte offset ends[i], where the next word starts. The other
 * fields are work memory of tsr__split_words. */
typedef struct tsr__word_list {
    tsr__letter *letters;
    size_t letter_capacity;
    size_t *ends, *previous; /* `previous`: the ends after the step before */
    size_t count, capacity, previous_capacity;
} tsr__word_list;
void tsr__word_list_finish(tsr__word_list *list);

/* Splits text[size] into words. The result is in `out`, which may come from an earlier call; an
 * empty text has no words. */
tsr_status tsr__split_words(const tsr__word_splitter *splitter, const char *text, size_t size,
                            tsr__word_list *out) TSR_NODISCARD;

#endif
