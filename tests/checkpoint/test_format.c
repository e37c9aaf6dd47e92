/* Tests the contents of the file, read without the library. */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/folder.h"

/* Computes CRC-32C bit by bit. */
static unsigned crc32c(const char *data, size_t size)
{
    uint32_t state = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        state ^= (uint8_t)data[i];
        for (int bit = 0; bit < 8; bit++)
            state = state & 1 ? state >> 1 ^ 0x82f63b78 : state >> 1;
    }
    return ~state;
}

START_TEST(bytes_match_the_specification)
{
    float w[6] = {0, 1, 2, 3, 4, 5};
    uint8_t mask[3] = {7, 8, 9};
    int64_t step = -2;
    tsr_checkpoint_entry entries[] = {
        host_entry("mask", TSR_U8, 1, (int64_t[]){3}, mask),
        host_entry("w", TSR_F32, 2, (int64_t[]){2, 3}, w),
        host_entry("step", TSR_I64, 0, NULL, &step),
    };
    ck_assert_ok(tsr_checkpoint_save(in_folder("a"), NULL, NULL, 3, entries, NULL));
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\","
        "\"tessera.crc32c\":\"HHHHHHHHSSSSSSSSWWWWWWWWMMMMMMMM\"},"
        "\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
        "\"mask\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[32,35]}}";
    size_t size, length = (sizeof header - 1 + 7) / 8 * 8;
    char *file = read_file(in_folder("a"), &size);
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(size, 8 + length + 35);
    ck_assert_mem_eq(file, ((char[]){(char)length, (char)(length >> 8), 0, 0, 0, 0, 0, 0}), 8);
    /* The checksums of the file's bytes, computed in this test: of the header, step, w and mask. */
    char wanted[sizeof header], digits[33];
    memcpy(wanted, header, sizeof header);
    char *at = strstr(wanted, "HHHHHHHH");
    snprintf(digits, sizeof digits, "00000000%08x%08x%08x", crc32c(file + 8 + length, 8),
             crc32c(file + 16 + length, 24), crc32c(file + 40 + length, 3));
    memcpy(at, digits, 32);
    char *start = malloc(8 + length);
    ck_assert_ptr_nonnull(start);
    memcpy(start, file, 8 + length);
    memset(start + 8 + (at - wanted), '0', 8);
    snprintf(digits, sizeof digits, "%08x", crc32c(start, 8 + length));
    memcpy(at, digits, 8);
    free(start);
    ck_assert_mem_eq(file + 8, wanted, sizeof header - 1);
    for (size_t i = 8 + sizeof header - 1; i < 8 + length; i++)
        ck_assert_int_eq(file[i], ' ');
    ck_assert_mem_eq(file + 8 + length, &step, 8);
    ck_assert_mem_eq(file + 16 + length, w, 24);
    ck_assert_mem_eq(file + 40 + length, mask, 3);
    free(file);
}
END_TEST

/* A file with every dtype, with names that JSON must escape, and with metadata is read by another
 * JSON reader and by the library. */
START_TEST(another_reader_reads_everything)
{
    static const struct {
        tsr_dtype dtype;
        const char *name;
        uint64_t width;
    } dtypes[] = {{TSR_F32, "F32", 4}, {TSR_F16, "F16", 2}, {TSR_BF16, "BF16", 2},
                  {TSR_I32, "I32", 4}, {TSR_U32, "U32", 4}, {TSR_I64, "I64", 8},
                  {TSR_U8, "U8", 1},   {TSR_F64, "F64", 8}};
    static const char *const names[] = {"a.b", "quote\"d", "back\\slash", "größe",
                                        "e",   "f f",      "{g}",         "h:i"};
    uint8_t data[8][64], read[8][64];
    tsr_checkpoint_entry entries[9];
    for (int i = 0; i < 8; i++) {
        memset(data[i], 0x11 * (i + 1), sizeof data[i]);
        memset(read[i], 0, sizeof read[i]);
        entries[i] = host_entry(names[i], dtypes[i].dtype, 2, (int64_t[]){2, 4}, data[i]);
    }
    entries[8] = host_entry("empty", TSR_F32, 2, (int64_t[]){5, 0}, NULL);
    const char *const metadata[] = {"epoch", "3", "of \"it\"", "\\", NULL};
    ck_assert_ok(tsr_checkpoint_save(in_folder("b"), NULL, NULL, 9, entries,
                                     tsr_checkpoint_params(.metadata = metadata)));
    size_t size;
    char *file = read_file(in_folder("b"), &size);
    ck_assert_ptr_nonnull(file);
    size_t length = (size_t)((uint8_t)file[0] | (unsigned)(uint8_t)file[1] << 8);
    json_t *header = json_loadb(file + 8, length, 0, NULL);
    ck_assert_ptr_nonnull(header);
    ck_assert_uint_eq(json_object_size(header), 10);
    const json_t *meta = json_object_get(header, "__metadata__");
    ck_assert_str_eq(json_string_value(json_object_get(meta, "epoch")), "3");
    ck_assert_str_eq(json_string_value(json_object_get(meta, "of \"it\"")), "\\");
    ck_assert_str_eq(json_string_value(json_object_get(meta, "format")), "pt");
    for (int i = 0; i < 8; i++) {
        const json_t *tensor = json_object_get(header, names[i]);
        const json_t *offsets = json_object_get(tensor, "data_offsets");
        size_t start = (size_t)json_integer_value(json_array_get(offsets, 0));
        size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
        ck_assert_str_eq(json_string_value(json_object_get(tensor, "dtype")), dtypes[i].name);
        ck_assert_uint_eq(end - start, 8 * dtypes[i].width);
        ck_assert_uint_eq((8 + length + start) % dtypes[i].width, 0);
        ck_assert_uint_le(8 + length + end, size);
        ck_assert_mem_eq(file + 8 + length + start, data[i], end - start);
    }
    json_decref(header);
    free(file);
    for (int i = 0; i < 8; i++)
        entries[i].data = read[i];
    ck_assert_ok(tsr_checkpoint_load(in_folder("b"), NULL, NULL, 9, entries,
                                     tsr_checkpoint_params(.strict = true)));
    for (int i = 0; i < 8; i++)
        ck_assert_mem_eq(read[i], data[i], 8 * dtypes[i].width);
    char text[8];
    ck_assert_ok(
        tsr_checkpoint_metadata(in_folder("b"), NULL, NULL, "of \"it\"", sizeof text, text));
    ck_assert_str_eq(text, "\\");
    ck_assert_ok(tsr_checkpoint_metadata(in_folder("b"), NULL, NULL, "format", 3, text));
    ck_assert_str_eq(text, "pt");
}
END_TEST

