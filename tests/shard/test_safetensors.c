/* safetensors headers: valid ones, and every kind of error. */
#include "shard/files.h"
#include "shard/formats/readers.h"
#include "shard/parse.h"
#include "shard/plans.h"
#include "support/random.h"

static tsr_status parse(const bytes *file, tsr_shard_list **list)
{
    /* The memory has exactly this size, so that reading past the end is detected. */
    uint8_t *exact = malloc(file->size == 0 ? 1 : file->size);
    if (file->size > 0)
        memcpy(exact, file->data, file->size);
    tsr_status status = tsr__list_parse(TSR_SHARD_SAFETENSORS, exact, file->size, file->size, list);
    free(exact);
    return status;
}

static const char usual[] =
    "{\"__metadata__\": {\"format\": \"pt\", \"deep\": [[{\"a\": null}], true, -1.5e3]},\n"
    " \"model.embed.weight\": {\"dtype\":\"BF16\",\"shape\":[4,3],\"data_offsets\":[0,24]},\n"
    " \"model.layers.0.w\\u00e4\\\"\": {\"shape\": [2], \"data_offsets\": [24, 32], \"dtype\": "
    "\"F32\", \"later\": [1]},\n"
    " \"empty\": {\"dtype\":\"I64\",\"shape\":[0, 5],\"data_offsets\":[32,32]},\n"
    " \"scalar\": {\"dtype\":\"F8_E4M3\",\"shape\":[],\"data_offsets\":[32,33]}}   ";

START_TEST(a_usual_file)
{
    bytes file = safetensors_file(usual, 33);
    tsr_shard_list *list = NULL;
    ck_assert_ok(parse(&file, &list));
    ck_assert_int_eq(tsr_shard_list_format(list), TSR_SHARD_SAFETENSORS);
    ck_assert_str_eq(tsr_shard_format_name(tsr_shard_list_format(list)), "safetensors");
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 4);
    const tsr_shard_param *params = tsr_shard_list_param(list, 0);
    ck_assert_str_eq(params[0].name, "model.embed.weight");
    ck_assert_str_eq(params[0].layer, "model.embed");
    ck_assert_str_eq(params[0].dtype, "bf16");
    ck_assert_int_eq(params[0].ndim, 2);
    ck_assert_int_eq(params[0].shape[0], 4);
    ck_assert_int_eq(params[0].shape[1], 3);
    ck_assert_uint_eq(params[0].size_bytes, 24);
    ck_assert_uint_eq(params[0].offset_bytes, 8 + sizeof usual - 1);
    ck_assert_str_eq(params[1].name, "model.layers.0.wä\"");
    ck_assert_str_eq(params[1].layer, "model.layers.0");
    ck_assert_uint_eq(params[1].offset_bytes, 8 + sizeof usual - 1 + 24);
    ck_assert_uint_eq(params[2].count, 0);
    ck_assert_int_eq(params[3].ndim, 0);
    ck_assert_uint_eq(params[3].count, 1);
    ck_assert_str_eq(params[3].dtype, "f8_e4m3");
    ck_assert_ptr_null(params[3].file);
    tsr_shard_list_destroy(&list);
    ck_assert_ptr_null(list);
    tsr_shard_list_destroy(&list);
    tsr_shard_list_destroy(NULL);
    free(file.data);
}
END_TEST

START_TEST(no_tensors_at_all)
{
    bytes file = safetensors_file("{}", 0);
    tsr_shard_list *list = NULL;
    ck_assert_ok(parse(&file, &list));
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 0);
    tsr_shard_list_destroy(&list);
    free(file.data);
}
END_TEST

