/* Tensors in block formats: uploads, views, copies to and from floats, and the operations that
 * refuse them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/block_format.h"
#include "quant/golden_quant.h"
#include "support/gpu.h"

enum { FORMATS = 21, FORMATS_WITH_PLANES = 14 };

static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};

static void *allocate(uint64_t size)
{
    void *memory = calloc(1, size + 1);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

static uint64_t bytes_of(const tsr_quant_format *format, int64_t count)
{
    uint64_t bytes = 0;
    ck_assert_ok(tsr_quant_bytes(format->dtype, count, &bytes));
    return bytes;
}

/* Makes blocks whose scales are finite and not subnormal: random ones, or those of random
 * values. */
static void random_blocks(gpu_random *random, const tsr_quant_format *format, uint8_t *blocks,
                          int64_t count)
{
    if (format->quantizes) {
        float *values = allocate((uint64_t)count * sizeof *values);
        for (int64_t i = 0; i < count; i++)
            values[i] = (float)gpu_random_unit(random);
        ck_assert_ok(tsr_quantize(format->dtype, values, count, blocks, bytes_of(format, count)));
        free(values);
        return;
    }
    for (uint64_t i = 0; i < bytes_of(format, count); i++) {
        const uint64_t factor = tsr__quant_format_of(format->dtype)->factor_offset;
        const bool scale =
            format->dtype != TSR_NVFP4 && i % (uint64_t)format->block_bytes == factor + 1;
        blocks[i] = (uint8_t)(scale ? 0x20 + gpu_random_between(random, 0, 7)
                                    : gpu_random_between(random, 0, 126));
    }
}

static tsr_tensor *upload(const tsr_quant_format *format, int ndim, const int64_t *shape,
                          const uint8_t *blocks)
{
    tsr_tensor *tensor = gpu_new(format->dtype, ndim, shape);
    const int64_t count = tsr_layout_count(tsr_tensor_layout(tensor));
    GPU_OK(tsr_tensor_upload(queue, tensor, blocks, bytes_of(format, count)));
    return tensor;
}

/* Copies all rows of a golden file to f32 and compares them with the file's values. */
static int copy_golden(const char *file, const tsr_quant_format *format)
{
    json_t *golden = golden_load(file), *type, *row;
    const char *name;
    size_t index;
    int count_of_rows = 0;
    json_object_foreach(golden_member(golden, "types"), name, type)
    {
        if (golden_integer(type, "ggml_type_id") != format->gguf_type)
            continue;
        json_array_foreach(golden_list(type, "rows"), index, row)
        {
            uint8_t blocks[1024];
            float expected[512], values[512];
            golden_decode(golden_text(row, "q"), blocks, sizeof blocks);
            const uint64_t size = golden_decode(golden_text(row, "y"), expected, sizeof expected);
            const int64_t count = (int64_t)(size / sizeof *expected);
            tsr_tensor *x = upload(format, 1, &count, blocks), *y = gpu_new(TSR_F32, 1, &count);
            gpu_poison(y);
            GPU_OK(tsr_copy(queue, y, x));
            GPU_OK(tsr_tensor_download(queue, y, values, size));
            for (int64_t i = 0; i < count; i++)
                ck_assert_msg(memcmp(&values[i], &expected[i], sizeof *values) == 0 ||
                                  (isnan(values[i]) && isnan(expected[i])),
                              "%s, %s: element %d is %.9g, not %.9g", name, golden_text(row, "row"),
                              (int)i, (double)values[i], (double)expected[i]);
            tsr_tensor_destroy(&x);
            tsr_tensor_destroy(&y);
            count_of_rows++;
        }
    }
    json_decref(golden);
    return count_of_rows;
}

START_TEST(golden_rows)
{
    const tsr_quant_format *format = tsr_quant_format_at(_i);
    ck_assert_int_gt(copy_golden("quant_blocks", format) + copy_golden("quant_vectors", format), 0);
}
END_TEST

/* Copies a slice of a tensor of up to 6 dimensions, which starts and ends at whole blocks, to
 * any view of floats, and back. */
