/* Compares sums of squares of lists of tensors with double precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"
#include "support/gpu.h"

static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};

enum {
    TENSORS = 40,
};

typedef struct list {
    int count;
    tsr_tensor *x[TENSORS], *parents[TENSORS];
    double sum; /* of the squares of the elements */
} list;

static void add(list *l, gpu_random *random, tsr_dtype dtype, int ndim, const int64_t *shape,
                bool view)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    double *values = calloc((size_t)count + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = gpu_rounded(3 * gpu_random_unit(random), dtype);
        l->sum += values[i] * values[i];
    }
    tsr_tensor *x = view ? gpu_random_view(random, dtype, ndim, shape, &l->parents[l->count])
                         : gpu_new(dtype, ndim, shape);
    gpu_put(x, values);
    l->x[l->count++] = x;
    free(values);
}

static void drop(list *l)
{
    for (int i = 0; i < l->count; i++) {
        tsr_tensor_destroy(&l->x[i]);
        tsr_tensor_destroy(&l->parents[i]);
    }
}

static double sum_of(const list *l, float scale)
{
    tsr_tensor *y = gpu_new(TSR_F32, 0, NULL);
    double got;
    gpu_poison(y);
    GPU_OK(tsr_sum_squares(queue, y, (const tsr_tensor *const *)l->x, l->count, scale));
    gpu_get(y, &got);
    tsr_tensor_destroy(&y);
    return got;
}

static void check(const list *l)
{
    const double got = sum_of(l, 1), scaled = sum_of(l, 0.5f);
    ck_assert_msg(fabs(got - l->sum) <= 4e-7 * l->sum, "%d tensors: %.9g instead of %.9g", l->count,
                  got, l->sum);
    ck_assert_double_eq(scaled, got / 4);
}

START_TEST(random_lists)
{
    gpu_random random = {(uint64_t)_i};
    for (int n = 0; n < 12; n++) {
        list l = {0};
        const int count = (int)gpu_random_between(&random, 1, 20);
        for (int i = 0; i < count; i++) {
            int64_t shape[4];
            const int ndim = (int)gpu_random_between(&random, 0, 4);
            for (int d = 0; d < ndim; d++)
                shape[d] = gpu_random_between(&random, gpu_random_between(&random, 0, 20) > 0, 12);
            add(&l, &random, floats[gpu_random_between(&random, 0, 2)], ndim, shape, _i % 2 == 0);
        }
        check(&l);
        drop(&l);
    }
}
END_TEST

/* Tensors whose sizes are around multiples of the chunks over which kernels sum, more tensors
 * than one dispatch covers, and tensors of many chunks. */
START_TEST(sizes)
{
    static const int64_t lengths[] = {1,   2,   3,    4,    5,    255,      511,
                                      512, 513, 2047, 2048, 2050, 65 * 128, 300001};
    gpu_random random = {5};
    list all = {0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        list l = {0};
        add(&l, &random, floats[_i], 1, &lengths[i], false);
        check(&l);
        drop(&l);
        add(&all, &random, floats[_i], 1, &lengths[i], false);
    }
    check(&all);
    ck_assert_double_eq(sum_of(&all, 1), sum_of(&all, 1));
    drop(&all);
}
END_TEST

