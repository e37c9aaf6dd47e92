/* Compares tsr_cross_entropy with a reference in double precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"
#include "support/close.h"
#include "support/gpu.h"

static double *doubles(int64_t count)
{
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

static bool ignored(int64_t label, int64_t classes)
{
    return label < 0 || label >= classes;
}

static double loss_of(const double *logits, int64_t classes, int64_t label)
{
    if (ignored(label, classes))
        return 0;
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < classes; j++)
        largest = logits[j] > largest ? logits[j] : largest;
    for (int64_t j = 0; j < classes; j++)
        sum += exp(logits[j] - largest);
    return log(sum) + largest - logits[label];
}

static void gradient_of(const double *logits, int64_t classes, int64_t label, double scale,
                        double *gradient)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < classes; j++)
        largest = logits[j] > largest ? logits[j] : largest;
    for (int64_t j = 0; j < classes; j++)
        sum += exp(logits[j] - largest);
    for (int64_t j = 0; j < classes; j++)
        gradient[j] =
            ignored(label, classes) ? 0 : scale * (exp(logits[j] - largest) / sum - (j == label));
}

/* Writes labels of any dtype. An eighth of them are no classes: negative, just past the last
 * class, or with a valid class only in the low word, as far as the dtype allows. */
static void random_labels(gpu_random *random, tsr_tensor *labels, int64_t classes, int64_t *out)
{
    const tsr_layout *layout = tsr_tensor_layout(labels);
    int64_t rows = tsr_layout_count(layout);
    double *values = doubles(rows);
    for (int64_t r = 0; r < rows; r++) {
        out[r] = gpu_random_between(random, 0, classes - 1);
        if (layout->dtype == TSR_U8 && out[r] > 255)
            out[r] = 255;
        if (gpu_random_between(random, 0, 7) == 0) {
            const int64_t wrong[] = {classes, -100, -1, ((int64_t)1 << 32) + out[r], INT32_MAX};
            int64_t label = wrong[gpu_random_between(random, 0, 4)];
            if ((double)label == gpu_rounded((double)label, layout->dtype))
                out[r] = label;
        }
        values[r] = (double)out[r];
    }
    gpu_put(labels, values);
    free(values);
}

typedef struct shape {
    int64_t rows, classes;
} shape;

/* PITCHED: rows of logits start at multiples of 8 elements. */
enum { WITH_LOSS = 1, WITH_GRADIENT = 2, IN_PLACE = 4, PITCHED = 8 };

/* `dtypes` are those of logits, loss and gradient. */
static void cross_entropy_case(gpu_random *random, shape s, const tsr_dtype *dtypes,
                               tsr_dtype label_dtype, int what)
{
    int64_t size[] = {s.rows, s.classes}, total = s.rows * s.classes;
    tsr_tensor *parents[4] = {NULL}, *loss = NULL, *gradient = NULL;
    tsr_tensor *logits = what & PITCHED ? gpu_pitched_view(dtypes[0], 2, size, &parents[0])
                                        : gpu_random_view(random, dtypes[0], 2, size, &parents[0]);
    tsr_tensor *labels = gpu_random_view(random, label_dtype, 1, size, &parents[1]);
    if (what & WITH_LOSS)
        loss = gpu_random_view(random, dtypes[1], 1, size, &parents[2]);
    if (what & WITH_GRADIENT)
        gradient =
            what & IN_PLACE ? logits : gpu_random_view(random, dtypes[2], 2, size, &parents[3]);
    tsr_dtype gradient_dtype = what & IN_PLACE ? dtypes[0] : dtypes[2];
    double *values = doubles(total), *got = doubles(total), *want = doubles(s.classes);
    int64_t *classes = malloc((size_t)(s.rows + 1) * sizeof *classes);
    ck_assert_ptr_nonnull(classes);
    for (int64_t i = 0; i < total; i++)
        values[i] = gpu_rounded(6 * gpu_random_unit(random), dtypes[0]);
    gpu_put(logits, values);
    random_labels(random, labels, s.classes, classes);
    float scale = 0.75f;

    GPU_OK(tsr_cross_entropy(queue, loss, gradient, logits, labels, scale));
    if (loss) {
        gpu_get(loss, got);
        for (int64_t r = 0; r < s.rows; r++) {
            double expected = loss_of(values + r * s.classes, s.classes, classes[r]);
            assert_close(got[r], expected, 4e-6 + 2 * storage_error(expected, dtypes[1]), "loss",
                         r);
            if (ignored(classes[r], s.classes))
                ck_assert_double_eq(got[r], 0);
        }
    }
    if (gradient) {
        gpu_get(gradient, got);
        for (int64_t r = 0; r < s.rows; r++) {
            gradient_of(values + r * s.classes, s.classes, classes[r], (double)scale, want);
            for (int64_t j = 0; j < s.classes; j++)
                assert_close(got[r * s.classes + j], want[j],
                             2e-6 * fabs(want[j]) + (j == classes[r] ? 2e-7 : 0) +
                                 2 * storage_error(want[j], gradient_dtype),
                             "gradient", r * s.classes + j);
        }
    }
    free(values);
    free(got);
    free(want);
    free(classes);
    tsr_tensor_destroy(&loss);
    if (gradient != logits)
        tsr_tensor_destroy(&gradient);
    tsr_tensor_destroy(&labels);
    tsr_tensor_destroy(&logits);
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&parents[i]);
}

