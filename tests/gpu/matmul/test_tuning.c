/* Tests tunings on a device. tsr_matmul uses a tuning if it can. A tuning file is read back
 * unchanged, or it is refused. No tuning makes a product fail. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "gpu/matmul/choose_kernel.h"
#include "gpu/matmul/tuning/shape_class.h"
#include "gpu/matmul/tuning/tuned.h"
#include "gpu/matmul/tuning/tuning.h"
#include "support/cache_folder.h"
#include "support/check_main.h"
#include "support/gpu.h"

enum { M = 20, K = 64, N = 48 };

static int warnings;
static char last_warning[1024];
static tsr_tensor *y, *a, *b;

static const tsr_matmul_params params = {.struct_size = sizeof params, .transpose_b = true};
/* Its epilogue makes it another class of products. */
static const tsr_matmul_params halved = {
    .struct_size = sizeof halved, .transpose_b = true, .alpha = 0.5f};

static void note_warning(void *user, tsr_log_level level, const char *message)
{
    (void)user;
    warnings += level <= TSR_LOG_WARNING;
    snprintf(last_warning, sizeof last_warning, "%s", message);
}

static void open_with(const tsr_device_params *device_params)
{
    gpu_random random = {3};
    double values[N * K];
    GPU_OK(tsr_device_open(device_params, &gpu));
    GPU_OK(tsr_stream_create(gpu, &queue));
    y = gpu_new(TSR_F32, 2, (int64_t[]){M, N});
    a = gpu_new(TSR_F32, 2, (int64_t[]){M, K});
    b = gpu_new(TSR_F32, 2, (int64_t[]){N, K});
    for (int i = 0; i < N * K; i++)
        values[i] = gpu_random_unit(&random);
    gpu_put(a, values);
    gpu_put(b, values);
}

static void close_again(void)
{
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    gpu_teardown();
}

static void reopen(void)
{
    close_again();
    open_with(NULL);
}

static void setup(void)
{
    cache_folder_make();
    warnings = 0;
    tsr_log_set(note_warning, NULL, TSR_LOG_WARNING);
    open_with(NULL);
}

static void teardown(void)
{
    close_again();
    tsr_log_set(NULL, NULL, TSR_LOG_ERROR);
    cache_folder_remove();
}

static tsr__tuning_info look(const tsr_matmul_params *how)
{
    tsr__tuning_info info;
    GPU_OK(tsr__tuning_inspect(queue, y, a, b, how, &info));
    return info;
}

/* Returns the choice of a kernel that the library would not choose for the product. */
static tsr__tuning_choice other_choice(void)
{
    tsr__tuning_choice choice;
    tsr__tuning_info info = look(&params);
    for (int i = 0;; i++) {
        GPU_OK(tsr__tuning_candidate(queue, y, a, b, &params, i, &choice));
        if (strcmp(choice.kernel, info.usual.kernel) != 0)
            return choice;
    }
}

static void tune(const tsr_matmul_params *how, const tsr__tuning_choice *choice)
{
    GPU_OK(tsr__tuning_set(queue, y, a, b, how, choice));
}

static void path_of(char path[1024])
{
    GPU_OK(tsr__tuning_path(gpu, path, 1024));
}

/* Using a tuning ------------------------------------------------------------------------------- */

static tsr__tuned *tuned_of_gpu(void)
{
    tsr__tuned *tuned;
    return tsr__tuned_of(gpu, &tuned) == TSR_OK ? tuned : NULL;
}

START_TEST(matmul_uses_the_tuning)
{
    float usual[M * N], other[M * N], got[M * N];
    tsr__tuning_choice choice = other_choice();
    tsr__tuning_info info = look(&params);
    ck_assert(!info.tuned);
    ck_assert_str_eq(info.chosen.kernel, info.usual.kernel);
    ck_assert_int_eq(tsr__tuning_count(gpu), 0);
    GPU_OK(tsr__tuning_matmul(queue, y, a, b, &params, NULL));
    GPU_OK(tsr_tensor_download(queue, y, usual, sizeof usual));
    GPU_OK(tsr__tuning_matmul(queue, y, a, b, &params, &choice));
    GPU_OK(tsr_tensor_download(queue, y, other, sizeof other));

    tune(&params, &choice);
    info = look(&params);
    ck_assert(info.tuned);
    ck_assert_str_eq(info.chosen.kernel, choice.kernel);
    ck_assert_str_ne(info.usual.kernel, choice.kernel);
    ck_assert_int_eq(tsr__tuning_count(gpu), 1);
    ck_assert(!look(&halved).tuned);
    ck_assert_uint_ne(look(&halved).shape_class, info.shape_class);
    GPU_OK(tsr_matmul(queue, y, a, b, &params));
    GPU_OK(tsr_tensor_download(queue, y, got, sizeof got));
    ck_assert_int_eq(memcmp(got, other, sizeof got), 0);
    GPU_OK(tsr__tuning_matmul(queue, y, a, b, &params, NULL));
    GPU_OK(tsr_tensor_download(queue, y, got, sizeof got));
    ck_assert_int_eq(memcmp(got, usual, sizeof got), 0);

    tune(&params, NULL);
    ck_assert(!look(&params).tuned);
    ck_assert_int_eq(tsr__tuning_count(gpu), 0);
}
END_TEST

