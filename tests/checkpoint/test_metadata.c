/* Metadata: any text is saved and loaded unchanged, also from and to other programs. */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/folder.h"

#define LONG_BYTES 300000
#define HEADER_BYTES 100000000 /* size of the largest header */

static char long_text[LONG_BYTES + 1];

static void save_metadata(const char *path, const char *const *metadata)
{
    int32_t one = 1;
    tsr_checkpoint_entry entry = host_entry("x", TSR_I32, 0, NULL, &one);
    ck_assert_ok(tsr_checkpoint_save(path, NULL, NULL, 1, &entry,
                                     tsr_checkpoint_params(.metadata = metadata)));
    one = 0;
    ck_assert_ok(tsr_checkpoint_load(path, NULL, NULL, 1, &entry, NULL));
    ck_assert_int_eq(one, 1);
}

static void check_text(const char *path, const char *key, const char *want)
{
    const size_t size = strlen(want) + 1;
    char *text = malloc(size), error[700];
    ck_assert_ptr_nonnull(text);
    ck_assert_ok(tsr_checkpoint_metadata(path, NULL, NULL, key, size, text));
    ck_assert_str_eq(text, want);
    snprintf(error, sizeof error, "checkpoint_metadata: %s: '%s' needs %zu bytes, not %zu", path,
             key, size, size - 1);
    ck_assert_error(tsr_checkpoint_metadata(path, NULL, NULL, key, size - 1, text), TSR_ERR_INVALID,
                    error);
    free(text);
}

/* Returns the metadata as another JSON reader reads it; json_decref() it. */
static json_t *other_reader(const char *path)
{
    size_t size, length = 0;
    char *file = read_file(path, &size);
    ck_assert_ptr_nonnull(file);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | (uint8_t)file[i];
    json_t *header = json_loadb(file + 8, length, 0, NULL);
    ck_assert_ptr_nonnull(header);
    json_t *metadata = json_incref(json_object_get(header, "__metadata__"));
    json_decref(header);
    free(file);
    return metadata;
}

static char controls[33]; /* all control characters except the zero */

static const struct {
    const char *key, *text;
} texts[] = {
    {"empty", ""},
    {"lines", "one\ntwo\r\n\n"},
    {"json", "{\n\t\"a\\b\": [1, \"/\"]\n}\n"},
    {"controls", controls},
    {"escapes that are none", "\\n \\u0041 \\"},
    {"characters", "größe €\xf0\x9f\x98\x80 \xc2\x85"},
    {"long", long_text},
};
#define TEXTS (sizeof texts / sizeof *texts)

START_TEST(any_text_is_loaded_unchanged)
{
    for (int i = 0; i < 31; i++)
        controls[i] = (char)(i + 1);
    controls[31] = 0x7f;
    for (int i = 0; i < LONG_BYTES; i++)
        long_text[i] = i % 80 == 79 ? '\n' : i % 7 == 0 ? '"' : 'x';
    const char *metadata[2 * TEXTS + 1] = {NULL};
    for (size_t i = 0; i < TEXTS; i++) {
        metadata[2 * i] = texts[i].key;
        metadata[2 * i + 1] = texts[i].text;
    }
    const char *path = in_folder("texts");
    save_metadata(path, metadata);
    json_t *other = other_reader(path);
    for (size_t i = 0; i < TEXTS; i++) {
        check_text(path, texts[i].key, texts[i].text);
        ck_assert_str_eq(json_string_value(json_object_get(other, texts[i].key)), texts[i].text);
    }
    ck_assert_uint_eq(json_object_size(other), TEXTS + 2); /* the format and the checksums */
    json_decref(other);
}
END_TEST

/* Writes a file that has only `header`, and returns its path. */
static const char *file_of(const char *header)
{
    const char *path = in_folder("other");
    const size_t length = strlen(header);
    char *file = calloc(length + 9, 1);
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 8; i++)
        file[i] = (char)((uint64_t)length >> (8 * i));
    memcpy(file + 8, header, length + 1);
    write_file(path, file, length + 8);
    free(file);
    return path;
}

