/* Tests tessera bench --submit: the files that it writes. */
#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/submit/submit.h"
#include "bench/submit/traces.h"
#include "cli/lib/say.h"
#include "cli/submitted_run.h"
#include "support/check_main.h"

static char folder[32];

static void make_folder(void)
{
    strcpy(folder, "/tmp/tessera-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    tests_remove(folder);
}

#define FIRST "made-gpu--made-1.0--2026-01-02"

static bool has_file(const char *name)
{
    char path[256];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return lstat(path, &status) == 0;
}

static bool is_empty(void)
{
    return rmdir(folder) == 0 && mkdir(folder, 0700) == 0;
}

/* Submits the run, frees it, and returns the messages. */
static int submit(json_t *run, const char *to, char messages[2048])
{
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    fflush(stderr);
    const int kept = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
    const int code = bench_submit(run, to);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    messages[fread(messages, 1, 2047, file)] = '\0';
    fclose(file);
    json_decref(run);
    return code;
}

static json_t *read_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *document = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(document);
    return document;
}

/* The file must have the published part of the run, with one result per line. */
START_TEST(writes_a_file)
{
    char messages[2048], want[256], line[4096];
    ck_assert_int_eq(submit(submitted_source(), folder, messages), CLI_DONE);
    snprintf(want, sizeof want, "tessera: bench: wrote %s/" FIRST ".json\n", folder);
    ck_assert_str_eq(messages, want);
    json_t *found = read_file(FIRST ".json"), *published = submitted_run();
    ck_assert(json_equal(found, published));
    json_decref(found);
    json_decref(published);
    snprintf(want, sizeof want, "%s/" FIRST ".json", folder);
    FILE *file = fopen(want, "r");
    int results = 0;
    while (fgets(line, sizeof line, file) != NULL)
        results += strncmp(line, "{\"benchmark\"", 12) == 0 && strstr(line, "host_ns") != NULL;
    fclose(file);
    ck_assert_int_eq(results, 5);
    remove(want);
    ck_assert(is_empty()); /* no temporary file is left */
}
END_TEST

START_TEST(nothing_is_overwritten)
{
    char messages[2048], path[256];
    ck_assert_int_eq(submit(submitted_source(), folder, messages), CLI_DONE);
    json_t *other = submitted_source();
    submitted_set(other, "", "duration_s", json_real(7));
    snprintf(path, sizeof path, "%s/" FIRST "-2.json", folder);
    ck_assert_int_eq(symlink("/proc/nonexistent", path),
                     0); /* a link without a target exists, too */
    ck_assert_int_eq(submit(other, folder, messages), CLI_DONE);
    ck_assert_ptr_nonnull(strstr(messages, FIRST "-3.json\n"));
    json_t *first = read_file(FIRST ".json"), *third = read_file(FIRST "-3.json");
    ck_assert_double_eq(json_number_value(json_object_get(first, "duration_s")), 61.5);
    ck_assert_double_eq(json_number_value(json_object_get(third, "duration_s")), 7);
    json_decref(first);
    json_decref(third);
}
END_TEST

/* Checks that submitting fails: the messages end with this reason, and the folder is unchanged. */
static void fails_with(int reason, const char *to)
{
    char messages[2048], want[256];
    ck_assert_int_eq(submit(submitted_source(), to, messages), CLI_FAILED);
    snprintf(want, sizeof want, ".json': %s\n", strerror(reason));
    ck_assert_ptr_eq(strstr(messages, "tessera: bench: --submit: cannot write '"), messages);
    ck_assert_msg(strstr(messages, want) != NULL, "%s", messages);
}

START_TEST(a_hundredth_file_is_refused)
{
    for (int i = 1; i < 100; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/" FIRST, folder);
        if (i > 1)
            snprintf(path + strlen(path), 8, "-%d", i);
        strcat(path, ".json");
        fclose(fopen(path, "w"));
    }
    fails_with(EEXIST, folder);
}
END_TEST

START_TEST(a_folder_that_is_missing)
{
    char longer[4096];
    fails_with(ENOENT, "/proc/nonexistent");
    fails_with(ENOTDIR, "/dev/null");
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    char messages[2048];
    ck_assert_int_eq(submit(submitted_source(), longer, messages), CLI_FAILED);
    ck_assert(!bench_submit_possible(longer));
    ck_assert_int_eq(errno, ENAMETOOLONG);
    ck_assert(!bench_submit_possible("/proc/nonexistent"));
    ck_assert_int_eq(errno, ENOENT);
    ck_assert(!bench_submit_possible("/dev/null"));
    ck_assert_int_eq(errno, ENOTDIR);
    ck_assert(!bench_submit_possible(""));
    ck_assert_int_eq(errno, ENOENT);
    ck_assert(bench_submit_possible(folder));
}
END_TEST

/* These functions replace those of the C library, so that each call can fail. The failure must be
 * reported with its reason, and no file may be left. */