static void copy_part(gpu_random *random, const tsr_quant_format *format)
{
    const int ndim = (int)gpu_random_between(random, 1, 6), last = ndim - 1;
    int64_t shape[TSR_MAX_DIMS], part[TSR_MAX_DIMS], start[TSR_MAX_DIMS], whole = 1, count = 1;
    for (int i = 0; i < ndim; i++) {
        const int64_t unit = i == last ? format->block_count : 1;
        shape[i] = gpu_random_between(random, 1, i == last ? 4 : 3);
        start[i] = gpu_random_between(random, 0, shape[i] - 1) * unit;
        shape[i] *= unit;
        part[i] = gpu_random_between(random, 1, (shape[i] - start[i]) / unit) * unit;
        whole *= shape[i];
        count *= part[i];
    }
    uint8_t *blocks = allocate(bytes_of(format, whole)), *cut = allocate(bytes_of(format, count));
    uint8_t *again = allocate(bytes_of(format, count));
    float *values = allocate((uint64_t)count * sizeof *values);
    double *got = allocate((uint64_t)count * sizeof *got);
    random_blocks(random, format, blocks, whole);
    tsr_tensor *x = upload(format, ndim, shape, blocks), *view, *parent, *same;
    GPU_OK(tsr_tensor_slice(x, 0, start[0], start[0] + part[0], 1, &view));
    for (int i = 1; i < ndim; i++) {
        tsr_tensor *sliced;
        GPU_OK(tsr_tensor_slice(view, i, start[i], start[i] + part[i], 1, &sliced));
        tsr_tensor_destroy(&view);
        view = sliced;
    }
    GPU_OK(tsr_tensor_download(queue, view, cut, bytes_of(format, count)));
    ck_assert_ok(tsr_dequantize(format->dtype, cut, bytes_of(format, count), values, count));

    /* copy to floats */
    const tsr_dtype dtype = floats[gpu_random_between(random, 0, 2)];
    tsr_tensor *y = gpu_random_view(random, dtype, ndim, part, &parent);
    GPU_OK(tsr_copy(queue, y, view));
    gpu_get(y, got);
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(got[i] == gpu_rounded((double)values[i], dtype),
                      "%s to %s: element %d is %.9g, not %.9g", format->name, tsr_dtype_name(dtype),
                      (int)i, got[i], (double)values[i]);
    /* copy to the same format; upload and download again */
    same = gpu_new(format->dtype, ndim, part);
    GPU_OK(tsr_copy(queue, same, view));
    GPU_OK(tsr_tensor_download(queue, same, again, bytes_of(format, count)));
    ck_assert_mem_eq(again, cut, bytes_of(format, count));
    GPU_OK(tsr_tensor_upload(queue, view, again, bytes_of(format, count)));
    GPU_OK(tsr_tensor_download(queue, x, blocks, bytes_of(format, whole)));

    /* copy floats to the slice only */
    if (format->quantizes) {
        uint8_t *after = allocate(bytes_of(format, whole));
        for (int64_t i = 0; i < count; i++)
            values[i] = (float)got[i];
        ck_assert_ok(tsr_quantize(format->dtype, values, count, cut, bytes_of(format, count)));
        GPU_OK(tsr_copy(queue, view, y));
        GPU_OK(tsr_tensor_download(queue, view, again, bytes_of(format, count)));
        ck_assert_mem_eq(again, cut, bytes_of(format, count));
        /* check that the elements outside the slice have not changed */
        GPU_OK(tsr_copy(queue, view, same));
        GPU_OK(tsr_tensor_download(queue, x, after, bytes_of(format, whole)));
        ck_assert_mem_eq(after, blocks, bytes_of(format, whole));
        free(after);
    }
    tsr_tensor *all[] = {x, view, y, parent, same};
    for (int i = 0; i < 5; i++)
        tsr_tensor_destroy(&all[i]);
    free(blocks);
    free(cut);
    free(again);
    free(values);
    free(got);
}

START_TEST(parts)
{
    gpu_random random = {.state = 40 + (uint64_t)_i};
    for (int round = 0; round < 4; round++)
        copy_part(&random, tsr_quant_format_at(_i));
}
END_TEST

/* One format for each way in which a block's bytes are loaded. */
static const tsr_dtype ways[] = {TSR_Q5_0, TSR_Q4_K, TSR_Q6_K, TSR_MXFP4};
#define WAYS ((int)(sizeof ways / sizeof *ways))

START_TEST(parts_of_some)
{
    gpu_random random = {.state = 90 + (uint64_t)_i};
    for (int round = 0; round < 3; round++)
        copy_part(&random, tsr_quant_format_of(ways[_i]));
}
END_TEST

/* Copies a row of blocks to a tensor with many rows, to which it is broadcast. */
START_TEST(broadcasts)
{
    const tsr_quant_format *format = tsr_quant_format_of(TSR_Q8_0);
    gpu_random random = {.state = 3};
    uint8_t blocks[68];
    float row[64];
    double values[5 * 64];
    random_blocks(&random, format, blocks, 64);
    ck_assert_ok(tsr_dequantize(TSR_Q8_0, blocks, 68, row, 64));
    tsr_tensor *x = upload(format, 1, (int64_t[]){64}, blocks);
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){5, 64});
    GPU_OK(tsr_copy(queue, y, x));
    gpu_get(y, values);
    for (int i = 0; i < 5 * 64; i++)
        ck_assert_double_eq(values[i], (double)row[i % 64]);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

