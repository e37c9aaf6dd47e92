/* Tests JSON schemas: the texts that they allow, and what is refused. */
#include <inttypes.h>
#include <jansson.h>
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

#define SCHEMA(schema, ...) FOLLOWS(TSR_GRAMMAR_JSON_SCHEMA, schema, __VA_ARGS__)

START_TEST(types)
{
    SCHEMA("{\"type\": \"boolean\"}", "true", "false", NULL, "null", "tru", "1");
    SCHEMA("{\"type\": \"null\"}", "null", NULL, "0");
    SCHEMA("{\"type\": \"integer\"}", "0", "-12", "1234567890123456", NULL, "01", "1.5", "-",
           "1e3");
    SCHEMA("{\"type\": \"number\"}", "0", "-1.25", "1e10", "2.5E-3", NULL, ".5", "1.", "NaN", "+1");
    SCHEMA("{\"type\": \"string\"}", "\"\"", "\"a\u00e9\U0001f600\"", "\"\\\"\\\\\\n\\u00e9\"",
           "\"\\ud83d\\ude00\"", NULL, "\"", "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\udc00\"",
           "a");
    SCHEMA("{\"type\": [\"string\", \"null\"]}", "\"a\"", "null", NULL, "1");
    SCHEMA("{\"type\": \"object\"}", "{}", "{ }", "{\"a\": [1, {\"b\": null}]}", NULL, "[]",
           "{a:1}", "{\"a\":1,}", "{\"a\"}");
    SCHEMA("{\"type\": \"array\"}", "[]", "[1,\"a\", [ ]]", NULL, "[1,]", "[", "{}");
    SCHEMA("{}", "{}", "[]", "1", "\"a\"", "null", "true", NULL, "x", "");
    SCHEMA("true", "{}", "1", NULL, "x");
    SCHEMA(" {\"description\": \"d\", \"type\": \"null\", \"default\": null} ", "null", NULL, "1");
}
END_TEST

START_TEST(values)
{
    SCHEMA("{\"const\": {\"a\": [1, \"x\\u00e9\\n\"], \"b\": -1.50}}",
           "{\"a\":[1,\"x\u00e9\\n\"],\"b\":-1.50}", "{\"a\": [1, \"x\u00e9\\n\"], \"b\": -1.50}",
           NULL, "{\"a\":[1]}");
    SCHEMA("{\"enum\": [\"red\", \"a\\\"b\", 3, null]}", "\"red\"", "\"a\\\"b\"", "3", "null", NULL,
           "\"blue\"", "red");
    SCHEMA("{\"type\": \"integer\", \"enum\": [\"a\", 1, 2.5, 30]}", "1", "30", NULL, "\"a\"",
           "2.5");
    SCHEMA("{\"anyOf\": [{\"type\": \"integer\"}, {\"const\": \"x\"}]}", "5", "\"x\"", NULL,
           "\"y\"");
    SCHEMA("{\"oneOf\": [{\"type\": \"null\"}, {\"type\": \"boolean\"}]}", "null", "true", NULL,
           "1");
    SCHEMA("{\"allOf\": [{\"type\": \"null\"}]}", "null", NULL, "1");
}
END_TEST

START_TEST(strings)
{
    SCHEMA("{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}", "\"ab\"", "\"a\u20ac\\n\"",
           "\"\\ud83d\\ude00b\"", NULL, "\"a\"", "\"abcd\"");
    SCHEMA("{\"minLength\": 1}", "\"a\"", NULL, "\"\"", "1");
    SCHEMA("{\"type\": \"string\", \"format\": \"date\"}", "\"2024-12-31\"", NULL,
           "\"2024-13-01\"");
    SCHEMA("{\"type\": \"string\", \"format\": \"date-time\"}", "\"2024-12-31T23:59:59Z\"",
           "\"2024-12-31T23:59:59.5+01:00\"", NULL, "\"2024-12-31\"", "\"2024-12-31T24:00:00Z\"");
    SCHEMA("{\"type\": \"string\", \"format\": \"uuid\"}",
           "\"123e4567-e89b-12d3-a456-426614174000\"", NULL, "\"123e4567\"");
}
END_TEST

