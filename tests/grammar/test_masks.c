/* Tests masks: bit by bit, they must be what reading the bytes of each token gives. */
#include <stdio.h>

#include "grammar/follow.h"
#include "grammar/grammar.h"
#include "support/random.h"

#define TOKENS 1759
#define WORDS ((TOKENS + 31) / 32)

static tsr_tokenizer *tokenizer;

static void open_tokenizer(void)
{
    ck_assert_ok(tsr_tokenizer_open(TEST_DATA "/tokenizer/mini-llama3.tokenizer.json", &tokenizer));
    ck_assert_int_eq(tsr_tokenizer_size(tokenizer), TOKENS);
}

static void close_tokenizer(void)
{
    tsr_tokenizer_close(&tokenizer);
}

/* Checks the mask of a state, and gives one of the tokens that may follow, or −1. */
static int32_t check_mask(tsr_grammar *grammar, tsr_grammar_state *state, uint64_t *seed)
{
    uint32_t mask[WORDS + 1];
    int32_t allowed[TOKENS];
    int count = 0;
    mask[WORDS] = 7;
    ck_assert_ok(tsr_grammar_state_mask(state, WORDS + 1, mask));
    ck_assert_uint_eq(mask[WORDS], 0);
    for (int32_t id = 0; id < TOKENS; id++) {
        tsr_grammar_state *ahead = NULL;
        ck_assert_ok(tsr_grammar_state_create(grammar, state, &ahead));
        const bool ends = tsr_tokenizer_is_end(tokenizer, id);
        const bool wanted = ends ? tsr_grammar_state_end(state) != TSR_GRAMMAR_INCOMPLETE
                                 : tsr_grammar_state_add(ahead, id) == TSR_OK;
        ck_assert_msg((mask[id / 32] >> (id % 32) & 1) == wanted, "token %d", (int)id);
        if (wanted && !ends)
            allowed[count++] = id;
        tsr_grammar_state_destroy(&ahead);
    }
    ck_assert(count > 0 || tsr_grammar_state_end(state) == TSR_GRAMMAR_MUST_END);
    ck_assert(count == 0 || tsr_grammar_state_end(state) != TSR_GRAMMAR_MUST_END);
    return count > 0 ? allowed[random_next(seed) % (uint64_t)count] : -1;
}

static const char *const grammars[] = {
    "root ::= \"yes\" | \"no\" | \"maybe\" [.!?]*",
    "root ::= line+\nline ::= word (\" \" word){0,5} \"\\n\"\nword ::= [a-zA-Z\u00e0-\u017f]{1,12}",
    /* NOLINTNEXTLINE(bugprone-suspicious-missing-comma): one text in several lines */
    "root ::= object\nvalue ::= object | array | string | \"1\"\n"
    "object ::= \"{\" ( string \":\" value (\",\" string \":\" value)* )? \"}\"\n"
    "array ::= \"[\" (value (\",\" value)*)? \"]\"\nstring ::= \"\\\"\" [^\"\\\\]* \"\\\"\"",
    /* many ways to read the same text, each with another stack */
    "root ::= a | b\na ::= \"x\" a \"y\" | .\nb ::= \"x\" b [yz] | [^x]+\n",
    "root ::= ([^a] | x){0,2000} \"end\"\nx ::= \"a\" x | \"the\"",
    /* repetitions whose masks come from those without a limit, and texts with the same beginnings
     */
    "root ::= \"<\" c{3,30} \">\" (c{0,9} | \"no\" | \"nothing\" | \"\" | \"not\" \"e\" | [n] "
    "\"o\")\n"
    "c ::= [^<>\\\\] | \"\\\\\" [nt<>]",
    "root ::= s \" \" s{0,5}\ns ::= [a-z]{0,7} | \"(\" x{0,20} \")\"\nx ::= [a-z ]{2} | \"\" | "
    "[0-9]",
    "root ::= %json{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\", "
    "\"maxLength\": "
    "17}, \"b\": {\"enum\": [\"x\", \"xy\", \"\\\"\", \"z\\u00e4\", 1, 12]}, \"c\": {\"type\": "
    "\"string\", \"minLength\": 3}, \"d\": {\"type\": \"array\", \"items\": {\"type\": "
    "\"integer\"}, "
    "\"maxItems\": 9}}, \"required\": [\"a\", \"b\"], \"additionalProperties\": true}",
};

