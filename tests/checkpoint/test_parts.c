/* Tests slices of tensors, which one process reads as any rank would; refused calls; damaged
 * files. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/folder.h"
#include "support/random.h"

/* A tensor [4,6,5], whose element i is i. */
static int32_t whole[120];
static const int64_t shape[3] = {4, 6, 5};

static const char *save_whole(void)
{
    for (int i = 0; i < 120; i++)
        whole[i] = i;
    uint8_t other[3] = {1, 2, 3};
    tsr_checkpoint_entry entries[] = {
        host_entry("cube", TSR_I32, 3, shape, whole),
        host_entry("other", TSR_U8, 1, (int64_t[]){3}, other),
    };
    const char *path = in_folder("whole");
    ck_assert_ok(tsr_checkpoint_save(path, NULL, NULL, 2, entries, NULL));
    return path;
}

START_TEST(any_part_of_any_dimension)
{
    const char *path = save_whole();
    uint64_t state = 5;
    for (int round = 0; round < 300; round++) {
        int32_t want[120], got[121];
        int dim = (int)random_between(&state, 0, 2);
        tsr_checkpoint_entry entry = host_entry("cube", TSR_I32, 3, shape, got);
        entry.shard_dim = dim;
        entry.offset = random_between(&state, 0, shape[dim]);
        entry.length = random_between(&state, 0, shape[dim] - entry.offset);
        int parts = 0;
        for (int i = 0; i < 120; i++) {
            int64_t at[3] = {i / 30, i / 5 % 6, i % 5};
            if (at[dim] >= entry.offset && at[dim] < entry.offset + entry.length)
                want[parts++] = i;
        }
        entry.first = (uint64_t)random_between(&state, 0, parts);
        entry.count = (uint64_t)random_between(&state, 0, parts - (int64_t)entry.first);
        memset(got, 0xff, sizeof got);
        ck_assert_ok(tsr_checkpoint_load(path, NULL, NULL, 1, &entry, NULL));
        if (entry.count > 0)
            ck_assert_mem_eq(got, want + entry.first, entry.count * sizeof *got);
        ck_assert_int_eq(got[entry.count], -1);
    }
}
END_TEST

