/* Tests that files are recognised by their contents. */
#include <string.h>

#include "shard/formats/file_kind.h"
#include "shard/formats/readers.h"
#include "support/check_main.h"
#include "tessera/shard.h"
#include "tessera/tokenizer.h"

#define START(text) (const uint8_t *)(text), sizeof(text) - 1

static const struct {
    const uint8_t *start;
    size_t size;
    tsr__file_kind kind;
} starts[] = {
    {START("GGUF\3\0\0\0"), TSR__FILE_GGUF},
    {START("GGUF"), TSR__FILE_GGUF},
    {START("GGU"), TSR__FILE_UNKNOWN},
    {START("\10\0\0\0\0\0\0\0{}      "), TSR__FILE_SAFETENSORS},
    {START("\10\0\0\0\0\0\0\0[]      "), TSR__FILE_UNKNOWN},
    {START("\10\0\0\0\0\0\0\1{}      "), TSR__FILE_UNKNOWN}, /* a header of 2^56 bytes */
    {START("\10\0\0\0\0\0\0\0"), TSR__FILE_UNKNOWN},
    {START(" \n{\"a\": 1}"), TSR__FILE_JSON},
    {START("[1]"), TSR__FILE_JSON},
    {START(" \n"), TSR__FILE_UNKNOWN},
    {START("\n\16\n\5<unk>\25\0\0\0\0\30\2"), TSR__FILE_SENTENCEPIECE},
    {START("\n\201\1\n\5<unk>"), TSR__FILE_SENTENCEPIECE},
    {START("\n\201\1 a text"), TSR__FILE_UNKNOWN},
    {START("\n# A heading, not a model"), TSR__FILE_UNKNOWN},
    {START("\7\0\0\0\0\0\0\0\5\0\0\0<unk>"), TSR__FILE_LLAMA2C},
    {START("\12\0\0\0\0\0\0\0\5\0\0\0<unk>"), TSR__FILE_LLAMA2C},
    {START("\4\0\0\0\0\0\0\0\5\0\0\0<unk>"), TSR__FILE_UNKNOWN}, /* longer than the longest */
    {START("\7\0\0\0\0\0\0\0\5\0\0\0<unk"), TSR__FILE_UNKNOWN},
    {START("Once upon a time, there was a random file."), TSR__FILE_UNKNOWN},
    {START(""), TSR__FILE_UNKNOWN},
};

START_TEST(the_contents_tell_the_kind)
{
    const tsr__file_kind kind =
        tsr__file_kind_of(starts[_i].start, starts[_i].size, starts[_i].size);
    ck_assert_msg(kind == starts[_i].kind, "case %d: %s", _i, tsr__file_kind_name(kind));
}
END_TEST

/* Real files of each kind. */
START_TEST(files_have_their_kind)
{
    static const struct {
        const char *path;
        tsr__file_kind kind;
    } files[] = {
        {TEST_DATA "/model/stories260K-f16.gguf", TSR__FILE_GGUF},
        {TEST_DATA "/model/stories260K-hf/model.safetensors", TSR__FILE_SAFETENSORS},
        {TEST_DATA "/model/stories260K-hf/config.json", TSR__FILE_JSON},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        tsr__file file;
        tsr__file_kind kind;
        ck_assert_ok(tsr__file_open(files[i].path, &file));
        ck_assert_ok(tsr__file_kind_read(&file, &kind));
        ck_assert_msg(kind == files[i].kind, "%s is %s", files[i].path, tsr__file_kind_name(kind));
        for (int other = TSR__FILE_GGUF; other <= TSR__FILE_LLAMA2C; other++)
            ck_assert_int_eq(tsr__file_kind_expect(&file, (tsr__file_kind)other),
                             other == (int)kind ? TSR_OK : TSR_ERR_INVALID);
        tsr__file_close(&file);
    }
}
END_TEST

/* A name that promises another format does not count. */
START_TEST(readers_name_what_a_file_is)
{
    static const uint8_t gguf[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    tsr_shard_list *list = NULL;
    tsr_tokenizer *tokenizer = NULL;
    ck_assert_error(tsr__list_parse(TSR_SHARD_SAFETENSORS, gguf, sizeof gguf, sizeof gguf, &list),
                    TSR_ERR_INVALID,
                    "safetensors: offset 0: this is a GGUF file, not a safetensors file");
    ck_assert_error(tsr__list_parse(TSR_SHARD_GGUF, "{\"a\": 1}    ", 12, 12, &list),
                    TSR_ERR_INVALID, "gguf: offset 0: this is a JSON file, not a GGUF file");
    ck_assert_int_eq(
        tsr_tokenizer_open(TEST_DATA "/model/stories260K-hf/model.safetensors", &tokenizer),
        TSR_ERR_INVALID);
    ck_assert_ptr_nonnull(
        strstr(tsr_last_error(),
               "offset 0: this is a safetensors file, not a tokenizer: a GGUF file, a "
               "tokenizer.json, a tokenizer.model of SentencePiece or a vocabulary of llama2.c"));
}
END_TEST

START_TEST(a_folder_has_its_weights)
{
    tsr_shard_list *list = NULL;
    ck_assert_ok(tsr_shard_list_open(TEST_DATA "/model/stories260K-hf", &list));
    ck_assert_int_eq(tsr_shard_list_format(list), TSR_SHARD_SAFETENSORS);
    ck_assert_uint_gt(tsr_shard_list_param_count(list), 40);
    tsr_shard_list_destroy(&list);
    ck_assert_error(tsr_shard_list_open("/proc/self", &list), TSR_ERR_NOT_FOUND,
                    "shard: /proc/self has neither model.safetensors nor "
                    "model.safetensors.index.json");
}
END_TEST

TESTS(file_kind)
{
    tcase_add_loop_test(tests, the_contents_tell_the_kind, 0,
                        (int)(sizeof starts / sizeof *starts));
    tcase_add_test(tests, files_have_their_kind);
    tcase_add_test(tests, readers_name_what_a_file_is);
    tcase_add_test(tests, a_folder_has_its_weights);
}
