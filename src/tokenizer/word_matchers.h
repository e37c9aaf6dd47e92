/* Matchers (split_words.h): the known expressions that split texts into words, as functions.
 * word_matchers.c gives the regular expression of each, and word_expressions.c its names. */
#ifndef TSR_TOKENIZER_WORD_MATCHERS_H
#define TSR_TOKENIZER_WORD_MATCHERS_H

#include "tokenizer/split_words.h"

/* Declares a function of the type tsr__matcher. */
#define TSR__MATCHER(name)                                                                         \
    size_t tsr__match_##name(const tsr__letter *text, size_t position, size_t end, size_t *skip)

TSR__MATCHER(gpt2);
TSR__MATCHER(llama3);
TSR__MATCHER(llama3_any_case);
TSR__MATCHER(qwen2);
TSR__MATCHER(qwen2_any_case);
TSR__MATCHER(qwen35);
TSR__MATCHER(qwen35_any_case);
TSR__MATCHER(gpt4o);
TSR__MATCHER(gpt4o_by_class);
TSR__MATCHER(tekken);
TSR__MATCHER(tekken_by_class);
TSR__MATCHER(newline);
TSR__MATCHER(letters);
TSR__MATCHER(punctuation);
TSR__MATCHER(cjk);
TSR__MATCHER(cjk_and_kana);
TSR__MATCHER(cased_letters);
TSR__MATCHER(wide_punctuation);
TSR__MATCHER(last_spaces);
TSR__MATCHER(number);
TSR__MATCHER(numbers_up_to_3);
TSR__MATCHER(numbers);
TSR__MATCHER(three_digits);
TSR__MATCHER(deepseek3);
TSR__MATCHER(falcon_signs);
TSR__MATCHER(default_signs);
TSR__MATCHER(bloom);
TSR__MATCHER(after_space_sign);

#endif