static void random_cases(uint64_t seed, int count)
{
    static const tsr_dtype mixtures[3][3] = {
        {TSR_F32, TSR_F32, TSR_F32}, {TSR_F16, TSR_F32, TSR_F16}, {TSR_BF16, TSR_F16, TSR_F32}};
    static const tsr_dtype label_dtypes[] = {TSR_I32, TSR_I64, TSR_U32, TSR_U8};
    static const int wanted[] = {WITH_LOSS, WITH_GRADIENT, WITH_LOSS | WITH_GRADIENT,
                                 WITH_LOSS | WITH_GRADIENT | IN_PLACE};
    static const int64_t most[] = {16, 16, 250, 900};
    gpu_random random = {seed};
    for (int i = 0; i < count; i++) {
        shape s = {.rows = gpu_random_between(&random, 0, 40),
                   .classes =
                       gpu_random_between(&random, 1, most[gpu_random_between(&random, 0, 3)])};
        cross_entropy_case(&random, s, mixtures[gpu_random_between(&random, 0, 2)],
                           label_dtypes[i % 4], wanted[gpu_random_between(&random, 0, 3)]);
    }
}

START_TEST(random_views)
{
    random_cases(31, 80);
}
END_TEST

START_TEST(packed_float16)
{
    if (tsr_device_get_info(gpu)
            ->storage16) /* otherwise the test above has already used these kernels */
        random_cases(32, 24);
}
END_TEST

START_TEST(any_number_of_classes)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F32, TSR_F32};
    static const int64_t classes[] = {1, 2, 16, 17, 256, 257, 4096, 50257, 200001};
    gpu_random random = {33};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        cross_entropy_case(&random, (shape){3, classes[i]}, dtypes, TSR_I64,
                           WITH_LOSS | WITH_GRADIENT | IN_PLACE);
    cross_entropy_case(&random, (shape){20000, 10}, dtypes, TSR_U8, WITH_LOSS | WITH_GRADIENT);
    cross_entropy_case(&random, (shape){300, 70}, dtypes, TSR_U32, WITH_LOSS | WITH_GRADIENT);
}
END_TEST

/* Computes the loss and gradient of rows of three classes. */
static void three(int rows, const double *logits, const double *labels, double *loss,
                  double *gradient)
{
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){rows, 3});
    tsr_tensor *y = gpu_new(TSR_I32, 1, (int64_t[]){rows});
    tsr_tensor *out = gpu_new(TSR_F32, 1, (int64_t[]){rows});
    gpu_put(x, logits);
    gpu_put(y, labels);
    gpu_poison(out);
    GPU_OK(tsr_cross_entropy(queue, out, x, x, y, 1));
    gpu_get(out, loss);
    gpu_get(x, gradient);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&out);
}

START_TEST(extreme_values)
{
    double loss[2], gradient[6];
    three(1, (double[]){1e30, 0, -1e30}, (double[]){0}, loss, gradient);
    ck_assert_double_eq(loss[0], 0);
    for (int j = 0; j < 3; j++)
        ck_assert_double_eq(gradient[j], 0);

    three(1, (double[]){2e4, 0, 0}, (double[]){1}, loss, gradient);
    ck_assert_double_eq(loss[0], 2e4);
    ck_assert(gradient[0] == 1 && gradient[1] == -1 && gradient[2] == 0);

    three(1, (double[]){-INFINITY, 0, 0}, (double[]){0}, loss, gradient);
    ck_assert(loss[0] == INFINITY && gradient[0] == -1 && gradient[1] == 0.5);

    three(1, (double[]){-INFINITY, -INFINITY, -INFINITY}, (double[]){2}, loss, gradient);
    ck_assert(isnan(loss[0]) && isnan(gradient[0]) && isnan(gradient[2]));

    /* An ignored row (label -100) gives 0 for any values, and does not change other rows. */
    three(2, (double[]){NAN, INFINITY, -INFINITY, 1, 1, 1}, (double[]){-100, 1}, loss, gradient);
    ck_assert(loss[0] == 0 && gradient[0] == 0 && gradient[1] == 0 && gradient[2] == 0);
    assert_close(loss[1], log(3), 2e-7, "the row beside an ignored one", 1);
    assert_close(gradient[4], 1.0 / 3 - 1, 1e-7, "the row beside an ignored one", 4);

    three(2, (double[]){1, NAN, 2, 1, 1, 1}, (double[]){0, 1}, loss, gradient);
    ck_assert(isnan(loss[0]) && isnan(gradient[0]) && !isnan(loss[1]));
}
END_TEST