START_TEST(mistakes_of_the_caller)
{
    const char *path = save_whole();
    size_t size_before, size_after;
    char *before = read_file(path, &size_before);
    float data[8] = {0};
    const int64_t eight[] = {8};
    const tsr_checkpoint_entry good = host_entry("x", TSR_F32, 1, eight, data);
    tsr_checkpoint_entry bad[2] = {good, good};
#define REFUSED(text)                                                                              \
    ck_assert_error(tsr_checkpoint_save(path, NULL, NULL, 1, bad, NULL), TSR_ERR_INVALID,          \
                    "checkpoint_save: " text);                                                     \
    bad[0] = good
    ck_assert_error(tsr_checkpoint_save(path, NULL, NULL, 2, bad, NULL), TSR_ERR_INVALID,
                    "checkpoint_save: there are two entries 'x'");
    ck_assert_error(tsr_checkpoint_save(NULL, NULL, NULL, 1, bad, NULL), TSR_ERR_INVALID,
                    "checkpoint_save: path is NULL");
    ck_assert_error(tsr_checkpoint_save("", NULL, NULL, 1, bad, NULL), TSR_ERR_INVALID,
                    "checkpoint_save: path is empty");
    ck_assert_error(tsr_checkpoint_save(path, NULL, NULL, 1, NULL, NULL), TSR_ERR_INVALID,
                    "checkpoint_save: entries is NULL");
    ck_assert_error(tsr_checkpoint_save(path, NULL, NULL, -1, bad, NULL), TSR_ERR_INVALID,
                    "checkpoint_save: -1 entries");
    bad[0].name = NULL;
    REFUSED("entry 0 has no name");
    bad[0].name = "";
    REFUSED("the name of entry 0 is empty");
    bad[0].name = "\xff";
    REFUSED("the name of entry 0 is not UTF-8");
    bad[0].name = "__metadata__";
    REFUSED("no tensor can be called '__metadata__'");
    bad[0].dtype = (tsr_dtype)99;
    REFUSED("'x': layout_init: 99 is no dtype");
    bad[0].shard_dim = 1;
    REFUSED("'x': shard_dim 1 is outside a shape of 1 dimensions");
    bad[0].shard_dim = 0;
    bad[0].offset = 5;
    bad[0].length = 4;
    REFUSED("'x': 4 elements from 5 on are outside dim 0 of [8]");
    bad[0].first = 3;
    REFUSED("'x': 8 elements from 3 on are outside a part of 8");
    bad[0].data = NULL;
    REFUSED("'x' has no memory");
    bad[0].shard_dim = 0;
    bad[0].offset = 2;
    bad[0].length = 6;
    bad[0].count = 6;
    REFUSED("'x': no rank has elements 0 to 1 along dim 0");
    bad[0].shard_dim = 0;
    bad[0].length = 6;
    bad[0].count = 6;
    REFUSED("'x': no rank has elements 6 to 7 along dim 0");
    bad[0].count = 7;
    REFUSED("'x': no rank has elements 7 to 7 of a part");
    bad[0].count = 7;
    bad[0].first = 1;
    REFUSED("'x': no rank has elements 0 to 0 of a part");
    const char *const odd[] = {"key", NULL}, *const twice[] = {"a", "1", "a", "2", NULL},
                      *const not_utf8[] = {"a", "\xc3", NULL};
    ck_assert_error(
        tsr_checkpoint_save(path, NULL, NULL, 1, &good, tsr_checkpoint_params(.metadata = odd)),
        TSR_ERR_INVALID, "checkpoint_save: the metadata 'key' has no text");
    ck_assert_error(
        tsr_checkpoint_save(path, NULL, NULL, 1, &good, tsr_checkpoint_params(.metadata = twice)),
        TSR_ERR_INVALID, "checkpoint_save: the metadata 'a' comes twice");
    ck_assert_error(tsr_checkpoint_save(path, NULL, NULL, 1, &good,
                                        tsr_checkpoint_params(.metadata = not_utf8)),
                    TSR_ERR_INVALID, "checkpoint_save: the text of metadata 'a' is not UTF-8");
    char want[700];
    snprintf(want, sizeof want,
             "checkpoint_save: cannot create %s/x.partial: No such file or directory",
             in_folder("none"));
    ck_assert_error(tsr_checkpoint_save(in_folder("none/x"), NULL, NULL, 1, &good, NULL),
                    TSR_ERR_NOT_FOUND, want);

    char *after = read_file(path, &size_after);
    ck_assert_uint_eq(size_before, size_after);
    ck_assert_mem_eq(before, after, size_before);
    ck_assert_int_eq(files_in_folder(), 1);
    free(before);
    free(after);
}
END_TEST

START_TEST(a_file_that_does_not_match)
{
    const char *path = save_whole();
    char want[900];
    int32_t data[200];
    memset(data, 7, sizeof data);
    tsr_checkpoint_entry entry = host_entry("cube", TSR_I32, 3, (int64_t[]){4, 5, 6}, data);
#define NOT_LOADED(status, text)                                                                   \
    snprintf(want, sizeof want, "checkpoint_load: %s: " text, path);                               \
    ck_assert_error(tsr_checkpoint_load(path, NULL, NULL, 1, &entry, NULL), status, want)
    NOT_LOADED(TSR_ERR_INVALID, "'cube' is [4,6,5] in the file, not [4,5,6]");
    entry = host_entry("cube", TSR_F32, 3, shape, data);
    NOT_LOADED(TSR_ERR_INVALID, "'cube' is i32 in the file, not f32");
    entry = host_entry("cub", TSR_I32, 3, shape, data);
    NOT_LOADED(TSR_ERR_NOT_FOUND, "there is no 'cub'");
    entry = host_entry("zzz", TSR_I32, 3, shape, data);
    NOT_LOADED(TSR_ERR_NOT_FOUND, "there is no 'zzz'");
    entry = host_entry("cube", TSR_I32, 3, shape, data);
    snprintf(want, sizeof want, "checkpoint_load: %s: no entry reads 'other'", path);
    ck_assert_error(
        tsr_checkpoint_load(path, NULL, NULL, 1, &entry, tsr_checkpoint_params(.strict = true)),
        TSR_ERR_INVALID, want);
    for (int i = 0; i < 200; i++)
        ck_assert_int_eq(data[i], 0x07070707);
    ck_assert_ok(tsr_checkpoint_load(path, NULL, NULL, 1, &entry, NULL));
    ck_assert_mem_eq(data, whole, sizeof whole);
}
END_TEST

