/* Tests tsr__tuning_find, which describes a stored tuning, or says why it is refused, without
 * opening the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "base/fault.h"
#include "gpu/matmul/tuning/tuned.h"
#include "gpu/matmul/tuning/tuning.h"
#include "support/cache_folder.h"
#include "support/check_main.h"
#include "support/gpu.h"

static tsr_device_list *list = NULL;
static tsr__tuned_owner owner;
static char path[TSR__CACHE_PATH]; /* the file that this device would read */

static void setup(void)
{
    cache_folder_make();
    ck_assert_ok(tsr_device_list_create(&list));
    ck_assert_int_ge(list->count, 1);
    owner.info = list->devices[0];
    owner.storage = tsr__storage_of(owner.info);
    ck_assert_ok(tsr__tuned_path(&owner, path));
}

static void teardown(void)
{
    tsr_device_list_destroy(&list);
    cache_folder_remove();
}

static tsr__tuning_stored find(void)
{
    tsr__tuning_stored stored;
    memset(&stored, 0x55, sizeof stored);
    ck_assert_ok(tsr__tuning_find(owner.info, &stored));
    return stored;
}

/* Writes a file with these contents and the time 2026-01-02T03:04:05Z. */
static void store(const char *where, const tsr__cache_key *key, const void *data, size_t bytes)
{
    const struct utimbuf then = {.actime = 1767323045, .modtime = 1767323045};
    ck_assert_int_eq(tsr__cache_store(&tsr__tuned_file, where, key, data, bytes), 0);
    ck_assert_int_eq(utime(where, &then), 0);
}

static tsr__cache_key key_of(void)
{
    tsr__cache_key key;
    tsr__tuned_key(&owner, &key);
    return key;
}

static void says_none(void)
{
    tsr__tuning_stored stored = find();
    ck_assert_int_eq(stored.state, TSR__TUNING_NONE);
    ck_assert_int_eq(stored.classes, 0);
    ck_assert_int_eq(stored.written_s, 0);
    ck_assert_str_eq(stored.path, "");
    ck_assert_str_eq(stored.reason, "");
}

static void refused(const char *where, const char *reason)
{
    tsr__tuning_stored stored = find();
    ck_assert_int_eq(stored.state, TSR__TUNING_REFUSED);
    ck_assert_str_eq(stored.reason, reason);
    ck_assert_str_eq(stored.path, where);
    ck_assert_int_eq(stored.classes, 0);
    ck_assert_int_gt(stored.written_s, 0);
}

START_TEST(nothing_is_stored)
{
    says_none(); /* the folder "tessera" does not exist */
    store(path, &(tsr__cache_key){0}, "", 0);
    remove(path);
    says_none(); /* the folder is empty */
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "relative", 1);
    says_none();
}
END_TEST

/* Stores the choice of a kernel for one class of products, as a program would. */
static void tune(int64_t n, const char *kernel)
{
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){20, n});
    tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){20, 64});
    tsr_tensor *b = gpu_new(TSR_F32, 2, (int64_t[]){64, n});
    tsr__tuning_choice choice = {.kernel = ""};
    if (kernel)
        snprintf(choice.kernel, sizeof choice.kernel, "%s", kernel);
    GPU_OK(tsr__tuning_set(queue, y, a, b, NULL, kernel ? &choice : NULL));
    GPU_OK(tsr__tuning_save(gpu));
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
}

START_TEST(stored_tunings_are_found)
{
    char own[TSR__TUNING_PATH_SIZE];
    struct stat file;
    gpu_setup();
    GPU_OK(tsr__tuning_path(gpu, own, sizeof own));
    ck_assert_str_eq(own, path);
    says_none();
    for (int classes = 1; classes <= 2; classes++) {
        tune(classes == 1 ? 48 : 100, "wide");
        tsr__tuning_stored stored = find();
        ck_assert_int_eq(stored.state, TSR__TUNING_USED);
        ck_assert_int_eq(stored.classes, classes);
        ck_assert_str_eq(stored.path, path);
        ck_assert_str_eq(stored.reason, "");
        ck_assert_int_eq(stat(path, &file), 0);
        ck_assert_int_eq(stored.written_s, (int64_t)file.st_mtime);
    }
    setenv("TESSERA_TUNING", "0", 1);
    ck_assert_int_eq(find().state, TSR__TUNING_IGNORED);
    ck_assert_int_eq(find().classes, 2);
    setenv("TESSERA_TUNING", "1", 1);
    tune(48, NULL);
    ck_assert_int_eq(find().state, TSR__TUNING_USED);
    ck_assert_int_eq(find().classes, 1);
    gpu_teardown();
}
END_TEST

