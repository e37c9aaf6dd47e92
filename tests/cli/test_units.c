/* Tests the parts of the tool that need no device. Above all, wrong results must not pass
 * verification. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/harness/data.h"
#include "bench/harness/progress.h"
#include "bench/harness/reference.h"
#include "bench/model/model.h"
#include "bench/report/report.h"
#include "cli/lib/device.h"
#include "cli/lib/json.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/suggest.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"
#include "cli/lib/text.h"
#include "support/check_main.h"

START_TEST(quantiles_interpolate)
{
    const double values[] = {1, 2, 4, 8, 16};
    ck_assert_double_eq(bench_quantile(values, 5, 0), 1);
    ck_assert_double_eq(bench_quantile(values, 5, 0.5), 4);
    ck_assert_double_eq_tol(bench_quantile(values, 5, 0.1), 1.4, 1e-12);
    ck_assert_double_eq_tol(bench_quantile(values, 5, 0.9), 12.8, 1e-12);
    ck_assert_double_eq(bench_quantile(values, 5, 1), 16);
    ck_assert_double_eq(bench_quantile(values, 1, 0.9), 1);
}
END_TEST

START_TEST(summaries_do_not_depend_on_order)
{
    bench_samples samples = {0};
    const double values[] = {8, 1, 16, 2, 4};
    for (int i = 0; i < 5; i++)
        bench_samples_add(&samples, values[i]);
    bench_summary summary = bench_summarize(&samples);
    ck_assert_double_eq(summary.median, 4);
    ck_assert_double_eq(summary.min, 1);
    ck_assert_double_eq(summary.max, 16);
    ck_assert_double_eq(samples.ns[0], 8);
    ck_assert(bench_is_noisy(&summary));
    ck_assert(!bench_is_noisy(&(bench_summary){.median = 100, .p10 = 95, .p90 = 110}));
    bench_samples_free(&samples);
    ck_assert_double_eq(bench_summarize(&samples).median, 0);
}
END_TEST

/* A result above its ceiling is marked. If its data are small enough for caches, the mark says that
 * caches are the reason; otherwise there is a warning. */
START_TEST(results_above_their_ceiling_are_marked)
{
    char text[BENCH_WARNINGS][BENCH_WARNING_SIZE];
    bench_row limit = {.unit = BENCH_GBYTES, .work = 1e9}, row = limit;
    bench_context context = {.row_count = 2, .rows = (bench_row *[]){&limit, &row}};
    row.memory = &limit;
    bench_sample(&limit, 1e9);
    bench_sample(&row, 0.96e9);
    ck_assert_int_eq(bench_stands(&row), BENCH_WITHIN);
    ck_assert_int_eq(bench_warnings(&context, text), 0);
    bench_samples_free(&row.host);
    bench_sample(&row, 0.9e9);
    ck_assert_int_eq(bench_stands(&row), BENCH_ABOVE);
    ck_assert_int_eq(bench_warnings(&context, text), 1);
    ck_assert_str_eq(text[0],
                     "1 of 2 results are above their ceiling, which was therefore measured "
                     "in a slower moment");
    row.work /= 10;
    row.host.ns[0] /= 10;
    ck_assert_double_eq_tol(bench_fraction(&row), 1 / 0.9, 1e-9);
    ck_assert_int_eq(bench_stands(&row), BENCH_CACHED);
    ck_assert_int_eq(bench_warnings(&context, text), 0);
    bench_samples_free(&limit.host);
    bench_samples_free(&row.host);
}
END_TEST

START_TEST(the_slower_of_two_ceilings_limits)
{
    bench_row arithmetic = {.unit = BENCH_GFLOPS, .work = 100};
    bench_row memory = {.unit = BENCH_GBYTES, .work = 10};
    bench_row row = {.unit = BENCH_GFLOPS, .work = 100, .bytes = 20};
    ck_assert_ptr_null(bench_ceiling(&row));
    row.memory = &memory;
    ck_assert_ptr_eq(bench_ceiling(&row), &memory);
    row.arithmetic = &arithmetic;
    bench_sample(&arithmetic, 1); /* 100 GFLOP/s: 1 ns */
    bench_sample(&memory, 1);     /* 10 GB/s: 2 ns */
    bench_sample(&row, 4);
    ck_assert_ptr_eq(bench_ceiling(&row), &memory);
    ck_assert_double_eq(bench_fraction(&row), 0.5);
    row.bytes = 5;
    ck_assert_ptr_eq(bench_ceiling(&row), &arithmetic);
    ck_assert_double_eq(bench_fraction(&row), 0.25);
    bench_samples_free(&arithmetic.host);
    bench_samples_free(&memory.host);
    bench_samples_free(&row.host);
}
END_TEST