START_TEST(every_candidate_computes_the_product)
{
    float usual[M * N], got[M * N];
    tsr__tuning_choice choices[64], *choice;
    int count = 0;
    GPU_OK(tsr__tuning_matmul(queue, y, a, b, &params, NULL));
    GPU_OK(tsr_tensor_download(queue, y, usual, sizeof usual));
    for (;; count++) {
        ck_assert_int_lt(count, 64);
        choice = &choices[count];
        tsr_status status = tsr__tuning_candidate(queue, y, a, b, &params, count, choice);
        if (status == TSR_ERR_NOT_FOUND)
            break;
        GPU_OK(status);
        for (int i = 0; i < count; i++)
            ck_assert(memcmp(&choices[i], choice, sizeof *choice) != 0);
        gpu_poison(y);
        GPU_OK(tsr__tuning_matmul(queue, y, a, b, &params, choice));
        GPU_OK(tsr_tensor_download(queue, y, got, sizeof got));
        for (int i = 0; i < M * N; i++)
            ck_assert(got[i] - usual[i] < 1e-4f && usual[i] - got[i] < 1e-4f);
    }
    /* The candidates include at least the tiles and the kernel without tiles. */
    ck_assert_int_ge(count, 4);
    char text[96];
    snprintf(text, sizeof text, "tuning_candidate: there are %d candidates; index is %d", count,
             count + 3);
    ck_assert_int_eq(
        tsr__tuning_candidate(queue, y, a, b, &params, count + 3, choice) == TSR_ERR_NOT_FOUND, 1);
    ck_assert_str_eq(tsr_last_error(), text);
}
END_TEST

/* Sets a choice that cannot compute the product. The public function refuses it, but a file
 * might contain it. */
static void set_anyway(const char *config)
{
    tsr__tuned_entry entry = {.shape_class = look(&params).shape_class,
                              .config = tsr__matmul_config_named(config)};
    ck_assert_ptr_nonnull(entry.config);
    ck_assert_ok(tsr__tuned_set(tuned_of_gpu(), &entry));
}

/* Returns a configuration that the device cannot run. */
static const char *runs_elsewhere(void)
{
    tsr__matmul_device device = tsr__matmul_device_of(gpu);
    const tsr__matmul_config *config;
    int i = 0;

    while ((config = tsr__matmul_config_at(i)) != NULL && tsr__matmul_config_runs(config, &device))
        i++;
    ck_assert_ptr_nonnull(config);
    return config->name;
}

START_TEST(unsupported_choices_are_ignored)
{
    const char *const names[] = {runs_elsewhere(), "vector-k"}; /* vector-k computes up to 8 rows */
    for (int i = 0; i < 2; i++) {
        set_anyway(names[i]);
        tsr__tuning_info info = look(&params);
        ck_assert(!info.tuned);
        ck_assert_str_eq(info.chosen.kernel, info.usual.kernel);
        GPU_OK(tsr_matmul(queue, y, a, b, &params));
    }
}
END_TEST

/* Files ---------------------------------------------------------------------------------------- */