START_TEST(patterns)
{
#define PATTERN(pattern, ...)                                                                      \
    SCHEMA("{\"type\":\"string\",\"pattern\":\"" pattern "\"}", __VA_ARGS__)
    PATTERN("^[A-Z]{2}-\\\\d+$", "\"AB-1\"", "\"XY-123\"", NULL, "\"A-1\"", "\"AB-\"", "\"AB-1x\"");
    PATTERN("b+", "\"b\"", "\"abbc\"", NULL, "\"\"", "\"ac\"");
    PATTERN("^a", "\"a\"", "\"abc\"", NULL, "\"ba\"");
    PATTERN("a$", "\"a\"", "\"ba\"", NULL, "\"ab\"");
    PATTERN("^(?:ab|c)?\\\"$", "\"\\\"\"", "\"ab\\\"\"", "\"c\\\"\"", NULL, "\"ac\\\"\"", "\"\"\"");
    PATTERN("^.\\\\.\\\\\\\\$", "\"x.\\\\\"", "\"\u20ac.\\\\\"", NULL, "\"xx\\\\\"",
            "\"\\n.\\\\\"");
    PATTERN("^[^a-c\\\\s]\\\\W\\\\u0041\\\\x42$", "\"d-AB\"", "\"\\\"\\nAB\"", NULL, "\"a-AB\"",
            "\"dxAB\"", "\" -AB\"");
    PATTERN("^\\\\/[\\\\w\\\\]-]+?$", "\"/a_]-\"", NULL, "\"/\"", "\"/é\"");
}
END_TEST

START_TEST(integers)
{
    /* every integer near the bounds, for bounds of different signs and lengths */
    static const int64_t bounds[] = {-1000, -999, -101, -100, -57, -10, -9,  -1,  0,
                                     1,     7,    9,    10,   57,  99,  100, 1001};
    const int count = (int)(sizeof bounds / sizeof *bounds);
    for (int low = 0; low < count; low++)
        for (int high = low; high < count; high += 1 + low % 3) {
            char schema[160], text[24];
            snprintf(schema, sizeof schema,
                     "{\"type\": \"integer\", \"minimum\": %" PRId64
                     ", \"exclusiveMaximum\": %" PRId64 "}",
                     bounds[low], bounds[high] + 1);
            tsr_grammar *grammar = grammar_of(tokenizer, TSR_GRAMMAR_JSON_SCHEMA, schema);
            for (int64_t i = -1100; i <= 1100; i++) {
                const int size = snprintf(text, sizeof text, "%" PRId64, i);
                const bool wanted = i >= bounds[low] && i <= bounds[high];
                ck_assert_msg((follow(grammar, text, (size_t)size) == FOLLOW_COMPLETE) == wanted,
                              "%s and %s", schema, text);
            }
            ck_assert_int_ne(follow(grammar, "-0", 2), FOLLOW_COMPLETE);
            tsr_grammar_destroy(&grammar);
        }
    SCHEMA("{\"type\": \"integer\", \"minimum\": 9223372036854775807}", "9223372036854775807", NULL,
           "9223372036854775806", "9223372036854775808");
    SCHEMA("{\"type\": \"integer\", \"maximum\": -9223372036854775808}", "-9223372036854775808",
           NULL, "-9223372036854775809", "-1");
    SCHEMA("{\"type\": \"integer\", \"exclusiveMinimum\": 5}", "6", "9999999999999999", NULL, "5");
}
END_TEST