static tsr_status sleep_for(tsr_stream *stream, void *user)
{
    (void)stream;
    const struct timespec *duration = user;
    nanosleep(duration, NULL);
    return TSR_OK;
}

/* A ceiling that is measured again keeps the faster measurement. */
START_TEST(a_ceiling_is_the_best_of_its_measurements)
{
    bench_options options = {.seconds = 0.001};
    bench_context context = {.options = &options};
    bench_row row = {.benchmark = "test", .unit = BENCH_GBYTES, .work = 1};
    bench_check_begin(&row.check, "test");
    bench_check_value(&row.check, 0, 0, 1, 1, 0);
    static const long waits[] = {3000000, 1000000, 5000000};
    double fastest = INFINITY;
    for (int i = 0; i < 3; i++) {
        struct timespec duration = {.tv_nsec = waits[i]};
        ck_assert(bench_measure(
            &context, &row, &(bench_task){.run = sleep_for, .user = &duration, .host_only = true}));
        double median = bench_summarize(&row.host).median;
        ck_assert(median <= fastest);
        ck_assert(median >= (double)waits[i < 1 ? i : 1]);
        fastest = median;
    }
    bench_samples_free(&row.host);
}
END_TEST

START_TEST(a_row_with_too_many_parameters_fails)
{
    bench_options options = {.seconds = 0.001};
    bench_context context = {.options = &options};
    bench_row row = {.benchmark = "test", .unit = BENCH_TIME, .work = 1};
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "one more", "two more"};
    struct timespec duration = {0};
    const bench_task task = {.run = sleep_for, .user = &duration, .host_only = true};
    bench_check_begin(&row.check, "test");
    bench_check_value(&row.check, 0, 0, 1, 1, 0);
    for (int i = 0; i < BENCH_MAX_PARAMS; i++)
        bench_integer(&row, names[i], i);
    ck_assert(bench_measure(&context, &row, &task));
    bench_text(&row, names[BENCH_MAX_PARAMS], "value");
    for (int more = 0; more < 2; more++) {
        ck_assert(!bench_measure(&context, &row, &task));
        ck_assert_ptr_nonnull(strstr(context.error, more ? "two more" : "one more"));
        ck_assert_int_eq(strncmp(context.error, "bench test: a row may have 6 parameters ", 40), 0);
        bench_integer(&row, names[BENCH_MAX_PARAMS + 1], 1);
    }
    ck_assert_str_eq(row.params[BENCH_MAX_PARAMS - 1].text, "5");
    bench_samples_free(&row.host);
}
END_TEST

START_TEST(checks_remember_the_worst)
{
    char text[512];
    bench_check check = {0};
    ck_assert(!bench_check_passed(&check, text, sizeof text));
    ck_assert_str_eq(text, "it was not verified");
    bench_check_begin(&check, "tests");
    ck_assert(!bench_check_passed(&check, text, sizeof text)); /* nothing was compared */

    bench_check_value(&check, 0, 0, 1.0, 1.5, 1.0);
    ck_assert(bench_check_passed(&check, text, sizeof text));
    bench_check_value(&check, 4, 7, 3.0, 1.0, 1.0);
    bench_check_value(&check, 5, 8, 3.5, 2.0, 1.0);
    ck_assert(!bench_check_passed(&check, text, sizeof text));
    ck_assert_str_eq(text,
                     "verification failed: 2 of 3 values are wrong (tests); the worst, at row 4, "
                     "column 7, is 3 instead of 1, with a tolerance of 1");
}
END_TEST

START_TEST(nan_is_wrong)
{
    char text[512];
    static const double pairs[][2] = {
        {(double)NAN, 1}, {1, (double)NAN}, {(double)INFINITY, 1}, {1, (double)INFINITY}};
    for (int i = 0; i < 4; i++) {
        bench_check check;
        bench_check_begin(&check, "tests");
        bench_check_value(&check, 0, 0, pairs[i][0], pairs[i][1], 1e300);
        ck_assert_msg(!bench_check_passed(&check, text, sizeof text), "%g for %g", pairs[i][0],
                      pairs[i][1]);
    }
    bench_check check;
    bench_check_begin(&check, "tests");
    bench_check_value(&check, 0, 0, 1, nextafter(1, 2), 0);
    ck_assert(!bench_check_passed(&check, text, sizeof text));
}
END_TEST

