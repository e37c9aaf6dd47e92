/* GGUF headers: valid ones, and every kind of error. */
#include "shard/formats/readers.h"

#include "shard/files.h"
#include "shard/formats/readers.h"
#include "shard/parse.h"
#include "shard/plans.h"

enum { U8 = 0, U32 = 4, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9, U64 = 10 }; /* metadata types */

static tsr_status parse(const bytes *file, tsr_shard_list **list)
{
    uint8_t *exact = malloc(file->size == 0 ? 1 : file->size);
    if (file->size > 0)
        memcpy(exact, file->data, file->size);
    tsr_status status = tsr__list_parse(TSR_SHARD_GGUF, exact, file->size, file->size, list);
    free(exact);
    return status;
}

static void put_key(bytes *to, const char *key, uint32_t type)
{
    put_text(to, key);
    put_integer(to, type, 4);
}

/* Returns a file with metadata of all types, an alignment of 64, and three tensors. *header_end is
 * the offset of the header's end. */
static bytes usual_file(uint32_t version, size_t *header_end)
{
    bytes file = {0};
    put_gguf_head(&file, version, 3, 6);
    put_key(&file, "general.architecture", STRING);
    put_text(&file, "llama");
    put_key(&file, "general.alignment", U32);
    put_integer(&file, 64, 4);
    put_key(&file, "tokens", ARRAY);
    put_integer(&file, STRING, 4);
    put_integer(&file, 3, 8);
    put_text(&file, "a");
    put_text(&file, "");
    put_text(&file, "\xff\x00 any bytes");
    put_key(&file, "scores", ARRAY);
    put_integer(&file, F32, 4);
    put_integer(&file, 5, 8);
    put_zeros(&file, 20);
    put_key(&file, "nested", ARRAY);
    put_integer(&file, ARRAY, 4);
    put_integer(&file, 2, 8);
    for (int i = 0; i < 2; i++) {
        put_integer(&file, U8, 4);
        put_integer(&file, 3, 8);
        put_zeros(&file, 3);
    }
    put_key(&file, "flag", BOOL);
    put_integer(&file, 1, 1);
    put_gguf_tensor(&file, "token_embd.weight", 256, 3, 12, 0);  /* q4_k: 432 bytes */
    put_gguf_tensor(&file, "blk.0.attn_q.weight", 8, 2, 1, 448); /* f16: 32 bytes */
    put_gguf_tensor(&file, "blk.10.norm", 3, 1, 0, 512);         /* f32: 12 bytes */
    *header_end = file.size;
    put_zeros(&file, (64 - file.size % 64) % 64);
    put_zeros(&file, 524);
    return file;
}

START_TEST(a_usual_file)
{
    size_t header_end;
    bytes file = usual_file((uint32_t)_i, &header_end);
    tsr_shard_list *list = NULL;
    ck_assert_ok(parse(&file, &list));
    ck_assert_int_eq(tsr_shard_list_format(list), TSR_SHARD_GGUF);
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 3);
    const tsr_shard_param *params = tsr_shard_list_param(list, 0);
    ck_assert_str_eq(params[0].name, "token_embd.weight");
    ck_assert_str_eq(params[0].dtype, "q4_k");
    ck_assert_int_eq(params[0].ndim, 2);
    ck_assert_int_eq(params[0].shape[0], 3); /* row-major */
    ck_assert_int_eq(params[0].shape[1], 256);
    ck_assert_uint_eq(params[0].size_bytes, 432);
    ck_assert_uint_eq(params[0].offset_bytes, (header_end + 63) / 64 * 64);
    ck_assert_str_eq(params[1].layer, "blk.0");
    ck_assert_str_eq(params[1].dtype, "f16");
    ck_assert_uint_eq(params[1].offset_bytes, (header_end + 63) / 64 * 64 + 448);
    ck_assert_uint_eq(params[2].size_bytes, 12);
    tsr_shard_list_destroy(&list);
    free(file.data);
}
END_TEST

