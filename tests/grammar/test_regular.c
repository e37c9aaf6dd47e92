/* Compares grammars without recursion with POSIX's regular expressions. */
#include <regex.h>
#include <stdio.h>

#include "grammar/follow.h"
#include "support/random.h"

static tsr_tokenizer *tokenizer;

static void open_tokenizer(void)
{
    ck_assert_ok(tsr_tokenizer_open(TEST_DATA "/tokenizer/mini-llama3.tokenizer.json", &tokenizer));
}

static void close_tokenizer(void)
{
    tsr_tokenizer_close(&tokenizer);
}

/* Random expressions, as GBNF and as a regular expression. */
static void random_expression(uint64_t *seed, int depth, char *gbnf, char *regex)
{
    const char letter = (char)('a' + random_next(seed) % 3);
    const int kind = depth == 0 ? 0 : (int)(random_next(seed) % 6);
    char *g = gbnf + strlen(gbnf), *r = regex + strlen(regex);
    if (kind <= 1) {
        const char other = (char)(letter + (int)(random_next(seed) % 2));
        sprintf(g, "[%c-%c] ", letter, other);
        sprintf(r, "[%c-%c]", letter, other);
        return;
    }
    strcat(g, "(");
    strcat(r, "(");
    random_expression(seed, depth - 1, gbnf, regex);
    if (kind == 2) {
        strcat(gbnf, "| ");
        strcat(regex, "|");
    }
    if (kind <= 3)
        random_expression(seed, depth - 1, gbnf, regex);
    strcat(gbnf, ")");
    strcat(regex, ")");
    static const char *const operators[] = {"", "*", "+", "?", "{2}", "{1,3}"};
    const char *repeat = operators[random_next(seed) % 6];
    strcat(gbnf, repeat);
    strcat(regex, repeat);
    strcat(gbnf, " ");
}

START_TEST(as_regular_expressions)
{
    uint64_t seed = 77;
    for (int round = 0; round < 60; round++) {
        char gbnf[4096] = "root ::= x \nx ::= ", regex[4096] = "^", text[8];
        regex_t compiled;
        random_expression(&seed, 4, gbnf, regex);
        strcat(regex, "$");
        ck_assert_int_eq(regcomp(&compiled, regex, REG_EXTENDED | REG_NOSUB), 0);
        tsr_grammar *grammar = grammar_of(tokenizer, TSR_GRAMMAR_GBNF, gbnf);
        for (int number = 0; number < 2 * 1365; number++) { /* all texts of up to 5 of 4 letters */
            size_t size = 0;
            for (int rest = number; rest > 0; rest = (rest - 1) / 4)
                text[size++] = (char)('a' + (rest - 1) % 4);
            text[size] = '\0';
            const bool wanted = regexec(&compiled, text, 0, NULL, 0) == 0;
            ck_assert_msg((follow(grammar, text, size) == FOLLOW_COMPLETE) == wanted, "%s and '%s'",
                          gbnf, text);
        }
        tsr_grammar_destroy(&grammar);
        regfree(&compiled);
    }
}
END_TEST

TESTS(regular)
{
    tcase_add_checked_fixture(tests, open_tokenizer, close_tokenizer);
    tcase_add_test(tests, as_regular_expressions);
}