static const char *failing; /* the name of the function that fails from now on */
static int failure;

int __real_fsync(int descriptor);
int __wrap_fsync(int descriptor);
int __wrap_fsync(int descriptor)
{
    if (failing != NULL && strcmp(failing, "race") == 0) { /* another process creates the file */
        char path[256];
        snprintf(path, sizeof path, "%s/" FIRST ".json", folder);
        fclose(fopen(path, "w"));
    }
    if (failing == NULL || strcmp(failing, "fsync") != 0)
        return __real_fsync(descriptor);
    errno = failure;
    return -1;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (failing == NULL || strcmp(failing, "rename") != 0)
        return __real_rename(from, to);
    errno = failure;
    return -1;
}

int __real_fclose(FILE *file);
int __wrap_fclose(FILE *file);
int __wrap_fclose(FILE *file)
{
    const int result = __real_fclose(file);
    if (failing == NULL || strcmp(failing, "fclose") != 0)
        return result;
    /* Only the first call fails, because this test itself opens files later. */
    failing = NULL;
    errno = failure;
    return EOF;
}

static const struct {
    const char *function;
    int reason;
} calls[] = {{"fsync", EIO}, {"fsync", ENOSPC}, {"fclose", EDQUOT}, {"rename", EACCES}};

START_TEST(failures_have_their_reason)
{
    failing = calls[_i].function;
    failure = calls[_i].reason;
    fails_with(calls[_i].reason, folder);
    failing = NULL;
    ck_assert(is_empty());
}
END_TEST

START_TEST(a_name_that_is_taken_meanwhile)
{
    char path[256];
    struct stat status;
    failing = "race";
    fails_with(EEXIST, folder);
    failing = NULL;
    snprintf(path, sizeof path, "%s/" FIRST ".json", folder);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq((int)status.st_size, 0); /* the other process's file is unchanged */
    remove(path);
    ck_assert(is_empty());
}
END_TEST

START_TEST(a_disk_that_is_full)
{
    const struct rlimit limit = {.rlim_cur = 1000, .rlim_max = 1000};
    char messages[2048];
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(submit(submitted_source(), folder, messages), CLI_FAILED);
    ck_assert_msg(strstr(messages, strerror(EFBIG)) != NULL, "%s", messages);
    ck_assert(is_empty());
}
END_TEST

/* If two cards have the same name, the second file gets a number. If one card is refused, the file
 * of the other card must still be written. */
START_TEST(each_device_has_a_file)
{
    char messages[2048];
    ck_assert_int_eq(submit(submitted_source_on_twins(), folder, messages), CLI_DONE);
    ck_assert(has_file(FIRST ".json"));
    ck_assert(has_file(FIRST "-2.json"));
    json_t *run = submitted_source_on_twins();
    submitted_set(run, "devices/0", "name", json_string("Bad GPU"));
    submitted_set(run, "results/0/ceiling", "fraction", json_real(2));
    ck_assert_int_eq(submit(run, folder, messages), CLI_FAILED);
    ck_assert_ptr_nonnull(strstr(
        messages, "tessera: bench: --submit: Bad GPU: 1 of 5 results are above their ceilings; "
                  "matmul f32 64×65×66 reaches 200 % of fma_peak\n"));
    ck_assert_ptr_nonnull(
        strstr(messages, "tessera: bench: --submit: nothing is written for Bad GPU\n"));
    ck_assert(has_file(FIRST "-3.json"));
    ck_assert(!has_file("bad-gpu--made-1.0--2026-01-02.json"));
}
END_TEST

START_TEST(a_run_without_devices)
{
    char messages[2048];
    json_t *run = submitted_source();
    json_array_clear(submitted_at(run, "devices"));
    ck_assert_int_eq(submit(run, folder, messages), CLI_FAILED);
    ck_assert_str_eq(messages, "tessera: bench: --submit: the run has no device\n");
    ck_assert(is_empty());
}
END_TEST

/* A run is refused if the text of a driver, or a note, contains the name of this machine or this
 * user. */
START_TEST(own_names_are_refused)
{
    char machine[BENCH_TRACE], user[BENCH_TRACE], text[2 * BENCH_TRACE], messages[2048], want[512];
    bench_own_names(machine, user);
    ck_assert_ptr_null(strchr(machine, '.'));
    if (strlen(machine) < 3 || strlen(user) < 3)
        SKIP("the names of this machine and user are shorter than three characters");
    ck_assert_str_eq(user, getpwuid(geteuid())->pw_name);
    json_t *run = submitted_source();
    snprintf(text, sizeof text, "1.0 by %s", machine);
    submitted_set(run, "devices/0", "driver_info", json_string(text));
    ck_assert_int_eq(submit(run, folder, messages), CLI_FAILED);
    snprintf(want, sizeof want, "'%.80s' contains this machine's name, %.60s\n", text, machine);
    ck_assert_msg(strstr(messages, want) != NULL, "%s", messages);
    run = submitted_source();
    snprintf(text, sizeof text, "left out for %s", user);
    submitted_set(run, "left_out/0", "text", json_string(text));
    ck_assert_int_eq(submit(run, folder, messages), CLI_FAILED);
    snprintf(want, sizeof want, "'%.80s' contains this user's name, %.60s\n", text, user);
    ck_assert_msg(strstr(messages, want) != NULL, "%s", messages);
    ck_assert(is_empty());
}
END_TEST

