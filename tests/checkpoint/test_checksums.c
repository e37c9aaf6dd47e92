/* Files in which one byte was changed must be refused, unless the change makes no difference to
 * what is loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/folder.h"

typedef struct contents {
    float w[6];
    uint8_t mask[5];
    int64_t step;
    char epoch[8];
} contents;

static const contents written = {{0, -1, 2, -3, 4, -5}, {1, 2, 3, 4, 5}, 77, "3"};

static void list(contents *c, tsr_checkpoint_entry entries[3])
{
    entries[0] = host_entry("w", TSR_F32, 2, (int64_t[]){2, 3}, c->w);
    entries[1] = host_entry("mask", TSR_U8, 1, (int64_t[]){5}, c->mask);
    entries[2] = host_entry("step", TSR_I64, 0, NULL, &c->step);
}

static void save(const char *path, bool skip_checksums)
{
    contents c = written;
    tsr_checkpoint_entry entries[3];
    list(&c, entries);
    const char *const metadata[] = {"epoch", c.epoch, NULL};
    ck_assert_ok(tsr_checkpoint_save(
        path, NULL, NULL, 3, entries,
        tsr_checkpoint_params(.metadata = metadata, .skip_checksums = skip_checksums)));
}

static tsr_status load(const char *path, bool skip_checksums, contents *c)
{
    memset(c, 0, sizeof *c);
    tsr_checkpoint_entry entries[3];
    list(c, entries);
    tsr_status status = tsr_checkpoint_load(
        path, NULL, NULL, 3, entries,
        tsr_checkpoint_params(.strict = true, .skip_checksums = skip_checksums));
    return status == TSR_OK
               ? tsr_checkpoint_metadata(path, NULL, NULL, "epoch", sizeof c->epoch, c->epoch)
               : status;
}

static bool is_what_was_written(const contents *c)
{
    return memcmp(c->w, written.w, sizeof c->w) == 0 &&
           memcmp(c->mask, written.mask, sizeof c->mask) == 0 && c->step == written.step &&
           strcmp(c->epoch, written.epoch) == 0;
}

START_TEST(every_change_of_a_byte_is_refused_or_harmless)
{
    static const uint8_t changes[] = {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff};
    const char *path = in_folder("flipped");
    size_t size, harmless = 0, loaded_without = 0;
    contents c;
    save(path, false);
    ck_assert_ok(load(path, false, &c));
    ck_assert(is_what_was_written(&c));
    char *file = read_file(path, &size);
    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < size; i++)
        for (size_t change = 0; change < sizeof changes; change++) {
            file[i] = (char)((uint8_t)file[i] ^ changes[change]);
            write_file(path, file, size);
            file[i] = (char)((uint8_t)file[i] ^ changes[change]);
            if (load(path, false, &c) == TSR_OK) {
                harmless++;
                ck_assert_msg(is_what_was_written(&c), "byte %zu, change %u", i, changes[change]);
            }
            loaded_without += load(path, true, &c) == TSR_OK && !is_what_was_written(&c);
        }
    /* Of all changes, only those of the key "tessera.crc32c" remain undetected: the file then has
     * no checksums. */
    ck_assert_uint_le(harmless, strlen("tessera.crc32c") * sizeof changes);
    /* If the checksums are not verified, all changes of data load wrong values. So the test
     * would notice missing checks. */
    ck_assert_uint_gt(loaded_without, 37 * sizeof changes - 1);
    free(file);
}
END_TEST

START_TEST(errors_name_the_tensor_or_the_header)
{
    const char *path = in_folder("named");
    size_t size;
    contents c;
    char want[700];
    save(path, false);
    char *file = read_file(path, &size);
    ck_assert_ptr_nonnull(file);
    file[size - 1] ^= 1; /* the last byte of mask */
    write_file(path, file, size);
    ck_assert_int_eq(load(path, false, &c), TSR_ERR_INVALID);
    snprintf(want, sizeof want,
             "checkpoint_load: %s: the data of 'mask' are damaged: their checksum is ", path);
    ck_assert_mem_eq(tsr_last_error(), want, strlen(want));
    ck_assert_ok(load(path, true, &c));
    file[size - 1] ^= 1;
    char *epoch = strstr(file + 8, "\"epoch\":\"3\"");
    ck_assert_ptr_nonnull(epoch);
    epoch[strlen("\"epoch\":\"")] = '4';
    write_file(path, file, size);
    ck_assert_int_eq(load(path, false, &c), TSR_ERR_INVALID);
    snprintf(want, sizeof want, "checkpoint_load: %s: the header's checksum is ", path);
    ck_assert_mem_eq(tsr_last_error(), want, strlen(want));
    ck_assert_int_eq(tsr_checkpoint_metadata(path, NULL, NULL, "epoch", sizeof c.epoch, c.epoch),
                     TSR_ERR_INVALID);
    snprintf(want, sizeof want, "checkpoint_metadata: %s: the header's checksum is ", path);
    ck_assert_mem_eq(tsr_last_error(), want, strlen(want));
    free(file);
}
END_TEST

START_TEST(files_without_checksums_load)
{
    const char *path = in_folder("without");
    size_t size;
    contents c;
    save(path, true);
    char *file = read_file(path, &size);
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_null(strstr(file + 8, "tessera.crc32c"));
    ck_assert_ok(load(path, false, &c));
    ck_assert(is_what_was_written(&c));
    free(file);
}
END_TEST

/* A checksum covers a whole tensor. So a tensor that is read only in part, or not at all, is not
 * verified. */
START_TEST(only_complete_tensors_are_verified)
{
    const char *path = in_folder("parts");
    size_t size;
    contents c;
    save(path, false);
    char *file = read_file(path, &size);
    ck_assert_ptr_nonnull(file);
    file[size - 1] ^= 1;
    write_file(path, file, size);
    tsr_checkpoint_entry entries[3];
    list(&c, entries);
    ck_assert_ok(tsr_checkpoint_load(path, NULL, NULL, 1, entries, NULL));
    entries[1].first = 1;
    entries[1].count = 4;
    ck_assert_ok(tsr_checkpoint_load(path, NULL, NULL, 2, entries, NULL));
    entries[1].first = 0;
    entries[1].count = 5;
    ck_assert_int_eq(tsr_checkpoint_load(path, NULL, NULL, 2, entries, NULL), TSR_ERR_INVALID);
    free(file);
}
END_TEST

TESTS(checksums)
{
    tcase_add_unchecked_fixture(tests, folder_make, folder_remove);
    tcase_add_test(tests, every_change_of_a_byte_is_refused_or_harmless);
    tcase_add_test(tests, errors_name_the_tensor_or_the_header);
    tcase_add_test(tests, files_without_checksums_load);
    tcase_add_test(tests, only_complete_tensors_are_verified);
}
