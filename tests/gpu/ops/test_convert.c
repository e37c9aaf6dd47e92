/* Compares conversions between all pairs of dtypes bit by bit, for all values of the small dtypes,
 * and for edge cases and random values of the others. */
#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"
#include "support/convert.h"
#include "support/gpu.h"

#define COUNT 65536

static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16, TSR_I32, TSR_U32, TSR_I64, TSR_U8};

/* Returns an f32 value close to one of f16 or bf16: such a value itself, the tie between two of
 * them, or a neighbour of either. */
static uint64_t f32_edge(gpu_random *random, int i)
{
    uint64_t bits = gpu_bits(gpu_value((uint64_t)i, i % 2 ? TSR_F16 : TSR_BF16), TSR_F32);
    uint64_t half_step = i % 2 ? 0x1000 : 0x8000;
    return (bits + (uint64_t)gpu_random_between(random, 0, 3) * half_step +
            (uint64_t)gpu_random_between(random, -1, 1)) &
           UINT32_MAX;
}

/* Returns the bits of an integer of any magnitude, including powers of two and their neighbours. */
static uint64_t integer_edge(gpu_random *random)
{
    int shift = (int)gpu_random_between(random, 0, 63);
    uint64_t bits = gpu_random_u64(random) >> shift;
    if (gpu_random_between(random, 0, 2) == 0)
        bits = (UINT64_C(1) << shift) + (uint64_t)gpu_random_between(random, -2, 2);
    /* Long runs of zeros give ties when the number is rounded to a float. */
    if (gpu_random_between(random, 0, 2) == 0)
        bits = (bits >> 8 << 8) | UINT64_C(0x80) << gpu_random_between(random, 0, 50);
    return gpu_random_between(random, 0, 1) ? bits : 0 - bits;
}

static uint64_t pattern(gpu_random *random, tsr_dtype dtype, int i)
{
    if (tsr_dtype_size(dtype) <= 2)
        return (uint64_t)i; /* dtypes of up to 16 bits: all values */
    if (dtype != TSR_F32)
        return integer_edge(random);
    switch (i % 4) {
    case 0: /* numbers beyond the range of integers */
        return gpu_bits((double)(int64_t)integer_edge(random), TSR_F32) + (uint64_t)(i / 4 % 3) - 1;
    case 1:
        return gpu_random_u64(random) & UINT32_MAX;
    }
    return f32_edge(random, i);
}

static void check_pair(const void *data, tsr_dtype from, tsr_dtype to)
{
    int64_t count = COUNT;
    tsr_tensor *src = gpu_new(from, 1, &count), *dst = gpu_new(to, 1, &count);
    uint64_t size_bytes = COUNT * tsr_dtype_size(to);
    unsigned char *got = malloc(size_bytes);
    ck_assert_ptr_nonnull(got);
    gpu_poison(dst);
    GPU_OK(tsr_tensor_upload(queue, src, data, COUNT * tsr_dtype_size(from)));
    GPU_OK(tsr_copy(queue, dst, src));
    GPU_OK(tsr_tensor_download(queue, dst, got, size_bytes));
    for (int64_t i = 0; i < COUNT; i++) {
        uint64_t bits = gpu_load_bits(data, i, from), out = gpu_load_bits(got, i, to);
        uint64_t want = convert_bits(bits, from, to);
        if (out != want && !(is_nan_bits(out, to) && is_nan_bits(want, to)))
            ck_abort_msg("%s %#llx to %s gives %#llx instead of %#llx", tsr_dtype_name(from),
                         (unsigned long long)bits, tsr_dtype_name(to), (unsigned long long)out,
                         (unsigned long long)want);
    }
    free(got);
    tsr_tensor_destroy(&dst);
    tsr_tensor_destroy(&src);
}

START_TEST(to_every_other_dtype)
{
    tsr_dtype from = dtypes[_i];
    gpu_random random = {(uint64_t)_i + 1};
    unsigned char *data = malloc(COUNT * tsr_dtype_size(from));
    ck_assert_ptr_nonnull(data);
    for (int i = 0; i < COUNT; i++)
        gpu_store_bits(data, i, from, pattern(&random, from, i));
    for (int t = 0; t < 7; t++)
        if (dtypes[t] != from)
            check_pair(data, from, dtypes[t]);
    free(data);
}
END_TEST

static const double values[] = {
    0,        -0.0,      1,    -1,       0.1,           65504,
    65519.99, 65520,     1e-8, -5.97e-8, 2.98e-8,       3e-41,
    1e39,     -1e39,     300,  -300,     2.5,           -2.5,
    255.99,   4e9,       5e9,  -3e9,     1e19,          -1e19,
    INFINITY, -INFINITY, NAN,  7e-46,    1.00048828125, 1.00048828125000022};