#define T(dtype, shape, offsets)                                                                   \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* Offsets in error texts count from the start of the file; the header starts at 8. */
static const struct {
    const char *header;
    size_t weights;
    tsr_status status;
    const char *text;
} bad[] = {
    {"", 0, TSR_ERR_INVALID, "safetensors: offset 8: the header does not start with '{'"},
    {" {}", 0, TSR_ERR_INVALID, "safetensors: offset 8: the header does not start with '{'"},
    {"[]", 0, TSR_ERR_INVALID, "safetensors: offset 8: the header does not start with '{'"},
    {"{", 0, TSR_ERR_INVALID, "safetensors: offset 9: a string expected, but the text ends"},
    {"{}x", 0, TSR_ERR_INVALID, "safetensors: offset 10: nothing more expected, not 'x'"},
    {"{1:2}", 0, TSR_ERR_INVALID, "safetensors: offset 9: a string expected, not '1'"},
    {"{\"a\"}", 0, TSR_ERR_INVALID, "safetensors: offset 12: ':' expected, not '}'"},
    {"{\"a\":3}", 0, TSR_ERR_INVALID,
     "safetensors: offset 13: tensor 'a': an object expected, not '3'"},
    {"{\"a\":{},}", 0, TSR_ERR_INVALID, "safetensors: offset 9: tensor 'a': \"dtype\" is missing"},
    {"{\"__metadata__\":{},}", 0, TSR_ERR_INVALID,
     "safetensors: offset 27: a string expected, not '}'"},
    {"{\"__metadata__\":{} \"a\":1}", 0, TSR_ERR_INVALID,
     "safetensors: offset 27: ',' or '}' expected, not '\"'"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, TSR_ERR_INVALID,
     "safetensors: offset 27: \"__metadata__\" comes twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, TSR_ERR_INVALID,
     "safetensors: offset 9: tensor 'a': \"data_offsets\" is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, TSR_ERR_INVALID,
     "safetensors: offset 28: tensor 'a': \"dtype\" comes twice"},
    {"{\"a\":{\"dtype\":3}}", 0, TSR_ERR_INVALID,
     "safetensors: offset 22: tensor 'a': a string expected, not '3'"},
    {"{\"a\":" T("F33", "[]", "[0,4]") "}", 4, TSR_ERR_UNSUPPORTED,
     "safetensors: offset 22: tensor 'a': dtype 'F33' is unknown"},
    {"{\"a\":{\"dtype\":\"0123456789012345678901234567890123456789\"}}", 4, TSR_ERR_INVALID,
     "safetensors: offset 22: tensor 'a': a string of more than 31 bytes"},
    {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 36: tensor 'a': its shape has more than 8 dimensions"},
    {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 37: tensor 'a': a number that is no integer from 0 to 2^64 - 1"},
    {"{\"a\":" T("F32", "[1.5]", "[0,4]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 37: tensor 'a': a number that is no integer from 0 to 2^64 - 1"},
    {"{\"a\":" T("F32", "[18446744073709551616]", "[0,4]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 37: tensor 'a': a number that is no integer from 0 to 2^64 - 1"},
    {"{\"a\":" T("F32", "[9223372036854775808]", "[0,4]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 37: tensor 'a': a dimension of 9223372036854775808"},
    {"{\"a\":" T("F32", "[4294967296,4294967296]", "[0,4]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 9: tensor 'a': it is larger than 2^63 - 1"},
    {"{\"a\":" T("F32", "[]", "[0,4]") "1", 4, TSR_ERR_INVALID,
     "safetensors: offset 60: ',' or '}' expected, not '1'"},
    {"{\"a\":" T("F32", "[01]", "[0,4]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 37: tensor 'a': a number that is no integer from 0 to 2^64 - 1"},
    {"{\"a\":" T("F4", "[3]", "[0,1]") "}", 1, TSR_ERR_INVALID,
     "safetensors: offset 9: tensor 'a': 3 elements are not a whole number of f4's blocks of 2"},
    {"{\"a\":" T("F32", "[]", "[0]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 54: tensor 'a': data_offsets are two numbers"},
    {"{\"a\":" T("F32", "[]", "[0,4,8]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 54: tensor 'a': data_offsets are two numbers"},
    {"{\"a\":" T("F32", "[]", "[4,0]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 54: tensor 'a': bytes 4 to 0 do not fit its size of 4"},
    {"{\"a\":" T("F32", "[]", "[0,5]") "}", 5, TSR_ERR_INVALID,
     "safetensors: offset 54: tensor 'a': bytes 0 to 5 do not fit its size of 4"},
    {"{\"a\":" T("F32", "[]", "[0,4]") "}", 3, TSR_ERR_INVALID,
     "safetensors: offset 54: tensor 'a': it ends at byte 4 of the weights, which have 3"},
    {"{\"a\":" T("F32", "[]", "[18446744073709551612,18446744073709551616]") "}", 4,
     TSR_ERR_INVALID,
     "safetensors: offset 76: tensor 'a': a number that is no integer from 0 to 2^64 - 1"},
    {"{\"a\":" T("F32", "[]", "[18446744073709551611,18446744073709551615]") "}", 4,
     TSR_ERR_INVALID,
     "safetensors: offset 54: tensor 'a': it ends at byte 18446744073709551615 of the weights, "
     "which have 4"},
    {"{\"a\":" T("F32", "[]", "[0,4]") "}", 5, TSR_ERR_INVALID,
     "safetensors: offset 65: the last 1 bytes of the weights belong to no tensor"},
    {"{\"a\":" T("F32", "[]", "[1,5]") "}", 5, TSR_ERR_INVALID,
     "safetensors: offset 9: bytes 0 to 0 of the weights, before tensor 'a', belong to no tensor"},
    {"{\"a\":" T("F32", "[]", "[0,4]") ",\"b\":" T("F32", "[]", "[2,6]") "}", 6, TSR_ERR_INVALID,
     "safetensors: offset 61: tensor 'b' starts at byte 2 of the weights, but 'a' goes on to byte "
     "4"},
    {"{\"b\":" T("F32", "[2]", "[0,8]") ",\"a\":" T("U8", "[1]", "[3,4]") "}", 8, TSR_ERR_INVALID,
     "safetensors: offset 62: tensor 'a' starts at byte 3 of the weights, but 'b' goes on to byte "
     "8"},
    {"{\"a\":" T("F32", "[]", "[0,4]") ",\"a\":" T("F32", "[]", "[4,8]") "}", 8, TSR_ERR_INVALID,
     "safetensors: offset 61: the name 'a' is used twice"},
    {"{\"\":" T("F32", "[]", "[0,4]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 9: a tensor's name is empty"},
    {"{\"\\u001b[31m\":" T("F32", "[]", "[0,4]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 9: a tensor's name has a control character"},
    {"{\"\xff\":" T("F32", "[]", "[0,4]") "}", 4, TSR_ERR_INVALID,
     "safetensors: offset 9: a tensor's name is not UTF-8"},
    {"{\"a\n\":1}", 0, TSR_ERR_INVALID, "safetensors: offset 11: a control character in a string"},
    {"{\"a\\x\":1}", 0, TSR_ERR_INVALID, "safetensors: offset 11: an unknown escape"},
    {"{\"a\\u12g4\":1}", 0, TSR_ERR_INVALID,
     "safetensors: offset 11: \\u needs four hexadecimal digits"},
    {"{\"a\\ud800\":1}", 0, TSR_ERR_INVALID, "safetensors: offset 11: half of a surrogate pair"},
    {"{\"a\\ud800\\u0041\":1}", 0, TSR_ERR_INVALID,
     "safetensors: offset 11: half of a surrogate pair"},
    {"{\"a\\udc00\":1}", 0, TSR_ERR_INVALID, "safetensors: offset 11: half of a surrogate pair"},
    {"{\"a\\u0000b\":1}", 0, TSR_ERR_INVALID,
     "safetensors: offset 11: a string with a zero character"},
    {"{\"abc", 0, TSR_ERR_INVALID, "safetensors: offset 9: a string without an end"},
    {"{\"abc\\", 0, TSR_ERR_INVALID, "safetensors: offset 13: an unknown escape"},
    {"{\"__metadata__\":tru}", 0, TSR_ERR_INVALID,
     "safetensors: offset 24: a value expected, not 't'"},
    {"{\"__metadata__\":1.}", 0, TSR_ERR_INVALID,
     "safetensors: offset 24: a number that cannot be read"},
    {"{\"__metadata__\":-}", 0, TSR_ERR_INVALID,
     "safetensors: offset 24: a number that cannot be read"},
    {"{\"__metadata__\":1e}", 0, TSR_ERR_INVALID,
     "safetensors: offset 24: a number that cannot be read"},
    {"{\"__metadata__\":[1,]}", 0, TSR_ERR_INVALID,
     "safetensors: offset 27: a value expected, not ']'"},
    {"{\"__metadata__\":[1}", 0, TSR_ERR_INVALID,
     "safetensors: offset 26: ',' or ']' expected, not '}'"},
    {"{\"__metadata__\":{\"a\" 1}}", 0, TSR_ERR_INVALID,
     "safetensors: offset 29: ':' expected, not '1'"},
    {"{\"__metadata__\":\x01}", 0, TSR_ERR_INVALID,
     "safetensors: offset 24: a value expected, not byte 0x01"},
};

START_TEST(bad_headers)
{
    bytes file = safetensors_file(bad[_i].header, bad[_i].weights);
    tsr_shard_list *list = NULL;
    tsr_status status = parse(&file, &list);
    ck_assert_str_eq(tsr_last_error(), bad[_i].text);
    ck_assert_int_eq(status, bad[_i].status);
    ck_assert_ptr_null(list);
    free(file.data);
}
END_TEST

START_TEST(bad_lengths)
{
    bytes file = {0};
    tsr_shard_list *list = NULL;
    put_integer(&file, 2, 7);
    ck_assert_error(parse(&file, &list), TSR_ERR_INVALID,
                    "safetensors: offset 0: the file of 7 bytes ends within the header's length");
    put_integer(&file, 0, 1);
    ck_assert_error(parse(&file, &list), TSR_ERR_INVALID,
                    "safetensors: offset 8: the file of 8 bytes ends within the header");
    file.data[7] = 0x80;
    ck_assert_error(parse(&file, &list), TSR_ERR_INVALID,
                    "safetensors: offset 0: a header of 9223372036854775810 bytes is more than the "
                    "100000000 allowed");
    free(file.data);
}
END_TEST

/* Tests a header of brackets only, and one with a very long string. */
START_TEST(deep_and_long)
{
    tsr_shard_list *list = NULL;
    char *header = malloc(200001);
    for (int depth = 64; depth <= 66; depth++) {
        int length = sprintf(header, "{\"__metadata__\":");
        memset(header + length, '[', (size_t)depth);
        memset(header + length + depth, ']', (size_t)depth);
        strcpy(header + length + 2 * depth, "}");
        bytes file = safetensors_file(header, 0);
        if (depth == 64)
            ck_assert_ok(parse(&file, &list));
        else
            ck_assert_error(parse(&file, &list), TSR_ERR_INVALID,
                            "safetensors: offset 88: brackets nested more than 64 deep");
        tsr_shard_list_destroy(&list);
        free(file.data);
    }
    memset(header, 'a', 200000);
    header[200000] = '\0';
    memcpy(header, "{\"", 2);
    bytes file = safetensors_file(header, 0);
    ck_assert_error(parse(&file, &list), TSR_ERR_INVALID,
                    "safetensors: offset 9: a string of more than 4096 bytes");
    free(file.data);
    free(header);
}
END_TEST

/* A truncated file is refused, but if only the header is in memory, weights may be missing. */
START_TEST(truncated_anywhere)
{
    bytes file = safetensors_file(usual, 33);
    tsr_shard_list *list = NULL;
    size_t whole = file.size;
    for (file.size = 0; file.size < whole; file.size++) {
        ck_assert(parse(&file, &list) == TSR_ERR_INVALID);
        tsr_status status =
            tsr__list_parse(TSR_SHARD_SAFETENSORS, file.data, file.size, whole, &list);
        ck_assert(status == (file.size < whole - 33 ? TSR_ERR_INVALID : TSR_OK));
        tsr_shard_list_destroy(&list);
    }
    ck_assert_int_eq(tsr__list_parse(TSR_SHARD_SAFETENSORS, file.data, 20, whole, &list),
                     TSR_ERR_INVALID);
    ck_assert_str_eq(tsr_last_error(),
                     "safetensors: offset 8: only 20 bytes of the file are given, "
                     "which end within the header");
    free(file.data);
}
END_TEST

/* Each byte of a file is changed to every other value. The reader refuses the file, or gives a
 * consistent list. */
START_TEST(any_byte_changed)
{
    bytes file = safetensors_file(usual, 33);
    int accepted = 0;
    for (size_t i = 0; i < file.size - 33; i++)
        for (int change = 1; change < 256; change++) {
            file.data[i] ^= (uint8_t)change;
            tsr_shard_list *list = NULL;
            if (tsr__list_parse(TSR_SHARD_SAFETENSORS, file.data, file.size, file.size, &list) ==
                TSR_OK) {
                uint64_t sum = 0;
                accepted++;
                for (uint64_t p = 0; p < tsr_shard_list_param_count(list); p++)
                    sum += tsr_shard_list_param(list, p)->size_bytes;
                ck_assert(sum == 33);
            }
            tsr_shard_list_destroy(&list);
            file.data[i] ^= (uint8_t)change;
        }
    ck_assert_int_gt(accepted, 100);
    free(file.data);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    bytes file = safetensors_file(usual, 33);
    assert_any_allocation_may_fail(TSR_SHARD_SAFETENSORS, &file, 10);
    free(file.data);
}
END_TEST

TESTS(safetensors)
{
    tcase_add_test(tests, a_usual_file);
    tcase_add_test(tests, no_tensors_at_all);
    tcase_add_loop_test(tests, bad_headers, 0, (int)COUNT_OF(bad));
    tcase_add_test(tests, bad_lengths);
    tcase_add_test(tests, deep_and_long);
    tcase_add_test(tests, truncated_anywhere);
    tcase_add_test(tests, any_byte_changed);
    tcase_add_test(tests, every_allocation_may_fail);
}