START_TEST(truncated_anywhere)
{
    size_t header_end;
    bytes file = usual_file(3, &header_end);
    tsr_shard_list *list = NULL;
    size_t whole = file.size;
    for (file.size = 0; file.size < whole; file.size++) {
        ck_assert(parse(&file, &list) == TSR_ERR_INVALID);
        tsr_status status = tsr__list_parse(TSR_SHARD_GGUF, file.data, file.size, whole, &list);
        ck_assert(status == (file.size < header_end ? TSR_ERR_INVALID : TSR_OK));
        tsr_shard_list_destroy(&list);
    }
    free(file.data);
}
END_TEST

START_TEST(any_byte_changed)
{
    size_t header_end;
    bytes file = usual_file(3, &header_end);
    int accepted = 0;
    for (size_t i = 0; i < header_end; i++)
        for (int change = 1; change < 256; change++) {
            file.data[i] ^= (uint8_t)change;
            tsr_shard_list *list = NULL;
            if (tsr__list_parse(TSR_SHARD_GGUF, file.data, file.size, file.size, &list) == TSR_OK) {
                accepted++;
                for (uint64_t p = 0; p < tsr_shard_list_param_count(list); p++) {
                    const tsr_shard_param *param = tsr_shard_list_param(list, p);
                    ck_assert(param->offset_bytes + param->size_bytes <= file.size);
                }
            }
            tsr_shard_list_destroy(&list);
            file.data[i] ^= (uint8_t)change;
        }
    ck_assert_int_gt(accepted, 100);
    free(file.data);
}
END_TEST