START_TEST(objects)
{
    static const char person[] = "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": "
                                 "\"string\"}, \"age\": {\"type\": "
                                 "\"integer\"}, \"x\": {}}, \"required\": [\"name\", \"x\"], "
                                 "\"additionalProperties\": false}";
    SCHEMA(person, "{\"name\":\"A\",\"age\":1,\"x\":[]}", "{ \"name\": \"A\", \"x\": {} }",
           "{\n  \"name\": \"\",\n  \"x\": 1\n}", NULL, "{}", "{\"name\":\"A\"}",
           "{\"age\":1,\"name\":\"A\",\"x\":1}", "{\"name\":\"A\",\"x\":1,\"y\":2}",
           "{\"name\":1,\"x\":1}");
    SCHEMA("{\"properties\": {\"a\": {}, \"b\": {}}}", "{}", "{\"a\":1}", "{\"b\":1}",
           "{\"a\":1,\"b\":1}", NULL, "{\"c\":1}", "{,\"b\":1}", "{\"b\":1,\"a\":1}");
    SCHEMA("{\"properties\": {\"a\\\"\": {}}, \"required\": [\"a\\\"\"]}", "{\"a\\\"\":1}", NULL,
           "{}");
    SCHEMA("{\"properties\": {\"ab\": {\"type\":\"null\"}, \"a\": {\"type\":\"null\"}, \"\u00e9\": "
           "{}}, "
           "\"additionalProperties\": {\"type\": \"integer\"}}",
           "{\"ab\":null}", "{\"x\":1}", "{\"abc\":1}", "{\"\":1}", "{\"b\":1,\"ac\":2}",
           "{\"a\":null,\"aa\":3}", "{\"\u00ea\":1}", NULL, "{\"ab\":1}", "{\"a\":1}",
           "{\"x\":null}", "{\"\\u0061\":1}", "{\"\u00e9\":1,\"\u00e9\":2}");
    SCHEMA("{\"type\": \"object\", \"additionalProperties\": {\"type\": \"null\"}}", "{}",
           "{\"a\": null, \"b\": null}", NULL, "{\"a\": 1}");
    SCHEMA("{\"type\": \"object\", \"additionalProperties\": false}", "{}", NULL, "{\"a\":1}");
}
END_TEST

START_TEST(arrays)
{
    SCHEMA("{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 1, "
           "\"maxItems\": 3}",
           "[1]", "[1, 2, 3]", NULL, "[]", "[1,2,3,4]", "[\"a\"]");
    SCHEMA("{\"items\": {\"type\": \"null\"}, \"maxItems\": 1}", "[]", "[null]", NULL,
           "[null,null]");
    SCHEMA("{\"maxItems\": 0}", "[]", "[ ]", NULL, "[1]");
    SCHEMA("{\"minItems\": 2}", "[1,2]", "[1,[],3]", NULL, "[1]");
    SCHEMA("{\"prefixItems\": [{\"type\":\"null\"}, {\"type\":\"boolean\"}]}", "[null,true]", NULL,
           "[null]", "[null,true,1]");
    SCHEMA("{\"prefixItems\": [{\"type\":\"null\"}], \"items\": {\"type\":\"integer\"}}", "[null]",
           "[null,1,2]", NULL, "[]", "[null,null]");
}
END_TEST

START_TEST(references)
{
    SCHEMA("{\"$defs\": {\"n\": {\"type\": \"object\", \"properties\": {\"next\": {\"anyOf\": "
           "[{\"$ref\": "
           "\"#/$defs/n\"}, {\"type\": \"null\"}]}}, \"required\": [\"next\"]}}, \"$ref\": "
           "\"#/$defs/n\"}",
           "{\"next\": null}", "{\"next\": {\"next\": {\"next\": null}}}", NULL, "{}",
           "{\"next\": 1}");
    SCHEMA("{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}", "[]", "[[],[[]]]", NULL, "[1]");
    SCHEMA("{\"definitions\": {\"a/b~\": {\"type\": \"null\"}}, \"anyOf\": [{\"$ref\": "
           "\"#/definitions/a~1b~0\"}, {\"$ref\": \"#/anyOf/2\"}, {\"const\": 1}]}",
           "null", "1", NULL, "2");
}
END_TEST

/* A schema of a function's arguments as programs write them, and a deep one, whose rules must not
 * multiply. */
