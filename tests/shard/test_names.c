/* Names of parameters: patterns, natural order, layers, invalid names. */
#include <stdlib.h>
#include <string.h>

#include "shard/params/params.h"
#include "support/check_main.h"
#include "support/random.h"
#include "tessera/shard.h"
#include "json/text_check.h"

static bool matches(const char *pattern, const char *name)
{
    bool matched = false;
    ck_assert_ok(tsr__shard_match((const char *const[]){pattern, NULL}, name, false, &matched));
    return matched;
}

static const struct {
    const char *pattern, *name;
    bool matched;
} single[] = {
    {"embed*", "embed_tokens.weight", true},
    {"embed*", "model.embed_tokens.weight", true},
    {"embed*", "token_embd.weight", false},
    {"*embd*", "token_embd.weight", true},
    /* if patterns were plain substrings, "head" would match "multi_head" */
    {"head", "lm.head.weight", true},
    {"head", "head", true},
    {"head", "multi_head.weight", false},
    {"head", "heads", false},
    {"layer1", "layer10.weight", false},
    /* a pattern with a dot must match the full name */
    {"model.*", "model.embed.weight", true},
    {"model.*", "my.model.embed", false},
    {"*.q_proj.weight", "model.layers.3.self_attn.q_proj.weight", true},
    {"model.layers.?.mlp.*", "model.layers.3.mlp.up.weight", true},
    {"model.layers.?.mlp.*", "model.layers.13.mlp.up.weight", false},
    {"model.layers.[0-2].*", "model.layers.2.norm", true},
    {"model.layers.[0-2].*", "model.layers.3.norm", false},
    {"[!a-c]x", "dx", true},
    {"[!a-c]x", "bx", false},
    {"[a-]", "-", true},
    {"[a\\]]", "]", true},
    {"[-a]", "-", true},
    {"[abc]", "d", false},
    {"a\\*b", "a*b", true},
    {"a\\*b", "axb", false},
    {"\\!x", "!x", true},
    {"?", "ä", true},
    {"??", "ä", false},
    {"[ä-ü]", "ö", true},
    {"[ä-ü]", "a", false},
    {"*", "", true},
    {"*", "a.b", true},
    {"*", ".", true},
    {"**", "x", true},
    {"*a*b*c*", "xxaxxbxxcxx", true},
    {"*a*b*c*", "xxaxxcxxbxx", false},
    {"a*a", "a", false},
    {"?*", "", false},
    {"x", "a..x", true},
    {"x.", "x.", true},
    {"\xff", "\xff", true},
    {"?", "\xff", true},
};

START_TEST(single_patterns)
{
    ck_assert_msg(matches(single[_i].pattern, single[_i].name) == single[_i].matched,
                  "'%s' and '%s'", single[_i].pattern, single[_i].name);
}
END_TEST

static const struct {
    const char *patterns[4];
    const char *name;
    bool otherwise, matched;
} lists[] = {
    {{"embed*", "!embed_positions", NULL}, "embed_tokens.weight", false, true},
    {{"embed*", "!embed_positions", NULL}, "embed_positions.weight", false, false},
    {{"!embed_positions", "embed*", NULL}, "embed_positions.weight", false, true},
    {{"*", "!a", "a.b", NULL}, "a.b", false, true},
    {{"*", "!a", "a.b", NULL}, "a.c", false, false},
    {{"x", NULL}, "y", true, true},
    {{"!y", NULL}, "y", true, false},
    {{NULL}, "y", true, true},
    {{NULL}, "y", false, false},
};

START_TEST(the_last_matching_pattern_decides)
{
    bool matched = !lists[_i].matched;
    ck_assert_ok(
        tsr__shard_match(lists[_i].patterns, lists[_i].name, lists[_i].otherwise, &matched));
    ck_assert(matched == lists[_i].matched);
}
END_TEST

START_TEST(no_list_matches_nothing)
{
    bool matched = false;
    ck_assert_ok(tsr__shard_match(NULL, "x", true, &matched));
    ck_assert(matched);
}
END_TEST

static const struct {
    const char *pattern, *text;
} bad[] = {
    {"", "shard: pattern '' is empty"},
    {"!", "shard: pattern '!' is empty"},
    {"a[bc", "shard: pattern 'a[bc': '[' at offset 1 is not complete"},
    {"[]", "shard: pattern '[]': '[' at offset 0 is not complete"},
    {"[!]", "shard: pattern '[!]': '[' at offset 0 is not complete"},
    {"[a-", "shard: pattern '[a-': '[' at offset 0 is not complete"},
    {"[a\\]", "shard: pattern '[a\\]': '[' at offset 0 is not complete"},
    {"ab\\", "shard: pattern 'ab\\': '\\' at offset 2 is not complete"},
};

