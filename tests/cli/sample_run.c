#include "cli/sample_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/tool.h"
#include "support/check_main.h"

static int64_t *values;

const int64_t *sample_run(const char *arguments, uint64_t *count)
{
    char with_format[1024];
    int length = snprintf(with_format, sizeof with_format, "%s --format i64", arguments);
    ck_assert_int_lt(length, (int)sizeof with_format);
    tool_result result = tool_run(with_format);
    ck_assert_msg(result.exit_code == 0, "%s: exit code %d: %s", arguments, result.exit_code,
                  result.err);
    ck_assert_str_eq(result.err, "");
    ck_assert_uint_eq(result.out_size % 8, 0);
    *count = result.out_size / 8;
    values = realloc(values, (*count + 1) * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (uint64_t i = 0; i < *count; i++) {
        uint64_t bits = 0;
        for (int j = 7; j >= 0; j--)
            bits = bits << 8 | (uint8_t)result.out[8 * i + (uint64_t)j];
        memcpy(&values[i], &bits, sizeof bits);
    }
    tool_result_free(&result);
    return values;
}

void sample_refuses(const char *arguments)
{
    tool_result result = tool_run(arguments);
    const bool names_a_file = strstr(arguments, ".txt") != NULL;
    ck_assert_msg(result.exit_code == 2 || (names_a_file && result.exit_code == 1),
                  "%s: exit code %d", arguments, result.exit_code);
    ck_assert_str_eq(result.out, "");
    const char *end = strchr(result.err, '\n');
    ck_assert_msg(strncmp(result.err, "tessera: sample: ", 17) == 0 && end != NULL && end[1] == 0,
                  "%s: %s", arguments, result.err);
    tool_result_free(&result);
}

static char folder[] = "/tmp/tessera-test-XXXXXX";

void sample_enter_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
}

void sample_leave_folder(void)
{
    static const char *const names[] = {"indices.txt", "weights.txt",      "lengths.txt",
                                        "labels.txt",  "difficulties.txt", "bad.txt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(names[i]);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}

void sample_write_integers(const char *name, const int64_t *integers, uint64_t count)
{
    FILE *file = fopen(name, "w");
    ck_assert_ptr_nonnull(file);
    for (uint64_t i = 0; i < count; i++)
        fprintf(file, "%" PRId64 "\n", integers[i]);
    ck_assert_int_eq(fclose(file), 0);
}

void sample_write_reals(const char *name, const double *reals, uint64_t count)
{
    FILE *file = fopen(name, "w");
    ck_assert_ptr_nonnull(file);
    for (uint64_t i = 0; i < count; i++)
        fprintf(file, "%.17g\n", reals[i]);
    ck_assert_int_eq(fclose(file), 0);
}
