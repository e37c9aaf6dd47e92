/* The kernels for reductions on Mesa's CPU driver give the same bits as the general kernels, which
 * other tests compare with the host. Compares y's complete buffer, for sizes around all limits of
 * these kernels. On other drivers both runs use the general kernels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cpu_drivers/hooks.h"
#include "gpu/device/device.h"
#include "shaders/params/reduce.h"
#include "support/check_main.h"
#include "support/gpu.h"

/* x is [planes, rows, columns] from element `offset` on, with gaps of `gap` elements after each row
 * and plane. y has the dimensions other than `dim`, with gaps, too. */
typedef struct shape {
    int64_t planes, rows, columns;
    int dim;
    int64_t gap, offset;
} shape;

typedef enum value_kind { VALUES_RANDOM, VALUES_MINUS_ZERO, VALUES_FEW } value_kind;

#define ARGMAX ((tsr_reduction)-1)

typedef struct call {
    tsr_dtype x, y;
    tsr_reduction how;
    bool accumulate;
    value_kind values;
} call;

static tsr_tensor *view_of(tsr_tensor *buffer, int ndim, const int64_t *sizes, int64_t gap,
                           int64_t offset)
{
    tsr_layout layout = *tsr_tensor_layout(buffer);
    tsr_tensor *view;
    int64_t stride = 1;

    layout.ndim = ndim;
    layout.offset = offset;
    for (int d = ndim - 1; d >= 0; d--) {
        layout.shape[d] = sizes[d];
        layout.strides[d] = stride;
        stride = stride * sizes[d] + gap;
    }
    GPU_OK(tsr_tensor_view(buffer, &layout, &view));
    return view;
}

static double any_value(gpu_random *random, value_kind values)
{
    switch (values) {
    case VALUES_MINUS_ZERO:
        return -0.0;
    case VALUES_FEW: /* values that are often equal, zeros of both signs, and sometimes a NaN */
        if (gpu_random_between(random, 0, 1000) == 0)
            return NAN;
        return copysign((double)gpu_random_between(random, 0, 2), gpu_random_unit(random) - 0.5);
    default:
        if (gpu_random_between(random, 0, 30000) == 0)
            return INFINITY;
        return gpu_random_unit(random) * exp2((double)gpu_random_between(random, -12, 4));
    }
}

/* Makes `count` random elements: the buffer of a view. */
static unsigned char *contents(gpu_random *random, tsr_dtype dtype, int64_t count,
                               value_kind values)
{
    unsigned char *data = malloc((size_t)count * tsr_dtype_size(dtype));

    ck_assert_ptr_nonnull(data);
    if (dtype == TSR_I32)
        memset(data, 0xa5, (size_t)count * tsr_dtype_size(dtype));
    else
        for (int64_t i = 0; i < count; i++)
            gpu_store_bits(data, i, dtype, gpu_bits(any_value(random, values), dtype));
    return data;
}

static void check(shape s, call c)
{
    gpu_random random = {29};
    const int64_t sizes[3] = {s.planes, s.rows, s.columns};
    const int64_t y_sizes[2] = {sizes[s.dim == 0], sizes[s.dim == 2 ? 1 : 2]};
    int64_t x_count = s.offset + s.planes * (s.rows * (s.columns + s.gap) + s.gap) + 5;
    int64_t y_count = s.offset + y_sizes[0] * (y_sizes[1] + s.gap) + 5;
    tsr_tensor *x = gpu_new(c.x, 1, &x_count), *y = gpu_new(c.y, 1, &y_count);
    tsr_tensor *from = view_of(x, 3, sizes, s.gap, s.offset);
    tsr_tensor *to = view_of(y, 2, y_sizes, s.gap, s.offset);
    unsigned char *data = contents(&random, c.x, x_count, c.values);
    unsigned char *start = contents(&random, c.y, y_count, c.values), *got[2];
    uint64_t y_bytes = (uint64_t)y_count * tsr_dtype_size(c.y);
    tsr__device_class own = gpu->traits.device_class;

    GPU_OK(tsr_tensor_upload(queue, x, data, (uint64_t)x_count * tsr_dtype_size(c.x)));
    for (int pass = 0; pass < 2; pass++) {
        GPU_OK(tsr_tensor_upload(queue, y, start, y_bytes));
        tsr__device_treat_as(gpu, pass == 0 ? own : TSR__CLASS_CPU);
        tsr_status status = c.how == ARGMAX
                                ? tsr_argmax(queue, to, from, s.dim)
                                : tsr_reduce(queue, to, from, s.dim, c.how, c.accumulate);
        tsr__device_treat_as(gpu, own);
        GPU_OK(status);
        got[pass] = malloc(y_bytes);
        ck_assert_ptr_nonnull(got[pass]);
        GPU_OK(tsr_tensor_download(queue, y, got[pass], y_bytes));
    }
    ck_assert(memcmp(got[1], start, y_bytes) != 0 || c.values == VALUES_MINUS_ZERO);
    for (int64_t i = 0; i < y_count; i++) {
        uint64_t a = gpu_load_bits(got[0], i, c.y), b = gpu_load_bits(got[1], i, c.y);
        if (a != b && (c.y == TSR_I32 || !isnan(gpu_value(a, c.y)) || !isnan(gpu_value(b, c.y))))
            ck_abort_msg("[%lld,%lld,%lld] over %d, element %lld: %#llx instead of %#llx",
                         (long long)s.planes, (long long)s.rows, (long long)s.columns, s.dim,
                         (long long)i, (unsigned long long)a, (unsigned long long)b);
    }
    free(got[0]);
    free(got[1]);
    free(data);
    free(start);
    tsr_tensor_destroy(&from);
    tsr_tensor_destroy(&to);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}

