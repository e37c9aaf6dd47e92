/* The kernels for rows without gaps, transposes and optimizers on Mesa's CPU driver give the same
 * bits as the general kernels, which other tests compare with the host. Compares complete buffers,
 * for sizes around all limits of these kernels. On other drivers both runs use the general
 * kernels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cpu_drivers/ops/vectors.h"
#include "gpu/device/device.h"
#include "gpu/ops/copy/copy.h"
#include "shaders/params/vectors.h"
#include "support/check_main.h"
#include "support/gpu.h"

#define TENSORS 5

/* A view: rows of `columns` elements, `pitch` apart, from element `offset` on. A pitch of 0 repeats
 * the row, and one column repeats the element. */
typedef struct place {
    int64_t rows, columns, pitch, offset;
} place;

typedef struct operand {
    tsr_dtype dtype;
    tsr_tensor *buffer, *view;
    unsigned char *start; /* the buffer's initial contents */
    uint64_t size_bytes;
} operand;

/* Fills x with random elements: floats of all magnitudes that stay finite in a few operations,
 * and some that are not finite; or integers of any bits. */
static void fill_random(gpu_random *random, operand *x, int64_t count)
{
    static const double odd[] = {0, -0.0, INFINITY, -INFINITY, 1e-6, -3e-8};

    for (int64_t i = 0; i < count; i++) {
        double value = gpu_random_unit(random) * exp2((double)gpu_random_between(random, -12, 4));
        if (gpu_random_between(random, 0, 60) == 0)
            value = odd[gpu_random_between(random, 0, 5)];
        uint64_t bits = x->dtype <= TSR_BF16 ? gpu_bits(value, x->dtype) : gpu_random_u64(random);
        gpu_store_bits(x->start, i, x->dtype, bits);
    }
}

static operand make(gpu_random *random, tsr_dtype dtype, place at)
{
    operand x = {.dtype = dtype};
    int64_t count = at.offset + at.columns + (at.pitch > 0 ? (at.rows - 1) * at.pitch : 0) + 5;
    tsr_layout layout;

    x.buffer = gpu_new(dtype, 1, &count);
    layout = *tsr_tensor_layout(x.buffer);
    layout.ndim = 2;
    layout.shape[0] = at.pitch > 0 ? at.rows : 1;
    layout.shape[1] = at.columns;
    layout.strides[0] = at.pitch;
    layout.strides[1] = 1;
    layout.offset = at.offset;
    GPU_OK(tsr_tensor_view(x.buffer, &layout, &x.view));
    x.size_bytes = (uint64_t)count * tsr_dtype_size(dtype);
    x.start = malloc(x.size_bytes + 8);
    ck_assert_ptr_nonnull(x.start);
    fill_random(random, &x, count);
    return x;
}

static void drop(operand *x)
{
    tsr_tensor_destroy(&x->view);
    tsr_tensor_destroy(&x->buffer);
    free(x->start);
}

static bool is_nan(uint64_t bits, tsr_dtype dtype)
{
    return tsr_dtype_size(dtype) < 8 && dtype <= TSR_BF16 && isnan(gpu_value(bits, dtype));
}

typedef tsr_status (*operation)(operand *x);

/* Runs the operation with the device's kernels and with the general ones, from the same contents,
 * and compares the results. */
static void compare(operand *x, int count, operation run, const char *name)
{
    tsr__device_class own = gpu->traits.device_class;
    unsigned char *got[TENSORS];

    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < count; i++)
            GPU_OK(tsr_tensor_upload(queue, x[i].buffer, x[i].start, x[i].size_bytes));
        tsr__device_treat_as(gpu, pass == 0 ? own : TSR__CLASS_CPU);
        tsr_status status = run(x);
        tsr__device_treat_as(gpu, own);
        GPU_OK(status);
        for (int i = 0; i < count; i++) {
            unsigned char *data = malloc(x[i].size_bytes + 8);
            ck_assert_ptr_nonnull(data);
            GPU_OK(tsr_tensor_download(queue, x[i].buffer, data, x[i].size_bytes));
            if (pass == 0) {
                got[i] = data;
                continue;
            }
            int64_t elements = (int64_t)(x[i].size_bytes / tsr_dtype_size(x[i].dtype));
            for (int64_t e = 0; e < elements; e++) {
                uint64_t a = gpu_load_bits(got[i], e, x[i].dtype);
                uint64_t b = gpu_load_bits(data, e, x[i].dtype);
                if (a != b && !(is_nan(a, x[i].dtype) && is_nan(b, x[i].dtype)))
                    ck_abort_msg("%s, tensor %d, element %lld: %#llx instead of %#llx", name, i,
                                 (long long)e, (unsigned long long)a, (unsigned long long)b);
            }
            free(data);
            free(got[i]);
        }
    }
}

