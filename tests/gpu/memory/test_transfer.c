/* Tests creating tensors and transferring them to and from the host, by mapped memory and by
 * staging buffers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device/device.h"
#include "gpu/memory/slabs.h"
#include "gpu/stream/staging.h"
#include "support/check_main.h"
#include "support/gpu.h"

static void check_round_trip(tsr_dtype dtype, int64_t rows, int64_t columns, bool transposed)
{
    const int64_t shape[2] = {rows, columns}, parent_shape[2] = {columns, rows + 3};
    tsr_tensor *parent = NULL, *cut = NULL, *view;
    if (transposed) {
        parent = gpu_new(dtype, 2, parent_shape);
        gpu_poison(parent);
        GPU_OK(tsr_tensor_slice(parent, 1, 2, 2 + rows, 1, &cut));
        GPU_OK(tsr_tensor_transpose(cut, 0, 1, &view));
    } else {
        view = gpu_new(dtype, 2, shape);
    }
    size_t bytes = (size_t)(rows * columns) * tsr_dtype_size(dtype);
    uint8_t *sent = malloc(bytes + 1), *received = calloc(bytes + 1, 1);
    gpu_random random = {(uint64_t)bytes};
    for (size_t i = 0; i < bytes; i++)
        sent[i] = (uint8_t)gpu_random_u64(&random);
    GPU_OK(tsr_tensor_upload(queue, view, sent, bytes));
    GPU_OK(tsr_tensor_download(queue, view, received, bytes));
    ck_assert_int_eq(memcmp(sent, received, bytes), 0);
    if (transposed) {
        /* The columns outside the view must still be poison. */
        size_t parent_bytes = (size_t)(columns * (rows + 3)) * tsr_dtype_size(dtype);
        size_t element = tsr_dtype_size(dtype);
        uint8_t *all = malloc(parent_bytes + 1);
        GPU_OK(tsr_tensor_download(queue, parent, all, parent_bytes));
        for (int64_t c = 0; c < columns; c++)
            for (size_t b = 0; b < 2 * element; b++)
                ck_assert(all[(size_t)(c * (rows + 3)) * element + b] == 0xff);
        free(all);
    }
    free(sent);
    free(received);
    tsr_tensor_destroy(&view);
    tsr_tensor_destroy(&cut);
    tsr_tensor_destroy(&parent);
}

START_TEST(round_trips)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16, TSR_I32,
                                       TSR_U32, TSR_I64, TSR_U8};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        for (int transposed = 0; transposed < 2; transposed++) {
            check_round_trip(dtypes[i], 1, 1, transposed);
            check_round_trip(dtypes[i], 37, 53, transposed);
            check_round_trip(dtypes[i], 0, 5, transposed);
        }
}
END_TEST

/* Returns a layout whose dimensions are, from the outermost to the innermost in memory, those of
 * `order`. A gap of `gap` elements follows each dimension. */
static tsr_layout spread(tsr_dtype dtype, const int64_t shape[4], const int order[4], int64_t gap)
{
    tsr_layout layout = {.dtype = dtype, .ndim = 4, .offset = 3};
    int64_t stride = 1;
    memcpy(layout.shape, shape, 4 * sizeof *shape);
    for (int i = 3; i >= 0; i--) {
        layout.strides[order[i]] = stride;
        stride = stride * shape[order[i]] + gap;
    }
    return layout;
}

/* Checks that elements are written to, and read from, the places of the layout, and that nothing
 * else is changed. */
