/* Tests GBNF: what it allows, compared with examples, and what is refused. */
#include <stdio.h>

#include "base/fault.h"
#include "grammar/follow.h"

static tsr_tokenizer *tokenizer;

static void open_tokenizer(void)
{
    ck_assert_ok(tsr_tokenizer_open(TEST_DATA "/tokenizer/mini-llama3.tokenizer.json", &tokenizer));
}

static void close_tokenizer(void)
{
    tsr_tokenizer_close(&tokenizer);
}

#define GBNF(grammar, ...) FOLLOWS(TSR_GRAMMAR_GBNF, grammar, __VA_ARGS__)

START_TEST(expressions)
{
    GBNF("root ::= \"ab\"", "ab", NULL, "a", "abc", "", "b");
    GBNF("root ::= \"a\" | \"b\" \"c\" |", "a", "bc", "", NULL, "b", "ac");
    GBNF("root ::= [a-c_]+", "a", "c_b", NULL, "", "d");
    GBNF("root ::= [^a-c\\n]*", "", "xyz", "\u00e9\u20ac\U0001f600", NULL, "xa", "\n", "\xff",
         "\xc3");
    GBNF("root ::= .", "a", "\n", "\u20ac", NULL, "", "ab", "\x80");
    GBNF("root ::= (\"a\" | \"b\")? \"c\"", "c", "ac", "bc", NULL, "abc", "a");
    GBNF("root ::= \"\\x41\\u00e9\\U0001F600\\n\\r\\t\\\\\\\"\\[\\]\"",
         "A\u00e9\U0001f600\n\r\t\\\"[]", NULL, "A");
    GBNF("root ::= [\\u00e0-\\u00ff\\x2d]{2}", "\u00e0\u00ff", "--", NULL, "\u00e0", "\u0100-");
    GBNF("root ::= [-a] [a-]", "-a", "a-", NULL, "b-");
    GBNF("root ::= \"\"", "", NULL, "a");
    GBNF("root ::= (\"\" | \"a\")* \"b\"", "b", "aab", NULL, "a");
}
END_TEST

START_TEST(repetitions)
{
    GBNF("root ::= \"a\"{3}", "aaa", NULL, "aa", "aaaa");
    GBNF("root ::= \"a\"{2,}", "aa", "aaaaa", NULL, "a");
    GBNF("root ::= \"a\"{0,2}", "", "a", "aa", NULL, "aaa");
    GBNF("root ::= \"a\"{0}", "", NULL, "a");
    GBNF("root ::= (\"a\" [bc]){1, 2}", "ab", "acab", NULL, "", "ababab");
    GBNF("root ::= \"ab\"*?", "", "abab", NULL, "aba");
    GBNF("root ::= \"a\" \"\"{65536} \"\"{0,3}", "a", NULL, "", "aa");
}
END_TEST

START_TEST(rules)
{
    GBNF("# a comment\nroot ::= item (\",\" item)* # another\n\nitem ::= [0-9]+\n", "1", "12,3",
         NULL, "1,", ",1");
    GBNF("a-b_1 ::= \"x\"\r\nroot ::=\n  a-b_1 |\n  \"y\"", "x", "y", NULL, "z");
    GBNF("root ::= \"x\"\n  | \"y\"\n  | ( \"z\"\n \"z\" )", "x", "y", "zz", NULL, "z");
    GBNF("root ::= \"(\" root \")\" | \"x\"", "x", "((x))", NULL, "((x)", "(x))");
    GBNF("root ::= \"a\" root \"b\" | \"\"", "", "aabb", NULL, "aab", "abb");
    /* Right recursion needs no stack: the text may be much longer than rules may be deep. */
    char text[3 * TSR_GRAMMAR_MAX_DEPTH];
    memset(text, 'a', sizeof text);
    tsr_grammar *grammar = grammar_of(tokenizer, TSR_GRAMMAR_GBNF, "root ::= [a] root | \"\"");
    ck_assert_int_eq(follow(grammar, text, sizeof text), FOLLOW_COMPLETE);
    tsr_grammar_destroy(&grammar);
}
END_TEST

START_TEST(nesting_has_a_limit)
{
    char text[TSR_GRAMMAR_MAX_DEPTH + 8];
    memset(text, '(', sizeof text);
    tsr_grammar *grammar =
        grammar_of(tokenizer, TSR_GRAMMAR_GBNF, "root ::= \"(\" root \")\" | \"x\"");
    ck_assert_int_eq(follow(grammar, text, TSR_GRAMMAR_MAX_DEPTH), FOLLOW_BEGINS);
    ck_assert_int_eq(follow(grammar, text, TSR_GRAMMAR_MAX_DEPTH + 2), FOLLOW_REFUSED);
    tsr_grammar_destroy(&grammar);
}
END_TEST

