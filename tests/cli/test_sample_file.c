/* Tests the files with one number per line that tessera sample reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/lib/say.h"
#include "cli/sample/sample.h"
#include "support/check_main.h"

static char path[] = "/tmp/tessera-test-XXXXXX";

static void create(void)
{
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
}

static void destroy(void)
{
    unlink(path);
}

static void write_file(const char *text, size_t size)
{
    FILE *file = fopen(path, "w");
    ck_assert_uint_eq(fwrite(text, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(reads_integers)
{
    static const char text[] = "0\n-9223372036854775808\n 9223372036854775807\t\r\n007\n12";
    static const int64_t expected[] = {0, INT64_MIN, INT64_MAX, 7, 12};
    int64_t *values = NULL;
    uint64_t count = 0;
    write_file(text, strlen(text));
    ck_assert_int_eq(sample_read_integers(path, &values, &count), CLI_DONE);
    ck_assert_uint_eq(count, 5);
    ck_assert_mem_eq(values, expected, sizeof expected);
    free(values);
}
END_TEST

START_TEST(reads_reals)
{
    static const char text[] = "0\n-1.5\n.25\n1e-3\n4\n";
    static const double expected[] = {0, -1.5, .25, 1e-3, 4};
    double *values = NULL;
    uint64_t count = 0;
    write_file(text, strlen(text));
    ck_assert_int_eq(sample_read_reals(path, &values, &count), CLI_DONE);
    ck_assert_uint_eq(count, 5);
    ck_assert_mem_eq(values, expected, sizeof expected);
    free(values);
}
END_TEST

START_TEST(an_empty_file_has_no_numbers)
{
    int64_t *values = NULL;
    uint64_t count = 9;
    ck_assert_int_eq(sample_read_integers(path, &values, &count), CLI_DONE);
    ck_assert_uint_eq(count, 0);
    free(values);
}
END_TEST

START_TEST(reads_many)
{
    enum { COUNT = 5000 };
    FILE *file = fopen(path, "w");
    for (int i = 0; i < COUNT; i++)
        fprintf(file, "%d\n", i * 3);
    fclose(file);
    int64_t *values = NULL;
    uint64_t count = 0;
    ck_assert_int_eq(sample_read_integers(path, &values, &count), CLI_DONE);
    ck_assert_uint_eq(count, COUNT);
    for (int i = 0; i < COUNT; i++)
        ck_assert(values[i] == INT64_C(3) * i);
    free(values);
}
END_TEST

/* Reads a file, which must fail. Returns the message; the caller frees it. */
static char *complaint(const char *name, bool reals)
{
    FILE *capture = tmpfile();
    int64_t *integers = NULL;
    double *real_values = NULL;
    uint64_t count = 7;
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    dup2(fileno(capture), STDERR_FILENO);
    int code = reals ? sample_read_reals(name, &real_values, &count)
                     : sample_read_integers(name, &integers, &count);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    ck_assert_int_eq(code, CLI_FAILED);
    ck_assert(integers == NULL && real_values == NULL && count == 7);
    char *text = calloc(1, 1024);
    rewind(capture);
    ck_assert_uint_gt(fread(text, 1, 1023, capture), 0);
    fclose(capture);
    return text;
}

static const struct {
    const char *text;
    bool reals;
    const char *reason;
} mistakes[] = {
    {"1\nabc\n3\n", false, "line 2: 'abc' is not an integer of 64 bits"},
    {"1\n2.5\n", false, "line 2: '2.5' is not an integer of 64 bits"},
    {"9223372036854775808\n", false, "line 1: '9223372036854775808' is not an integer of 64 bits"},
    {"1\n2\n\n3\n", false, "line 3: empty line"},
    {"1 2\n", false, "line 1: '1 2' is not an integer of 64 bits"},
    {"+1\n", false, "line 1: '+1' is not an integer of 64 bits"},
    {"1\nnan\n", true, "line 2: 'nan' is not a finite number"},
    {"inf\n", true, "line 1: 'inf' is not a finite number"},
    {"1e999\n", true, "line 1: '1e999' is not a finite number"},
    {"0x10\n", true, "line 1: '0x10' is not a finite number"},
    {"1.5x\n", true, "line 1: '1.5x' is not a finite number"},
    {"  \n", true, "line 1: empty line"},
};

START_TEST(mistakes_name_the_line)
{
    char expected[256];
    write_file(mistakes[_i].text, strlen(mistakes[_i].text));
    snprintf(expected, sizeof expected, "tessera: sample: %s, %s\n", path, mistakes[_i].reason);
    char *text = complaint(path, mistakes[_i].reals);
    ck_assert_str_eq(text, expected);
    free(text);
}
END_TEST

START_TEST(files_that_cannot_be_read)
{
    char *text = complaint("/proc/nonexistent/file", false);
    ck_assert_str_eq(
        text, "tessera: sample: cannot read /proc/nonexistent/file: No such file or directory\n");
    free(text);
    text = complaint("/tmp", true);
    ck_assert_str_eq(text, "tessera: sample: cannot read /tmp: Is a directory\n");
    free(text);
    text = complaint("/dev/zero", true); /* a line without end */
    ck_assert_str_eq(text, "tessera: sample: /dev/zero, line 1: longer than 4095 bytes\n");
    free(text);
}
END_TEST

/* A zero byte ends a C string, but must not hide the rest of the file. */
START_TEST(zero_bytes)
{
    char expected[256];
    write_file("1\n2\0003\n", 6);
    snprintf(expected, sizeof expected, "tessera: sample: %s, line 2: contains a zero byte\n",
             path);
    char *text = complaint(path, false);
    ck_assert_str_eq(text, expected);
    free(text);
}
END_TEST

TESTS(sample_file)
{
    tcase_add_checked_fixture(tests, create, destroy);
    tcase_add_test(tests, reads_integers);
    tcase_add_test(tests, reads_reals);
    tcase_add_test(tests, an_empty_file_has_no_numbers);
    tcase_add_test(tests, reads_many);
    tcase_add_loop_test(tests, mistakes_name_the_line, 0,
                        (int)(sizeof mistakes / sizeof *mistakes));
    tcase_add_test(tests, files_that_cannot_be_read);
    tcase_add_test(tests, zero_bytes);
}