START_TEST(missing_metadata)
{
    char text[8] = "kept", want[700];
    int32_t one = 1;
    tsr_checkpoint_entry entry = host_entry("x", TSR_I32, 0, NULL, &one);
    const char *path = in_folder("c"), *const metadata[] = {"format", "mine", NULL};
    ck_assert_ok(tsr_checkpoint_save(path, NULL, NULL, 1, &entry,
                                     tsr_checkpoint_params(.metadata = metadata)));
    snprintf(want, sizeof want, "checkpoint_metadata: %s: there is no 'steps'", path);
    ck_assert_error(tsr_checkpoint_metadata(path, NULL, NULL, "steps", 8, text), TSR_ERR_NOT_FOUND,
                    want);
    snprintf(want, sizeof want, "checkpoint_metadata: %s: 'format' needs 5 bytes, not 4", path);
    ck_assert_error(tsr_checkpoint_metadata(path, NULL, NULL, "format", 4, text), TSR_ERR_INVALID,
                    want);
    ck_assert_str_eq(text, "kept");
    snprintf(want, sizeof want,
             "checkpoint_metadata: %s: shard: cannot open %s: No such file or directory",
             in_folder("none"), in_folder("none"));
    ck_assert_error(tsr_checkpoint_metadata(in_folder("none"), NULL, NULL, "x", 8, text),
                    TSR_ERR_NOT_FOUND, want);
}
END_TEST

/* Programs with older and newer headers pass entries of other sizes. */
START_TEST(sizes_of_entries)
{
    struct {
        tsr_checkpoint_entry entry;
        uint64_t later;
    } grown[2] = {{.later = 0}};
    int32_t values[2] = {5, 6}, read[2] = {0};
    for (int i = 0; i < 2; i++) {
        grown[i].entry = host_entry(i == 0 ? "a" : "b", TSR_I32, 0, NULL, &values[i]);
        grown[i].entry.struct_size = sizeof *grown;
    }
    const char *path = in_folder("sizes");
    ck_assert_ok(tsr_checkpoint_save(path, NULL, NULL, 2, &grown[0].entry, NULL));
    grown[0].entry.data = &read[0];
    grown[1].entry.data = &read[1];
    ck_assert_ok(tsr_checkpoint_load(path, NULL, NULL, 2, &grown[0].entry, NULL));
    ck_assert(read[0] == 5 && read[1] == 6);
    grown[1].later = 1;
    ck_assert_int_eq(tsr_checkpoint_save(path, NULL, NULL, 2, &grown[0].entry, NULL),
                     TSR_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "tsr_checkpoint_entry: "));
    ck_assert_int_eq(tsr_checkpoint_load(path, NULL, NULL, 2, &grown[0].entry, NULL),
                     TSR_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "tsr_checkpoint_entry: "));
    grown[0].entry.struct_size = 0;
    ck_assert_error(tsr_checkpoint_load(path, NULL, NULL, 1, &grown[0].entry, NULL),
                    TSR_ERR_INVALID,
                    "tsr_checkpoint_entry: struct_size is 0; use TSR_INIT(tsr_checkpoint_entry)");
}
END_TEST

TESTS(format)
{
    tcase_add_unchecked_fixture(tests, folder_make, folder_remove);
    tcase_add_test(tests, bytes_match_the_specification);
    tcase_add_test(tests, another_reader_reads_everything);
    tcase_add_test(tests, missing_metadata);
    tcase_add_test(tests, sizes_of_entries);
}