START_TEST(gradient_matches_finite_differences)
{
    enum { ROWS = 4, CLASSES = 19 };
    const double h = 1e-5;
    gpu_random random = {34};
    int64_t size[] = {ROWS, CLASSES};
    double x[ROWS][CLASSES], got[ROWS][CLASSES], label_values[ROWS] = {0, 18, 7, -100};
    tsr_tensor *logits = gpu_new(TSR_F32, 2, size), *labels = gpu_new(TSR_I64, 1, size);
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < CLASSES; j++)
            x[r][j] = gpu_rounded(3 * gpu_random_unit(&random), TSR_F32);
    gpu_put(logits, &x[0][0]);
    gpu_put(labels, label_values);
    GPU_OK(tsr_cross_entropy(queue, NULL, logits, logits, labels, 1.0f / ROWS));
    gpu_get(logits, &got[0][0]);
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < CLASSES; j++) {
            double kept = x[r][j];
            x[r][j] = kept + h;
            double up = loss_of(x[r], CLASSES, (int64_t)label_values[r]);
            x[r][j] = kept - h;
            double down = loss_of(x[r], CLASSES, (int64_t)label_values[r]);
            x[r][j] = kept;
            assert_close(got[r][j], (up - down) / (2 * h) / ROWS, 1e-6, "gradient",
                         r * CLASSES + j);
        }
    tsr_tensor_destroy(&logits);
    tsr_tensor_destroy(&labels);
}
END_TEST

START_TEST(runs_agree_bit_by_bit)
{
    enum { ROWS = 9, CLASSES = 777 };
    int64_t size[] = {ROWS, CLASSES};
    gpu_random random = {35};
    double *values = doubles(ROWS * CLASSES), label_values[ROWS];
    float loss[2][ROWS], gradient[2][ROWS * CLASSES];
    tsr_tensor *logits = gpu_new(TSR_F32, 2, size), *labels = gpu_new(TSR_U32, 1, size);
    tsr_tensor *out = gpu_new(TSR_F32, 1, size), *d = gpu_new(TSR_F32, 2, size);
    for (int i = 0; i < ROWS * CLASSES; i++)
        values[i] = 5 * gpu_random_unit(&random);
    for (int r = 0; r < ROWS; r++)
        label_values[r] = 80 * r;
    gpu_put(logits, values);
    gpu_put(labels, label_values);
    for (int run = 0; run < 2; run++) {
        gpu_poison(out);
        gpu_poison(d);
        GPU_OK(tsr_cross_entropy(queue, out, d, logits, labels, 1));
        GPU_OK(tsr_tensor_download(queue, out, loss[run], sizeof loss[run]));
        GPU_OK(tsr_tensor_download(queue, d, gradient[run], sizeof gradient[run]));
    }
    ck_assert_mem_eq(loss[0], loss[1], sizeof loss[0]);
    ck_assert_mem_eq(gradient[0], gradient[1], sizeof gradient[0]);
    free(values);
    tsr_tensor_destroy(&logits);
    tsr_tensor_destroy(&labels);
    tsr_tensor_destroy(&out);
    tsr_tensor_destroy(&d);
}
END_TEST