/* Element-wise --------------------------------------------------------------------------------- */

static tsr_status run_add(operand *x)
{
    return tsr_binary(queue, x[0].view, x[1].view, x[2].view, TSR_BINARY_ADD);
}

static tsr_status run_sub(operand *x)
{
    return tsr_binary(queue, x[0].view, x[1].view, x[2].view, TSR_BINARY_SUB);
}

static tsr_status run_mul(operand *x)
{
    return tsr_binary(queue, x[0].view, x[1].view, x[2].view, TSR_BINARY_MUL);
}

static tsr_status run_scale(operand *x)
{
    return tsr_scale(queue, x[0].view, x[1].view, 1.5f, -0.25f);
}

static tsr_status run_axpy(operand *x)
{
    return tsr_axpy(queue, x[0].view, 0.75f, x[1].view);
}

static tsr_status run_gelu(operand *x)
{
    return tsr_activate(queue, x[0].view, x[1].view, NULL, TSR_ACT_GELU_ERF);
}

static tsr_status run_silu_grad(operand *x)
{
    return tsr_activate_grad(queue, x[0].view, x[1].view, x[2].view, TSR_ACT_SILU);
}

static tsr_status run_copy(operand *x)
{
    return tsr_copy(queue, x[0].view, x[1].view);
}

static void check(const char *name, operation run, const tsr_dtype *dtypes, place y, place a,
                  place b)
{
    gpu_random random = {17};
    operand x[3] = {make(&random, dtypes[0], y), make(&random, dtypes[1], a),
                    make(&random, dtypes[2], b)};

    compare(x, 3, run, name);
    for (int i = 0; i < 3; i++)
        drop(&x[i]);
}

static place line(int64_t count, int64_t offset)
{
    return (place){1, count, count, offset};
}

static const tsr_dtype f32s[] = {TSR_F32, TSR_F32, TSR_F32}, f16s[] = {TSR_F16, TSR_F16, TSR_F16},
                       bf16s[] = {TSR_BF16, TSR_BF16, TSR_BF16};

START_TEST(functions)
{
    static const struct {
        const char *name;
        operation run;
    } all[] = {{"sub", run_sub},   {"mul", run_mul},   {"scale", run_scale},
               {"axpy", run_axpy}, {"gelu", run_gelu}, {"silu_grad", run_silu_grad}};

    check(all[_i].name, all[_i].run, f32s, line(5003, 0), line(5003, 0), line(5003, 0));
    check(all[_i].name, all[_i].run, bf16s, line(5003, 0), line(5003, 0), line(5003, 0));
}
END_TEST

START_TEST(mixtures)
{
    static const tsr_dtype all[][3] = {{TSR_F16, TSR_F16, TSR_F16},
                                       {TSR_BF16, TSR_F32, TSR_BF16},
                                       {TSR_F32, TSR_BF16, TSR_F16},
                                       {TSR_F16, TSR_BF16, TSR_F32}};

    check("add", run_add, all[_i], line(4999, 0), line(4999, 0), line(4999, 0));
    check("add", run_add, all[_i], line(4999, 1), line(4999, 2), line(4999, 3));
}
END_TEST

/* Lengths around the shortest one for which these kernels are used, and around multiples of the
 * vectors, blocks and workgroups that compute a row. */
START_TEST(line_lengths)
{
    static const int64_t all[] = {0,    1,    15,   2047,  2048,  2049,  2050,  2111,
                                  2175, 2176, 2177, 16383, 16384, 16385, 262143};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check("add", run_add, f32s, line(all[i], 0), line(all[i], 0), line(all[i], 0));
        check("add", run_add, f16s, line(all[i], 0), line(all[i], 0), line(all[i], 0));
    }
}
END_TEST