/* A file that is truncated anywhere, or in which one byte is changed, is loaded or refused without
 * writing outside the entry's memory, which the sanitizers check. */
START_TEST(damaged_files)
{
    size_t size;
    char *file = read_file(save_whole(), &size);
    const char *path = in_folder("damaged");
    int32_t data[120];
    tsr_checkpoint_entry entry = host_entry("cube", TSR_I32, 3, shape, data);
    char text[16];
    for (size_t end = 0; end < size; end++) {
        write_file(path, file, end);
        ck_assert(tsr_checkpoint_load(path, NULL, NULL, 1, &entry, NULL) == TSR_ERR_INVALID);
        ck_assert(tsr_checkpoint_metadata(path, NULL, NULL, "format", sizeof text, text) ==
                  TSR_ERR_INVALID);
    }
    uint64_t state = 9;
    int refused = 0;
    for (size_t at = 0; at + 480 + 3 < size; at++) {
        char kept = file[at];
        file[at] = (char)random_next(&state);
        write_file(path, file, size);
        if (tsr_checkpoint_load(path, NULL, NULL, 1, &entry, NULL) != TSR_OK)
            refused++;
        file[at] = kept;
    }
    ck_assert_int_gt(refused, 100);
    free(file);
}
END_TEST

/* A model in several files, loaded by its index. */
START_TEST(files_of_an_index)
{
    int32_t a[4] = {1, 2, 3, 4}, b[2] = {5, 6}, got[6];
    tsr_checkpoint_entry ea = host_entry("a", TSR_I32, 1, (int64_t[]){4}, a),
                         eb = host_entry("b", TSR_I32, 1, (int64_t[]){2}, b);
    ck_assert_ok(tsr_checkpoint_save(in_folder("1.safetensors"), NULL, NULL, 1, &ea, NULL));
    ck_assert_ok(tsr_checkpoint_save(in_folder("2.safetensors"), NULL, NULL, 1, &eb, NULL));
    static const char index[] =
        "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}";
    write_file(in_folder("m.index.json"), index, sizeof index - 1);
    tsr_checkpoint_entry both[] = {eb, ea, ea};
    both[0].data = got;
    both[1].data = got + 2;
    ck_assert_ok(tsr_checkpoint_load(in_folder("m.index.json"), NULL, NULL, 2, both,
                                     tsr_checkpoint_params(.strict = true)));
    ck_assert_mem_eq(got, ((int32_t[]){5, 6, 1, 2, 3, 4}), sizeof got);
    static const char list[] = "[{\"name\":\"a\",\"shape\":[4],\"dtype\":\"f32\"}]";
    write_file(in_folder("list.json"), list, sizeof list - 1);
    char want[700];
    snprintf(want, sizeof want, "checkpoint_load: %s is not an index of safetensors files",
             in_folder("list.json"));
    ck_assert_error(tsr_checkpoint_load(in_folder("list.json"), NULL, NULL, 1, &ea, NULL),
                    TSR_ERR_INVALID, want);
}
END_TEST

TESTS(parts)
{
    tcase_add_checked_fixture(tests, folder_make, folder_remove);
    tcase_add_test(tests, any_part_of_any_dimension);
    tcase_add_test(tests, mistakes_of_the_caller);
    tcase_add_test(tests, a_file_that_does_not_match);
    tcase_add_test(tests, damaged_files);
    tcase_add_test(tests, files_of_an_index);
}