START_TEST(mistakes_are_named)
{
    tsr_tensor *logits = gpu_new(TSR_F32, 2, (int64_t[]){3, 4});
    tsr_tensor *labels = gpu_new(TSR_I32, 1, (int64_t[]){3});
    tsr_tensor *loss = gpu_new(TSR_F32, 1, (int64_t[]){3});
    tsr_tensor *gradient = gpu_new(TSR_F32, 2, (int64_t[]){3, 4});
    tsr_tensor *four = gpu_new(TSR_F32, 1, (int64_t[]){4});
    tsr_tensor *four_labels = gpu_new(TSR_I32, 1, (int64_t[]){4});
    tsr_tensor *turned = gpu_new(TSR_F32, 2, (int64_t[]){4, 3});
    tsr_tensor *no_classes = gpu_new(TSR_F32, 2, (int64_t[]){3, 0}), *row, *repeated, *column;
    tsr_tensor *big = gpu_new(TSR_F32, 2, (int64_t[]){4, 4}), *low, *high;
    GPU_OK(tsr_tensor_select(gradient, 0, 0, &row));
    GPU_OK(tsr_tensor_broadcast(row, 2, (int64_t[]){3, 4}, &repeated));
    GPU_OK(tsr_tensor_select(logits, 1, 0, &column));
    GPU_OK(tsr_tensor_slice(big, 0, 0, 3, 1, &low));
    GPU_OK(tsr_tensor_slice(big, 0, 1, 4, 1, &high));

#define FAILS(words, ...)                                                                          \
    GPU_FAILS(tsr_cross_entropy(queue, __VA_ARGS__, 1), TSR_ERR_INVALID, "cross_entropy: " words)
    FAILS("loss and dlogits are both NULL", NULL, NULL, logits, labels);
    FAILS("logits is NULL", loss, NULL, NULL, labels);
    FAILS("labels is NULL", loss, NULL, logits, NULL);
    FAILS("logits is i32", loss, NULL, labels, labels);
    FAILS("labels are f32, not i32, i64, u32 or u8", loss, NULL, logits, loss);
    FAILS("logits are [3], not [rows,classes]", loss, NULL, loss, labels);
    FAILS("logits [3,0] have no classes", loss, NULL, no_classes, labels);
    FAILS("labels are [4]; logits [3,4] need one per row", loss, NULL, logits, four_labels);
    FAILS("loss is i32", labels, NULL, logits, labels);
    FAILS("loss is [4]; logits [3,4] need one per row", four, NULL, logits, labels);
    FAILS("dlogits is i32", NULL, labels, logits, labels);
    FAILS("dlogits is [4,3], logits is [3,4]", NULL, turned, logits, labels);
    FAILS("loss [3] overlaps logits [3,4]", column, NULL, logits, labels);
    FAILS("dlogits [3,4] overlaps logits [3,4]", NULL, low, high, labels);
    FAILS("loss [3] overlaps dlogits [3,4]", column, logits, gradient, labels);
    FAILS("dlogits is a view [3,4] that names an element more than once", NULL, repeated, logits,
          labels);
#undef FAILS
    GPU_FAILS(tsr_cross_entropy(NULL, loss, NULL, logits, labels, 1), TSR_ERR_INVALID,
              "cross_entropy: stream is NULL");

    tsr_tensor *all[] = {row,  repeated, column,      low,    high,       logits, labels,
                         loss, four,     four_labels, turned, no_classes, big,    gradient};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

START_TEST(no_rows_do_nothing)
{
    tsr_tensor *logits = gpu_new(TSR_F32, 2, (int64_t[]){0, 4});
    tsr_tensor *labels = gpu_new(TSR_U8, 1, (int64_t[]){0});
    tsr_tensor *loss = gpu_new(TSR_F32, 1, (int64_t[]){0});
    GPU_OK(tsr_cross_entropy(queue, loss, logits, logits, labels, 1));
    GPU_OK(tsr_stream_wait(queue));
    tsr_tensor_destroy(&logits);
    tsr_tensor_destroy(&labels);
    tsr_tensor_destroy(&loss);
}
END_TEST

/* On GPUs, rows that start at multiples of four elements are loaded as vectors, whatever their
 * length is; NaN follows them. */
START_TEST(rows_with_gaps)
{
    static const tsr_dtype dtypes[][3] = {{TSR_F32, TSR_F32, TSR_F32}, {TSR_F16, TSR_F32, TSR_F16}};
    static const int64_t classes[] = {1, 2, 65, 259, 50257};
    gpu_random random = {36};
    for (size_t i = 0; i < 2 * sizeof classes / sizeof *classes; i++)
        cross_entropy_case(&random, (shape){i < 8 ? 40 : 2, classes[i / 2]}, dtypes[i % 2], TSR_I32,
                           WITH_LOSS | WITH_GRADIENT | IN_PLACE | PITCHED);
}
END_TEST

TESTS(cross_entropy)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, random_views);
    tcase_add_test(tests, any_number_of_classes);
    tcase_add_test(tests, extreme_values);
    tcase_add_test(tests, gradient_matches_finite_differences);
    tcase_add_test(tests, runs_agree_bit_by_bit);
    tcase_add_test(tests, mistakes_are_named);
    tcase_add_test(tests, no_rows_do_nothing);
}

TESTS(cross_entropy_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_test(tests, rows_with_gaps);
}

TESTS(cross_entropy_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_test(tests, packed_float16);
}