START_TEST(bad_patterns)
{
    bool matched = true;
    const char *const patterns[] = {"x", bad[_i].pattern, NULL};
    ck_assert_error(tsr__shard_match(patterns, "x", false, &matched), TSR_ERR_INVALID,
                    bad[_i].text);
    ck_assert(matched);
}
END_TEST

/* A simple matcher that tries every possibility. */
static bool slow_match(const char *pattern, const char *text)
{
    if (*pattern == '\0')
        return *text == '\0';
    if (*pattern == '*')
        return slow_match(pattern + 1, text) || (*text != '\0' && slow_match(pattern, text + 1));
    return *text != '\0' && (*pattern == '?' || *pattern == *text) &&
           slow_match(pattern + 1, text + 1);
}

START_TEST(patterns_match_like_a_slow_matcher)
{
    uint64_t state = 5;
    int matched = 0;
    for (int round = 0; round < 200000; round++) {
        char pattern[9], text[9];
        int pattern_length = (int)random_between(&state, 1, 8);
        int length = (int)random_between(&state, 0, 8);
        for (int i = 0; i < pattern_length; i++)
            pattern[i] = "ab?**"[random_between(&state, 0, 4)];
        for (int i = 0; i < length; i++)
            text[i] = "ab"[random_between(&state, 0, 1)];
        pattern[pattern_length] = text[length] = '\0';
        ck_assert(matches(pattern, text) == slow_match(pattern, text));
        matched += slow_match(pattern, text);
    }
    ck_assert_int_gt(matched, 10000);
}
END_TEST

/* Patterns for which backtracking matchers are slow must be matched quickly. */
START_TEST(no_pattern_is_slow)
{
    char name[TSR_SHARD_MAX_NAME + 1], pattern[201];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i < 200; i += 2)
        memcpy(pattern + i, "*a", 2);
    pattern[198] = 'b';
    pattern[200] = '\0';
    ck_assert(!matches(pattern, name));
}
END_TEST

START_TEST(natural_order)
{
    static const char *const sorted[] = {"",
                                         "0",
                                         "00",
                                         "1",
                                         "2",
                                         "10",
                                         "layer",
                                         "layer2",
                                         "layer02",
                                         "layer10",
                                         "layer10a",
                                         "layer10b",
                                         "layer11",
                                         "layers.2.b",
                                         "layers.10.a",
                                         "layers.18446744073709551616.a",
                                         "layers.18446744073709551617.a",
                                         "m",
                                         "ä"};
    enum { COUNT = sizeof sorted / sizeof *sorted };
    /* Numbers in names that are equal, such as 1 and 01, must be ordered by their bytes. */
    ck_assert_int_lt(tsr_shard_compare_names("layer02", "layer2"), 0);
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < COUNT; j++) {
            if (strcmp(sorted[i], "layer02") == 0 || strcmp(sorted[j], "layer02") == 0)
                continue;
            int order = tsr_shard_compare_names(sorted[i], sorted[j]);
            ck_assert_msg((order > 0) - (order < 0) == (i > j) - (i < j), "%s, %s", sorted[i],
                          sorted[j]);
        }
}
END_TEST

static const struct {
    const char *name, *layer;
} layers[] = {
    {"model.layers.10.self_attn.q_proj.weight", "model.layers.10"},
    {"transformer.h.0.mlp.c_fc.bias", "transformer.h.0"},
    {"blk.3.attn_q.weight", "blk.3"},
    {"encoder.block.2.layer.1.weight", "encoder.block.2"},
    {"model.embed_tokens.weight", "model.embed_tokens"},
    {"lm_head.weight", "lm_head"},
    {"layer10.weight", "layer10"},
    {"weight", "weight"},
    {"0.weight", "0"},
    {"scale.0", "scale.0"},
    {"a..1", "a..1"},
    {".x", ".x"},
    {"x.", "x"},
    {"", ""},
};

START_TEST(layers_of_names)
{
    char text[64], shorter[4];
    ck_assert_str_eq(tsr__shard_layer_of(layers[_i].name, sizeof text, text), layers[_i].layer);
    tsr__shard_layer_of(layers[_i].name, sizeof shorter, shorter);
    ck_assert_int_eq(strncmp(shorter, layers[_i].layer, 3), 0);
    ck_assert_uint_lt(strlen(shorter), 4);
    text[0] = 'x';
    ck_assert_ptr_eq(tsr__shard_layer_of(layers[_i].name, 0, text), text);
    ck_assert_int_eq(text[0], 'x');
}
END_TEST