static void check_places(const tsr_layout *layout)
{
    const size_t size = tsr_dtype_size(layout->dtype);
    const int64_t *shape = layout->shape, *strides = layout->strides;
    int64_t last = layout->offset, total = (int64_t)size, at = 0;
    for (int i = 0; i < 4; i++) {
        last += (shape[i] - 1) * strides[i];
        total *= shape[i];
    }
    const int64_t bytes = (last + 8) * (int64_t)size;
    uint8_t *want = malloc((size_t)bytes), *got = malloc((size_t)bytes);
    uint8_t *sent = malloc((size_t)total), *received = calloc((size_t)total, 1);
    tsr_tensor *whole = gpu_new(TSR_U8, 1, &bytes), *view;
    gpu_random random = {(uint64_t)total};
    for (int64_t i = 0; i < total; i++)
        sent[i] = (uint8_t)gpu_random_u64(&random);
    memset(want, 0xff, (size_t)bytes);
    for (int64_t a = 0; a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t c = 0; c < shape[2]; c++)
                for (int64_t d = 0; d < shape[3]; d++, at++) {
                    int64_t place = layout->offset + a * strides[0] + b * strides[1] +
                                    c * strides[2] + d * strides[3];
                    memcpy(want + (size_t)place * size, sent + (size_t)at * size, size);
                }
    gpu_poison(whole);
    GPU_OK(tsr_tensor_view(whole, layout, &view));
    GPU_OK(tsr_tensor_upload(queue, view, sent, (uint64_t)total));
    GPU_OK(tsr_tensor_download(queue, whole, got, (uint64_t)bytes));
    ck_assert_int_eq(memcmp(got, want, (size_t)bytes), 0);
    GPU_OK(tsr_tensor_download(queue, view, received, (uint64_t)total));
    ck_assert_int_eq(memcmp(received, sent, (size_t)total), 0);
    tsr_tensor_destroy(&view);
    tsr_tensor_destroy(&whole);
    free(want);
    free(got);
    free(sent);
    free(received);
}

/* Some sizes are so large that several threads share the copy. */
START_TEST(every_element_in_its_place)
{
    static const tsr_dtype dtypes[] = {TSR_U8, TSR_BF16, TSR_U32, TSR_I64};
    static const int64_t shapes[][4] = {
        {2, 3, 4, 5}, {1, 40, 1, 300}, {1, 1, 1, 700}, {3, 17, 2, 257}, {3, 70, 5, 1030}};
    static const int orders[][4] = {{0, 1, 2, 3}, {0, 1, 3, 2}, {3, 2, 1, 0}, {2, 0, 3, 1}};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 5; j++)
            for (int64_t gap = 0; gap < 2; gap++) {
                tsr_layout layout = spread(dtypes[_i], shapes[j], orders[i], gap);
                check_places(&layout);
            }
}
END_TEST

START_TEST(larger_than_all_staging_memory)
{
    const int64_t count = (int64_t)(gpu->staging_chunk_bytes * (TSR__STAGING_CHUNKS + 2) / 4) + 77;
    check_round_trip(TSR_U32, 1, count, false);
    check_round_trip(TSR_U32, 1001, 4099, true);
}
END_TEST

START_TEST(many_small_ones_in_order)
{
    tsr_tensor *x = gpu_new(TSR_F32, 1, (int64_t[]){8}), *sum = gpu_new(TSR_F32, 1, (int64_t[]){8});
    GPU_OK(tsr_fill(queue, sum, 0));
    for (int i = 0; i < 400; i++) {
        float values[8];
        for (int j = 0; j < 8; j++)
            values[j] = (float)(i + j);
        /* From the second round on, recorded work still uses the tensor. The caller may
         * nevertheless reuse the data as soon as the upload returns. */
        GPU_OK(tsr_tensor_upload(queue, x, values, sizeof values));
        memset(values, 0xff, sizeof values);
        GPU_OK(tsr_binary(queue, sum, sum, x, TSR_BINARY_ADD));
    }
    float result[8];
    GPU_OK(tsr_tensor_download(queue, sum, result, sizeof result));
    for (int j = 0; j < 8; j++)
        ck_assert_float_eq(result[j], (float)(400 * 399 / 2 + 400 * j));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&sum);
}
END_TEST

