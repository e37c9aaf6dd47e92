/* Plans as JSON: the exact text, the same text read by another parser, and invalid texts. */
#include <jansson.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "shard/plan/shard_plan.h"
#include "shard/plans.h"
#include "support/random.h"

/* Returns the plan's JSON; free() it. */
static char *saved(const tsr_shard_plan *plan, size_t *size)
{
    ck_assert_ok(tsr_shard_plan_save_json(plan, 0, NULL, size));
    char *text = malloc(*size + 1);
    size_t written = 0;
    ck_assert_ok(tsr_shard_plan_save_json(plan, *size, text, &written));
    ck_assert_uint_eq(written, *size);
    text[*size] = '\0';
    return text;
}

static tsr_status load(const char *text, size_t size, tsr_shard_plan **plan)
{
    char *exact = malloc(size == 0 ? 1 : size);
    memcpy(exact, text, size);
    tsr_status status = tsr_shard_plan_load_json(exact, size, plan);
    free(exact);
    return status;
}

static const tsr_shard_param list[] = {
    {.struct_size = sizeof(tsr_shard_param),
     .name = "embed",
     .ndim = 2,
     .shape = {2, 3},
     .dtype = "bf16",
     .always_gather = true},
    {.struct_size = sizeof(tsr_shard_param),
     .name = "a \"b\" \\ä",
     .ndim = 1,
     .shape = {5},
     .layer = "l\\\""},
    {.struct_size = sizeof(tsr_shard_param), .name = "scale"},
};
enum { LIST = COUNT_OF(list) };

START_TEST(the_exact_text)
{
    static const char expected[] =
        "{\"schema\": \"tessera.plan\", \"schema_version\": 1, \"tessera\": \"%s\",\n"
        " \"strategy\": \"weighted\", \"ranks\": 2,\n"
        " \"rates\": [3, 0.1],\n"
        " \"memory_bytes\": [100, \"18446744073709551615\"],\n"
        " \"summary\": {\"model_bytes\": 36, \"sharded_bytes\": 24, \"gathered_bytes\": 12, "
        "\"gathered_count\": 1, \"max_bytes\": 36, \"least_bytes\": 12, \"imbalance\": "
        "1.03333333333333",
                      rest[] =
                          ",\n"
                          "  \"per_rank\": [\n"
                          "   {\"rank\": 0, \"total_bytes\": 36, \"sharded_bytes\": 24, "
                          "\"gathered_bytes\": 12, \"shard_count\": 2},\n"
                          "   {\"rank\": 1, \"total_bytes\": 12, \"sharded_bytes\": 0, "
                          "\"gathered_bytes\": 12, \"shard_count\": 0}]},\n"
                          " \"params\": [\n"
                          "  {\"name\": \"embed\", \"shape\": [2, 3], \"dtype\": \"bf16\", "
                          "\"layer\": \"embed\", \"always_gather\": true},\n"
                          "  {\"name\": \"a \\\"b\\\" \\\\ä\", \"shape\": [5], \"dtype\": \"f32\", "
                          "\"layer\": \"l\\\\\\\"\", \"shards\": [[0, 5], [5, 0]]},\n"
                          "  {\"name\": \"scale\", \"shape\": [], \"dtype\": \"f32\", "
                          "\"layer\": \"scale\", \"shards\": [[0, 1], [1, 0]]}]}\n";
    tsr_shard_plan *plan =
        plan_of(tsr_shard_strategy_params(.kind = TSR_SHARD_WEIGHTED), LIST, list,
                tsr_shard_plan_params(.ranks = 2, .rates = (double[]){3, 0.1},
                                      .memory_bytes = (uint64_t[]){100, UINT64_MAX}));
    size_t size;
    char *text = saved(plan, &size), head[1024];
    snprintf(head, sizeof head, expected, tsr_version());
    ck_assert_uint_eq(strlen(text), size);
    ck_assert_int_eq(strncmp(text, head, strlen(head)), 0);
    /* The imbalance may have more digits than `head` has. */
    const char *after = text + strlen(head) + strspn(text + strlen(head), "0123456789");
    ck_assert_str_eq(after, rest);

    tsr_shard_plan *read = NULL;
    ck_assert_ok(load(text, size, &read));
    ck_assert(tsr__plan_equal(plan, read));
    size_t again_size;
    char *again = saved(read, &again_size);
    ck_assert_str_eq(again, text);
    free(text);
    free(again);
    tsr_shard_plan_destroy(&plan);
    tsr_shard_plan_destroy(&read);
}
END_TEST