/* Each of the following functions appends a file with one error to an empty buffer. */
static void not_gguf(bytes *file)
{
    put_bytes(file, "GGML\3\0\0\0", 8);
}
static void version_1(bytes *file)
{
    put_gguf_head(file, 1, 0, 0);
}
static void big_endian(bytes *file)
{
    put_gguf_head(file, 0x03000000, 0, 0);
}
static void many_tensors(bytes *file)
{
    put_gguf_head(file, 3, 1048577, 0);
}
static void no_metadata(bytes *file)
{
    put_gguf_head(file, 3, 0, 1);
}
static void long_key(bytes *file)
{
    put_gguf_head(file, 3, 0, 1);
    put_integer(file, UINT64_MAX, 8);
}
static void empty_key(bytes *file)
{
    put_gguf_head(file, 3, 0, 1);
    put_key(file, "", U8);
}
static void unknown_type(bytes *file)
{
    put_gguf_head(file, 3, 0, 1);
    put_key(file, "k", 13);
}
static void long_text(bytes *file)
{
    put_gguf_head(file, 3, 0, 1);
    put_key(file, "k", STRING);
    put_integer(file, UINT64_MAX, 8);
}
static void long_array(bytes *file)
{
    put_gguf_head(file, 3, 0, 1);
    put_key(file, "k", ARRAY);
    put_integer(file, U64, 4);
    put_integer(file, UINT64_C(1) << 61, 8);
}
static void deep_array(bytes *file)
{
    put_gguf_head(file, 3, 0, 1);
    put_key(file, "k", ARRAY);
    for (int i = 0; i < 100; i++) {
        put_integer(file, ARRAY, 4);
        put_integer(file, 1, 8);
    }
}
static void array_of_unknown(bytes *file)
{
    put_gguf_head(file, 3, 0, 1);
    put_key(file, "k", ARRAY);
    put_integer(file, 77, 4);
    put_integer(file, 1, 8);
}
static void alignment_type(bytes *file)
{
    put_gguf_head(file, 3, 0, 1);
    put_key(file, "general.alignment", U64);
    put_integer(file, 32, 8);
}
static void alignment_24(bytes *file)
{
    put_gguf_head(file, 3, 0, 1);
    put_key(file, "general.alignment", U32);
    put_integer(file, 24, 4);
}
static void alignment_0(bytes *file)
{
    put_gguf_head(file, 3, 0, 1);
    put_key(file, "general.alignment", U32);
    put_integer(file, 0, 4);
}
static void alignment_twice(bytes *file)
{
    put_gguf_head(file, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_key(file, "general.alignment", U32);
        put_integer(file, 32, 4);
    }
}
static void many_keys(bytes *file)
{
    const size_t count = TSR_SHARD_MAX_PARAMS + 1;
    bytes key = {0};
    put_key(&key, "k", U32);
    put_integer(&key, 1, 4);
    uint8_t *keys = malloc(count * key.size);
    ck_assert_ptr_nonnull(keys);
    for (size_t i = 0; i < count; i++)
        memcpy(keys + i * key.size, key.data, key.size);
    put_gguf_head(file, 3, 0, count);
    put_bytes(file, keys, count * key.size); /* at once: each call copies the file */
    free(keys);
    free(key.data);
}
static void nine_dimensions(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_text(file, "t");
    put_integer(file, 9, 4);
}
static void large_dimension(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_gguf_tensor(file, "t", UINT64_C(1) << 63, 1, 0, 0);
}
static void large_tensor(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_gguf_tensor(file, "t", UINT64_C(1) << 62, 2, 0, 0);
}
static void type_4(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_gguf_tensor(file, "t", 32, 1, 4, 0);
}
static void type_beyond(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_gguf_tensor(file, "t", 32, 1, UINT32_MAX, 0);
}
static void half_a_block(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_gguf_tensor(file, "t", 16, 2, 2, 0); /* 32 elements, in rows of half a block */
}
static void crooked_offset(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_gguf_tensor(file, "t", 4, 1, 0, 8);
}
static void far_offset(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_gguf_tensor(file, "t", 4, 1, 0, UINT64_MAX - 31);
}
static void beyond_the_file(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_gguf_tensor(file, "t", 4, 1, 0, 0);
    put_zeros(file, 64 + 31 - file->size); /* the weights start at 96 */
    put_zeros(file, 16);
}
static void no_weights(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_gguf_tensor(file, "t", 4, 1, 0, 0);
}
static void overlapping(bytes *file)
{
    put_gguf_head(file, 3, 2, 0);
    put_gguf_tensor(file, "t", 16, 1, 0, 0);
    put_gguf_tensor(file, "u", 4, 1, 0, 32);
    put_zeros(file, 256);
}
static void same_name(bytes *file)
{
    put_gguf_head(file, 3, 2, 0);
    put_gguf_tensor(file, "t", 4, 1, 0, 0);
    put_gguf_tensor(file, "t", 4, 1, 0, 32);
    put_zeros(file, 256);
}
static void control_character(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_gguf_tensor(file, "t\t", 4, 1, 0, 0);
}
static void zero_in_a_name(bytes *file)
{
    put_gguf_head(file, 3, 1, 0);
    put_integer(file, 3, 8);
    put_bytes(file, "a\0b", 3);
    put_zeros(file, 100);
}