/* Operands that start at all alignments: offsets of 0 to 3 elements. */
START_TEST(offsets)
{
    for (int64_t y = 0; y < 4; y++) {
        check("add", run_add, f32s, line(4601, y), line(4601, (y + 1) % 4), line(4601, 0));
        check("scale", run_scale, bf16s, line(4601, y), line(4601, (y * 3 + 2) % 4), line(1, 0));
    }
}
END_TEST

/* Row lengths around multiples of what a lane and a subgroup load at once, with gaps between
 * rows. One operand may be a row that all rows share (a bias) or a column that all columns
 * share. */
START_TEST(row_lengths)
{
    static const int64_t lengths[] = {3, 15, 16, 17, 31, 33, 64, 67, 100, 127, 128, 129, 300};

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int64_t n = lengths[i], m = 4500 / n + 1, even = n + 5 + n % 2;
        place gaps = {m, n, even, 2};
        check("add", run_add, f32s, gaps, gaps, (place){m, n, 0, 0});
        check("mul", run_mul, f32s, gaps, (place){m, 1, 1, 0}, gaps);
        check("copy", run_copy, f32s, gaps, (place){m, n, n, 1}, line(1, 0));
        check("copy", run_copy, bf16s, (place){m, n, n, 0}, (place){m, n, n + 3, 1}, line(1, 0));
    }
}
END_TEST

START_TEST(one_element_for_all)
{
    check("add", run_add, f16s, line(5000, 0), line(1, 3), line(5000, 0));
    check("add", run_add, bf16s, line(5000, 0), line(5000, 0), line(1, 1));
}
END_TEST

/* y is the same view as an input. A row whose length is no multiple of a block must not be
 * covered by overlapping blocks, because the second one would read results of the first. */
static tsr_status run_in_place(operand *x)
{
    tsr_status status = tsr_binary(queue, x[0].view, x[0].view, x[1].view, TSR_BINARY_ADD);
    return status ? status : tsr_binary(queue, x[0].view, x[1].view, x[0].view, TSR_BINARY_MUL);
}

START_TEST(in_place)
{
    check("in place", run_in_place, f32s, line(4161, 0), line(4161, 0), line(1, 0));
    check("in place", run_in_place, f16s, line(9001, 0), line(9001, 0), line(1, 0));
    check("in place", run_in_place, f32s, (place){71, 74, 80, 0}, (place){71, 74, 0, 0},
          line(1, 0));
}
END_TEST

START_TEST(conversions)
{
    static const tsr_dtype all[][3] = {{TSR_F16, TSR_F32, TSR_F32},  {TSR_F32, TSR_F16, TSR_F32},
                                       {TSR_BF16, TSR_F32, TSR_F32}, {TSR_F32, TSR_BF16, TSR_F32},
                                       {TSR_F16, TSR_BF16, TSR_F32}, {TSR_BF16, TSR_F16, TSR_F32}};

    check("convert", run_copy, all[_i], line(4999, 0), line(4999, 0), line(1, 0));
    check("convert", run_copy, all[_i], (place){90, 77, 80, 0}, (place){90, 77, 82, 2}, line(1, 0));
}
END_TEST

/* All 16-bit floats, including NaN with all payloads, widen to the same bits. */
START_TEST(every_float16)
{
    int64_t count = 65536;
    tsr__device_class own = gpu->traits.device_class;
    tsr_tensor *half = gpu_new(TSR_F16, 1, &count), *wide = gpu_new(TSR_F32, 1, &count);
    uint16_t *bits = malloc(65536 * sizeof *bits);
    uint32_t *got[2];

    ck_assert_ptr_nonnull(bits);
    for (int i = 0; i < 65536; i++)
        bits[i] = (uint16_t)i;
    GPU_OK(tsr_tensor_upload(queue, half, bits, 65536 * sizeof *bits));
    for (int pass = 0; pass < 2; pass++) {
        got[pass] = malloc(65536 * sizeof *got[pass]);
        ck_assert_ptr_nonnull(got[pass]);
        tsr__device_treat_as(gpu, pass == 0 ? own : TSR__CLASS_CPU);
        tsr_status status = tsr_copy(queue, wide, half);
        tsr__device_treat_as(gpu, own);
        GPU_OK(status);
        GPU_OK(tsr_tensor_download(queue, wide, got[pass], 65536 * sizeof *got[pass]));
    }
    ck_assert_mem_eq(got[0], got[1], 65536 * sizeof *got[0]);
    free(got[0]);
    free(got[1]);
    free(bits);
    tsr_tensor_destroy(&wide);
    tsr_tensor_destroy(&half);
}
END_TEST