/* Rounds a double to the nearest multiple of the type's step at its magnitude. */
static double nearest(double x, int bits, int lowest_exponent)
{
    int exponent;
    frexp(x, &exponent);
    int step = exponent - bits;
    if (step < lowest_exponent)
        step = lowest_exponent;
    return ldexp(nearbyint(ldexp(x, -step)), step);
}

START_TEST(halves_round_to_nearest_even)
{
    for (uint64_t i = 0; i < 400000; i++) {
        uint32_t bits = (uint32_t)bench_random(3, i);
        float value;
        memcpy(&value, &bits, sizeof value);
        if (i % 2) /* half of the values are in the range of f16, including ties */
            value = ldexpf((float)(int32_t)(bits % 16384) - 8192, (int)(bits >> 14) % 30 - 26);
        uint16_t half;
        float back;
        bench_encode(TSR_F16, &value, 1, &half);
        bench_decode(TSR_F16, &half, 1, &back);
        double want = nearest((double)value, 11, -24);
        if (isnan(value))
            ck_assert(isnan(back));
        else if (fabs(want) >= 65536)
            ck_assert(isinf(back) && signbit(back) == signbit(value));
        else
            ck_assert_msg((double)back == want, "%a became %a", (double)value, (double)back);

        bench_encode(TSR_BF16, &value, 1, &half);
        bench_decode(TSR_BF16, &half, 1, &back);
        want = nearest((double)value, 8, -133);
        if (isnan(value))
            ck_assert(isnan(back));
        else if (fabs(want) > (double)FLT_MAX)
            ck_assert(isinf(back));
        else
            ck_assert_msg((double)back == want, "%a became %a", (double)value, (double)back);
    }
}
END_TEST

START_TEST(random_values_are_exact_and_spread)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    static float values[30000], back[30000], bytes[30000];
    for (int d = 0; d < 3; d++) {
        double sum = 0, squares = 0;
        bench_random_values(values, 30000, dtypes[d], 12);
        bench_encode(dtypes[d], values, 30000, bytes);
        bench_decode(dtypes[d], bytes, 30000, back);
        ck_assert_mem_eq(values, back, sizeof values);
        for (int i = 0; i < 30000; i++) {
            ck_assert(values[i] >= -1 && values[i] < 1);
            sum += (double)values[i];
            squares += (double)values[i] * (double)values[i];
        }
        ck_assert_double_eq_tol(sum / 30000, 0, 0.02);
        ck_assert_double_eq_tol(squares / 30000, 1.0 / 3, 0.02);
    }
}
END_TEST

/* Computes y by adding products in f32 one after another, and rounds it to dtype. This is the least
 * exact result that must be accepted. */
static float *honest(const bench_shape *shape, const float *x, const float *w, tsr_dtype dtype,
                     float **in_f32)
{
    int64_t count = shape->m * shape->n;
    float *y = malloc((size_t)count * sizeof *y);
    void *bytes = malloc((size_t)count * sizeof *y);
    for (int64_t i = 0; i < count; i++) {
        y[i] = 0;
        for (int64_t k = 0; k < shape->k; k++)
            y[i] += x[i / shape->n * shape->k + k] * w[i % shape->n * shape->k + k];
    }
    *in_f32 = malloc((size_t)count * sizeof *y);
    memcpy(*in_f32, y, (size_t)count * sizeof *y);
    bench_encode(dtype, y, (uint64_t)count, bytes);
    bench_decode(dtype, bytes, (uint64_t)count, y);
    free(bytes);
    return y;
}

/* With 300 rows of this n and k, not every element is compared separately. */
static const bench_shape shapes[] = {{5, 33, 7}, {64, 64, 64}, {1, 4096, 40}, {300, 1500, 700}};