START_TEST(texts_from_another_program)
{
    char header[20000], long_one[10001] = "";
    memset(long_one, 'y', sizeof long_one - 1);
    snprintf(header, sizeof header,
             "{ \"__metadata__\" : {\"\": \"no key\", \"e\":\"\",\"long\":\"%s\",\n"
             "\"a\":\"x\\u000Ay\\/\\u00e9\\uD83D\\uDE00\\b\\t\", \"tw\\u0069ce\":\"1\",\n"
             "\"twice\":\"two\"}}   ",
             long_one);
    const char *path = file_of(header);
    ck_assert_ok(tsr_checkpoint_load(path, NULL, NULL, 0, NULL, NULL));
    check_text(path, "", "no key");
    check_text(path, "e", "");
    check_text(path, "long", long_one);
    check_text(path, "a", "x\ny/\xc3\xa9\xf0\x9f\x98\x80\b\t");
    check_text(path, "twice", "two"); /* the last of two equal keys counts, as for most readers */
}
END_TEST

static const struct {
    const char *header, *said;
} wrong[] = {
    {"{\"__metadata__\":{\"a\":3}}", "offset 29: a string expected, not '3'"},
    {"{\"__metadata__\":{\"a\":null}}", "offset 29: a string expected, not 'n'"},
    {"{\"__metadata__\":{\"a\":\"\\u0000\"}}", "offset 30: a string with a zero character"},
    {"{\"__metadata__\":{\"a\":\"\n\"}}", "offset 30: a control character in a string"},
    {"{\"__metadata__\":{\"a\":\"x}}", "offset 29: a string without an end"},
};

START_TEST(invalid_texts_in_files)
{
    char text[8] = "kept", want[700];
    const char *path = file_of(wrong[_i].header);
    snprintf(want, sizeof want, "checkpoint_metadata: %s: safetensors: %s", path, wrong[_i].said);
    ck_assert_error(tsr_checkpoint_metadata(path, NULL, NULL, "a", sizeof text, text),
                    TSR_ERR_INVALID, want);
    ck_assert_str_eq(text, "kept");
}
END_TEST

static void check_refused(const char *key, const char *text, const char *said)
{
    const char *const metadata[] = {key, text, NULL};
    ck_assert_error(tsr_checkpoint_save(in_folder("none"), NULL, NULL, 0, NULL,
                                        tsr_checkpoint_params(.metadata = metadata)),
                    TSR_ERR_INVALID, said);
    ck_assert_int_eq(files_in_folder(), 0);
}

START_TEST(invalid_texts_are_not_saved)
{
    static char too_long[TSR_SHARD_MAX_NAME + 2];
    memset(too_long, 'k', sizeof too_long - 1);
    check_refused("", "x", "checkpoint_save: a key of metadata is empty");
    check_refused("a\nb", "x", "checkpoint_save: a key of metadata has a control character");
    check_refused(too_long, "x", "checkpoint_save: a key of metadata is too long");
    check_refused("tessera.crc32c", "x",
                  "checkpoint_save: the metadata 'tessera.crc32c' is written by the library");
    check_refused("\xff", "x", "checkpoint_save: a key of metadata is not UTF-8");
    check_refused("a", "\xed\xa0\x80", "checkpoint_save: the text of metadata 'a' is not UTF-8");
    check_refused("a", "cut \xe2\x82", "checkpoint_save: the text of metadata 'a' is not UTF-8");
    char *huge = malloc(HEADER_BYTES);
    ck_assert_ptr_nonnull(huge);
    memset(huge, 'x', HEADER_BYTES - 1);
    huge[HEADER_BYTES - 1] = '\0';
    check_refused("a", huge,
                  "checkpoint_save: a header of 100000072 bytes is more than the 100000000 "
                  "allowed");
    free(huge);
}
END_TEST

TESTS(metadata)
{
    tcase_add_checked_fixture(tests, folder_make, folder_remove);
    tcase_add_test(tests, any_text_is_loaded_unchanged);
    tcase_add_test(tests, texts_from_another_program);
    tcase_add_loop_test(tests, invalid_texts_in_files, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(tests, invalid_texts_are_not_saved);
}