/* Transposes ----------------------------------------------------------------------------------- */

/* Copies src [planes, columns, rows] to dst [planes, rows, columns], both with gaps. */
static tsr_status run_transpose(operand *x)
{
    tsr_tensor *turned = NULL;
    tsr_status status = tsr_tensor_transpose(x[1].view, -2, -1, &turned);
    if (status == TSR_OK)
        status = tsr_copy(queue, x[0].view, turned);
    tsr_tensor_destroy(&turned);
    return status;
}

static void reshape(operand *x, int64_t planes, int64_t rows, int64_t columns, int64_t pitch)
{
    tsr_layout layout = *tsr_tensor_layout(x->view);

    layout.ndim = 3;
    layout.shape[0] = planes;
    layout.shape[1] = rows;
    layout.shape[2] = columns;
    layout.strides[0] = rows * pitch + 4;
    layout.strides[1] = pitch;
    layout.strides[2] = 1;
    tsr_tensor_destroy(&x->view);
    GPU_OK(tsr_tensor_view(x->buffer, &layout, &x->view));
}

static void check_transpose(tsr_dtype y, tsr_dtype from, int64_t planes, int64_t rows,
                            int64_t columns, int64_t odd)
{
    gpu_random random = {5};
    int64_t y_pitch = columns + odd, x_pitch = rows + odd;
    operand x[2] = {make(&random, y, line(planes * (rows * y_pitch + 4), odd)),
                    make(&random, from, line(planes * (columns * x_pitch + 4), 2 * odd))};

    reshape(&x[0], planes, rows, columns, y_pitch);
    reshape(&x[1], planes, columns, rows, x_pitch);
    compare(x, 2, run_transpose, "transpose");
    drop(&x[0]);
    drop(&x[1]);
}

START_TEST(transposes)
{
    static const tsr_dtype all[] = {TSR_F32, TSR_BF16, TSR_I64, TSR_U8};
    static const int64_t shapes[][2] = {{64, 64}, {256, 16}, {15, 300}, {300, 15},
                                        {67, 71}, {33, 130}, {130, 33}, {9, 500}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int64_t odd = 0; odd < 2; odd++)
            check_transpose(all[_i], all[_i], 1, shapes[i][0], shapes[i][1], odd);
    check_transpose(all[_i], all[_i], 3, 40, 50, 0);
    check_transpose(all[_i], all[_i], 17, 40, 50, 0); /* more planes than these kernels take */
}
END_TEST

START_TEST(transposes_that_convert)
{
    static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};

    for (int i = 0; i < 9; i++)
        check_transpose(floats[i % 3], floats[i / 3], 1 + i % 2, 75, 63 + i, i % 2);
}
END_TEST

/* Optimizers ----------------------------------------------------------------------------------- */

static tsr_sgd_params sgd;

static tsr_status run_sgd(operand *x)
{
    bool master = x[0].dtype != TSR_F32;
    return tsr_sgd_step(queue, x[0].view, x[1].view, sgd.momentum > 0 ? x[2].view : NULL,
                        master ? x[3].view : NULL, &sgd);
}

static tsr_status run_adamw(operand *x)
{
    bool master = x[0].dtype != TSR_F32;
    return tsr_adamw_step(
        queue, x[0].view, x[1].view, x[2].view, x[4].view, master ? x[3].view : NULL,
        tsr_adamw_params(.learning_rate = 0.01f, .weight_decay = 0.1f, .step = 3));
}

static void check_optimizer(operation run, tsr_dtype parameter, tsr_dtype gradient, int64_t count,
                            int64_t offset)
{
    gpu_random random = {23};
    operand x[TENSORS];

    for (int i = 0; i < TENSORS; i++)
        x[i] = make(&random, i == 0 ? parameter : i == 1 ? gradient : TSR_F32, line(count, offset));
    for (uint64_t i = 0; i < x[4].size_bytes / 4; i++) /* averages of squares are not negative */
        x[4].start[4 * i + 3] &= 0x7f;
    compare(x, TENSORS, run, "optimizer");
    for (int i = 0; i < TENSORS; i++)
        drop(&x[i]);
}