START_TEST(mapping)
{
    tsr_tensor *x = gpu_new(TSR_I32, 2, (int64_t[]){4, 6}), *column;
    GPU_OK(tsr_fill(queue, x, 7));
    GPU_OK(tsr_tensor_select(x, 1, 2, &column));
    GPU_OK(tsr_stream_wait(queue));
    void *at = &at;
    if (tsr_device_get_info(gpu)->type == TSR_DEVICE_CPU || tsr__memory_is_mapped(gpu)) {
        GPU_OK(tsr_tensor_map(column, &at));
        int32_t *elements = at;
        ck_assert_int_eq(elements[0], 7);
        elements[6] = -5;
        int32_t values[24];
        GPU_OK(tsr_tensor_download(queue, x, values, sizeof values));
        ck_assert_int_eq(values[8], -5);
        ck_assert_int_eq(values[7], 7);
    } else {
        /* Tensors in memory that cannot be mapped can only be uploaded and downloaded. */
        char words[400];
        snprintf(words, sizeof words,
                 "tensor_map: the memory of %s cannot be mapped; upload and download instead",
                 tsr_device_get_info(gpu)->name);
        GPU_FAILS(tsr_tensor_map(column, &at), TSR_ERR_UNSUPPORTED, words);
        ck_assert_ptr_eq(at, &at);
    }
    GPU_FAILS(tsr_tensor_map(NULL, &at), TSR_ERR_INVALID, "tensor is NULL");
    GPU_FAILS(tsr_tensor_map(x, NULL), TSR_ERR_INVALID, "out is NULL");
    tsr_tensor_destroy(&column);
    tsr_tensor_destroy(&x);
}
END_TEST

START_TEST(no_mapping_where_memory_is_staged)
{
    tsr_tensor *x = gpu_new(TSR_I32, 1, (int64_t[]){4});
    void *at = &at;
    GPU_FAILS(tsr_tensor_map(x, &at), TSR_ERR_UNSUPPORTED, "cannot be mapped");
    ck_assert_ptr_eq(at, &at);
    tsr_tensor_destroy(&x);
}
END_TEST

START_TEST(views_of_any_layout)
{
    tsr_tensor *x = gpu_new(TSR_F32, 1, (int64_t[]){12}), *view = NULL;
    float values[12], seen[4];
    for (int i = 0; i < 12; i++)
        values[i] = (float)i;
    GPU_OK(tsr_tensor_upload(queue, x, values, sizeof values));
    /* The diagonal of a 3×4 matrix, from its second row on. */
    tsr_layout layout = {.dtype = TSR_F32, .ndim = 1, .shape = {2}, .strides = {5}, .offset = 5};
    GPU_OK(tsr_tensor_view(x, &layout, &view));
    GPU_OK(tsr_tensor_download(queue, view, seen, 8));
    ck_assert_float_eq(seen[0], 5);
    ck_assert_float_eq(seen[1], 10);
    tsr_tensor_destroy(&view);

    layout = (tsr_layout){.dtype = TSR_U8, .ndim = 1, .shape = {48}, .strides = {1}};
    GPU_OK(tsr_tensor_view(x, &layout, &view));
    uint8_t bytes[48];
    GPU_OK(tsr_tensor_download(queue, view, bytes, sizeof bytes));
    ck_assert_int_eq(memcmp(bytes, values, sizeof bytes), 0);
    tsr_tensor_destroy(&view);

    layout.shape[0] = 49;
    GPU_FAILS(tsr_tensor_view(x, &layout, &view), TSR_ERR_INVALID,
              "the layout reaches past the buffer's 48 bytes");
    layout.shape[0] = 2;
    layout.strides[0] = INT64_MAX;
    GPU_FAILS(tsr_tensor_view(x, &layout, &view), TSR_ERR_INVALID, "reaches past");
    layout.strides[0] = -1;
    GPU_FAILS(tsr_tensor_view(x, &layout, &view), TSR_ERR_INVALID, "stride 0 is -1");
    layout.strides[0] = 1;
    layout.offset = -1;
    GPU_FAILS(tsr_tensor_view(x, &layout, &view), TSR_ERR_INVALID, "offset is -1");
    /* A view without elements is refused, too, if its address cannot be computed. */
    layout = (tsr_layout){.dtype = TSR_F32, .ndim = 1, .strides = {1}, .offset = INT64_MAX};
    GPU_FAILS(tsr_tensor_view(x, &layout, &view), TSR_ERR_OVERFLOW, "does not fit 63 bits");
    ck_assert_ptr_null(view);
    tsr_tensor_destroy(&x);
}
END_TEST