static const struct {
    const char *text;
    const char *problem;
} names[] = {
    {"model.weight", NULL},
    {"größe.重み.🙂", NULL},
    {"a \"b\" \\c", NULL},
    {"", "is empty"},
    {"a\nb", "has a control character"},
    {"\x1b[31m", "has a control character"},
    {"\x7f", "has a control character"},
    {"\xc2\x9b", "has a control character"},
    {"\xff", "is not UTF-8"},
    {"\x80", "is not UTF-8"},
    {"a\xc3", "is not UTF-8"},
    {"\xc3"
     "a",
     "is not UTF-8"},
    {"\xc0\x80", "is not UTF-8"},         /* 0 in two bytes */
    {"\xe0\x80\x80", "is not UTF-8"},     /* 0 in three bytes */
    {"\xed\xa0\x80", "is not UTF-8"},     /* half of a surrogate pair */
    {"\xf4\x90\x80\x80", "is not UTF-8"}, /* beyond U+10FFFF */
    {"\xf8\x88\x80\x80\x80", "is not UTF-8"},
};

START_TEST(invalid_names)
{
    const char *problem = tsr__name_problem(names[_i].text, strlen(names[_i].text));
    if (names[_i].problem == NULL)
        ck_assert_ptr_null(problem);
    else
        ck_assert_str_eq(problem, names[_i].problem);
}
END_TEST

START_TEST(long_names)
{
    char name[TSR_SHARD_MAX_NAME + 2], text[TSR__NAME_SHORT];
    memset(name, 'a', sizeof name);
    ck_assert_ptr_null(tsr__name_problem(name, TSR_SHARD_MAX_NAME));
    ck_assert_str_eq(tsr__name_problem(name, TSR_SHARD_MAX_NAME + 1), "is too long");
    name[TSR_SHARD_MAX_NAME] = '\0';
    ck_assert_uint_lt(strlen(tsr__name_short(name, text)), TSR__NAME_SHORT);
    ck_assert_str_eq(text + strlen(text) - 6, "aaa…");
    /* If an error text cuts a name that is too long, it must not cut it in the middle of a
     * character. */
    for (size_t i = 1; i + 1 < TSR_SHARD_MAX_NAME; i += 2)
        memcpy(name + i, "ä", 2);
    tsr__name_short(name, text);
    ck_assert_ptr_null(tsr__name_problem(text, strlen(text)));
    name[TSR__NAME_SHORT - 1] = '\0';
    ck_assert_str_eq(tsr__name_short(name, text), name);
}
END_TEST

static const struct {
    const char *name;
    uint64_t count, bytes;
} dtypes[] = {
    {"f32", 1, 4},     {"F32", 1, 4},     {"bf16", 1, 2}, {"f64", 1, 8},      {"bool", 1, 1},
    {"F8_E4M3", 1, 1}, {"f6_e2m3", 4, 3}, {"f4", 2, 1},   {"Q4_K", 256, 144}, {"q8_0", 32, 34},
    {"i64", 1, 8},     {"u16", 1, 2},     {"c64", 1, 8},  {"mxfp4", 32, 17},
};

START_TEST(known_dtypes)
{
    tsr__file_dtype dtype = {0};
    ck_assert(tsr__dtype_by_name(dtypes[_i].name, &dtype));
    ck_assert_uint_eq(dtype.block_count, dtypes[_i].count);
    ck_assert_uint_eq(dtype.block_bytes, dtypes[_i].bytes);
}
END_TEST

START_TEST(unknown_dtypes)
{
    tsr__file_dtype dtype = {.name = "kept"};
    ck_assert(!tsr__dtype_by_name("f33", &dtype));
    ck_assert(!tsr__dtype_by_name("f3", &dtype));
    ck_assert(!tsr__dtype_by_name("", &dtype));
    ck_assert_str_eq(dtype.name, "kept");
}
END_TEST

TESTS(names)
{
    tcase_add_loop_test(tests, single_patterns, 0, (int)(sizeof single / sizeof *single));
    tcase_add_loop_test(tests, the_last_matching_pattern_decides, 0,
                        (int)(sizeof lists / sizeof *lists));
    tcase_add_test(tests, no_list_matches_nothing);
    tcase_add_loop_test(tests, bad_patterns, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(tests, patterns_match_like_a_slow_matcher);
    tcase_add_test(tests, no_pattern_is_slow);
    tcase_add_test(tests, natural_order);
    tcase_add_loop_test(tests, layers_of_names, 0, (int)(sizeof layers / sizeof *layers));
    tcase_add_loop_test(tests, invalid_names, 0, (int)(sizeof names / sizeof *names));
    tcase_add_test(tests, long_names);
    tcase_add_loop_test(tests, known_dtypes, 0, (int)(sizeof dtypes / sizeof *dtypes));
    tcase_add_test(tests, unknown_dtypes);
}