/* Selects rows of a table by index, with some indices that the table does not have. */
START_TEST(selects_rows)
{
    enum { ROWS = 7, WIDTH = 512, COUNT = 9 };
    static const double wanted[COUNT] = {3, 0, 6, 7, -1, 3, 5, 1, 100};
    const tsr_quant_format *format = tsr_quant_format_of(ways[_i]);
    gpu_random random = {.state = 60 + (uint64_t)_i};
    uint8_t *blocks = allocate(bytes_of(format, ROWS * WIDTH));
    float *values = allocate(ROWS * WIDTH * sizeof *values);
    double *got = allocate(COUNT * WIDTH * sizeof *got);
    const int64_t shape[] = {ROWS, WIDTH}, out[] = {COUNT, WIDTH}, count = COUNT;
    random_blocks(&random, format, blocks, ROWS * WIDTH);
    ck_assert_ok(tsr_dequantize(format->dtype, blocks, bytes_of(format, ROWS * WIDTH), values,
                                ROWS * WIDTH));
    tsr_tensor *x = upload(format, 2, shape, blocks), *indices[2], *parent, *index_parent;
    indices[0] = gpu_random_view(&random, TSR_I32, 1, &count, &index_parent);
    indices[1] = gpu_new(TSR_I64, 1, &count);
    for (int i = 0; i < 2; i++) {
        const tsr_dtype dtype = i == 0 ? TSR_F32 : TSR_F16;
        tsr_tensor *y = gpu_random_view(&random, dtype, 2, out, &parent);
        gpu_put(indices[i], wanted);
        GPU_OK(tsr_index_select(queue, y, x, 0, indices[i]));
        gpu_get(y, got);
        for (int e = 0; e < COUNT * WIDTH; e++) {
            const double row = wanted[e / WIDTH];
            const double expected =
                row >= 0 && row < ROWS
                    ? gpu_rounded((double)values[(int)row * WIDTH + e % WIDTH], dtype)
                    : 0;
            ck_assert_msg(got[e] == expected, "%s: element %d is %.9g, not %.9g", format->name, e,
                          got[e], expected);
        }
        tsr_tensor_destroy(&y);
        tsr_tensor_destroy(&parent);
    }
    GPU_FAILS(tsr_index_select(queue, x, x, 0, indices[1]), TSR_ERR_INVALID,
              "block formats are supported only by copy");
    tsr_tensor *wrong = gpu_new(TSR_I32, 2, out), *y = gpu_new(TSR_F32, 2, out);
    GPU_FAILS(tsr_index_select(queue, wrong, x, 0, indices[1]), TSR_ERR_INVALID,
              "in a block format, x must have two dimensions, dim must be 0, and y f32, f16 or "
              "bf16");
    GPU_FAILS(tsr_index_select_grad(queue, x, y, 0, indices[1], false), TSR_ERR_INVALID,
              "f32, f16 or bf16 is needed");
    tsr_tensor *all[] = {x, indices[0], index_parent, indices[1], wrong, y};
    for (int i = 0; i < 6; i++)
        tsr_tensor_destroy(&all[i]);
    free(blocks);
    free(values);
    free(got);
}
END_TEST