START_TEST(large_schemas)
{
    char schema[4096] = "";
    for (int i = 0; i < 30; i++)
        strcat(schema, "{\"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": ");
    strcat(schema, "{\"type\": \"null\"}");
    for (int i = 0; i < 30; i++)
        strcat(schema, "}, \"required\": [\"b\"]}");
    SCHEMA(schema,
           "{\"b\":{\"a\":1,\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{"
           "\"b\":"
           "{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":{"
           "\"b\":"
           "{\"b\":{\"b\":{\"b\":{\"b\":{\"b\":null}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}",
           NULL, "{\"b\":null}");
}
END_TEST

/* Every text that a schema's masks lead to must be JSON. */
START_TEST(random_texts_are_json)
{
    uint64_t seed = 11;
    uint32_t mask[55];
    tsr_grammar *grammar = grammar_of(tokenizer, TSR_GRAMMAR_JSON_SCHEMA,
                                      "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
                                      "\"string\", \"maxLength\": 40}, \"b\": {\"items\": {}}}}");
    int complete = 0;
    for (int round = 0; round < 60; round++) {
        tsr_grammar_state *state = NULL;
        char text[8192];
        size_t size = 0;
        ck_assert_ok(tsr_grammar_state_create(grammar, NULL, &state));
        for (int step = 0; step < 200; step++) {
            if (tsr_grammar_state_end(state) == TSR_GRAMMAR_MUST_END)
                break;
            int32_t allowed[1759];
            int count = 0;
            ck_assert_ok(tsr_grammar_state_mask(state, 55, mask));
            for (int32_t id = 0; id < 1759; id++)
                if (mask[id / 32] >> (id % 32) & 1 && !tsr_tokenizer_is_end(tokenizer, id))
                    allowed[count++] = id;
            ck_assert_int_gt(count, 0);
            const int32_t id = allowed[random_next(&seed) % (uint64_t)count];
            tsr_decode_state decode = TSR_INIT(tsr_decode_state);
            const char *bytes;
            size_t length;
            ck_assert_ok(tsr_grammar_state_add(state, id));
            ck_assert_ok(tsr_tokenizer_decode_next(tokenizer, &decode, id, &bytes, &length));
            memcpy(text + size, bytes, length);
            size += length;
        }
        if (tsr_grammar_state_end(state) != TSR_GRAMMAR_INCOMPLETE) {
            json_error_t error;
            json_t *value = json_loadb(text, size, JSON_ALLOW_NUL, &error);
            ck_assert_msg(json_is_object(value), "%s: %.*s", error.text, (int)size, text);
            json_decref(value);
            complete++;
        }
        tsr_grammar_state_destroy(&state);
    }
    ck_assert_int_gt(complete, 10);
    tsr_grammar_destroy(&grammar);
}
END_TEST

START_TEST(mistakes_are_named)
{
    static const struct {
        const char *schema;
        tsr_status status;
        const char *error;
    } cases[] = {
        {"", TSR_ERR_INVALID, "offset 0: a value expected, but the text ends"},
        {"[]", TSR_ERR_INVALID, "offset 0: an object expected, not '['"},
        {"{} x", TSR_ERR_INVALID, "offset 3: nothing more expected, not 'x'"},
        {"{\"type\": \"text\"}", TSR_ERR_INVALID, "offset 9: there is no type 'text'"},
        {"{\"type\": []}", TSR_ERR_INVALID, "offset 9: the list of types is empty"},
        {"{\"type\": \"array\", \"uniqueItems\": true}", TSR_ERR_UNSUPPORTED,
         "offset 18: the keyword 'uniqueItems' is not supported"},
        {"{\"not\": {}}", TSR_ERR_UNSUPPORTED, "offset 1: the keyword 'not' is not supported"},
        {"{\"type\": \"null\", \"type\": \"null\"}", TSR_ERR_INVALID,
         "offset 17: the keyword 'type' is there twice"},
        {"{\"type\": \"number\", \"minimum\": 1}", TSR_ERR_UNSUPPORTED,
         "offset 30: minimum of the type number is not supported"},
        {"{\"type\": \"integer\", \"minimum\": 2, \"maximum\": 1}", TSR_ERR_INVALID,
         "offset 0: there is no integer from 2 to 1"},
        {"{\"type\": \"string\", \"format\": \"email\"}", TSR_ERR_UNSUPPORTED,
         "offset 29: the format 'email' is not supported"},
        {"{\"type\": \"string\", \"minLength\": 3, \"maxLength\": 2}", TSR_ERR_INVALID,
         "offset 48: maxLength is 2, but minLength is 3"},
        {"{\"type\": \"string\", \"maxLength\": 65537}", TSR_ERR_INVALID,
         "offset 32: maxLength is 65537; 0 to 65536 is possible"},
        {"{\"pattern\": \"a\", \"minLength\": 1}", TSR_ERR_UNSUPPORTED,
         "offset 0: pattern beside minLength or maxLength is not supported"},
        {"{\"pattern\": \"^a(?=b)$\"}", TSR_ERR_UNSUPPORTED,
         "offset 12: character 4 of the pattern, a group with '?', is not supported"},
        {"{\"pattern\": \"a\\\\b\"}", TSR_ERR_UNSUPPORTED,
         "offset 12: character 3 of the pattern, an escape, is not supported"},
        {"{\"pattern\": \"^a|b$\"}", TSR_ERR_UNSUPPORTED,
         "offset 12: character 6 of the pattern, an anchor beside alternatives that have no group, "
         "is not supported"},
        {"{\"pattern\": \"(a\"}", TSR_ERR_UNSUPPORTED,
         "offset 12: character 3 of the pattern, a group without its end, is not supported"},
        {"{\"enum\": []}", TSR_ERR_INVALID, "offset 9: enum has no value of the schema's type"},
        {"{\"anyOf\": []}", TSR_ERR_INVALID, "offset 10: anyOf is empty"},
        {"{\"anyOf\": [{}], \"type\": \"null\"}", TSR_ERR_UNSUPPORTED,
         "offset 24: type beside anyOf is not supported"},
        {"{\"allOf\": [{}, {}]}", TSR_ERR_UNSUPPORTED,
         "offset 10: allOf with several schemas is not supported"},
        {"{\"$ref\": \"#/a\"}", TSR_ERR_INVALID, "offset 9: there is no '#/a'"},
        {"{\"$ref\": \"http://x\"}", TSR_ERR_UNSUPPORTED,
         "offset 9: the reference 'http://x', which does not begin with #/ is not supported"},
        {"{\"properties\": {\"a\": {}, \"a\": {}}}", TSR_ERR_INVALID,
         "offset 15: the property 'a' is there twice"},
        {"{\"properties\": {\"a\": false}}", TSR_ERR_UNSUPPORTED,
         "offset 21: the schema false is not supported"},
        {"{\"properties\": {}, \"required\": [\"b\"]}", TSR_ERR_UNSUPPORTED,
         "offset 32: the required property 'b' has no schema, which is not supported"},
        {"{\"properties\": {}, \"required\": [\"b\"], \"additionalProperties\": false}",
         TSR_ERR_INVALID,
         "offset 32: the required property 'b' has no schema, and additionalProperties is false"},
        {"{\"prefixItems\": [{}], \"minItems\": 1}", TSR_ERR_UNSUPPORTED,
         "offset 0: prefixItems beside minItems or maxItems is not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char error[256];
        snprintf(error, sizeof error, "schema: %s", cases[i].error);
        refuses(tokenizer, TSR_GRAMMAR_JSON_SCHEMA, cases[i].schema, cases[i].status, error);
    }
    tsr_grammar *grammar = NULL;
    ck_assert_int_eq(
        tsr_grammar_create(tsr_grammar_params(.tokenizer = tokenizer, .text = "{\"$ref\": \"#\"}",
                                              .kind = TSR_GRAMMAR_JSON_SCHEMA, .size_bytes = 13),
                           &grammar),
        TSR_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "rule 's0' begins with itself"));
}
END_TEST

/* More values than there may be ways to read a text: the bytes that they share are read once. */
START_TEST(an_enum_may_have_many_values)
{
    static char schema[TSR_GRAMMAR_MAX_TEXT / 16];
    size_t size = (size_t)snprintf(schema, sizeof schema, "{\"enum\": [");
    for (int i = 0; i < 18000; i++)
        size += (size_t)snprintf(schema + size, sizeof schema - size, "%s\"w%d\"", i > 0 ? "," : "",
                                 7 * i);
    snprintf(schema + size, sizeof schema - size, ", \"\", [1, 2]]}");
    FOLLOWS(TSR_GRAMMAR_JSON_SCHEMA, schema, "\"w0\"", "\"w7\"", "\"w125993\"", "\"w70\"", "\"\"",
            "[1, 2]", NULL, "\"w1\"", "\"w126000\"", "\"w\"", "\"w0", "[1]");
}
END_TEST

TESTS(schema)
{
    tcase_add_checked_fixture(tests, open_tokenizer, close_tokenizer);
    tcase_add_test(tests, types);
    tcase_add_test(tests, values);
    tcase_add_test(tests, strings);
    tcase_add_test(tests, patterns);
    tcase_add_test(tests, integers);
    tcase_add_test(tests, objects);
    tcase_add_test(tests, arrays);
    tcase_add_test(tests, references);
    tcase_add_test(tests, large_schemas);
    tcase_add_test(tests, an_enum_may_have_many_values);
    tcase_add_test(tests, random_texts_are_json);
    tcase_add_test(tests, mistakes_are_named);
}