START_TEST(mistakes_have_a_place)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "line 1, column 1: there is no rule 'root'"},
        {"a ::= \"x\"\n", "line 2, column 1: there is no rule 'root'"},
        {"root ::= \"x", "line 1, column 12: the text ends inside a literal or class"},
        {"root ::= \"x\n\"", "line 1, column 12: the line ends inside a literal or class"},
        {"root ::= [ab", "line 1, column 13: the text ends inside a literal or class"},
        {"root ::= []", "line 1, column 10: the class has no character"},
        {"root ::= [b-a]", "line 1, column 14: the range ends before its start: U+0062 to U+0061"},
        {"root ::= \"\u00e9\\q\"", "line 1, column 13: there is no escape '\\q'"},
        {"root ::= \"\\x4\"", "line 1, column 14: this escape needs 2 hexadecimal digits"},
        {"root ::= \"\\ud800\"", "line 1, column 17: U+D800 is not a character"},
        {"root ::= \"\\U00110000\"", "line 1, column 21: U+110000 is not a character"},
        {"root ::= \"\xff\"", "line 1, column 11: a byte 0xff that is not UTF-8"},
        {"root ::= a", "line 1, column 10: there is no rule 'a'"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule 'root' is defined twice"},
        {"root = \"a\"", "line 1, column 6: '::=' is missing after the name of a rule"},
        {"root ::= (\"a\"", "line 1, column 14: the group of line 1, column 10 is not closed"},
        {"root ::= (\"a\"\nb ::= \"c\"",
         "line 2, column 1: the group of line 1, column 10 is not closed"},
        {"root ::= \"a\")", "line 1, column 13: there is no open group"},
        {"root ::= *", "line 1, column 10: there is nothing before '*' to repeat"},
        {"root ::= \"a\"{2", "line 1, column 15: '}' is missing after the number of repetitions"},
        {"root ::= \"a\"{x}", "line 1, column 14: a number of repetitions is missing"},
        {"root ::= \"a\"{3,2}", "line 1, column 17: at least 3 repetitions, but at most 2"},
        {"root ::= \"a\"{65537}", "line 1, column 18: more than 65536 repetitions"},
        {"root ::= \"a\"{99999999999999999999}", "line 1, column 18: more than 65536 repetitions"},
        {"root ::= \"a\"******", "line 1, column 17: more than 4 repetitions of repetitions"},
        {"root ::= \"ab\"{65536}{65536}",
         "line 1, column 21: with this repetition the grammar has more than 1048576 states"},
        {"root ::= \"\"{65536}{65536}{65536}",
         "line 1, column 26: with this repetition the grammar has more than 16777216 parts"},
        {"root ::= (\"a\" ((\"\" \"\"){0}){65536}){65536}",
         "line 1, column 35: with this repetition the grammar has more than 16777216 parts"},
        {"root ::= \"a\" b ::= \"c\"", "line 1, column 14: a rule must begin in a line of its own"},
        {"root ::= $", "line 1, column 10: '$' cannot be here"},
        {"+", "line 1, column 1: a rule must begin with its name, of letters, digits, '-' and '_'"},
        {"root ::= root \"a\" | \"b\"",
         "line 1, column 1: rule 'root' begins with itself (left recursion)"},
        {"root ::= a\na ::= b \"x\"\nb ::= \" \"? c | \"y\"\nc ::= a",
         "line 2, column 1: rule 'a' begins with itself (left recursion)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char error[256];
        snprintf(error, sizeof error, "grammar: %s", cases[i].error);
        refuses(tokenizer, TSR_GRAMMAR_GBNF, cases[i].text, TSR_ERR_INVALID, error);
    }
    char deep[600] = "root ::= ";
    memset(deep + strlen(deep), '(', 200);
    refuses(tokenizer, TSR_GRAMMAR_GBNF, deep, TSR_ERR_INVALID,
            "grammar: line 1, column 138: more than 128 groups inside each other");
    tsr_grammar *grammar = NULL;
    ck_assert_error(tsr_grammar_create(tsr_grammar_params(.tokenizer = tokenizer, .text = "root\0",
                                                          .size_bytes = 5),
                                       &grammar),
                    TSR_ERR_INVALID, "grammar: line 1, column 5: a zero byte");
}
END_TEST

