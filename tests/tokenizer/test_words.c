/* Compares how texts are cut into words with the recorded matches of another engine for regular
 * expressions. */
#include <stdio.h>

#include "support/golden.h"
#include "tokenizer/word_expressions.h"

static void make_words(const json_t *one, tsr__word_splitter *words)
{
    const json_t *expressions = json_object_get(one, "expressions"), *expression;
    const char *name = golden_text(one, "name");
    bool whole_words, adds_bos;
    size_t i;
    *words = (tsr__word_splitter){0};
    if (expressions == NULL)
        ck_assert_ok(tsr__word_splitter_by_name(name, words, &whole_words, &adds_bos));
    json_array_foreach(expressions, i, expression) ck_assert_ok(
        tsr__word_splitter_add_expression(words, json_string_value(expression), false));
    ck_assert_str_eq(words->name, name);
}

START_TEST(words_end_where_the_expression_says)
{
    json_t *document = golden_load("tokenizer/words"), *texts = golden_list(document, "texts");
    json_t *one = json_array_get(golden_list(document, "cases"), (size_t)_i);
    ck_assert_uint_eq(json_array_size(golden_list(document, "cases")), 22);
    tsr__word_splitter words;
    tsr__word_list pieces = {0};
    make_words(one, &words);
    for (size_t t = 0; t < json_array_size(texts); t++) {
        const char *text = json_string_value(json_array_get(texts, t));
        const json_t *ends = json_array_get(golden_list(one, "cuts"), t);
        ck_assert_ok(tsr__split_words(&words, text, strlen(text), &pieces));
        bool same = pieces.count == json_array_size(ends);
        for (size_t i = 0; i < pieces.count && same; i++)
            same = (json_int_t)pieces.ends[i] == json_integer_value(json_array_get(ends, i));
        if (!same) {
            char got[1024], *wanted = json_dumps(ends, JSON_COMPACT);
            size_t used = 0;
            for (size_t i = 0; i < pieces.count && used < sizeof got; i++)
                used += (size_t)snprintf(got + used, sizeof got - used, "%zu,", pieces.ends[i]);
            ck_abort_msg("%s: text %zu, '%s', ends at %s instead of %s", words.name, t, text, got,
                         wanted);
        }
    }
    tsr__word_list_finish(&pieces);
    json_decref(document);
}
END_TEST

START_TEST(unknown_words_are_refused)
{
    tsr__word_splitter words = {0};
    bool flag;
    ck_assert_error(tsr__word_splitter_by_name("qwen", &words, &flag, &flag), TSR_ERR_UNSUPPORTED,
                    "tokenizer: the pre-tokenizer 'qwen' is not known, so texts cannot be cut into "
                    "words");
    ck_assert_error(tsr__word_splitter_by_name("", &words, &flag, &flag), TSR_ERR_UNSUPPORTED,
                    "tokenizer: the pre-tokenizer '' is not known, so texts cannot be cut into "
                    "words");
    ck_assert_error(tsr__word_splitter_add_expression(&words, "\\p{L}+", false),
                    TSR_ERR_UNSUPPORTED,
                    "tokenizer: the regular expression '\\p{L}+' is not known, so texts cannot be "
                    "cut into words");
    /* This expression leaves text between its matches. */
    ck_assert_error(tsr__word_splitter_add_expression(&words, "\\p{N}", true), TSR_ERR_UNSUPPORTED,
                    "tokenizer: the regular expression '\\p{N}' is not known, so texts cannot be "
                    "cut into words");
    for (int i = 0; i < TSR__MAX_WORD_STEPS; i++)
        ck_assert_ok(tsr__word_splitter_add_digits(&words, true));
    ck_assert_error(tsr__word_splitter_add_digits(&words, true), TSR_ERR_INVALID,
                    "tokenizer: more than 8 steps cut a text into words");
}
END_TEST

TESTS(words)
{
    tcase_add_loop_test(tests, words_end_where_the_expression_says, 0, 22);
    tcase_add_test(tests, unknown_words_are_refused);
}