static const call sum = {TSR_F32, TSR_F32, TSR_REDUCE_SUM, false, VALUES_RANDOM};

/* Lengths around multiples of what the tree of lanes adds at once, of what a subgroup reads at
 * once, and of the chunks that rows are divided into. */
static const int64_t lengths[] = {32, 33, 128, 250, 256, 1000, 1024};

START_TEST(row_lengths)
{
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check((shape){1, 20000 / lengths[i] + 1, lengths[i], 2, 0, 0}, sum);
}
END_TEST

START_TEST(column_lengths)
{
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check((shape){1, lengths[i], 20000 / lengths[i] + 1, 1, 0, 0}, sum);
}
END_TEST

/* Rows and columns so long that they are divided into chunks of elements, whose results are
 * reduced again. The last chunk is complete or not. */
START_TEST(chunks)
{
    check((shape){1, 1, 70000, 2, 0, 0}, sum);
    check((shape){1, 3, 9000, 2, 0, 0}, sum);
    check((shape){1, 2100, 1100, 2, 0, 0}, sum);
    check((shape){1, 9000, 9, 1, 0, 0}, sum);
    check((shape){1, 1100, 2100, 1, 0, 0}, sum);
    check((shape){1, 70000, 8, 1, 0, 0}, sum);
}
END_TEST

/* Numbers of columns around multiples of what a subgroup and a workgroup reduce at once. */
START_TEST(widths)
{
    for (int64_t columns = 7; columns < 35; columns++)
        check((shape){10, 250, columns, 1, 0, 0}, sum);
    check((shape){1, 250, 127, 1, 0, 0}, sum);
    check((shape){1, 250, 128, 1, 0, 0}, sum);
    check((shape){1, 250, 129, 1, 0, 0}, sum);
}
END_TEST

START_TEST(dtypes)
{
    static const tsr_dtype all[][2] = {
        {TSR_F32, TSR_F16}, {TSR_F16, TSR_F16}, {TSR_BF16, TSR_F32}, {TSR_BF16, TSR_BF16}};
    call c = {all[_i][0], all[_i][1], TSR_REDUCE_MEAN, false, VALUES_RANDOM};

    for (int64_t offset = 0; offset < 2; offset++) {
        c.accumulate = false;
        check((shape){1, 90, 250, 2, 0, offset}, c);
        check((shape){1, 250, 90, 1, 1, offset}, c);
        c.accumulate = true;
        check((shape){1, 90, 250, 2, 3, offset}, c);
        check((shape){1, 250, 90, 1, 0, offset}, c);
    }
}
END_TEST

/* Three dimensions, with the sum along each of them. */
START_TEST(planes)
{
    for (int dim = 0; dim < 3; dim++)
        for (int64_t gap = 0; gap < 2; gap++) {
            check((shape){40, 50, 60, dim, gap, 0}, sum);
            check((shape){3, 250, 41, dim, gap, 1}, sum);
            check((shape){70, 3, 250, dim, gap, 1}, sum);
            check((shape){250, 33, 34, dim, gap, 0}, sum);
        }
    check((shape){5, 2100, 40, 1, 2, 0}, sum);
    check((shape){2, 9, 2100, 2, 2, 0}, sum);
}
END_TEST

/* Sums of -0 are 0, because they start with the sum of no elements, which is 0. */
START_TEST(zeros)
{
    call c = sum;

    c.values = VALUES_MINUS_ZERO;
    check((shape){1, 90, 256, 2, 0, 0}, c);
    check((shape){1, 256, 90, 1, 0, 0}, c);
    check((shape){1, 90, 250, 2, 0, 0}, c);
    check((shape){1, 250, 90, 1, 0, 0}, c);
}
END_TEST