static const struct {
    void (*make)(bytes *file);
    tsr_status status;
    const char *text;
} bad[] = {
    {not_gguf, TSR_ERR_INVALID, "gguf: offset 0: the file does not start with \"GGUF\""},
    {version_1, TSR_ERR_UNSUPPORTED, "gguf: offset 4: version 1 is neither 2 nor 3"},
    {big_endian, TSR_ERR_UNSUPPORTED, "gguf: offset 4: version 0x03000000: a big-endian file"},
    {many_tensors, TSR_ERR_INVALID,
     "gguf: offset 8: 1048577 tensors are more than the 1048576 allowed"},
    {no_metadata, TSR_ERR_INVALID,
     "gguf: offset 24: the file of 24 bytes ends within a metadata key"},
    {long_key, TSR_ERR_INVALID,
     "gguf: offset 24: a metadata key of 18446744073709551615 bytes is longer than the 4096 "
     "allowed"},
    {empty_key, TSR_ERR_INVALID, "gguf: offset 24: a metadata key is empty"},
    {unknown_type, TSR_ERR_INVALID, "gguf: offset 37: key 'k': metadata type 13 is unknown"},
    {long_text, TSR_ERR_INVALID,
     "gguf: offset 45: key 'k': 18446744073709551615 × 1 bytes of a string go beyond the file's "
     "45"},
    {long_array, TSR_ERR_INVALID,
     "gguf: offset 49: key 'k': 2305843009213693952 × 8 bytes of an array go beyond the file's 49"},
    {deep_array, TSR_ERR_INVALID, "gguf: offset 121: key 'k': arrays nested more than 8 deep"},
    {array_of_unknown, TSR_ERR_INVALID, "gguf: offset 49: key 'k': metadata type 77 is unknown"},
    {alignment_type, TSR_ERR_INVALID, "gguf: offset 53: general.alignment has type 10, not 4"},
    {alignment_24, TSR_ERR_INVALID,
     "gguf: offset 53: general.alignment is 24, no power of two up to 1073741824"},
    {alignment_0, TSR_ERR_INVALID,
     "gguf: offset 53: general.alignment is 0, no power of two up to 1073741824"},
    {alignment_twice, TSR_ERR_INVALID, "gguf: offset 86: general.alignment comes twice"},
    {many_keys, TSR_ERR_INVALID,
     "gguf: offset 17825829: key 'k': there are more metadata than the 1048576 allowed"},
    {nine_dimensions, TSR_ERR_INVALID, "gguf: offset 33: tensor 't': 9 dimensions are more than 8"},
    {large_dimension, TSR_ERR_INVALID,
     "gguf: offset 37: tensor 't': a dimension of 9223372036854775808"},
    {large_tensor, TSR_ERR_INVALID, "gguf: offset 24: tensor 't': it is larger than 2^63 - 1"},
    {type_4, TSR_ERR_UNSUPPORTED, "gguf: offset 53: tensor 't': tensor type 4 is unknown"},
    {type_beyond, TSR_ERR_UNSUPPORTED,
     "gguf: offset 53: tensor 't': tensor type 4294967295 is unknown"},
    {half_a_block, TSR_ERR_INVALID,
     "gguf: offset 24: tensor 't': rows of 16 elements are not whole blocks of 32"},
    {crooked_offset, TSR_ERR_INVALID,
     "gguf: offset 57: tensor 't': offset 8 is no multiple of the alignment of 32"},
    {far_offset, TSR_ERR_INVALID,
     "gguf: offset 57: tensor 't': its offset of 18446744073709551584 is beyond 2^63 - 1 bytes"},
    {beyond_the_file, TSR_ERR_INVALID,
     "gguf: offset 24: tensor 't' ends at byte 16 of the weights, which have 15"},
    {no_weights, TSR_ERR_INVALID,
     "gguf: offset 24: tensor 't' ends at byte 16 of the weights, which have 0"},
    {overlapping, TSR_ERR_INVALID,
     "gguf: offset 65: tensor 'u' starts at byte 32 of the weights, but 't' goes on to byte 64"},
    {same_name, TSR_ERR_INVALID, "gguf: offset 65: the name 't' is used twice"},
    {control_character, TSR_ERR_INVALID,
     "gguf: offset 24: a tensor's name has a control character"},
    {zero_in_a_name, TSR_ERR_INVALID, "gguf: offset 24: a tensor's name has a control character"},
};

START_TEST(bad_headers)
{
    bytes file = {0};
    tsr_shard_list *list = NULL;
    bad[_i].make(&file);
    tsr_status status = parse(&file, &list);
    ck_assert_str_eq(tsr_last_error(), bad[_i].text);
    ck_assert_int_eq(status, bad[_i].status);
    ck_assert_ptr_null(list);
    free(file.data);
}
END_TEST