START_TEST(refused_files_have_a_reason)
{
    tsr__cache_key key = key_of();
    store(path, &key, "", 0);
    tsr__tuning_stored stored = find();
    ck_assert_int_eq(stored.state, TSR__TUNING_USED);
    ck_assert_int_eq(stored.classes, 0);
    ck_assert_int_eq(stored.written_s, 1767323045);

    store(path, &key, "nonsense", 8);
    refused(path, "tuning: the table has 8 bytes; at most 4096 records of 40 bytes are expected");
    setenv("TESSERA_TUNING", "0", 1); /* with this setting, a stored tuning is refused, too */
    refused(path, "tuning: the table has 8 bytes; at most 4096 records of 40 bytes are expected");
    key.shader_hash++;
    store(path, &key, "", 0);
    refused(path, "it was made by a build with other kernels");
    key = key_of();
    key.driver_version++;
    store(path, &key, "", 0);
    refused(path, "it was made for another device, or another version of its driver");
    ck_assert_int_eq(truncate(path, 20), 0);
    refused(path, "it is damaged");
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 400; i++)
        fputc('x', file);
    fclose(file);
    refused(path, "it is damaged, or of another version of the format");
    remove(path);
    ck_assert_int_eq(symlink("nowhere", path), 0);
    refused(path, "it cannot be read: No such file or directory");
}
END_TEST

/* The file of an older driver version has another name. */
START_TEST(files_of_another_driver_version_are_reported)
{
    tsr__cache_key key = key_of(), other = key;
    char older[TSR__CACHE_PATH], newer[TSR__CACHE_PATH], reason[128];
    const struct utimbuf later = {.actime = 1767323046, .modtime = 1767323046};
    snprintf(older, sizeof older, "%s/tessera/tuning-1.bin", cache_folder);
    snprintf(newer, sizeof newer, "%s/tessera/tuning-2.bin", cache_folder);

    /* None of these is reported: files of other devices, a file for kernels with another kind of
     * storage, a copy, a writer's temporary file, and a file that is not a tuning. */
    other.device_id++;
    store(older, &other, "", 0);
    says_none();
    other = key;
    other.vendor_id++;
    store(older, &other, "", 0);
    says_none();
    other = key;
    other.storage = !other.storage;
    store(older, &other, "", 0);
    says_none();
    store(older, &key, "", 0);
    says_none();
    other = key;
    other.driver_version = 0xabc;
    snprintf(reason, sizeof reason, "%s/tessera/tuning-3.bin.XyZ123", cache_folder);
    store(reason, &other, "", 0);
    says_none();
    ck_assert_int_eq(truncate(older, 10), 0);
    says_none();

    store(older, &other, "", 0);
    snprintf(reason, sizeof reason, "it was made for version 0xabc of the driver; this is 0x%x",
             (unsigned)key.driver_version);
    refused(older, reason);
    other = key;
    other.cache_uuid[0] ^= 1;
    store(newer, &other, "", 0);
    ck_assert_int_eq(utime(newer, &later), 0);
    refused(newer, "it was made for another build or setting of the driver");
    /* If the device has its own file, tsr__tuning_find reports that one. */
    store(path, &key, "", 0);
    ck_assert_int_eq(find().state, TSR__TUNING_USED);
}
END_TEST

/* Opening a pipe for reading would block for ever, because nobody writes to it. */
START_TEST(pipes_are_refused)
{
    char other[TSR__CACHE_PATH], *data;
    size_t bytes;
    tsr__cache_key key = key_of();
    store(path, &key, "", 0);
    remove(path);
    snprintf(other, sizeof other, "%s/tessera/tuning-1.bin", cache_folder);
    ck_assert_int_eq(mkfifo(other, 0600), 0);
    ck_assert(!tsr__cache_peek(&tsr__tuned_file, other, &key));
    says_none();
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_ok(tsr__cache_load(&tsr__tuned_file, path, &key, (void **)&data, &bytes));
    ck_assert_ptr_null(data);
    refused(path, "it is no regular file");
    gpu_setup(); /* opens a device */
    ck_assert_int_eq(tsr__tuning_count(gpu), 0);
    tune(48, "wide"); /* the new file replaces the pipe */
    gpu_teardown();
    ck_assert_int_eq(find().classes, 1);
}
END_TEST

START_TEST(allocations_fail)
{
    gpu_setup();
    tune(48, "wide");
    gpu_teardown();
    int failed = 0;
    for (uint64_t nth = 0;; nth++) {
        tsr__tuning_stored stored = {.classes = -7};
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr__tuning_find(owner.info, &stored);
        bool hit = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        if (!hit) {
            ck_assert_ok(status);
            ck_assert_int_eq(stored.classes, 1);
            break;
        }
        failed++;
        ck_assert_int_eq(status, TSR_ERR_NO_MEMORY);
        ck_assert_int_eq(stored.classes, -7);
    }
    ck_assert_int_ge(failed, 2);
}
END_TEST

START_TEST(mistakes)
{
    tsr__tuning_stored stored;
    ck_assert_error(tsr__tuning_find(NULL, &stored), TSR_ERR_INVALID,
                    "tuning_find: device is NULL");
    ck_assert_error(tsr__tuning_find(owner.info, NULL), TSR_ERR_INVALID,
                    "tuning_find: out is NULL");
}
END_TEST

TESTS(tuning_stored)
{
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, nothing_is_stored);
    tcase_add_test(tests, stored_tunings_are_found);
    tcase_add_test(tests, refused_files_have_a_reason);
    tcase_add_test(tests, files_of_another_driver_version_are_reported);
    tcase_add_test(tests, pipes_are_refused);
    tcase_add_test(tests, allocations_fail);
    tcase_add_test(tests, mistakes);
}