/* tsr_fill rounds its double to the dtype only once, and fills views of any strides. */
START_TEST(fills)
{
    gpu_random random = {9};
    for (int d = 0; d < 7; d++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            int64_t shape[] = {gpu_random_between(&random, 1, 5),
                               gpu_random_between(&random, 1, 9)};
            tsr_tensor *parent, *view = gpu_random_view(&random, dtypes[d], 2, shape, &parent);
            const tsr_layout *layout = tsr_tensor_layout(view), *whole = tsr_tensor_layout(parent);
            int64_t total = tsr_layout_count(whole);
            uint64_t size_bytes = (uint64_t)total * tsr_dtype_size(dtypes[d]);
            unsigned char *expected = malloc(size_bytes), *got = malloc(size_bytes);
            ck_assert_ptr_nonnull(expected);
            ck_assert_ptr_nonnull(got);
            memset(expected, 0xff, size_bytes);
            for (int64_t i = 0; i < shape[0] * shape[1]; i++)
                gpu_store_bits(expected,
                               layout->offset + i / shape[1] * layout->strides[0] +
                                   i % shape[1] * layout->strides[1],
                               dtypes[d], gpu_bits(values[v], dtypes[d]));
            GPU_OK(tsr_fill(queue, view, values[v]));
            GPU_OK(tsr_tensor_download(queue, parent, got, size_bytes));
            for (int64_t i = 0; i < total; i++)
                if (gpu_load_bits(got, i, dtypes[d]) != gpu_load_bits(expected, i, dtypes[d]))
                    ck_abort_msg("%s filled with %g: element %lld is %#llx instead of %#llx",
                                 tsr_dtype_name(dtypes[d]), values[v], (long long)i,
                                 (unsigned long long)gpu_load_bits(got, i, dtypes[d]),
                                 (unsigned long long)gpu_load_bits(expected, i, dtypes[d]));
            free(expected);
            free(got);
            tsr_tensor_destroy(&view);
            tsr_tensor_destroy(&parent);
        }
}
END_TEST

/* Fills columns `first` to COLUMNS - `last` of a matrix of more than 1 MiB. GPUs store 16 bytes
 * at once where the rows' addresses allow it. */
START_TEST(fills_large_matrices)
{
    enum { ROWS = 3, COLUMNS = 400016 };
    static const tsr_dtype large[] = {TSR_U8, TSR_BF16, TSR_F32, TSR_I64};
    static const int64_t ends[][2] = {{0, 0}, {16, 16}, {1, 0}};
    const tsr_dtype dtype = large[_i];
    const uint64_t size_bytes = (uint64_t)ROWS * COLUMNS * tsr_dtype_size(dtype);
    unsigned char *got = malloc(size_bytes);
    ck_assert_ptr_nonnull(got);
    for (int e = 0; e < 3; e++) {
        tsr_tensor *parent = gpu_new(dtype, 2, (int64_t[]){ROWS, COLUMNS}), *view;
        memset(got, 0x5a, size_bytes);
        GPU_OK(tsr_tensor_upload(queue, parent, got, size_bytes));
        GPU_OK(tsr_tensor_slice(parent, 1, ends[e][0], COLUMNS - ends[e][1], 1, &view));
        GPU_OK(tsr_fill(queue, view, 3));
        GPU_OK(tsr_tensor_download(queue, parent, got, size_bytes));
        const uint64_t untouched = UINT64_C(0x5a5a5a5a5a5a5a5a) >> (64 - 8 * tsr_dtype_size(dtype));
        for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
            bool inside = i % COLUMNS >= ends[e][0] && i % COLUMNS < COLUMNS - ends[e][1];
            ck_assert(gpu_load_bits(got, i, dtype) == (inside ? gpu_bits(3, dtype) : untouched));
        }
        tsr_tensor_destroy(&view);
        tsr_tensor_destroy(&parent);
    }
    free(got);
}
END_TEST

START_TEST(fill_refuses)
{
    int64_t one[] = {1}, many[] = {4}, none[] = {0};
    tsr_tensor *x = gpu_new(TSR_F32, 1, one), *wide, *empty = gpu_new(TSR_F32, 1, none);
    GPU_OK(tsr_tensor_broadcast(x, 1, many, &wide));
    GPU_FAILS(tsr_fill(NULL, x, 1), TSR_ERR_INVALID, "fill: stream is NULL");
    GPU_FAILS(tsr_fill(queue, NULL, 1), TSR_ERR_INVALID, "fill: dst is NULL");
    GPU_FAILS(tsr_fill(queue, wide, 1), TSR_ERR_INVALID,
              "fill: dst is a view [4] that names an element more than once");
    GPU_OK(tsr_fill(queue, empty, 1));
    tsr_tensor_destroy(&empty);
    tsr_tensor_destroy(&wide);
    tsr_tensor_destroy(&x);
}
END_TEST

TESTS(convert)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, to_every_other_dtype, 0, 7);
    tcase_add_test(tests, fills);
    tcase_add_loop_test(tests, fills_large_matrices, 0, 4);
    tcase_add_test(tests, fill_refuses);
}

TESTS(convert_by_device)
{
    tcase_add_checked_fixture(tests, gpu_setup_by_device, gpu_teardown);
    tcase_add_loop_test(tests, to_every_other_dtype, 0, 7);
}