START_TEST(stored_tunings_are_used)
{
    tsr__tuning_choice choice = other_choice();
    tune(&params, &choice);
    reopen();
    ck_assert_int_eq(tsr__tuning_count(gpu), 0); /* the tuning was not stored */
    tune(&params, &choice);
    GPU_OK(tsr__tuning_save(gpu));
    reopen();
    ck_assert_int_eq(tsr__tuning_count(gpu), 1);
    tsr__tuning_info info = look(&params);
    ck_assert(info.tuned);
    ck_assert_str_eq(info.chosen.kernel, choice.kernel);

    close_again();
    open_with(tsr_device_params(.cache_in_memory = true));
    ck_assert(!look(&params).tuned);
    setenv("TESSERA_TUNING", "0", 1);
    reopen();
    ck_assert(!look(&params).tuned);
    /* Saving a choice for another class keeps the first in the file, although this device object
     * has not read it. */
    tune(&halved, &choice);
    GPU_OK(tsr__tuning_save(gpu));
    setenv("TESSERA_TUNING", "1", 1);
    reopen();
    ck_assert_int_eq(tsr__tuning_count(gpu), 2);
    tune(&params, NULL);
    GPU_OK(tsr__tuning_save(gpu));
    reopen();
    ck_assert(!look(&params).tuned);
    ck_assert(look(&halved).tuned);
    /* With another kind of storage, the device has another file, because its kernels are compiled
     * differently. */
    close_again();
    open_with(tsr_device_params(.force_packed_storage = true));
    ck_assert_int_eq(tsr__tuning_count(gpu), gpu->info.storage16 ? 0 : 1);
    ck_assert_int_eq(warnings, 0);
}
END_TEST

/* Changes one bit of a byte of the stored file. */
static void flip(long offset)
{
    char path[1024];
    path_of(path);
    FILE *file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    fseek(file, offset, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, offset, SEEK_SET);
    fputc(byte ^ 0x10, file);
    fclose(file);
}

/* Returns the number of classes that a device opened now would use from the file. Does not open
 * a device, because that takes long. */
static int classes_in_use(void)
{
    tsr__tuned *tuned;
    ck_assert_ok(tsr__tuned_create(gpu, true, &tuned));
    int count = tsr__tuned_count(tuned);
    tsr__tuned_destroy(tuned);
    return count;
}

START_TEST(damaged_files_are_refused)
{
    char path[1024];
    struct stat whole;
    tsr__tuning_choice choice = other_choice();
    tune(&params, &choice);
    GPU_OK(tsr__tuning_save(gpu));
    path_of(path);
    ck_assert_int_eq(stat(path, &whole), 0);
    ck_assert_int_eq(classes_in_use(), 1);
    ck_assert_int_eq(whole.st_mode & 077, 0);
    for (long i = 0; i < whole.st_size; i++) {
        flip(i);
        ck_assert_msg(classes_in_use() == 0, "byte %ld", i);
        ck_assert_int_eq(warnings, (int)i + 1);
        flip(i);
    }
    ck_assert_int_eq(classes_in_use(), 1);
    ck_assert_ptr_nonnull(strstr(last_warning, " was not used: it is damaged"));
    warnings = 0;
    for (long size = whole.st_size - 1; size >= 0; size--) {
        ck_assert_int_eq(truncate(path, size), 0);
        ck_assert_int_eq(classes_in_use(), 0);
    }
    ck_assert_int_eq(warnings, (int)whole.st_size);
    /* Saving replaces the damaged file. */
    tune(&params, &choice);
    GPU_OK(tsr__tuning_save(gpu));
    ck_assert_int_eq(classes_in_use(), 1);
    FILE *file = fopen(path, "ab");
    fputc('x', file);
    fclose(file);
    ck_assert_int_eq(classes_in_use(), 0);
}
END_TEST

START_TEST(files_of_other_kernels_and_invalid_tables_are_refused)
{
    char path[1024];
    tsr__cache_key key;
    tsr__tuning_choice choice = other_choice();
    tune(&params, &choice);
    GPU_OK(tsr__tuning_save(gpu));
    path_of(path);
    tsr__tuned_owner owner = tsr__tuned_owner_of(gpu);
    tsr__tuned_key(&owner, &key);
    key.shader_hash++;
    ck_assert_int_eq(tsr__cache_store(&tsr__tuned_file, path, &key, "", 0), 0);
    ck_assert_int_eq(classes_in_use(), 0);
    ck_assert_int_eq(warnings, 1);
    key.shader_hash--;
    ck_assert_int_eq(tsr__cache_store(&tsr__tuned_file, path, &key, "", 0), 0);
    ck_assert_int_eq(classes_in_use(), 0);
    ck_assert_int_eq(warnings, 1); /* 1: no further warning; an empty file of tunings is valid */
    ck_assert_int_eq(tsr__cache_store(&tsr__tuned_file, path, &key, "nonsense", 8), 0);
    ck_assert_int_eq(classes_in_use(), 0);
    ck_assert_int_eq(warnings, 2);
    ck_assert_ptr_nonnull(strstr(last_warning, " was not used: tuning: the table has 8 bytes; at "
                                               "most 4096 records of 40 bytes are expected"));
}
END_TEST