START_TEST(optimizers)
{
    static const tsr_sgd_params all[] = {
        {.learning_rate = 0.1f, .weight_decay = 0.01f},
        {.learning_rate = 0.1f, .momentum = 0.9f, .first_step = true},
        {.learning_rate = 0.1f, .momentum = 0.9f, .nesterov = true, .weight_decay = 0.01f}};
    static const int64_t counts[] = {2047, 2048, 2051, 20001};

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        check_optimizer(run_adamw, TSR_F32, TSR_F32, counts[c], 0);
        check_optimizer(run_adamw, TSR_F16, TSR_F16, counts[c], 0);
    }
    check_optimizer(run_adamw, TSR_F32, TSR_BF16, 5000, 0);
    check_optimizer(run_adamw, TSR_BF16, TSR_F32, 5000, 0);
    check_optimizer(run_adamw, TSR_F32, TSR_F32, 5000, 1);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sgd = all[i];
        sgd.struct_size = sizeof sgd;
        check_optimizer(run_sgd, TSR_F32, TSR_F32, 4999, 0);
        check_optimizer(run_sgd, TSR_BF16, TSR_F32, 4999, 0);
    }
}
END_TEST

/* Checks for which shapes these kernels are chosen. If they never were, the tests above would
 * compare the general kernels with themselves. */
static bool cut(tsr_dtype dtype, int64_t rows, int64_t columns, int64_t pitch, tsr__piece *rest)
{
    gpu_random random = {1};
    operand x = make(&random, dtype, (place){rows, columns, pitch, 0});
    tsr__vectors work = {.function = TSR_VECTORS_MOVE, .count = 2, .tensor = {x.view, x.view}};
    tsr__pieces walk;
    tsr__piece piece, vectors;
    const tsr_layout *layout = tsr_tensor_layout(x.view);

    tsr__pieces_init(&walk, 2, (const tsr_layout *[]){layout, layout}, 0);
    ck_assert(tsr__pieces_next(&walk, &piece));
    bool result = tsr__vectors_cut(&work, &piece, &vectors, rest);
    ck_assert(!result || vectors.count + rest->count == piece.count);
    drop(&x);
    return result;
}

START_TEST(borders)
{
    bool here = gpu->traits.device_class == TSR__CLASS_LAVAPIPE;
    tsr__piece rest;

    ck_assert_int_eq(cut(TSR_F32, 1, 2048, 2048, &rest), here);
    ck_assert(!cut(TSR_F32, 1, 2047, 2047, &rest));
    ck_assert_int_eq(cut(TSR_F32, 1, 2049, 2049, &rest), here);
    ck_assert(!here || rest.count == 1);
    ck_assert_int_eq(cut(TSR_BF16, 1, 2051, 2051, &rest), here);
    ck_assert(!here || rest.count == 3);
    ck_assert_int_eq(cut(TSR_F32, 300, 16, 18, &rest), here && gpu->info.subgroup_size <= 8);
    ck_assert(!cut(TSR_F32, 600, 7, 8, &rest));
    ck_assert(!cut(TSR_U8, 100, 100, 101, &rest));
}
END_TEST

static void add_all(TCase *tests)
{
    tcase_add_loop_test(tests, functions, 0, 6);
    tcase_add_loop_test(tests, mixtures, 0, 4);
    tcase_add_test(tests, line_lengths);
    tcase_add_test(tests, offsets);
    tcase_add_test(tests, row_lengths);
    tcase_add_test(tests, one_element_for_all);
    tcase_add_test(tests, in_place);
    tcase_add_loop_test(tests, conversions, 0, 6);
    tcase_add_test(tests, every_float16);
    tcase_add_loop_test(tests, transposes, 0, 4);
    tcase_add_test(tests, transposes_that_convert);
    tcase_add_test(tests, optimizers);
    tcase_add_test(tests, borders);
}

TESTS(vectors)
{
    tcase_add_checked_fixture(tests, gpu_setup_by_device, gpu_teardown);
    add_all(tests);
}

TESTS(vectors_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    add_all(tests);
}
