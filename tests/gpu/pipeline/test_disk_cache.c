/* The pipeline cache on disk is kept. A damaged file, or one of another device, is ignored and
 * causes no error. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/pipeline/disk_cache.h"
#include "gpu/pipeline/pipeline.h"
#include "support/cache_folder.h"
#include "support/check_main.h"
#include "support/gpu.h"

static int warnings;

static void count_warnings(void *user, tsr_log_level level, const char *message)
{
    (void)user;
    (void)message;
    warnings += level <= TSR_LOG_WARNING;
}

static void fresh_folder(void)
{
    cache_folder_make();
    warnings = 0;
    tsr_log_set(count_warnings, NULL, TSR_LOG_WARNING);
}

/* Gets the path of the only file in the cache. Returns false if there is none. */
static bool cache_path(char path[512])
{
    char inner[128];
    snprintf(inner, sizeof inner, "%s/tessera", cache_folder);
    DIR *dir = opendir(inner);
    int found = 0;
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        if (entry->d_name[0] != '.') {
            snprintf(path, 512, "%s/%s", inner, entry->d_name);
            found++;
        }
    if (dir)
        closedir(dir);
    ck_assert_int_le(found, 1);
    return found == 1;
}

static void remove_folder(void)
{
    cache_folder_remove();
    tsr_log_set(NULL, NULL, TSR_LOG_ERROR);
}

/* Opens a device, does some work and closes the device. */
static void use_device(const tsr_device_params *params)
{
    GPU_OK(tsr_device_open(params, &gpu));
    GPU_OK(tsr_stream_create(gpu, &queue));
    tsr_tensor *x = gpu_new(TSR_F32, 1, (int64_t[]){5});
    GPU_OK(tsr_scale(queue, x, x, 0, 2.5F));
    float values[5];
    GPU_OK(tsr_tensor_download(queue, x, values, sizeof values));
    ck_assert_uint_gt(tsr__pipelines_built(gpu), 0);
    tsr_tensor_destroy(&x);
    gpu_teardown();
}

START_TEST(written_on_close_and_read_on_open)
{
    char path[512];
    tsr__cache_key key;
    size_t bytes = 1;
    use_device(NULL);
    ck_assert(cache_path(path));
    GPU_OK(tsr_device_open(NULL, &gpu));
    tsr__cache_key_init(gpu, &key);
    void *data = tsr__cache_read(&key, &bytes);
    ck_assert_ptr_nonnull(data);
    ck_assert_uint_gt(bytes, 0);
    free(data);
    /* With the key of another driver version, the file must not be read. */
    key.driver_version++;
    ck_assert_ptr_null(tsr__cache_read(&key, &bytes));
    ck_assert_uint_eq(bytes, 0);
    tsr_device_close(&gpu);
    use_device(NULL);
    ck_assert_int_eq(warnings, 0);
}
END_TEST

static void damage(const char *path, long offset, int how)
{
    FILE *file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    fseek(file, offset, offset < 0 ? SEEK_END : SEEK_SET);
    int byte = fgetc(file);
    fseek(file, -1, SEEK_CUR);
    fputc(byte ^ how, file);
    fclose(file);
}

START_TEST(damage_is_a_miss)
{
    char path[512];
    use_device(NULL);
    ck_assert(cache_path(path));
    struct stat whole;
    ck_assert_int_eq(stat(path, &whole), 0);
    damage(path, -1, 0x40); /* the last byte of the data */
    use_device(NULL);
    ck_assert_int_eq(warnings, 1);
    damage(path, 3, 1); /* the magic number */
    use_device(NULL);
    ck_assert_int_eq(warnings, 2);
    for (int cut = 0; cut < 3; cut++) {
        ck_assert_int_eq(truncate(path, cut == 0 ? 0 : cut == 1 ? 20 : whole.st_size - 1), 0);
        use_device(NULL);
        ck_assert_int_eq(warnings, 3 + cut);
    }
    FILE *file = fopen(path, "ab");
    fputc('x', file);
    fclose(file);
    use_device(NULL);
    ck_assert_int_eq(warnings, 6);
    /* The last use has replaced the damaged file by a complete one, so this one logs nothing. */
    use_device(NULL);
    ck_assert_int_eq(warnings, 6);
}
END_TEST

START_TEST(a_folder_that_cannot_be_written_is_a_warning)
{
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    use_device(NULL);
    ck_assert_int_eq(warnings, 1);
    setenv("XDG_CACHE_HOME", cache_folder, 1);
}
END_TEST

START_TEST(none_when_not_wanted_or_nowhere_to_put_it)
{
    char path[512];
    use_device(tsr_device_params(.cache_in_memory = true));
    ck_assert(!cache_path(path));
    setenv("XDG_CACHE_HOME", "relative/paths/are/ignored", 1);
    unsetenv("HOME");
    use_device(NULL);
    setenv("XDG_CACHE_HOME", cache_folder, 1);
    ck_assert(!cache_path(path));
    ck_assert_int_eq(warnings, 0);
}
END_TEST

TESTS(disk_cache)
{
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, fresh_folder, remove_folder);
    tcase_add_test(tests, written_on_close_and_read_on_open);
    tcase_add_test(tests, damage_is_a_miss);
    tcase_add_test(tests, a_folder_that_cannot_be_written_is_a_warning);
    tcase_add_test(tests, none_when_not_wanted_or_nowhere_to_put_it);
}