static const struct {
    const char *device, *type, *driver, *info, *name;
} named[] = {
    {"NVIDIA H100 80GB HBM3", "discrete", "NVIDIA", "580.159.03",
     "nvidia-h100-80gb-hbm3--nvidia-580.159.03--2026-01-02"},
    {"llvmpipe (LLVM 15.0.6, 256 bits)", "cpu", "llvmpipe", "Mesa 22.3.6 (LLVM 15.0.6)",
     "llvmpipe-on-made-cpu--mesa-22.3.6--2026-01-02"},
    {"AMD Radeon RX 7900 XTX (RADV NAVI31)", "discrete", "radv", "Mesa 25.0.7-2",
     "amd-radeon-rx-7900-xtx--mesa-25.0.7-2--2026-01-02"},
    {"SwiftShader Device (LLVM 10.0.0)", "cpu", "SwiftShader driver", "",
     "swiftshader-device-on-made-cpu--swiftshader-driver--2026-01-02"},
    {"../../etc/passwd", "other", "a/b", "..", "etc-passwd--a-b--2026-01-02"},
    {"(", "other", "", "", "unknown--unknown--2026-01-02"},
    {"Geräte 5))((", "other", "x", "1", "ger-te-5--x-1--2026-01-02"},
};

START_TEST(files_are_named_after_the_device)
{
    char name[BENCH_FILE_NAME];
    bench_device_figures device = {.name = named[_i].device,
                                   .type = named[_i].type,
                                   .driver_name = named[_i].driver,
                                   .driver_info = named[_i].info};
    const bench_document run = {
        .devices = &device, .cpu = "Made(R) CPU", .time = "2026-01-02T03:04:05Z"};
    bench_submission_name(&run, name);
    ck_assert_str_eq(name, named[_i].name);
}
END_TEST

/* Every file in docs/results must pass the self-check, and have a name that the tool gives. */
START_TEST(published_files_are_submissions)
{
    DIR *results = opendir(TEST_RESULTS);
    ck_assert_ptr_nonnull(results);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(results)) != NULL;) {
        char path[512], name[BENCH_FILE_NAME], problem[BENCH_PROBLEM];
        bench_document document;
        bench_reasons reasons;
        if (strstr(entry->d_name, ".json") == NULL)
            continue;
        snprintf(path, sizeof path, "%s/%s", TEST_RESULTS, entry->d_name);
        ck_assert_msg(bench_document_read(path, &document, problem), "%s", problem);
        bench_self_check(&document, &reasons);
        ck_assert_msg(reasons.count == 0, "%s: %s", entry->d_name, reasons.text[0]);
        bench_submission_name(&document, name);
        ck_assert_msg(strncmp(entry->d_name, name, strlen(name)) == 0, "%s: not %s.json",
                      entry->d_name, name);
        bench_document_free(&document);
        count++;
    }
    closedir(results);
    ck_assert_int_ge(count, 1);
}
END_TEST

START_TEST(long_names_are_cut)
{
    char name[BENCH_FILE_NAME], text[1024];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    bench_device_figures device = {
        .name = text, .type = "cpu", .driver_name = text, .driver_info = text};
    const bench_document run = {.devices = &device, .cpu = text, .time = "2026-01-02T03:04:05Z"};
    bench_submission_name(&run, name);
    ck_assert_uint_lt(strlen(name), BENCH_FILE_NAME - 1);
    ck_assert_str_eq(name + strlen(name) - 12, "--2026-01-02");
}
END_TEST

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

TESTS(bench_submit_files)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, writes_a_file);
    tcase_add_test(tests, nothing_is_overwritten);
    tcase_add_test(tests, a_hundredth_file_is_refused);
    tcase_add_test(tests, a_folder_that_is_missing);
    tcase_add_loop_test(tests, failures_have_their_reason, 0, COUNT(calls));
    tcase_add_test(tests, a_name_that_is_taken_meanwhile);
    tcase_add_test(tests, a_disk_that_is_full);
    tcase_add_test(tests, each_device_has_a_file);
    tcase_add_test(tests, a_run_without_devices);
    tcase_add_test(tests, own_names_are_refused);
    tcase_add_loop_test(tests, files_are_named_after_the_device, 0, COUNT(named));
    tcase_add_test(tests, published_files_are_submissions);
    tcase_add_test(tests, long_names_are_cut);
}