/* Any plan is unchanged after saving and loading, and another parser reads the same numbers. */
START_TEST(saved_plans_load_unchanged)
{
    uint64_t state = 8;
    static const char *const dtypes[] = {"f32", "bf16", "u8", "f4"};
    for (int round = 0; round < 500; round++) {
        enum { MAX = 12 };
        char names[MAX][32];
        tsr_shard_param params[MAX];
        double rates[6];
        uint64_t memory[6], count = (uint64_t)random_between(&state, 1, MAX);
        int ranks = (int)random_between(&state, 1, 6);
        for (uint64_t p = 0; p < count; p++) {
            snprintf(names[p], sizeof names[p], "layers.%d.%d", (int)p / 2, (int)p);
            params[p] = (tsr_shard_param){
                .struct_size = sizeof(tsr_shard_param),
                .name = names[p],
                .ndim = 2,
                .shape = {random_between(&state, 0, 9) * 2,
                          round % 7 == 0 ? INT64_C(1) << 54 : random_between(&state, 0, 9)},
                .dtype = dtypes[random_between(&state, 0, 3)],
                .always_gather = random_between(&state, 0, 4) == 0};
            if (round % 7 == 0)
                params[p].shape[0] = 2;
        }
        for (int r = 0; r < ranks; r++) {
            rates[r] = (double)(random_next(&state) >> 11) * 0x1p-53 + 1e-9;
            memory[r] = UINT64_MAX - (uint64_t)random_between(&state, 0, 5);
        }
        int kind = (int)random_between(&state, 0, 3);
        tsr_shard_plan *plan =
            plan_of(tsr_shard_strategy_params(.kind = (tsr_shard_kind)kind), count, params,
                    tsr_shard_plan_params(.ranks = ranks, .rates = round % 2 == 0 ? rates : NULL,
                                          .memory_bytes = round % 3 == 0 ? memory : NULL));
        tsr_shard_plan *read = NULL;
        size_t size;
        char *text = saved(plan, &size);
        ck_assert_ok(load(text, size, &read));
        ck_assert(tsr__plan_equal(plan, read));

        json_error_t error;
        json_t *document = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
        ck_assert_msg(document != NULL, "line %d: %s", error.line, error.text);
        const json_t *entries = json_object_get(document, "params");
        ck_assert_uint_eq(json_array_size(entries), count);
        for (uint64_t p = 0; p < count; p++) {
            const json_t *shards = json_object_get(json_array_get(entries, p), "shards");
            ck_assert((shards == NULL) == params[p].always_gather);
            for (int r = 0; r < ranks && shards != NULL; r++) {
                const json_t *shard = json_array_get(shards, (size_t)r);
                tsr_shard_range range;
                ck_assert_ok(tsr_shard_plan_range(plan, p, r, &range));
                ck_assert(json_integer_value(json_array_get(shard, 0)) == (int64_t)range.start);
                ck_assert(json_integer_value(json_array_get(shard, 1)) == (int64_t)range.count);
            }
        }
        for (int r = 0; r < ranks && round % 2 == 0; r++) {
            const json_t *rate = json_array_get(json_object_get(document, "rates"), (size_t)r);
            ck_assert(json_real_value(rate) == rates[r]);
        }
        json_decref(document);
        free(text);
        tsr_shard_plan_destroy(&plan);
        tsr_shard_plan_destroy(&read);
    }
}
END_TEST

