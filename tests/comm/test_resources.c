/* If UCX fails for lack of a resource, the error must name the cause. */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm/ucx/ucx_errors.h"
#include "support/check_main.h"

static char text[400];

static const char *describe(ucs_status_t status)
{
    ck_assert_ok(tsr__ucx_library_open());
    return tsr__ucx_describe(status, text, sizeof text);
}

static struct rlimit descriptors;

static void save_descriptors(void)
{
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
}

/* Restores the limit, because the leak checker opens files when the test ends. */
static void restore_descriptors(void)
{
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
}

/* Lowers the limit so that `left` more files can be opened. */
static void leave_descriptors(unsigned left)
{
    int next = dup(0);
    close(next);
    const struct rlimit lowered = {(rlim_t)next + left, descriptors.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &lowered), 0);
}

START_TEST(of_errors_of_peers)
{
    ck_assert_str_eq(describe(UCS_ERR_ENDPOINT_TIMEOUT), "Endpoint timeout");
    leave_descriptors(2);
    ck_assert_ptr_nonnull(
        strstr(describe(UCS_ERR_ENDPOINT_TIMEOUT), "Endpoint timeout; this process has 2 of "));
    ck_assert_ptr_nonnull(strstr(text, " file descriptors left: raise 'ulimit -n'"));
    leave_descriptors(0);
    ck_assert_ptr_nonnull(strstr(describe(UCS_ERR_ENDPOINT_TIMEOUT), "; this process has 0 of "));
}
END_TEST

START_TEST(of_memory)
{
    setenv("UCX_POSIX_DIR", "/", 1); /* "/" has room for a process, unless the disk is full */
    ck_assert(!tsr__ucx_may_avoid_posix());
    ck_assert_ptr_nonnull(strstr(describe(UCS_ERR_NO_MEMORY), "Out of memory; "));
    if (tsr__ucx_posix_fits())
        ck_assert_str_eq(text, "Out of memory; this process may be short of memory ('ulimit -v', a "
                               "container's limit)");
    setenv("UCX_POSIX_DIR", "/proc/nonexistent", 1);
    ck_assert(!tsr__ucx_posix_fits());
    ck_assert_str_eq(
        describe(UCS_ERR_NO_MEMORY),
        "Out of memory; /proc/nonexistent is missing: No such file or directory: make it larger "
        "and "
        "writable (docker run --shm-size=1g), set UCX_POSIX_DIR to a folder that has room, or do "
        "without it (UCX_TLS=^posix)");
}
END_TEST

/* UCX needs two areas of 4,292,720 and 8,447 bytes. They are 1049 and 3 pages of 4 KiB, or 66 and 1
 * of 64 KiB. */
START_TEST(shared_memory_is_whole_pages)
{
    ck_assert_uint_eq(tsr__ucx_posix_bytes(4096), (1049 + 3) * 4096);
    ck_assert_uint_eq(tsr__ucx_posix_bytes(65536), (66 + 1) * 65536);
}
END_TEST

START_TEST(of_descriptors_before_ucx_starts)
{
    unsetenv("UCX_TLS");
    ck_assert_ok(tsr__ucx_check_descriptors());
    leave_descriptors(17);
    ck_assert_int_eq(tsr__ucx_check_descriptors(), TSR_ERR_IO);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(),
                                 "comm: UCX needs at least 18 file descriptors, but "
                                 "this process has 17 of "));
    setenv("UCX_TLS", "tcp,self", 1);
    ck_assert_ok(tsr__ucx_check_descriptors());
}
END_TEST

TESTS(resources)
{
    tcase_add_checked_fixture(tests, save_descriptors, restore_descriptors);
    tcase_add_test(tests, of_errors_of_peers);
    tcase_add_test(tests, of_memory);
    tcase_add_test(tests, shared_memory_is_whole_pages);
    tcase_add_test(tests, of_descriptors_before_ucx_starts);
}