START_TEST(wrong_arguments)
{
    tsr_tensor *x = gpu_new(TSR_F16, 2, (int64_t[]){3, 4}), *all = NULL;
    float values[12] = {0};
    GPU_FAILS(tsr_tensor_upload(queue, x, values, 23), TSR_ERR_INVALID,
              "tensor_upload: 23 bytes given for a f16 tensor [3,4] of 24 bytes");
    GPU_FAILS(tsr_tensor_download(queue, x, values, 48), TSR_ERR_INVALID,
              "tensor_download: 48 bytes given for a f16 tensor [3,4] of 24 bytes");
    GPU_FAILS(tsr_tensor_upload(queue, x, NULL, 24), TSR_ERR_INVALID, "data is NULL");
    GPU_FAILS(tsr_tensor_upload(NULL, x, values, 24), TSR_ERR_INVALID, "stream is NULL");
    GPU_FAILS(tsr_tensor_upload(queue, NULL, values, 24), TSR_ERR_INVALID, "tensor is NULL");
    GPU_OK(tsr_tensor_broadcast(x, 3, (int64_t[]){2, 3, 4}, &all));
    GPU_FAILS(tsr_tensor_upload(queue, all, values, 48), TSR_ERR_INVALID,
              "names an element more than once");
    tsr_tensor_destroy(&all);
    GPU_FAILS(tsr_tensor_create(NULL, TSR_F32, 0, NULL, &all), TSR_ERR_INVALID, "device is NULL");
    GPU_FAILS(tsr_tensor_create(gpu, TSR_F32, 0, NULL, NULL), TSR_ERR_INVALID, "out is NULL");
    GPU_FAILS(tsr_tensor_create(gpu, (tsr_dtype)77, 0, NULL, &all), TSR_ERR_INVALID, "77");
    GPU_FAILS(tsr_tensor_create(gpu, TSR_F32, 1, (int64_t[]){-3}, &all), TSR_ERR_INVALID, "-3");
    GPU_FAILS(tsr_tensor_slice(x, 5, 0, 1, 1, &all), TSR_ERR_INVALID, "5");
    GPU_FAILS(tsr_tensor_slice(NULL, 0, 0, 1, 1, &all), TSR_ERR_INVALID,
              "tensor_slice: in is NULL");
    GPU_FAILS(tsr_tensor_select(x, 0, 9, &all), TSR_ERR_INVALID, "9");
    ck_assert_ptr_null(all);
    ck_assert_ptr_null(tsr_tensor_layout(NULL));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(NULL);
}
END_TEST

static void add_common(TCase *tests)
{
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, round_trips);
    tcase_add_loop_test(tests, every_element_in_its_place, 0, 4);
    tcase_add_test(tests, larger_than_all_staging_memory);
    tcase_add_test(tests, many_small_ones_in_order);
    tcase_add_test(tests, views_of_any_layout);
    tcase_add_test(tests, wrong_arguments);
}

TESTS(mapped)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    add_common(tests);
    tcase_add_test(tests, mapping);
}

TESTS(staged)
{
    tcase_add_checked_fixture(tests, gpu_setup_staged, gpu_teardown);
    add_common(tests);
    tcase_add_test(tests, no_mapping_where_memory_is_staged);
}