START_TEST(references_accept_honest_results_and_nothing_else)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    const bench_shape *shape = &shapes[_i / 3];
    tsr_dtype dtype = dtypes[_i % 3];
    uint64_t x_count = (uint64_t)(shape->m * shape->k), w_count = (uint64_t)(shape->n * shape->k);
    float *x = malloc(x_count * sizeof *x), *w = malloc(w_count * sizeof *w);
    bench_random_values(x, x_count, dtype, 1);
    bench_random_values(w, w_count, dtype, 2);
    float *in_f32, *y = honest(shape, x, w, dtype, &in_f32);
    char text[512];
    bench_check check;
    bench_check_matmul(&check, shape, x, w, y, dtype, in_f32);
    ck_assert_msg(bench_check_passed(&check, text, sizeof text), "%s", text);

    /* Makes one element wrong, at a random place. The largest shape takes long, so it gets three of
     * the five mistakes for each dtype. */
    for (uint64_t trial = 0; trial < (shape->m == 300 ? 3 : 15); trial++) {
        uint64_t at = bench_random(4, trial) % (uint64_t)(shape->m * shape->n);
        uint64_t mistake = (trial + 2 * ((uint64_t)_i % 3)) % 5;
        float kept = y[at];
        double rounding = bench_rounding(dtype) * fabs((double)kept);
        if (mistake == 0)
            y[at] = -kept;
        else if (mistake == 1)
            y[at] = 0;
        else if (mistake == 2)
            y[at] = NAN;
        else if (mistake == 3)
            y[at] += 2;
        else
            y[at] += (float)(4 * rounding);
        bench_check_matmul(&check, shape, x, w, y, dtype, in_f32);
        /* An error that is not larger than the rounding of the element or of its sum cannot be
         * detected. */
        double change = fabs((double)y[at] - (double)kept);
        if (!(change < 3 * rounding + 0.02))
            ck_assert_msg(!bench_check_passed(&check, text, sizeof text), "%g for %g",
                          (double)y[at], (double)kept);
        y[at] = kept;
    }
    /* Both products are wrong in the same way, as if the same kernel had computed them. */
    uint64_t last = (uint64_t)(shape->m * shape->n) - 1;
    y[last / 2] += 2;
    in_f32[last / 2] += 2;
    bench_check_matmul(&check, shape, x, w, y, dtype, in_f32);
    ck_assert(!bench_check_passed(&check, text, sizeof text));
    free(in_f32);
    free(x);
    free(w);
    free(y);
}
END_TEST

/* Checks a table as it is printed at a width of `columns`, or of any width if it is NULL. The last
 * column but one is optional. */
static void check_table(const char *columns, const char *locale, const char *expected)
{
    char text[512];
    FILE *file = tmpfile();
    if (columns != NULL)
        setenv("COLUMNS", columns, 1);
    setenv("LC_ALL", locale, 1);
    cli_table *table = cli_table_create();
    cli_table_column(table, "name", CLI_LEFT);
    cli_table_column(table, "time", CLI_RIGHT);
    cli_table_column(table, "range", CLI_RIGHT | CLI_OPTIONAL);
    cli_table_column(table, "note", CLI_LEFT);
    cli_table_cell(table, "a");
    cli_table_cell(table, "%d µs", 5);
    cli_table_cell(table, "4 – 6");
    cli_table_cell(table, "%s", "");
    cli_table_cell(table, "much longer");
    cli_table_cell(table, "%s", "");
    cli_table_cell(table, "%s", "");
    cli_table_cell(table, "x");
    cli_table_print(table, file, 1);
    cli_table_destroy(&table);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    ck_assert_str_eq(text, expected);
}

START_TEST(tables_align)
{
    unsetenv("COLUMNS");
    check_table(NULL, "C.UTF-8",
                " name         time  range  note\n"
                " a            5 µs  4 – 6\n"
                " much longer               x\n");
}
END_TEST

START_TEST(narrow_tables_drop_optional_columns)
{
    check_table("30", "C",
                " name         time  note\n"
                " a            5 us\n"
                " much longer        x\n"
                " (no room for: range)\n");
}
END_TEST

START_TEST(the_narrowest_tables_become_blocks)
{
    check_table("20", "C",
                " name   a\n"
                " time   5 us\n"
                " range  4 - 6\n"
                "\n"
                " name   much longer\n"
                " note   x\n");
}
END_TEST