/* The declared size of the file is huge, and it has endless strings of length 0. Reading must stop
 * at the limit. */
START_TEST(endless_strings)
{
    folder in = folder_create();
    char path[160];
    bytes file = {0};
    put_gguf_head(&file, 3, 0, 1);
    put_key(&file, "k", ARRAY);
    put_integer(&file, STRING, 4);
    put_integer(&file, UINT64_C(1) << 50, 8);
    folder_write(&in, "endless.gguf", file.data, file.size, path);
    ck_assert_int_eq(truncate(path, (off_t)1 << 40), 0);
    tsr_shard_list *list = NULL;
    char text[256];
    snprintf(
        text, sizeof text,
        "%s: gguf: offset 99999993: key 'k': the header is longer than the 100000000 bytes allowed",
        path);
    ck_assert_error(tsr_shard_list_open(path, &list), TSR_ERR_INVALID, text);
    free(file.data);
    folder_destroy(&in);
}
END_TEST

/* A string of a key must be refused if it goes beyond the limit, even though nothing follows it. */
START_TEST(a_huge_string)
{
    bytes file = {0};
    tsr_shard_list *list = NULL;
    put_gguf_head(&file, 3, 0, 1);
    put_key(&file, "k", STRING);
    put_integer(&file, UINT64_C(1) << 40, 8);
    ck_assert_error(tsr__list_parse(TSR_SHARD_GGUF, file.data, file.size,
                                    (UINT64_C(1) << 40) + file.size, &list),
                    TSR_ERR_INVALID,
                    "gguf: offset 45: key 'k': the header is longer than the 100000000 bytes "
                    "allowed");
    free(file.data);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    size_t header_end;
    bytes file = usual_file(3, &header_end);
    assert_any_allocation_may_fail(TSR_SHARD_GGUF, &file, 8);
    free(file.data);
}
END_TEST

/* The keys of a header that has been read are looked up without the file. */
START_TEST(keys_are_looked_up)
{
    bytes data = {0};
    put_gguf_head(&data, 3, 0, 3);
    put_key(&data, "a", U32);
    put_integer(&data, 7, 4);
    for (int i = 0; i < 2; i++) {
        put_key(&data, "k", U32);
        put_integer(&data, 1, 4);
    }
    tsr__file file = {.size = data.size,
                      .data = (const uint8_t *)data.data,
                      .data_size = data.size,
                      .descriptor = -1};
    tsr__params params = {0};
    tsr__gguf_keys keys = {0};
    ck_assert_ok(tsr__read_gguf(&file, &params, &keys));
    ck_assert_uint_eq(keys.count, 3);
    tsr__gguf_value values[] = {{.key = "a"}, {.key = "b", .found = true}};
    ck_assert_ok(tsr__gguf_look_up(&file, &keys, values, 2));
    int64_t a = 0;
    ck_assert(values[0].found && !values[1].found && !values[0].is_array);
    ck_assert_ok(tsr__gguf_integer(&file, &values[0], &a));
    ck_assert_int_eq(a, 7);
    tsr__gguf_value twice = {.key = "k"};
    ck_assert_error(tsr__gguf_look_up(&file, &keys, &twice, 1), TSR_ERR_INVALID,
                    "gguf: offset 71: key 'k': the key comes twice");
    tsr__gguf_keys_finish(&keys);
    tsr__params_finish(&params);
    free(data.data);
}
END_TEST

TESTS(gguf)
{
    tcase_add_test(tests, keys_are_looked_up);
    tcase_add_loop_test(tests, a_usual_file, 2, 4);
    tcase_add_test(tests, truncated_anywhere);
    tcase_add_test(tests, any_byte_changed);
    tcase_add_loop_test(tests, bad_headers, 0, (int)COUNT_OF(bad));
    tcase_add_test(tests, endless_strings);
    tcase_add_test(tests, a_huge_string);
    tcase_add_test(tests, every_allocation_may_fail);
}