START_TEST(saving_without_a_folder)
{
    tsr__tuning_choice choice = other_choice();
    char path[1024], text[1200], small[8] = "before";
    tune(&params, &choice);
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    path_of(path);
    snprintf(text, sizeof text, "tuning: %s cannot be written: No such file or directory", path);
    ck_assert_int_eq(tsr__tuning_save(gpu), TSR_ERR_IO);
    ck_assert_str_eq(tsr_last_error(), text);
    snprintf(text, sizeof text, "tuning_path: 8 bytes are too few for %s", path);
    ck_assert_int_eq(tsr__tuning_path(gpu, small, sizeof small), TSR_ERR_INVALID);
    ck_assert_str_eq(tsr_last_error(), text);
    ck_assert_str_eq(small, "before");
    setenv("XDG_CACHE_HOME", "relative", 1);
    unsetenv("HOME");
    ck_assert_error(tsr__tuning_save(gpu), TSR_ERR_NOT_FOUND,
                    "tuning: there is no cache folder; set XDG_CACHE_HOME or HOME");
    reopen();
    /* Choices that could not be stored are stored as soon as that is possible. */
    tune(&params, &choice);
    ck_assert_int_eq(tsr__tuning_save(gpu), TSR_ERR_NOT_FOUND);
    setenv("HOME", cache_folder, 1);
    GPU_OK(tsr__tuning_save(gpu));
    ck_assert_int_eq(classes_in_use(), 1);
    setenv("XDG_CACHE_HOME", cache_folder, 1);
    ck_assert_int_eq(classes_in_use(), 0);
    ck_assert_int_eq(warnings, 0);
}
END_TEST

enum { SAVERS = 2, SAVES = 15 };

/* Runs in one process of several. Each save stores one more class. */
static int save_often(uint32_t who, uint64_t class_of_all)
{
    tsr__shape_class shape_class;
    tsr__tuned *tuned;
    if (!tsr__shape_class_unpack(class_of_all, &shape_class) ||
        tsr__tuned_create(gpu, false, &tuned) != TSR_OK)
        return 1;
    shape_class.n = who;
    for (uint32_t i = 0; i < SAVES; i++) {
        shape_class.m = i;
        tsr__tuned_entry entry = {.shape_class = tsr__shape_class_pack(&shape_class),
                                  .config = tsr__matmul_config_named("wide")};
        if (tsr__tuned_set(tuned, &entry) != TSR_OK || tsr__tuned_save(gpu, tuned) != TSR_OK)
            return 1;
    }
    tsr__tuned_destroy(tuned);
    return 0;
}