/* Maxima and minima of equal elements, of zeros of both signs, and of NaN, along rows and
 * columns. */
START_TEST(largest_and_smallest)
{
    static const tsr_reduction how[] = {TSR_REDUCE_MAX, TSR_REDUCE_MIN, ARGMAX};
    static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};
    tsr_dtype dtype = floats[_i / 3];
    call c = {dtype, how[_i % 3] == ARGMAX ? TSR_I32 : dtype, how[_i % 3], false, VALUES_FEW};

    static const int64_t some[] = {33, 256};

    for (int i = 0; i < 2; i++) {
        int64_t length = some[i];
        check((shape){1, 20000 / length + 1, length, 2, 0, 0}, c);
        check((shape){2, length, 10000 / length + 9, 1, length % 2, 1}, c);
    }
    check((shape){2, 40, 1100, 2, 3, 1}, c);
    c.values = VALUES_RANDOM;
    check((shape){1, 1, 70000, 2, 0, 0}, c);
    check((shape){70, 3, 250, 2, 1, 0}, c);
}
END_TEST

/* Checks for which reductions these kernels are chosen. If they never were, the tests above
 * would compare the general kernels with themselves. */
static bool suits_as(uint32_t kind, bool columns, tsr_dtype dtype, uint32_t jobs, uint32_t count,
                     uint64_t step)
{
    uint32_t size = (uint32_t)tsr_dtype_size(dtype);
    struct tsr_reduce_params params = {
        .step = step * size, .count = count, .jobs = jobs, .ndim = 1, .shape = {jobs, 1, 1, 1}};
    tsr__reduction s = {
        .device = gpu, .kind = kind, .x_dtype = dtype, .y_dtype = TSR_F32, .params = &params};

    params.x_strides[0] = columns ? 1 : (uint32_t)step * count;
    return columns ? tsr__cpu_reduce_columns_suit(&s) : tsr__cpu_reduce_rows_suit(&s);
}

static bool suits(bool columns, tsr_dtype dtype, uint32_t jobs, uint32_t count, uint64_t step)
{
    bool same = suits_as(TSR_REDUCE_KIND_SUM, columns, dtype, jobs, count, step);

    ck_assert_int_eq(suits_as(TSR_REDUCE_KIND_MAX, columns, dtype, jobs, count, step), same);
    ck_assert_int_eq(suits_as(TSR_REDUCE_KIND_ARGMAX, columns, dtype, jobs, count, step),
                     same && !columns);
    return same;
}

START_TEST(borders)
{
    bool here = gpu->traits.device_class == TSR__CLASS_LAVAPIPE;
    bool narrow = here && gpu->storage == TSR__STORAGE_S16;

    ck_assert_int_eq(suits(false, TSR_F32, 256, 64, 1), here);
    ck_assert_int_eq(suits(false, TSR_BF16, 16, 1024, 1), narrow);
    ck_assert_int_eq(suits(false, TSR_F32, 512, 33, 1), here);
    ck_assert(!suits(false, TSR_F32, 512, 32, 1));
    ck_assert(!suits(false, TSR_F32, 512, 1025, 1));
    ck_assert(!suits(false, TSR_F32, 255, 64, 1));
    ck_assert(!suits(false, TSR_F32, 256, 64, 2));
    ck_assert_int_eq(suits(true, TSR_F32, 256, 64, 256), here);
    ck_assert_int_eq(suits(true, TSR_F16, 16, 1024, 16), narrow);
    ck_assert(!suits(true, TSR_F32, 255, 64, 256));
    ck_assert(!suits(true, TSR_F32, 3, 1024, 256));
}
END_TEST

static void add_all(TCase *tests)
{
    tcase_add_test(tests, row_lengths);
    tcase_add_test(tests, column_lengths);
    tcase_add_test(tests, chunks);
    tcase_add_test(tests, widths);
    tcase_add_loop_test(tests, dtypes, 0, 4);
    tcase_add_test(tests, planes);
    tcase_add_test(tests, zeros);
    tcase_add_test(tests, borders);
}

TESTS(reduction)
{
    tcase_add_checked_fixture(tests, gpu_setup_by_device, gpu_teardown);
    add_all(tests);
    tcase_add_loop_test(tests, largest_and_smallest, 0, 3);
}

TESTS(reduction_slow)
{
    tcase_add_checked_fixture(tests, gpu_setup_by_device, gpu_teardown);
    tcase_add_loop_test(tests, largest_and_smallest, 3, 9);
}

TESTS(reduction_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    add_all(tests);
    /* Three rounds are f32; the other dtypes use general kernels. */
    tcase_add_loop_test(tests, largest_and_smallest, 0, 3);
}