START_TEST(text_wraps_between_words)
{
    static const struct {
        const char *columns, *text, *wrapped;
    } all[] = {
        {"20", "one two three four five six\n", "one two three four\nfive six\n"},
        {"20", "  one two three four five\n", "  one two three four\n  five\n"},
        {"20", "\n123456789012345678901234 5\n", "\n123456789012345678901234\n5\n"},
        {"20", "  --size MIB  how much to copy\n", "  --size MIB  how\n      much to copy\n"},
        {"60", "  name  123456789 123456789 123456789 123456789 123456789 123456789\n",
         "  name  123456789 123456789 123456789 123456789 123456789\n        123456789\n"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[256];
        FILE *file = tmpfile();
        setenv("COLUMNS", all[i].columns, 1);
        cli_wrap(file, all[i].text);
        rewind(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        ck_assert_str_eq(text, all[i].wrapped);
    }
}
END_TEST

START_TEST(json_keeps_all_bits_and_replaces_invalid_text)
{
    json_t *object = json_object();
    cli_json_u64(object, "u", UINT64_MAX);
    cli_json_u64(object, "i", INT64_MAX);
    cli_json_real(object, "r", (double)INFINITY);
    json_t *reals = cli_json_add_array(object, "a");
    cli_json_append_real(reals, 0.5);
    cli_json_append_real(reals, (double)-INFINITY);
    cli_json_append_real(reals, (double)NAN);
    cli_json_text(object, "s", "a\"\xc2\xb5\n");
    cli_json_text(object, "t", "a\"\xc2\xb5\xff");
    char *text = json_dumps(object, JSON_COMPACT);
    ck_assert_str_eq(text, "{\"u\":\"18446744073709551615\",\"i\":9223372036854775807,\"r\":null,"
                           "\"a\":[0.5,null,null],"
                           "\"s\":\"a\\\"\xc2\xb5\\n\",\"t\":\"a\\\"???\"}");
    free(text);
    json_decref(object);
}
END_TEST

START_TEST(text_has_no_control_characters)
{
    static const struct {
        const char *text, *mended;
    } texts[] = {{"", ""},
                 {"µ – × \xf0\x9f\x9a\x80", "µ – × \xf0\x9f\x9a\x80"},
                 {"\x1b[2Ja\nb\tc\rd\x7f", "?[2Ja?b?c?d?"},
                 {"\xc2\x9b|\xc2\x80|\xc2\x9f|\xc2\xa0", "?|?|?|\xc2\xa0"},
                 {"\x9b|\xc3|\xe2\x82", "?|?|??"}};
    char text[64];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        strcpy(text, texts[i].text);
        ck_assert_str_eq(cli_text_mend(text), texts[i].mended);
    }
    json_t *array = json_pack("[{s:[s, i]}]", "a", "b\x1b", 1);
    cli_json_mend(array);
    char *printed = json_dumps(array, JSON_COMPACT);
    ck_assert_str_eq(printed, "[{\"a\":[\"b?\",1]}]");
    free(printed);
    json_decref(array);
}
END_TEST

START_TEST(bytes_are_readable)
{
    char text[CLI_BYTES_TEXT];
    ck_assert_str_eq(cli_bytes(0, text), "0 B");
    ck_assert_str_eq(cli_bytes(1023, text), "1023 B");
    ck_assert_str_eq(cli_bytes(32768, text), "32 KiB");
    ck_assert_str_eq(cli_bytes(1536, text), "1.5 KiB");
    ck_assert_str_eq(cli_bytes((uint64_t)2 << 30, text), "2 GiB");
    ck_assert_str_eq(cli_bytes(UINT64_MAX, text), "16.0 EiB");
}
END_TEST

START_TEST(integers_are_complete_and_in_range)
{
    static const char *const bad[] = {
        "", " 1", "+1", "1 ", "1.0", "0x10", "one", "101", "-1", "9223372036854775808", "-"};
    int64_t value = 77;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!cli_read_integer(bad[i], 0, 100, &value), "'%s'", bad[i]);
    ck_assert_int_eq(value, 77);
    ck_assert(cli_read_integer("100", 0, 100, &value));
    ck_assert_int_eq(value, 100);
    ck_assert(cli_read_integer("-5", -5, 100, &value));
    ck_assert_int_eq(value, -5);
}
END_TEST