START_TEST(masks_are_those_of_each_token)
{
    uint64_t seed = 5;
    tsr_grammar *grammar = grammar_of(tokenizer, TSR_GRAMMAR_GBNF, grammars[_i]);
    for (int round = 0; round < 3; round++) {
        tsr_grammar_state *state = NULL;
        if (round == 2) { /* masks that were found ahead are the same */
            tsr_grammar_destroy(&grammar);
            ck_assert_ok(tsr_grammar_create(
                tsr_grammar_params(.tokenizer = tokenizer, .text = grammars[_i],
                                   .size_bytes = strlen(grammars[_i]), .ahead_ns = 20000000),
                &grammar));
        }
        ck_assert_ok(tsr_grammar_state_create(grammar, NULL, &state));
        for (int step = 0; step < 12; step++) {
            const int32_t token = check_mask(grammar, state, &seed);
            if (token < 0)
                break;
            ck_assert_ok(tsr_grammar_state_add(state, token));
        }
        tsr_grammar_state_destroy(&state);
    }
    tsr_grammar_destroy(&grammar);
}
END_TEST

/* More time ahead finds more masks, and no time none. */
START_TEST(masks_are_found_ahead)
{
    uint64_t bytes[3];
    for (int i = 0; i < 3; i++) {
        tsr_grammar *grammar = NULL;
        ck_assert_ok(
            tsr_grammar_create(tsr_grammar_params(.tokenizer = tokenizer, .text = grammars[2],
                                                  .size_bytes = strlen(grammars[2]),
                                                  .ahead_ns = i == 0   ? 0
                                                              : i == 1 ? 1
                                                                       : UINT64_C(60000000000)),
                               &grammar));
        bytes[i] = tsr_grammar_bytes(grammar);
        tsr_grammar_destroy(&grammar);
    }
    ck_assert_uint_lt(bytes[0] + 10 * WORDS * sizeof(uint32_t), bytes[2]);
    ck_assert_uint_lt(bytes[1], bytes[2]);
}
END_TEST

START_TEST(control_tokens_are_never_text)
{
    uint32_t mask[WORDS];
    tsr_grammar *grammar = grammar_of(tokenizer, TSR_GRAMMAR_GBNF, "root ::= .*");
    tsr_grammar_state *state = NULL;
    int controls = 0;
    ck_assert_ok(tsr_grammar_state_create(grammar, NULL, &state));
    ck_assert_ok(tsr_grammar_state_mask(state, WORDS, mask));
    for (int32_t id = 0; id < TOKENS; id++) {
        tsr_token_info info = TSR_INIT(tsr_token_info);
        ck_assert_ok(tsr_tokenizer_get_token(tokenizer, id, &info));
        if (!info.control)
            continue;
        controls++;
        ck_assert_int_eq(mask[id / 32] >> (id % 32) & 1, tsr_tokenizer_is_end(tokenizer, id));
        ck_assert_int_eq(tsr_grammar_state_add(state, id), TSR_ERR_INVALID);
    }
    ck_assert_int_gt(controls, 0);
    tsr_grammar_state_destroy(&state);
    tsr_grammar_destroy(&grammar);
}
END_TEST