START_TEST(nothing)
{
    tsr_tensor *x = gpu_new(TSR_Q4_K, 2, (int64_t[]){0, 256}),
               *y = gpu_new(TSR_F32, 2, (int64_t[]){0, 256});
    GPU_OK(tsr_copy(queue, y, x));
    GPU_OK(tsr_copy(queue, x, y));
    GPU_OK(tsr_tensor_upload(queue, x, NULL, 0));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    x = gpu_new(TSR_Q4_K, 2, (int64_t[]){4, 0});
    y = gpu_new(TSR_BF16, 2, (int64_t[]){4, 0});
    GPU_OK(tsr_copy(queue, y, x));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

START_TEST(views)
{
    tsr_tensor *x, *out = NULL, *bytes = gpu_new(TSR_U8, 1, (int64_t[]){4 * 68});
    tsr_layout layout;
    GPU_OK(tsr_layout_init(TSR_Q8_0, 2, (int64_t[]){4, 64}, &layout));
    GPU_OK(tsr_tensor_view(bytes, &layout, &x));
    GPU_FAILS(tsr_tensor_create(gpu, TSR_Q8_0, 2, (int64_t[]){4, 40}, &out), TSR_ERR_INVALID,
              "tensor_create: q8_0 has blocks of 32 elements along the last dimension, and shape "
              "[4,40] does not consist of whole ones");
    GPU_FAILS(tsr_tensor_create(gpu, TSR_Q8_0, 0, NULL, &out), TSR_ERR_INVALID, "whole ones");
    GPU_FAILS(tsr_tensor_slice(x, 1, 16, 48, 1, &out), TSR_ERR_INVALID,
              "slice: q8_0 has blocks of 32 elements along the last dimension, and shape [4,32] "
              "with strides [64,1] and offset 16 does not consist of whole ones");
    GPU_FAILS(tsr_tensor_slice(x, 1, 0, 33, 1, &out), TSR_ERR_INVALID, "whole ones");
    GPU_FAILS(tsr_tensor_slice(x, 1, 0, 64, 2, &out), TSR_ERR_INVALID, "whole ones");
    GPU_FAILS(tsr_tensor_select(x, 1, 0, &out), TSR_ERR_INVALID, "whole ones");
    GPU_FAILS(tsr_tensor_transpose(x, 0, 1, &out), TSR_ERR_INVALID, "whole ones");
    GPU_FAILS(tsr_layout_permute(tsr_tensor_layout(x), (int[]){1, 0}, &layout), TSR_ERR_INVALID,
              "whole ones");
    GPU_FAILS(tsr_tensor_reshape(x, 2, (int64_t[]){16, 16}, &out), TSR_ERR_INVALID, "whole ones");
    GPU_OK(tsr_layout_init(TSR_Q8_0, 2, (int64_t[]){4, 96}, &layout));
    GPU_FAILS(tsr_tensor_view(bytes, &layout, &out), TSR_ERR_INVALID,
              "tensor_view: the layout reaches past the buffer's");
    layout.shape[1] = 64;
    layout.strides[0] = 70;
    GPU_FAILS(tsr_tensor_view(bytes, &layout, &out), TSR_ERR_INVALID, "whole ones");
    ck_assert_ptr_null(out);
    GPU_OK(tsr_tensor_reshape(x, 2, (int64_t[]){8, 32}, &out));
    tsr_tensor_destroy(&out);
    GPU_OK(tsr_tensor_select(x, 0, 3, &out));
    tsr_tensor_destroy(&out);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&bytes);
}
END_TEST

START_TEST(refusals)
{
    static const char *const sentence =
        "block formats are supported only by copy, as b of matmul and as x of index_select";
    tsr_tensor *x = gpu_new(TSR_Q8_0, 2, (int64_t[]){4, 64}),
               *q = gpu_new(TSR_Q4_0, 2, (int64_t[]){4, 64}),
               *f = gpu_new(TSR_F32, 2, (int64_t[]){4, 64}),
               *i = gpu_new(TSR_I32, 2, (int64_t[]){4, 64});
    float values[256] = {0};
    GPU_FAILS(tsr_fill(queue, x, 1), TSR_ERR_INVALID, sentence);
    GPU_FAILS(tsr_copy(queue, q, x), TSR_ERR_INVALID,
              "copy: dst is q4_0, src is q8_0; a block format is copied to and from f32, f16 and "
              "bf16, and to itself");
    GPU_FAILS(tsr_copy(queue, i, x), TSR_ERR_INVALID, "copy: dst is i32, src is q8_0");
    GPU_FAILS(tsr_copy(queue, x, i), TSR_ERR_INVALID, "copy: dst is q8_0, src is i32");
    GPU_FAILS(tsr_binary(queue, f, f, x, TSR_BINARY_ADD), TSR_ERR_INVALID, "q8_0");
    GPU_FAILS(tsr_softmax(queue, f, x, false), TSR_ERR_INVALID, "f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_tensor_upload(queue, x, values, 256), TSR_ERR_INVALID,
              "tensor_upload: 256 bytes given for a q8_0 tensor [4,64] of 272 bytes");
    values[7] = NAN;
    GPU_OK(tsr_tensor_upload(queue, f, values, sizeof values));
    GPU_FAILS(tsr_copy(queue, x, f), TSR_ERR_INVALID, "copy: quantize: element 7 is NaN");
    tsr_tensor *all[] = {x, q, f, i};
    for (int t = 0; t < 4; t++)
        tsr_tensor_destroy(&all[t]);
}
END_TEST

TESTS(quant)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, golden_rows, 0, FORMATS);
    tcase_add_loop_test(tests, parts, 0, FORMATS_WITH_PLANES);
    tcase_add_test(tests, broadcasts);
    tcase_add_loop_test(tests, selects_rows, 0, WAYS);
    tcase_add_test(tests, nothing);
    tcase_add_test(tests, views);
    tcase_add_test(tests, refusals);
}

TESTS(quant_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_loop_test(tests, parts_of_some, 0, WAYS);
}

TESTS(quant_staged)
{
    tcase_add_checked_fixture(tests, gpu_setup_staged, gpu_teardown);
    tcase_add_loop_test(tests, parts_of_some, 0, 2);
}