/* The bits of the sum must not depend on a tensor's address or strides. */
START_TEST(same_bits_anywhere)
{
    const int64_t shape[] = {70, 91}, wide[] = {70, 95}, flat = 70 * 91 + 1;
    static double values[70 * 91], padded[70 * 95], shifted[70 * 91 + 1];
    gpu_random random = {6};
    for (int i = 0; i < 70 * 91; i++) {
        values[i] = gpu_rounded(gpu_random_unit(&random), TSR_BF16);
        padded[i / 91 * 95 + i % 91 + 2] = shifted[i + 1] = values[i];
    }
    tsr_tensor *x = gpu_new(TSR_BF16, 2, shape), *w = gpu_new(TSR_BF16, 2, wide),
               *f = gpu_new(TSR_BF16, 1, &flat), *part, *tail;
    gpu_put(x, values);
    gpu_put(w, padded);
    gpu_put(f, shifted);
    GPU_OK(tsr_tensor_slice(w, 1, 2, 93, 1, &part));
    GPU_OK(tsr_tensor_slice(f, 0, 1, TSR_END, 1, &tail));
    const double want = sum_of(&(list){.count = 1, .x = {x}}, 1);
    ck_assert_double_eq(sum_of(&(list){.count = 1, .x = {part}}, 1), want);
    ck_assert_double_eq(sum_of(&(list){.count = 1, .x = {tail}}, 1), want);
    tsr_tensor *all[] = {tail, part, f, w, x};
    for (int i = 0; i < 5; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

/* The sum of no elements is 0, and NaN and infinity stay. With a power of two as scale, huge and
 * tiny squares stay in range. */
START_TEST(special_values)
{
    const int64_t two = 2, none = 0;
    tsr_tensor *x = gpu_new(TSR_F32, 1, &two), *empty = gpu_new(TSR_F32, 1, &none);
    list l = {.count = 2, .x = {x, empty}};
    ck_assert_double_eq(sum_of(&(list){0}, 1), 0);
    ck_assert_double_eq(sum_of(&(list){.count = 1, .x = {empty}}, 1), 0);
    gpu_put(x, (double[]){NAN, 1});
    ck_assert(isnan(sum_of(&l, 1)));
    gpu_put(x, (double[]){1, -INFINITY});
    ck_assert_double_eq(sum_of(&l, 1), INFINITY);
    gpu_put(x, (double[]){0x3p70, 0x4p70});
    ck_assert_double_eq(sum_of(&l, 1), INFINITY);
    ck_assert_double_eq(sum_of(&l, 0x1p-70f), 25);
    gpu_put(x, (double[]){0x3p-90, 0x4p-90});
    ck_assert_double_eq(sum_of(&l, 0x1p90f), 25);
    tsr_tensor_destroy(&empty);
    tsr_tensor_destroy(&x);
}
END_TEST

START_TEST(refuses)
{
    const int64_t two = 2, one = 1;
    tsr_tensor *y = gpu_new(TSR_F32, 1, &one), *x = gpu_new(TSR_F32, 1, &two),
               *i = gpu_new(TSR_I32, 1, &two), *half = gpu_new(TSR_F16, 1, &one);
    const tsr_tensor *good[] = {x, x}, *bad[] = {x, i}, *null[] = {x, NULL}, *own[] = {y};
    GPU_FAILS(tsr_sum_squares(NULL, y, good, 2, 1), TSR_ERR_INVALID, "sum_squares: stream is NULL");
    GPU_FAILS(tsr_sum_squares(queue, NULL, good, 2, 1), TSR_ERR_INVALID, "sum_squares: y is NULL");
    GPU_FAILS(tsr_sum_squares(queue, x, good, 2, 1), TSR_ERR_INVALID,
              "sum_squares: y is f32 [2]; one element of f32 is needed");
    GPU_FAILS(tsr_sum_squares(queue, half, good, 2, 1), TSR_ERR_INVALID,
              "sum_squares: y is f16 [1]; one element of f32 is needed");
    GPU_FAILS(tsr_sum_squares(queue, y, good, -1, 1), TSR_ERR_INVALID, "sum_squares: count is -1");
    GPU_FAILS(tsr_sum_squares(queue, y, NULL, 2, 1), TSR_ERR_INVALID,
              "sum_squares: count is 2, but x is NULL");
    GPU_FAILS(tsr_sum_squares(queue, y, null, 2, 1), TSR_ERR_INVALID, "sum_squares: x[1] is NULL");
    GPU_FAILS(tsr_sum_squares(queue, y, bad, 2, 1), TSR_ERR_INVALID,
              "sum_squares: x[1] is i32; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_sum_squares(queue, y, own, 1, 1), TSR_ERR_INVALID,
              "sum_squares: y [1] overlaps x[0] [1]");
    GPU_FAILS(tsr_sum_squares(queue, y, good, 2, NAN), TSR_ERR_INVALID,
              "sum_squares: scale is nan");
    tsr_tensor_destroy(&half);
    tsr_tensor_destroy(&i);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

TESTS(sum_squares)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, random_lists, 0, 4);
    tcase_add_loop_test(tests, sizes, 0, 3);
    tcase_add_test(tests, same_bits_anywhere);
    tcase_add_test(tests, special_values);
    tcase_add_test(tests, refuses);
}

TESTS(sum_squares_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_loop_test(tests, random_lists, 4, 6);
    tcase_add_loop_test(tests, sizes, 1, 3);
}