/* A grammar can have control tokens as themselves. */
START_TEST(tokens_can_be_part_of_a_grammar)
{
    const int32_t mark = tsr_tokenizer_find(tokenizer, "<|begin_of_text|>", 17);
    char text[512];
    uint64_t seed = 9;
    tsr_grammar *grammar = NULL;
    tsr_grammar_state *state = NULL;
    ck_assert_int_ge(mark, 0);
    snprintf(text, sizeof text,
             "root ::= (<|begin_of_text|> !<|begin_of_text|>* <[%d]>)? \"yes\" "
             "<|begin_of_text|>\n"
             "other ::= %%json {\"enum\": [1]} \" \" root %%json{\"type\": \"array\", \"items\": "
             "{\"$ref\": \"#/$defs/s\"},\n \"$defs\": {\"s\": {\"enum\": [2]}}}\n",
             (int)mark);
    ck_assert_ok(tsr_grammar_create(
        tsr_grammar_params(.tokenizer = tokenizer, .text = text, .size_bytes = strlen(text)),
        &grammar));
    ck_assert_ok(tsr_grammar_state_create(grammar, NULL, &state));
    check_mask(grammar, state, &seed);
    ck_assert_ok(tsr_grammar_state_add(state, mark));
    check_mask(grammar, state, &seed);
    ck_assert_ok(tsr_grammar_state_add_text(state, "no <|begin_of_text|> \xc3\xa4", 23));
    ck_assert_int_eq(tsr_grammar_state_add_text(state, "\xff", 1), TSR_ERR_INVALID);
    ck_assert_ok(tsr_grammar_state_add(state, mark));
    ck_assert_int_eq(tsr_grammar_state_add(state, mark), TSR_ERR_INVALID);
    check_mask(grammar, state, &seed);
    ck_assert_ok(tsr_grammar_state_add_text(state, "yes", 3));
    ck_assert_int_eq(tsr_grammar_state_end(state), TSR_GRAMMAR_INCOMPLETE);
    check_mask(grammar, state, &seed);
    ck_assert_ok(tsr_grammar_state_add(state, mark));
    ck_assert_int_eq(tsr_grammar_state_end(state), TSR_GRAMMAR_MUST_END);
    tsr_grammar_state_destroy(&state);
    tsr_grammar_destroy(&grammar);
    /* another root, and schemas, whose rules are their own */
    ck_assert_ok(tsr_grammar_create(tsr_grammar_params(.tokenizer = tokenizer, .text = text,
                                                       .size_bytes = strlen(text), .root = "other"),
                                    &grammar));
    ck_assert_ok(tsr_grammar_state_create(grammar, NULL, &state));
    ck_assert_ok(tsr_grammar_state_add_text(state, "1 yes", 5));
    ck_assert_ok(tsr_grammar_state_add(state, mark));
    ck_assert_ok(tsr_grammar_state_add_text(state, "[2, 2", 5));
    ck_assert_int_eq(tsr_grammar_state_add_text(state, ",1", 2), TSR_ERR_INVALID);
    ck_assert_ok(tsr_grammar_state_add_text(state, "]", 1));
    ck_assert_int_eq(tsr_grammar_state_end(state), TSR_GRAMMAR_MUST_END);
    ck_assert_uint_gt(tsr_grammar_bytes(grammar), 1000);
    ck_assert_uint_eq(tsr_grammar_bytes(NULL), 0);
    tsr_grammar_state_destroy(&state);
    tsr_grammar_destroy(&grammar);
}
END_TEST

START_TEST(mistakes_with_tokens_are_named)
{
    static const struct {
        const char *text, *error;
        tsr_status status;
    } cases[] = {
        {"root ::= <|nothing|>", "grammar: line 1, column 10: there is no token '<|nothing|>'",
         TSR_ERR_INVALID},
        {"root ::= <[1759]>", "grammar: line 1, column 10: there is no token '<[1759]>'",
         TSR_ERR_INVALID},
        {"root ::= <[1x]>", "grammar: line 1, column 10: there is no token '<[1x]>'",
         TSR_ERR_INVALID},
        {"root ::= <|eot_id|", "grammar: line 1, column 10: '>' is missing after a token",
         TSR_ERR_INVALID},
        {"root ::= !\"a\"", "grammar: line 1, column 11: '!' without a token", TSR_ERR_INVALID},
        {"root ::= !<[5]>",
         "grammar: line 1, column 10: the token '<[5]>' is ordinary text, of which '!' cannot be "
         "the opposite",
         TSR_ERR_INVALID},
        {"root ::= %jsn {}", "grammar: line 1, column 10: '%' without json", TSR_ERR_INVALID},
        {"root ::=\n  %json {\"not\": {}}",
         "grammar: line 2, column 3: schema: offset 1: the keyword 'not' is not supported",
         TSR_ERR_UNSUPPORTED},
        {"a ::= \"a\"", "grammar: line 1, column 10: there is no rule 'root'", TSR_ERR_INVALID},
    };
    tsr_grammar *grammar = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses(tokenizer, TSR_GRAMMAR_GBNF, cases[i].text, cases[i].status, cases[i].error);
    ck_assert_error(
        tsr_grammar_create(tsr_grammar_params(.tokenizer = tokenizer, .text = "{}", .size_bytes = 2,
                                              .root = "r", .kind = TSR_GRAMMAR_JSON_SCHEMA),
                           &grammar),
        TSR_ERR_INVALID, "grammar: root is 'r', but a schema has no rules");
}
END_TEST