START_TEST(reals_are_decimal_and_in_range)
{
    static const char *const bad[] = {"",   " 1",   "+1",  "1 ",   "0x10",  "-0x1p3", "inf", "nan",
                                      "1e", "1..5", "1,5", "-0.1", "100.1", "1e999",  ".",   "-"};
    double value = 77;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!cli_read_real(bad[i], 0, 100, &value), "'%s'", bad[i]);
    ck_assert_double_eq(value, 77);
    ck_assert(cli_read_real("2.5E+1", 0, 100, &value));
    ck_assert_double_eq(value, 25);
    ck_assert(cli_read_real("-.5", -1, 100, &value));
    ck_assert_double_eq(value, -0.5);
    ck_assert_str_eq(cli_read_decimal("12e3GiB", &value), "GiB");
    ck_assert_double_eq(value, 12e3);
}
END_TEST

/* Numbers have three significant digits, but at most six decimals. */
START_TEST(numbers_keep_their_digits)
{
    static const struct {
        double value;
        const char *text;
    } numbers[] = {{0, "0.000"},         {123.4, "123"},     {12.34, "12.3"},
                   {1.234, "1.23"},      {0.1234, "0.123"},  {0.01234, "0.0123"},
                   {0.00377, "0.00377"}, {1e-4, "0.000100"}, {1e-9, "0.000000"},
                   {1e20, "1e+20"}};
    char text[CLI_NUMBER_TEXT];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        ck_assert_str_eq(cli_number(numbers[i].value, text), numbers[i].text);
}
END_TEST

/* The file's contents since the last call. */
static const char *added_to(FILE *file)
{
    static char text[1024];
    static long from;
    fseek(file, from, SEEK_SET);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    from = ftell(file);
    return text;
}

/* A file gets a line every few seconds, and one at once from a run that will be long. */
START_TEST(progress_in_a_file)
{
    FILE *file = tmpfile();
    bench_progress progress;
    ck_assert_ptr_nonnull(file);
    bench_progress_begin(&progress, file, false);
    bench_progress_show(&progress, "measuring copy");
    ck_assert_str_eq(added_to(file), "");
    bench_progress_expect(&progress, 2);
    bench_progress_show(&progress, "measuring copy");
    ck_assert_str_eq(added_to(file), "");
    progress.line_ns -= 6e9;
    progress.start_ns -= 6e9;
    bench_progress_show(&progress, "measuring copy");
    ck_assert_str_eq(added_to(file), "progress: 6 s, about 2 s left  measuring copy\n");
    bench_progress_show(&progress, "measuring copy");
    bench_progress_end(&progress);
    ck_assert_str_eq(added_to(file), "");
    bench_progress_begin(&progress, file, false);
    bench_progress_expect(&progress, 600);
    bench_progress_show(&progress, "measuring pp512");
    ck_assert_str_eq(added_to(file), "progress: 0 s, about 10 min left  measuring pp512\n");
    fclose(file);
}
END_TEST

START_TEST(progress_at_a_terminal)
{
    FILE *file = tmpfile();
    bench_progress progress;
    ck_assert_ptr_nonnull(file);
    added_to(file);
    bench_progress_begin(&progress, file, true);
    progress.steps = 4;
    bench_progress_step(&progress, "a GPU");
    bench_progress_show(&progress, "measuring copy");
    ck_assert_str_eq(added_to(file),
                     "\r\033[K[....................] 1 of 4, 0 s  a GPU: measuring copy");
    progress.step_ns -= 20e9;
    bench_progress_step(&progress, "a GPU");
    bench_progress_show(&progress, "measuring matmul");
    ck_assert_str_eq(added_to(file), "\r\033[K[#####...............] 2 of 4, 0 s, about 60 s left  "
                                     "a GPU: measuring matmul");
    bench_progress_end(&progress);
    ck_assert_str_eq(added_to(file), "\r\033[K");
    fclose(file);
}
END_TEST

/* The time of the steps that are left is predicted from the last ones, not from all. */
START_TEST(progress_follows_recent_steps)
{
    FILE *file = tmpfile();
    bench_progress progress;
    bench_progress_begin(&progress, file, false);
    progress.steps = 100;
    ck_assert_double_lt(bench_progress_left(&progress, progress.step_ns), 0);
    bench_progress_step(&progress, "");
    ck_assert_double_lt(bench_progress_left(&progress, progress.step_ns), 0);
    for (int i = 1; i <= 40; i++) { /* 20 steps of a minute, then 20 of a second */
        progress.step_ns -= i <= 20 ? 60e9 : 1e9;
        bench_progress_step(&progress, "");
    }
    ck_assert_double_eq_tol(bench_progress_left(&progress, progress.step_ns), 60, 1);
    ck_assert_double_eq_tol(bench_progress_left(&progress, progress.step_ns + 59e9), 1, 1);
    ck_assert_double_eq(bench_progress_left(&progress, progress.step_ns + 90e9), 0);
    fclose(file);
}
END_TEST