START_TEST(arguments_are_checked)
{
    tsr_grammar *grammar = NULL, *other = NULL;
    tsr_grammar_state *state = NULL, *copy = NULL;
    uint32_t mask[4096];
    ck_assert_error(tsr_grammar_create(NULL, &grammar), TSR_ERR_INVALID, "grammar: params is NULL");
    ck_assert_error(tsr_grammar_create(tsr_grammar_params(.text = "", .size_bytes = 0), &grammar),
                    TSR_ERR_INVALID, "grammar: tokenizer is NULL");
    ck_assert_error(tsr_grammar_create(tsr_grammar_params(.tokenizer = tokenizer,
                                                          .kind = (tsr_grammar_kind)9, .text = ""),
                                       &grammar),
                    TSR_ERR_INVALID, "grammar: there is no kind 9");
    ck_assert_error(
        tsr_grammar_create(tsr_grammar_params(.tokenizer = tokenizer, .text = "",
                                              .size_bytes = TSR_GRAMMAR_MAX_TEXT + 1),
                           &grammar),
        TSR_ERR_INVALID,
        "grammar: text is not NULL and has 4194305 bytes; at most 4194304 are possible");
    grammar = grammar_of(tokenizer, TSR_GRAMMAR_GBNF, "root ::= \"ab\"");
    other = grammar_of(tokenizer, TSR_GRAMMAR_GBNF, "root ::= \"a\"");
    ck_assert_ok(tsr_grammar_state_create(grammar, NULL, &state));
    ck_assert_error(tsr_grammar_state_create(other, state, &copy), TSR_ERR_INVALID,
                    "grammar: `from` is of another grammar");
    ck_assert_error(tsr_grammar_state_add_text(state, "ax", 2), TSR_ERR_INVALID,
                    "grammar: byte 1 of the text, 0x78, is not allowed here");
    ck_assert_ok(tsr_grammar_state_add_text(state, "a", 1)); /* the error has changed nothing */
    ck_assert_error(tsr_grammar_state_add(state, -1), TSR_ERR_INVALID,
                    "tokenizer: id -1 is out of range: ids are 0 to 1758");
    ck_assert_error(tsr_grammar_state_mask(state, 54, mask), TSR_ERR_INVALID,
                    "grammar: the mask has 54 words of 32 bits, but there are 1759 tokens");
    ck_assert_int_eq(tsr_grammar_state_end(NULL), TSR_GRAMMAR_INCOMPLETE);
    tsr_grammar_state_destroy(&state);
    tsr_grammar_destroy(&grammar);
    tsr_grammar_destroy(&other);
}
END_TEST

START_TEST(running_out_of_memory_leaks_nothing)
{
    static const char *const texts[] = {
        "root ::= (\"a\" | [^b]) root | item{2,4} \"x\"\nitem ::= \"(\" item* \")\"\n",
        "{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#\"}, \"ab\": {\"enum\": [1, "
        "\"x\"]}},"
        " \"required\": [\"a\"], \"additionalProperties\": {\"type\": \"string\", \"pattern\": "
        "\"^[a-c]+$\"}}"};
    for (int kind = 0; kind < 2; kind++)
        for (uint64_t nth = 0;; nth++) {
            tsr_grammar *grammar = NULL;
            tsr_grammar_state *state = NULL, *copy = NULL;
            uint32_t mask[55];
            ck_assert_uint_lt(nth, 2000);
            tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
            tsr_status status = tsr_grammar_create(
                tsr_grammar_params(.tokenizer = tokenizer, .kind = (tsr_grammar_kind)kind,
                                   .text = texts[kind], .size_bytes = strlen(texts[kind])),
                &grammar);
            if (status == TSR_OK)
                status = tsr_grammar_state_create(grammar, NULL, &state);
            if (status == TSR_OK)
                status = tsr_grammar_state_mask(state, 55, mask);
            if (status == TSR_OK)
                status = tsr_grammar_state_add_text(state, kind == 0 ? "((" : "{\"a\": {", 2);
            if (status == TSR_OK)
                status = tsr_grammar_state_create(grammar, state, &copy);
            if (status == TSR_OK)
                status = tsr_grammar_state_mask(copy, 55, mask);
            const bool reached = tsr__fault_site() != NULL;
            tsr__fault_disarm();
            ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
            /* after a failure, everything can be done again */
            if (state)
                ck_assert_ok(tsr_grammar_state_mask(state, 55, mask));
            tsr_grammar_state_destroy(&state);
            tsr_grammar_state_destroy(&copy);
            tsr_grammar_destroy(&grammar);
            if (!reached)
                break;
        }
}
END_TEST

TESTS(gbnf)
{
    tcase_add_checked_fixture(tests, open_tokenizer, close_tokenizer);
    tcase_add_test(tests, expressions);
    tcase_add_test(tests, repetitions);
    tcase_add_test(tests, rules);
    tcase_add_test(tests, nesting_has_a_limit);
    tcase_add_test(tests, mistakes_have_a_place);
    tcase_add_test(tests, arguments_are_checked);
    tcase_add_test(tests, running_out_of_memory_leaks_nothing);
}