/* What has been computed is thrown away when it becomes large; the states stay what they are. */
START_TEST(states_survive_shrinking)
{
    uint64_t seed = 3;
    tsr_grammar *grammar = grammar_of(tokenizer, TSR_GRAMMAR_GBNF, grammars[2]);
    tsr_grammar_state *states[3] = {NULL};
    static const char *const texts[] = {"{\"a\":[[{\"b\":1},", "", "{\"k\":\"v\"}"};
    for (int i = 0; i < 3; i++) {
        ck_assert_ok(tsr_grammar_state_create(grammar, NULL, &states[i]));
        ck_assert_ok(tsr_grammar_state_add_text(states[i], texts[i], strlen(texts[i])));
        check_mask(grammar, states[i], &seed);
    }
    const size_t before = grammar->readings.set_count;
    grammar->readings.bytes = UINT64_C(1) << 40;
    ck_assert_ok(tsr_grammar_state_add_text(states[1], "{", 1));
    ck_assert_uint_lt(grammar->readings.set_count, before);
    ck_assert_int_eq(tsr_grammar_state_end(states[2]), TSR_GRAMMAR_MUST_END);
    for (int i = 0; i < 3; i++)
        check_mask(grammar, states[i], &seed);
    ck_assert_ok(tsr_grammar_state_add_text(states[0], "\"\"]]}", 5));
    ck_assert_int_eq(tsr_grammar_state_end(states[0]), TSR_GRAMMAR_MUST_END);
    for (int i = 0; i < 3; i++)
        tsr_grammar_state_destroy(&states[i]);
    tsr_grammar_destroy(&grammar);
}
END_TEST

START_TEST(ambiguity_has_a_limit)
{
    /* after n letters there are 2^n stacks */
    tsr_grammar *grammar = grammar_of(tokenizer, TSR_GRAMMAR_GBNF,
                                      "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"");
    tsr_grammar_state *state = NULL;
    ck_assert_ok(tsr_grammar_state_create(grammar, NULL, &state));
    ck_assert_ok(tsr_grammar_state_add_text(state, "aaaaaaaaaaaa", 12));
    ck_assert_error(tsr_grammar_state_add_text(state, "aaaaaaaaaaaa", 12), TSR_ERR_OVERFLOW,
                    "grammar: it is too ambiguous: there are more than 16384 ways to read the "
                    "text");
    ck_assert_ok(tsr_grammar_state_add_text(state, "dbcbcbcbcbcbc", 13));
    ck_assert_int_eq(tsr_grammar_state_end(state), TSR_GRAMMAR_MUST_END);
    tsr_grammar_state_destroy(&state);
    tsr_grammar_destroy(&grammar);
}
END_TEST

TESTS(masks)
{
    tcase_add_checked_fixture(tests, open_tokenizer, close_tokenizer);
    tcase_add_loop_test(tests, masks_are_those_of_each_token, 0,
                        (int)(sizeof grammars / sizeof *grammars));
    tcase_add_test(tests, masks_are_found_ahead);
    tcase_add_test(tests, control_tokens_are_never_text);
    tcase_add_test(tests, tokens_can_be_part_of_a_grammar);
    tcase_add_test(tests, mistakes_with_tokens_are_named);
    tcase_add_test(tests, states_survive_shrinking);
    tcase_add_test(tests, ambiguity_has_a_limit);
}