START_TEST(suggestions_are_near)
{
    static const struct {
        const char *word, *name; /* NULL: nothing is near */
    } cases[] = {{"temprature", "temperature"},
                 {"tempearture", "temperature"},
                 {"topk", "top-k"},
                 {"seeds", "seed"},
                 {"max-token", "max-tokens"},
                 {"temp", "temperature"},
                 {"se", NULL},
                 {"frobnicate", NULL},
                 {"", NULL},
                 {"seed", "seed"}};
    static const char *const names[] = {"temperature", "top-k", "top-p", "seed", "max-tokens"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli_suggestion nearest = CLI_SUGGESTION(cases[i].word);
        char text[CLI_SUGGESTION_TEXT], want[64] = "see 'tessera help x'";
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            cli_suggestion_offer(&nearest, names[n]);
        if (cases[i].name != NULL)
            snprintf(want, sizeof want, "did you mean '--%s'?", cases[i].name);
        ck_assert_str_eq(cli_suggestion_text(&nearest, "--", "help x", text), want);
    }
}
END_TEST

/* The numbers of parameters that the models' authors publish; of Qwen 3.5 those of the text model,
 * without layers that predict further tokens, and of GLM 4.7 Flash ("30B") the sum of its
 * matrices. */
START_TEST(shapes_have_published_sizes)
{
    static const struct {
        const char *name;
        double billions;
    } published[] = {
        {"llama-7b", 6.74},       {"qwen3-30b-a3b", 30.53},   {"gpt-oss-20b", 20.91},
        {"gpt-oss-120b", 116.83}, {"glm-4.5-air", 106.85},    {"mixtral-8x7b", 46.70},
        {"qwen3.5-27b", 26.90},   {"qwen3.5-35b-a3b", 34.66}, {"glm-4.7-flash", 29.94}};
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const bench_model_shape *shape = bench_model_shape_find(published[i].name);
        ck_assert_ptr_nonnull(shape);
        ck_assert_double_eq_tol((double)tsr_model_config_parameters(&shape->config, -1) / 1e9,
                                published[i].billions, 0.01);
    }
}
END_TEST

TESTS(units)
{
    tcase_add_test(tests, progress_in_a_file);
    tcase_add_test(tests, progress_at_a_terminal);
    tcase_add_test(tests, progress_follows_recent_steps);
    tcase_add_test(tests, suggestions_are_near);
    tcase_add_test(tests, quantiles_interpolate);
    tcase_add_test(tests, summaries_do_not_depend_on_order);
    tcase_add_test(tests, results_above_their_ceiling_are_marked);
    tcase_add_test(tests, the_slower_of_two_ceilings_limits);
    tcase_add_test(tests, a_ceiling_is_the_best_of_its_measurements);
    tcase_add_test(tests, a_row_with_too_many_parameters_fails);
    tcase_add_test(tests, checks_remember_the_worst);
    tcase_add_test(tests, nan_is_wrong);
    tcase_add_test(tests, halves_round_to_nearest_even);
    tcase_add_test(tests, random_values_are_exact_and_spread);
    tcase_add_loop_test(tests, references_accept_honest_results_and_nothing_else, 0,
                        3 * (int)(sizeof shapes / sizeof shapes[0]));
    tcase_add_test(tests, tables_align);
    tcase_add_test(tests, narrow_tables_drop_optional_columns);
    tcase_add_test(tests, the_narrowest_tables_become_blocks);
    tcase_add_test(tests, text_wraps_between_words);
    tcase_add_test(tests, json_keeps_all_bits_and_replaces_invalid_text);
    tcase_add_test(tests, text_has_no_control_characters);
    tcase_add_test(tests, bytes_are_readable);
    tcase_add_test(tests, integers_are_complete_and_in_range);
    tcase_add_test(tests, reals_are_decimal_and_in_range);
    tcase_add_test(tests, numbers_keep_their_digits);
    tcase_add_test(tests, shapes_have_published_sizes);
}
