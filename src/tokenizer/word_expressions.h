/* Finds the matchers (split_words.h) of a tokenizer by name or by regular expression, and the other
 * way round. */
#ifndef TSR_TOKENIZER_WORD_EXPRESSIONS_H
#define TSR_TOKENIZER_WORD_EXPRESSIONS_H

#include "tokenizer/split_words.h"

/* Finds what the name in a GGUF file's tokenizer.ggml.pre stands for: the steps, whether a word
 * that is a token is taken whole instead of being merged from symbols, and whether BOS is added by
 * default. Errors: TSR_ERR_UNSUPPORTED for an unknown name. */
tsr_status tsr__word_splitter_by_name(const char *name, tsr__word_splitter *splitter,
                                      bool *whole_words, bool *adds_bos) TSR_NODISCARD;

/* Appends the step of a regular expression that is written as in tokenizer.json. If `must_cover` is
 * true, the matches must leave no character of any text out. Errors: TSR_ERR_UNSUPPORTED for an
 * unknown expression. */
tsr_status tsr__word_splitter_add_expression(tsr__word_splitter *splitter, const char *expression,
                                             bool must_cover) TSR_NODISCARD;

/* Appends the step of GPT-2. */
tsr_status tsr__word_splitter_add_gpt2(tsr__word_splitter *splitter) TSR_NODISCARD;
/* Appends a step that cuts off each digit if `individual` is true, otherwise each number. */
tsr_status tsr__word_splitter_add_digits(tsr__word_splitter *splitter,
                                         bool individual) TSR_NODISCARD;
/* Appends a step that cuts in front of each "▁". */
tsr_status tsr__word_splitter_add_space_signs(tsr__word_splitter *splitter) TSR_NODISCARD;

/* Finds the name that GGUF files use for these steps and this value of `whole_words`. A step of a
 * GGUF file may differ from that of tokenizer.json: in a contraction such as "'s", it compares
 * only ASCII letters without regard to case; see also tsr__word_splitter_changes. Errors:
 * TSR_ERR_UNSUPPORTED if there is no such name. */
tsr_status tsr__word_splitter_find_name(const tsr__word_splitter *splitter, bool whole_words,
                                        char out[TSR__WORDS_NAME]) TSR_NODISCARD;

/* Returns whether the name that is found for these steps (`to_gguf`), or the expressions, cut some
 * words with letters outside ASCII differently: GPT-4o's and Tekken's expressions have capital and
 * small letters of all alphabets, and the steps with their names only those of ASCII. */
bool tsr__word_splitter_changes(const tsr__word_splitter *splitter, bool to_gguf);

/* Finds the regular expression of each step; out[0 … splitter->count − 1] are in static memory.
 * Errors: TSR_ERR_UNSUPPORTED if a step has none in tokenizer.json. */
tsr_status tsr__word_splitter_find_expressions(const tsr__word_splitter *splitter,
                                               const char *out[TSR__MAX_WORD_STEPS]) TSR_NODISCARD;

#endif