START_TEST(processes_save_concurrently)
{
    const uint64_t class_of_all = look(&params).shape_class;
    pid_t children[SAVERS];
    for (uint32_t i = 0; i < SAVERS; i++) {
        children[i] = fork();
        ck_assert_int_ge(children[i], 0);
        if (children[i] == 0)
            _exit(save_often(i, class_of_all));
    }
    for (int i = 0; i < SAVERS; i++) {
        int how;
        ck_assert_int_eq(waitpid(children[i], &how, 0), children[i]);
        ck_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    ck_assert_int_eq(classes_in_use(), SAVERS * SAVES);
    ck_assert_int_eq(warnings, 0);
}
END_TEST

/* If another process keeps holding the lock of the file, the error names the lock, and no choice
 * is lost. If the lock file cannot be opened at all, the library saves without a lock. */
START_TEST(the_lock_is_held)
{
    tsr__tuning_choice choice = other_choice();
    char path[1024], lock[1040], text[2200];
    tune(&params, &choice);
    GPU_OK(tsr__tuning_save(gpu));
    path_of(path);
    snprintf(lock, sizeof lock, "%s.lock", path);
    int held = open(lock, O_RDWR);
    ck_assert_int_eq(flock(held, LOCK_EX | LOCK_NB), 0);
    tune(&halved, &choice);
    snprintf(text, sizeof text, "tuning: %s cannot be written: %s has been held for 5 s", path,
             lock);
    ck_assert_int_eq(tsr__tuning_save(gpu), TSR_ERR_IO);
    ck_assert_str_eq(tsr_last_error(), text);
    ck_assert_int_eq(classes_in_use(), 1);
    close(held);
    GPU_OK(tsr__tuning_save(gpu));
    ck_assert_int_eq(classes_in_use(), 2);
    ck_assert_int_eq(remove(lock), 0);
    ck_assert_int_eq(mkdir(lock, 0700), 0);
    tune(&params, NULL);
    GPU_OK(tsr__tuning_save(gpu));
    ck_assert_int_eq(classes_in_use(), 1);
}
END_TEST

/* Each allocation of setting, storing and reading fails in turn. The stored tuning stays as it
 * was. */
START_TEST(allocations_fail)
{
    tsr__tuning_choice choice = other_choice();
    tune(&params, &choice);
    GPU_OK(tsr__tuning_save(gpu));
    int failed = 0;
    for (uint64_t nth = 0;; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr__tuning_set(queue, y, a, b, &halved, &choice);
        if (status == TSR_OK)
            status = tsr__tuning_save(gpu);
        bool hit = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        if (!hit) {
            GPU_OK(status);
            break;
        }
        failed++;
        ck_assert_int_eq(status, TSR_ERR_NO_MEMORY);
        ck_assert_int_eq(classes_in_use(), 1);
    }
    ck_assert_int_ge(failed, 3);
    ck_assert_int_eq(classes_in_use(), 2);
    for (uint64_t nth = 0; nth < 3; nth++) {
        tsr__tuned *tuned = NULL;
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        ck_assert_int_eq(tsr__tuned_create(gpu, true, &tuned), TSR_ERR_NO_MEMORY);
        tsr__fault_disarm();
        ck_assert_ptr_null(tuned);
    }
    GPU_OK(tsr_matmul(queue, y, a, b, &halved));
}
END_TEST

/* Refused calls -------------------------------------------------------------------------------- */

START_TEST(mistakes)
{
    tsr__tuning_choice choice = other_choice(), bad = choice;
    tsr__tuning_info info;
    ck_assert_error(tsr__tuning_inspect(NULL, y, a, b, &params, &info), TSR_ERR_INVALID,
                    "matmul: stream is NULL");
    ck_assert_error(tsr__tuning_inspect(queue, y, a, b, &params, NULL), TSR_ERR_INVALID,
                    "tuning_inspect: out is NULL");
    ck_assert_error(tsr__tuning_inspect(queue, y, a, b, NULL, &info), TSR_ERR_INVALID,
                    "matmul: inner dimensions differ: a is [20,64], b is [48,64]");
    ck_assert_error(tsr__tuning_candidate(queue, y, a, b, &params, 0, NULL), TSR_ERR_INVALID,
                    "tuning_candidate: out is NULL");
    ck_assert_error(tsr__tuning_candidate(queue, y, a, b, &params, -1, &bad), TSR_ERR_INVALID,
                    "tuning_candidate: index is -1");
    ck_assert_error(tsr__tuning_matmul(queue, NULL, a, b, &params, &choice), TSR_ERR_INVALID,
                    "matmul: y is NULL");
    bad.splits = 65;
    ck_assert_error(tsr__tuning_matmul(queue, y, a, b, &params, &bad), TSR_ERR_INVALID,
                    "tuning: splits is 65; at most 64 are possible");
    ck_assert_error(tsr__tuning_set(queue, y, a, b, &params, &bad), TSR_ERR_INVALID,
                    "tuning: splits is 65; at most 64 are possible");
    memset(bad.kernel, 'x', sizeof bad.kernel);
    ck_assert_error(tsr__tuning_matmul(queue, y, a, b, &params, &bad), TSR_ERR_INVALID,
                    "tuning: the kernel's name is empty or has no terminating zero");
    ck_assert_error(tsr__tuning_set(queue, y, a, b, &params, tsr__tuning_choice(.kernel = "")),
                    TSR_ERR_INVALID,
                    "tuning: the kernel's name is empty or has no terminating zero");
    ck_assert_error(
        tsr__tuning_set(queue, y, a, b, &params, tsr__tuning_choice(.kernel = "no-such")),
        TSR_ERR_UNSUPPORTED, "matmul: no kernel configuration is called \"no-such\"");
    ck_assert_error(
        tsr__tuning_matmul(queue, y, a, b, &params, tsr__tuning_choice(.kernel = "no-such")),
        TSR_ERR_UNSUPPORTED, "matmul: no kernel configuration is called \"no-such\"");
    ck_assert_error(
        tsr__tuning_set(queue, y, a, b, &params, tsr__tuning_choice(.kernel = "vector-k")),
        TSR_ERR_UNSUPPORTED,
        "matmul: the kernel configuration vector-k cannot compute this product on this device");
    ck_assert_error(tsr__tuning_save(NULL), TSR_ERR_INVALID, "tuning_save: device is NULL");
    ck_assert_error(tsr__tuning_path(NULL, cache_folder, sizeof cache_folder), TSR_ERR_INVALID,
                    "tuning_path: device is NULL");
    ck_assert_error(tsr__tuning_path(gpu, NULL, 10), TSR_ERR_INVALID, "tuning_path: out is NULL");
    ck_assert_int_eq(tsr__tuning_count(NULL), 0);
    ck_assert_int_eq(tsr__tuning_count(gpu), 0);
}
END_TEST

START_TEST(empty_products_have_no_class)
{
    tsr_tensor *none_y = gpu_new(TSR_F32, 2, (int64_t[]){0, N});
    tsr_tensor *none_a = gpu_new(TSR_F32, 2, (int64_t[]){0, K});
    tsr__tuning_choice choice = other_choice();
    tsr__tuning_info info;
    GPU_OK(tsr__tuning_inspect(queue, none_y, none_a, b, &params, &info));
    ck_assert_uint_eq(info.shape_class, 0);
    ck_assert_error(tsr__tuning_candidate(queue, none_y, none_a, b, &params, 0, &choice),
                    TSR_ERR_NOT_FOUND, "tuning_candidate: there are 0 candidates; index is 0");
    ck_assert_error(tsr__tuning_set(queue, none_y, none_a, b, &params, &choice), TSR_ERR_INVALID,
                    "tuning_set: the product is empty");
    tsr_tensor_destroy(&none_y);
    tsr_tensor_destroy(&none_a);
}
END_TEST

/* Threads that set and find choices ------------------------------------------------------------ */

typedef struct reader {
    const tsr__matmul_problem *problem;
    uint64_t found, wrong;
} reader;

static void *read_often(void *user)
{
    reader *r = user;
    for (int i = 0; i < 20000; i++) {
        const tsr__matmul_config *config;
        uint32_t splits;
        if (!tsr__tuned_find(tuned_of_gpu(), r->problem, &config, &splits))
            continue;
        r->found++;
        /* The kernel and the number of ranges of k must come from the same entry: the test
         * stores only two pairs. */
        r->wrong += strcmp(config->name, splits == 3 ? "tiled-s" : "wide") != 0;
    }
    return NULL;
}

START_TEST(threads_set_and_find)
{
    tsr__matmul_problem problem;
    pthread_t threads[3];
    reader readers[3];
    GPU_OK(tsr__matmul_problem_init(tsr_tensor_layout(y), tsr_tensor_layout(a),
                                    tsr_tensor_layout(b), NULL, &params, &problem));
    tsr__tuned_entry entry = {.shape_class = look(&params).shape_class};
    for (int i = 0; i < 3; i++) {
        readers[i] = (reader){.problem = &problem};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_often, &readers[i]), 0);
    }
    for (uint32_t i = 0; i < 20000; i++) {
        entry.config = tsr__matmul_config_named(i % 2 ? "tiled-s" : "wide");
        entry.splits = i % 2 ? 3 : 0;
        ck_assert(tsr__tuned_set(tuned_of_gpu(), &entry) == TSR_OK);
        tsr__tuned_entry more = {.shape_class = entry.shape_class - 1 - i};
        if (i < 2000) /* the table grows, so the entry is moved in memory */
            ck_assert(tsr__tuned_set(tuned_of_gpu(), &more) == TSR_OK);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(readers[i].wrong, 0);
    }
}
END_TEST

TESTS(tuning)
{
    tcase_set_timeout(tests, 240);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, matmul_uses_the_tuning);
    tcase_add_test(tests, every_candidate_computes_the_product);
    tcase_add_test(tests, unsupported_choices_are_ignored);
    tcase_add_test(tests, stored_tunings_are_used);
    tcase_add_test(tests, damaged_files_are_refused);
    tcase_add_test(tests, files_of_other_kernels_and_invalid_tables_are_refused);
    tcase_add_test(tests, saving_without_a_folder);
    tcase_add_test(tests, processes_save_concurrently);
    tcase_add_test(tests, the_lock_is_held);
    tcase_add_test(tests, allocations_fail);
    tcase_add_test(tests, mistakes);
    tcase_add_test(tests, empty_products_have_no_class);
    tcase_add_test(tests, threads_set_and_find);
}