START_TEST(the_capacity_is_checked)
{
    tsr_shard_plan *plan = plan_of(NULL, 1, list, tsr_shard_plan_params(.ranks = 1));
    size_t size = 0, other = 7;
    char room[1024] = "untouched", expected[128];
    ck_assert_ok(tsr_shard_plan_save_json(plan, 0, NULL, &size));
    snprintf(expected, sizeof expected,
             "shard: the plan takes %zu bytes of JSON, there is room for %zu", size, size - 1);
    ck_assert_error(tsr_shard_plan_save_json(plan, size - 1, room, &other), TSR_ERR_INVALID,
                    expected);
    ck_assert_str_eq(room, "untouched");
    ck_assert_uint_eq(other, 7);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

/* Numbers in JSON must have a decimal point in every locale. */
START_TEST(any_locale)
{
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ps_AF.UTF-8", "C"};
    static const double rates[] = {0.1, 2.5e-7, 1e300};
    size_t size, again_size;
    tsr_shard_plan *plan =
                       plan_of(NULL, LIST, list, tsr_shard_plan_params(.ranks = 3, .rates = rates)),
                   *read = NULL;
    char *text = saved(plan, &size);
    ck_assert_ptr_nonnull(strstr(text, "\"rates\": [0.1, 2.5e-07, 1e+300]"));
    for (size_t i = 0; i < COUNT_OF(locales); i++) {
        if (setlocale(LC_NUMERIC, locales[i]) == NULL)
            continue; /* the locale is not installed */
        char *again = saved(plan, &again_size);
        ck_assert_str_eq(again, text);
        ck_assert_ok(load(text, size, &read));
        ck_assert(tsr__plan_equal(plan, read));
        tsr_shard_plan_destroy(&read);
        free(again);
    }
    free(text);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

/* Reading plans -------------------------------------------------------------------------------- */

#define HEAD "{\"schema\":\"tessera.plan\",\"schema_version\":1,\"strategy\":\"s\",\"ranks\":2,"
#define P "\"params\":["
#define W "{\"name\":\"w\",\"shape\":[3],\"dtype\":\"f32\""

/* Valid plans: with members in any order, without optional members, and with wrong values of
 * derived members, which are ignored. */
static const char *const right[] = {
    HEAD P W ",\"shards\":[[0,2],[2,1]]}]}",
    "{\"params\":[{\"shards\":[[\"1\",2],[0,1]],\"layer\":\"x\","
    "\"dtype\":\"f32\",\"shape\":[3],"
    "\"name\":\"w\"}],\"ranks\":2,\"summary\":{\"lies\":[true]},\"strategy\":\"s\","
    "\"schema_version\":1,\"schema\":\"tessera.plan\",\"tessera\":\"9.9\"}",
    HEAD "\"rates\":[1,2e-1],\"memory_bytes\":[\"8\",0]," P W ",\"shards\":[[0,2],[2,1]]}]}",
    HEAD P W ",\"always_gather\":true}]}",
    HEAD P W ",\"always_gather\":false,\"shards\":[[3,0],[0,3]]}]}  \n",
};

START_TEST(plans_from_other_programs)
{
    tsr_shard_plan *plan = NULL;
    ck_assert_ok(load(right[_i], strlen(right[_i]), &plan));
    ck_assert_str_eq(summary_of(plan).strategy, "s");
    ck_assert_int_eq(tsr_shard_plan_ranks(plan), 2);
    ck_assert_uint_eq(tsr_shard_plan_param(plan, 0)->count, 3);
    int owner = -7;
    ck_assert_ok(tsr_shard_plan_owner(plan, 0, 2, &owner));
    ck_assert_int_eq(owner, _i == 3 ? TSR_SHARD_EVERY_RANK : _i == 1 ? 0 : 1);
    tsr_shard_plan_destroy(&plan);
    for (size_t length = 0; length < strlen(right[_i]) - 3; length++)
        ck_assert(load(right[_i], length, &plan) == TSR_ERR_INVALID);
}
END_TEST

static const struct {
    const char *json, *text;
} wrong[] = {
    {"", "plan: offset 0: an object expected, but the text ends"},
    {"[]", "plan: offset 0: an object expected, not '['"},
    {"{}", "plan: offset 0: the plan has no \"schema\""},
    {"{\"schema\":\"tessera.plan\",\"schema_version\":1,\"strategy\":\"s\",\"ranks\":2}",
     "plan: offset 0: the plan has no \"params\""},
    {HEAD "\"rank\":1," P "]}", "plan: offset 69: unknown member \"rank\""},
    {HEAD "\"ranks\":1," P "]}", "plan: offset 69: \"ranks\" comes twice"},
    {HEAD P "]", "plan: offset 80: ',' or '}' expected, but the text ends"},
    {HEAD P "]}}", "plan: offset 81: nothing more expected, not '}'"},
    {"{\"schema\":\"tessera.bench\",\"schema_version\":1,\"strategy\":\"s\",\"ranks\":2,\"params\":"
     "[]}",
     "plan: offset 10: the schema is not tessera.plan"},
    {"{\"schema\":\"tessera.plan\",\"schema_version\":2,\"strategy\":\"s\",\"ranks\":2,\"params\":"
     "[]}",
     "plan: offset 42: version 2 is not 1"},
    {"{\"schema\":\"tessera.plan\",\"schema_version\":1,\"strategy\":\"\",\"ranks\":2,\"params\":"
     "[]}",
     "plan: offset 0: shard: the strategy's name is empty"},
    {"{\"schema\":\"tessera.plan\",\"schema_version\":1,\"strategy\":\"s\",\"ranks\":0,\"params\":"
     "[]}",
     "plan: offset 67: 0 ranks are outside 1 to 65536"},
    {"{\"schema\":\"tessera.plan\",\"schema_version\":1,\"strategy\":\"s\",\"ranks\":99999,"
     "\"params\":[]}",
     "plan: offset 67: 99999 ranks are outside 1 to 65536"},
    {HEAD "\"rates\":[1]," P "]}",
     "plan: offset 77: \"rates\" does not have one number for each of 2 ranks"},
    {HEAD "\"rates\":[1,2,3]," P "]}",
     "plan: offset 77: \"rates\" does not have one number for each of 2 ranks"},
    {HEAD "\"rates\":[1,\"2\"]," P "]}", "plan: offset 80: a number expected, not '\"'"},
    {HEAD "\"rates\":[1,1e999]," P "]}", "plan: offset 80: a number that is too large"},
    {HEAD "\"rates\":[1,-1]," P "]}",
     "plan: offset 0: shard: rank 1's rate is -1; rates must be finite and not negative"},
    {HEAD "\"memory_bytes\":[1,-1]," P "]}",
     "plan: offset 87: a number that is no integer from 0 to 2^64 - 1"},
    {HEAD P "]}", "plan: offset 78: shard: the list of parameters is empty"},
    {HEAD P W "}]}", "plan: offset 79: parameter 'w': \"shards\" is missing"},
    {HEAD P W ",\"always_gather\":true,\"shards\":[[0,2],[2,1]]}]}",
     "plan: offset 79: parameter 'w': it is always gathered, but has \"shards\""},
    {HEAD P W ",\"shards\":[[0,3]]}]}",
     "plan: offset 126: parameter 'w': \"shards\" does not have one entry for each of 2 ranks"},
    {HEAD P W ",\"shards\":[[0,3],[3,0],[3,0]]}]}",
     "plan: offset 126: parameter 'w': \"shards\" does not have one entry for each of 2 ranks"},
    {HEAD P W ",\"shards\":[[0,3],[3]]}]}",
     "plan: offset 133: parameter 'w': a shard is not an array of two numbers"},
    {HEAD P W ",\"shards\":[[0,3],[3,0,0]]}]}",
     "plan: offset 133: parameter 'w': a shard is not an array of two numbers"},
    {HEAD P W ",\"shards\":[[0,3],3]}]}",
     "plan: offset 133: parameter 'w': an array expected, not '3'"},
    {HEAD P W ",\"shards\":[[0,2],[2,0]]}]}",
     "plan: offset 78: shard: parameter 'w': partition: elements 2 to 2 belong to no rank"},
    {HEAD P W ",\"shards\":[[0,2],[1,2]]}]}",
     "plan: offset 78: shard: parameter 'w': partition: element 1 belongs to rank 0 and to rank 1"},
    {HEAD P W ",\"shards\":[[0,2],[2,18446744073709551615]]}]}",
     "plan: offset 78: shard: parameter 'w': partition: rank 1's 18446744073709551615 elements "
     "from 2 are outside the 3 there are"},
    {HEAD P W ",\"shards\":[[0,2],[2,1]]}," W ",\"shards\":[[0,2],[2,1]]}]}",
     "plan: offset 78: shard: parameters 0 and 1 are both 'w'"},
    {HEAD "\"memory_bytes\":[8,3]," P W ",\"shards\":[[0,2],[2,1]]}]}",
     "plan: offset 99: shard: rank 1 would keep 4 bytes, but has memory for 3"},
    {HEAD P "{\"name\":\"w\",\"shape\":[3],\"dtype\":\"f31\",\"shards\":[]}]}",
     "plan: offset 79: parameter 'w': there is no dtype 'f31'"},
};

START_TEST(invalid_plans)
{
    tsr_shard_plan *plan = NULL;
    ck_assert_error(load(wrong[_i].json, strlen(wrong[_i].json), &plan), TSR_ERR_INVALID,
                    wrong[_i].text);
    ck_assert_ptr_null(plan);
}
END_TEST

START_TEST(no_text)
{
    tsr_shard_plan *plan = NULL;
    ck_assert_error(tsr_shard_plan_load_json(NULL, 3, &plan), TSR_ERR_INVALID,
                    "plan: text is NULL");
    ck_assert_error(tsr_shard_plan_load_json(NULL, 0, &plan), TSR_ERR_INVALID,
                    "plan: offset 0: an object expected, but the text ends");
}
END_TEST

/* A text with one changed byte must be refused, or give a valid plan. */
START_TEST(any_byte_changed)
{
    tsr_shard_plan *plan = plan_of(NULL, LIST, list, tsr_shard_plan_params(.ranks = 3));
    size_t size;
    char *text = saved(plan, &size);
    int accepted = 0;
    for (size_t i = 0; i < size; i++)
        for (int change = 1; change < 256; change += 2) {
            tsr_shard_plan *read = NULL;
            text[i] = (char)(text[i] ^ change);
            if (tsr_shard_plan_load_json(text, size, &read) == TSR_OK) {
                ck_assert_ok(tsr_shard_plan_check(read, 0, NULL));
                accepted++;
            }
            tsr_shard_plan_destroy(&read);
            text[i] = (char)(text[i] ^ change);
        }
    ck_assert_int_gt(accepted, 100);
    free(text);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

TESTS(plan_json)
{
    tcase_add_test(tests, the_exact_text);
    tcase_add_test(tests, saved_plans_load_unchanged);
    tcase_add_test(tests, the_capacity_is_checked);
    tcase_add_test(tests, any_locale);
    tcase_add_loop_test(tests, plans_from_other_programs, 0, (int)COUNT_OF(right));
    tcase_add_loop_test(tests, invalid_plans, 0, (int)COUNT_OF(wrong));
    tcase_add_test(tests, no_text);
    tcase_add_test(tests, any_byte_changed);
}
