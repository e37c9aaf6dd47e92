/* Compares tsr_copy between views with a copy on the host, byte by byte over the destination's
 * complete buffer, so that stray writes are found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device/device.h"
#include "gpu/memory/tensor.h"
#include "gpu/pipeline/pipeline.h"
#include "shaders/params/copy.h"
#include "support/check_main.h"
#include "support/convert.h"
#include "support/gpu.h"
#include "tensor/check.h"

static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16, TSR_I32, TSR_U32, TSR_I64, TSR_U8};

/* One dtype for each size of an element. */
static const tsr_dtype sizes[] = {TSR_U8, TSR_BF16, TSR_F32, TSR_I64};

/* A tensor, a view of it, and a copy of its buffer in host memory. */
typedef struct copy_image {
    tsr_tensor *parent, *view;
    void *data;
    uint64_t size_bytes;
} copy_image;

static void image_read(copy_image *image)
{
    GPU_OK(tsr_tensor_download(queue, image->parent, image->data, image->size_bytes));
}

/* Fills the tensor with random bits. */
static copy_image image_of(gpu_random *random, tsr_tensor *parent, tsr_tensor *view)
{
    const tsr_layout *layout = tsr_tensor_layout(parent);
    copy_image image = {parent, view, NULL,
                        (uint64_t)tsr_layout_count(layout) * tsr_dtype_size(layout->dtype)};
    image.data = malloc(image.size_bytes + 8);
    ck_assert_ptr_nonnull(image.data);
    for (uint64_t i = 0; i < image.size_bytes; i++)
        ((unsigned char *)image.data)[i] = (unsigned char)(gpu_random_u64(random) >> 32);
    GPU_OK(tsr_tensor_upload(queue, parent, image.data, image.size_bytes));
    return image;
}

static copy_image image_new(gpu_random *random, tsr_dtype dtype, int ndim, const int64_t *shape)
{
    tsr_tensor *parent;
    tsr_tensor *view = gpu_random_view(random, dtype, ndim, shape, &parent);
    return image_of(random, parent, view);
}

/* Makes a new tensor, and a view of all of it. */
static copy_image image_whole(gpu_random *random, tsr_dtype dtype, int ndim, const int64_t *shape)
{
    tsr_tensor *parent = gpu_new(dtype, ndim, shape), *view;
    GPU_OK(tsr_tensor_view(parent, tsr_tensor_layout(parent), &view));
    return image_of(random, parent, view);
}

static void image_slice(copy_image *image, int dim, int64_t start, int64_t stop, int64_t step)
{
    tsr_tensor *old = image->view;
    GPU_OK(tsr_tensor_slice(old, dim, start, stop, step, &image->view));
    tsr_tensor_destroy(&old);
}

static void image_permute(copy_image *image, const int *order)
{
    tsr_tensor *old = image->view;
    tsr_layout layout;
    GPU_OK(tsr_layout_permute(tsr_tensor_layout(old), order, &layout));
    GPU_OK(tsr_tensor_view(old, &layout, &image->view));
    tsr_tensor_destroy(&old);
}

static void image_drop(copy_image *image)
{
    tsr_tensor_destroy(&image->view);
    tsr_tensor_destroy(&image->parent);
    free(image->data);
}

/* Makes on the host the copy that the device should make. */
static void copy_on_host(copy_image *dst, const copy_image *src)
{
    const tsr_layout *to = tsr_tensor_layout(dst->view);
    tsr_layout from;
    GPU_OK(tsr_layout_broadcast(tsr_tensor_layout(src->view), to->ndim, to->shape, &from));
    int64_t index[TSR_MAX_DIMS] = {0};
    for (int64_t n = tsr_layout_count(to); n > 0; n--) {
        int64_t t = to->offset, f = from.offset;
        for (int i = 0; i < to->ndim; i++) {
            t += index[i] * to->strides[i];
            f += index[i] * from.strides[i];
        }
        uint64_t bits = gpu_load_bits(src->data, f, from.dtype);
        gpu_store_bits(dst->data, t, to->dtype, convert_bits(bits, from.dtype, to->dtype));
        for (int i = to->ndim - 1; i >= 0 && ++index[i] == to->shape[i]; i--)
            index[i] = 0;
    }
}

static void describe(const tsr_tensor *tensor, char *text, size_t size)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    char shape[TSR__SHAPE_TEXT], strides[TSR__SHAPE_TEXT];
    tsr__shape_format(layout->ndim, layout->shape, shape, sizeof shape);
    tsr__shape_format(layout->ndim, layout->strides, strides, sizeof strides);
    snprintf(text, size, "%s %s strides %s offset %lld", tsr_dtype_name(layout->dtype), shape,
             strides, (long long)layout->offset);
}

/* Copies on the device and on the host, and compares the destination's whole buffer. */
static void check_copy(copy_image *dst, copy_image *src)
{
    GPU_OK(tsr_copy(queue, dst->view, src->view));
    void *expected = dst->data;
    copy_on_host(dst, src);
    dst->data = malloc(dst->size_bytes + 8);
    ck_assert_ptr_nonnull(dst->data);
    image_read(dst);

    tsr_dtype dtype = tsr_tensor_layout(dst->parent)->dtype;
    bool converted = dtype != tsr_tensor_layout(src->parent)->dtype;
    for (int64_t i = 0; i < tsr_layout_count(tsr_tensor_layout(dst->parent)); i++) {
        uint64_t want = gpu_load_bits(expected, i, dtype), got = gpu_load_bits(dst->data, i, dtype);
        if (want == got || (converted && is_nan_bits(want, dtype) && is_nan_bits(got, dtype)))
            continue;
        char to[512], from[512];
        describe(dst->view, to, sizeof to);
        describe(src->view, from, sizeof from);
        ck_abort_msg("element %lld of the buffer is %#llx instead of %#llx: %s from %s",
                     (long long)i, (unsigned long long)got, (unsigned long long)want, to, from);
    }
    free(expected);
}

static int random_shape(gpu_random *random, int64_t *shape)
{
    int ndim = (int)gpu_random_between(random, 0, TSR_MAX_DIMS);
    int64_t count = 1;
    for (int i = 0; i < ndim; i++) {
        int64_t limit = count > 300 ? 2 : ndim <= 2 ? 90 : ndim <= 4 ? 9 : 4;
        shape[i] = gpu_random_between(random, gpu_random_between(random, 0, 40) > 0, limit);
        count *= shape[i];
    }
    return ndim;
}

/* Makes a random shape that broadcasts to `shape`. */
static int random_source_shape(gpu_random *random, int ndim, const int64_t *shape, int64_t *out)
{
    int dropped =
        gpu_random_between(random, 0, 3) == 0 ? (int)gpu_random_between(random, 0, ndim) : 0;
    bool repeat = gpu_random_between(random, 0, 2) == 0;
    for (int i = dropped; i < ndim; i++)
        out[i - dropped] = repeat && gpu_random_between(random, 0, 2) == 0 ? 1 : shape[i];
    return ndim - dropped;
}

static void fuzz(uint64_t seed, int cases)
{
    /* Copies may convert. test_convert.c tests all conversions; these are some to a wider dtype,
     * to a narrower dtype, and to a dtype of the same size. */
    static const tsr_dtype pairs[][2] = {{TSR_F32, TSR_F16},
                                         {TSR_BF16, TSR_F32},
                                         {TSR_I64, TSR_U8},
                                         {TSR_U8, TSR_I64},
                                         {TSR_F16, TSR_BF16}};
    gpu_random random = {seed};
    for (int i = 0; i < cases; i++) {
        int64_t shape[TSR_MAX_DIMS], source_shape[TSR_MAX_DIMS];
        int ndim = random_shape(&random, shape);
        int source_ndim = random_source_shape(&random, ndim, shape, source_shape);
        tsr_dtype to = dtypes[gpu_random_between(&random, 0, 6)], from = to;
        if (gpu_random_between(&random, 0, 3) == 0) {
            const tsr_dtype *pair = pairs[gpu_random_between(&random, 0, 4)];
            from = pair[0];
            to = pair[1];
        }
        copy_image src = image_new(&random, from, source_ndim, source_shape);
        copy_image dst = image_new(&random, to, ndim, shape);
        check_copy(&dst, &src);
        image_drop(&dst);
        image_drop(&src);
    }
}

START_TEST(random_views)
{
    fuzz(1, 250);
}
END_TEST

/* Checks a copy whose rows are columns in src. Both are views of larger tensors, which start
 * `odd` elements after the first. */
static void check_transpose(gpu_random *random, tsr_dtype dtype, const int64_t *cut,
                            const int *order, int64_t odd)
{
    int64_t source_shape[4], shape[4];
    memcpy(source_shape, cut, sizeof source_shape);
    source_shape[3] += odd;
    copy_image src = image_whole(random, dtype, 4, source_shape);
    image_slice(&src, 3, odd, TSR_END, 1);
    image_permute(&src, order);
    memcpy(shape, tsr_tensor_layout(src.view)->shape, sizeof shape);
    shape[3] += odd;
    copy_image dst = image_whole(random, dtype, 4, shape);
    image_slice(&dst, 3, odd, TSR_END, 1);
    check_copy(&dst, &src);
    image_drop(&dst);
    image_drop(&src);
}

START_TEST(transposes)
{
    static const int64_t shapes[][4] = {{1, 1, 64, 64}, {1, 1, 33, 70},  {2, 3, 40, 9},
                                        {3, 2, 8, 100}, {1, 1, 130, 31}, {3, 20, 17, 24}};
    static const int orders[][4] = {{0, 1, 3, 2}, {3, 1, 0, 2}, {2, 0, 3, 1}};
    gpu_random random = {2};
    for (int d = 0; d < 4; d++)
        for (int s = 0; s < 6; s++)
            for (int o = 0; o < 3; o++)
                for (int64_t odd = 0; odd < 2; odd++)
                    check_transpose(&random, sizes[d], shapes[s], orders[o], odd);
}
END_TEST

START_TEST(transposes_that_convert)
{
    gpu_random random = {77};
    int64_t source_shape[] = {70, 45}, shape[] = {45, 70};
    copy_image src = image_whole(&random, TSR_F32, 2, source_shape);
    image_permute(&src, (int[]){1, 0});
    copy_image dst = image_whole(&random, TSR_BF16, 2, shape);
    check_copy(&dst, &src);
    image_drop(&dst);
    image_drop(&src);
}
END_TEST

/* Tests a row length with slices as source and as destination. The callers choose lengths around
 * the thresholds and alignments of all ways to copy. */
static void check_row(gpu_random *random, tsr_dtype dtype, int64_t length, int64_t start)
{
    int64_t wide[] = {7, length + start + 3}, narrow[] = {7, length};
    copy_image a = image_whole(random, dtype, 2, wide), b = image_whole(random, dtype, 2, narrow);
    image_slice(&a, 1, start, start + length, 1);
    check_copy(&b, &a);
    image_drop(&b);
    b = image_whole(random, dtype, 2, narrow);
    check_copy(&a, &b);
    image_drop(&a);
    image_drop(&b);
}

START_TEST(rows)
{
    static const int64_t lengths[] = {1,   3,   4,   5,   31,  32,  33,   127,  128,
                                      129, 255, 256, 257, 511, 512, 1023, 1024, 1030};
    gpu_random random = {3};
    for (int d = 0; d < 4; d++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (int64_t start = 0; start < 5; start += 1 + start)
                check_row(&random, sizes[d], lengths[i], start);
}
END_TEST

/* There are more rows, in three dimensions, than one command copies. */
START_TEST(many_rows)
{
    gpu_random random = {5};
    int64_t wide[] = {9, 2000, 513}, narrow[] = {9, 2000, 512};
    copy_image src = image_whole(&random, TSR_F16, 3, wide),
               dst = image_whole(&random, TSR_F16, 3, narrow);
    image_slice(&src, 2, 1, TSR_END, 1);
    check_copy(&dst, &src);
    image_drop(&dst);
    image_drop(&src);
}
END_TEST

/* Contiguous tensors of more than 1 MiB, from and to addresses that are a multiple of 16 bytes or
 * not. On GPUs a shader copies whole words, and a copy command copies the rest. */
START_TEST(large_and_contiguous)
{
    static const int64_t starts[][2] = {{0, 0}, {16, 32}, {1, 1}, {3, 0}};
    const tsr_dtype dtype = sizes[_i];
    const int64_t count = (1 << 20) / (int64_t)tsr_dtype_size(dtype) + 24;
    gpu_random random = {15};
    for (int i = 0; i < 4; i++) {
        int64_t shape[] = {count + 32};
        copy_image dst = image_whole(&random, dtype, 1, shape);
        copy_image src = image_whole(&random, dtype, 1, shape);
        image_slice(&dst, 0, starts[i][0], starts[i][0] + count, 1);
        image_slice(&src, 0, starts[i][1], starts[i][1] + count, 1);
        check_copy(&dst, &src);
        image_drop(&dst);
        image_drop(&src);
    }
}
END_TEST

/* There are so many bytes that several host threads share the copy. Some threads start in the
 * middle of a row. */
START_TEST(long_rows)
{
    gpu_random random = {9};
    int64_t wide[] = {5, 1000004}, narrow[] = {5, 1000003};
    copy_image src = image_whole(&random, TSR_U8, 2, wide),
               dst = image_whole(&random, TSR_U8, 2, narrow);
    image_slice(&src, 1, 1, TSR_END, 1);
    check_copy(&dst, &src);
    image_drop(&src);
    src = image_whole(&random, TSR_U8, 2, narrow); /* a copy of one row, since there are no gaps */
    check_copy(&dst, &src);
    image_drop(&dst);
    image_drop(&src);
}
END_TEST

/* Several host threads share the copy of rows that have gaps, or that are columns in src. Each
 * thread starts and ends between rows or columns. */
START_TEST(large_pieces)
{
    static const tsr_dtype pairs[][2] = {{TSR_F32, TSR_F32}, {TSR_F16, TSR_F32}, {TSR_U8, TSR_U8}};
    static const int64_t shapes[][2] = {{517, 2600}, {2600, 517}, {7, 33001}, {33001, 7}};
    const tsr_dtype *pair = pairs[_i / 2];
    const bool turned = _i % 2 > 0;
    gpu_random random = {11};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t shape[] = {shapes[i][0], shapes[i][1]};
        int64_t source[] = {shape[0], 2 * shape[1]};
        copy_image dst = image_whole(&random, pair[0], 2, shape);
        if (turned) {
            source[0] = shape[1];
            source[1] = shape[0];
        }
        copy_image src = image_whole(&random, pair[1], 2, source);
        if (turned)
            image_permute(&src, (int[]){1, 0});
        else
            image_slice(&src, 1, 1, TSR_END, 2);
        check_copy(&dst, &src);
        image_drop(&dst);
        image_drop(&src);
    }
}
END_TEST

/* Recorded work uses the destination, so the host cannot copy at once, and the copy is recorded. */
START_TEST(busy_rows)
{
    gpu_random random = {8};
    for (int64_t length = 16; length <= 2048; length *= 2) {
        int64_t wide[] = {5, length + 1}, narrow[] = {5, length};
        copy_image src = image_whole(&random, TSR_F32, 2, wide),
                   dst = image_whole(&random, TSR_F32, 2, narrow);
        image_slice(&src, 1, 0, length, 1);
        gpu_poison(dst.parent);
        memset(dst.data, 0xff, dst.size_bytes);
        check_copy(&dst, &src);
        image_drop(&dst);
        image_drop(&src);
    }
}
END_TEST

/* If the host can copy at once, nothing is recorded. If recorded work uses one of the tensors, the
 * copy is recorded, too, and the order of operations is kept. */
START_TEST(at_once_or_recorded)
{
    int64_t shape[] = {64, 48}, turned[] = {48, 64};
    gpu_random random = {10};
    copy_image src = image_whole(&random, TSR_F32, 2, shape),
               dst = image_whole(&random, TSR_BF16, 2, turned);
    const bool host = gpu->host_copies && src.parent->buffer->host;
    uint64_t before, after;

    image_permute(&src, (int[]){1, 0});
    GPU_OK(tsr_stream_wait(queue));
    for (int busy = 0; busy < 3; busy++) {
        if (busy > 0)
            GPU_OK(tsr_fill(queue, busy == 1 ? src.parent : dst.parent, 2.5));
        if (busy == 1)
            for (int i = 0; i < 64 * 48; i++)
                gpu_store_bits(src.data, i, TSR_F32, gpu_bits(2.5, TSR_F32));
        if (busy == 0) {
            GPU_OK(tsr_stream_mark(queue, &before));
            GPU_OK(tsr_copy(queue, dst.view, src.view));
            GPU_OK(tsr_stream_mark(queue, &after));
            ck_assert_int_eq(after == before, host);
        }
        check_copy(&dst, &src);
    }
    image_drop(&dst);
    image_drop(&src);
}
END_TEST

/* Views of five to eight dimensions that cannot be merged take several dispatches. */
START_TEST(many_dimensions)
{
    gpu_random random = {6};
    for (int ndim = 5; ndim <= TSR_MAX_DIMS; ndim++) {
        int64_t shape[TSR_MAX_DIMS];
        int order[TSR_MAX_DIMS];
        for (int i = 0; i < ndim; i++) {
            shape[i] = 3;
            order[i] = ndim - 1 - i;
        }
        copy_image src = image_whole(&random, TSR_I32, ndim, shape),
                   dst = image_whole(&random, TSR_I32, ndim, shape);
        image_permute(&src, order);
        check_copy(&dst, &src);
        image_drop(&dst);
        image_drop(&src);
    }
}
END_TEST

START_TEST(nothing_to_do)
{
    int64_t shape[] = {3, 0, 2}, one[] = {4};
    tsr_tensor *empty = gpu_new(TSR_F32, 3, shape), *other = gpu_new(TSR_U8, 3, shape);
    GPU_OK(tsr_copy(queue, empty, other));
    tsr_tensor *x = gpu_new(TSR_F32, 1, one);
    gpu_put(x, (double[]){1, 2, 3, 4});
    GPU_OK(tsr_copy(queue, x, x)); /* onto itself */
    double values[4];
    gpu_get(x, values);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq(values[i], i + 1);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&other);
    tsr_tensor_destroy(&empty);
}
END_TEST

START_TEST(concatenates)
{
    int64_t ab[] = {2, 3}, c[] = {2, 6};
    tsr_tensor *a = gpu_new(TSR_F32, 2, ab), *b = gpu_new(TSR_F16, 2, ab),
               *y = gpu_new(TSR_F32, 2, c), *left, *right;
    gpu_put(a, (double[]){1, 2, 3, 4, 5, 6});
    gpu_put(b, (double[]){-1, -2, -3, -4, -5, -6});
    GPU_OK(tsr_tensor_slice(y, 1, 0, 3, 1, &left));
    GPU_OK(tsr_tensor_slice(y, 1, -3, TSR_END, 1, &right));
    GPU_OK(tsr_copy(queue, left, a));
    GPU_OK(tsr_copy(queue, right, b));
    const double expected[] = {1, 2, 3, -1, -2, -3, 4, 5, 6, -4, -5, -6};
    double got[12];
    gpu_get(y, got);
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq(got[i], expected[i]);
    tsr_tensor_destroy(&left);
    tsr_tensor_destroy(&right);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&a);
}
END_TEST

static void finds_aligned_groups(void *user, tsr__shader shader, const uint32_t *spec,
                                 int spec_count, VkPipeline pipeline)
{
    (void)spec_count;
    (void)pipeline;
    if (shader == TSR__SHADER_COPY && spec[1] == TSR_COPY_BITS16 && spec[4] == TSR_COPY_ALIGNED)
        *(bool *)user = true;
}

/* Bytes that are copied two at a time, in groups of four pairs, whose addresses are no multiples of
 * 8: a GPU may not load such a group at once. */
START_TEST(groups_of_pairs_are_aligned)
{
    const int64_t wide[] = {3, 32}, narrow[] = {3, 6};
    uint8_t in[96], out[18];
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    gpu->host_copies = false;
    for (int first = 4; first <= 8; first += 4) {
        tsr_tensor *x = gpu_new(TSR_U8, 2, wide), *y = gpu_new(TSR_U8, 2, narrow), *view;
        for (int i = 0; i < 96; i++)
            in[i] = (uint8_t)(7 * i + first);
        GPU_OK(tsr_tensor_upload(queue, x, in, sizeof in));
        GPU_OK(tsr_tensor_slice(x, 1, first, first + 6, 1, &view));
        GPU_OK(tsr_copy(queue, y, view));
        GPU_OK(tsr_tensor_download(queue, y, out, sizeof out));
        for (int i = 0; i < 18; i++)
            ck_assert_uint_eq(out[i], in[i / 6 * 32 + first + i % 6]);
        bool found = false;
        tsr__pipelines_visit(gpu, finds_aligned_groups, &found);
        ck_assert(found == (first == 8));
        tsr_tensor_destroy(&view);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&y);
    }
}
END_TEST

START_TEST(refuses)
{
    int64_t square[] = {4, 4}, other[] = {4, 3};
    tsr_tensor *x = gpu_new(TSR_F32, 2, square), *y = gpu_new(TSR_F32, 2, other), *view, *wide;
    GPU_FAILS(tsr_copy(NULL, x, x), TSR_ERR_INVALID, "copy: stream is NULL");
    GPU_FAILS(tsr_copy(queue, NULL, x), TSR_ERR_INVALID, "copy: dst is NULL");
    GPU_FAILS(tsr_copy(queue, x, NULL), TSR_ERR_INVALID, "copy: src is NULL");
    GPU_FAILS(tsr_copy(queue, x, y), TSR_ERR_INVALID,
              "copy: src [4,3] does not broadcast to dst [4,4]");

    GPU_OK(tsr_tensor_transpose(x, 0, 1, &view));
    GPU_FAILS(tsr_copy(queue, x, view), TSR_ERR_INVALID, "copy: dst [4,4] overlaps src [4,4]");
    tsr_tensor_destroy(&view);

    GPU_OK(tsr_tensor_slice(x, 0, 1, 2, 1, &view));
    GPU_FAILS(tsr_copy(queue, x, view), TSR_ERR_INVALID, "copy: dst [4,4] overlaps src [4,4]");
    tsr_tensor_destroy(&view);

    view = gpu_as(x, TSR_I32);
    GPU_FAILS(tsr_copy(queue, view, x), TSR_ERR_INVALID,
              "copy: dst [4,4] overlaps src [4,4] in one buffer as another dtype");
    tsr_tensor_destroy(&view);

    GPU_OK(tsr_tensor_select(y, 1, 0, &view));
    GPU_OK(tsr_tensor_broadcast(view, 2, square, &wide));
    GPU_FAILS(tsr_copy(queue, wide, x), TSR_ERR_INVALID,
              "dst is a view [4,4] that names an element more than once");
    tsr_tensor_destroy(&wide);
    tsr_tensor_destroy(&view);

    /* Adjacent views of one buffer are allowed. */
    tsr_tensor *even, *odd;
    GPU_OK(tsr_tensor_slice(x, 1, 0, TSR_END, 2, &even));
    GPU_OK(tsr_tensor_slice(x, 1, 1, TSR_END, 2, &odd));
    GPU_OK(tsr_copy(queue, even, odd));
    tsr_tensor_destroy(&odd);
    tsr_tensor_destroy(&even);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
}
END_TEST

/* Copies between two device objects of the same GPU, as if they were two devices. */
START_TEST(across_devices)
{
    tsr_device *second;
    tsr_stream *second_queue;
    GPU_OK(tsr_device_open(NULL, &second));
    GPU_OK(tsr_stream_create(second, &second_queue));
    int64_t shape[] = {3, 4}, column[] = {3, 1};
    const double values[] = {1.5, -2, 3, -4.25, 5, 6, 7, 8, 9, 10, 11, 300};

    tsr_tensor *src, *dst = gpu_new(TSR_F32, 2, shape), *transposed;
    GPU_OK(tsr_tensor_create(second, TSR_F32, 2, (int64_t[]){4, 3}, &src));
    GPU_OK(tsr_fill(second_queue, src, 7));
    GPU_OK(tsr_tensor_transpose(src, 0, 1, &transposed));
    tsr_tensor *here = gpu_new(TSR_F32, 2, shape);
    gpu_put(here, values);
    GPU_FAILS(tsr_copy(queue, transposed, here), TSR_ERR_INVALID, "copy: dst is on device");
    GPU_OK(tsr_copy(second_queue, transposed, here)); /* to the other device … */
    GPU_OK(tsr_copy(queue, dst, transposed));         /* … and back */
    double got[12];
    gpu_get(dst, got);
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq(got[i], values[i]);

    /* The copy also converts and broadcasts. */
    tsr_tensor *bytes = gpu_new(TSR_U8, 2, shape), *first;
    GPU_OK(tsr_tensor_slice(transposed, 1, 3, 4, 1, &first));
    ck_assert_int_eq(tsr_tensor_layout(first)->shape[1], column[1]);
    GPU_OK(tsr_copy(queue, bytes, first));
    gpu_get(bytes, got);
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq(got[i], gpu_rounded(values[i / 4 * 4 + 3], TSR_U8));

    tsr_tensor_destroy(&first);
    tsr_tensor_destroy(&bytes);
    tsr_tensor_destroy(&here);
    tsr_tensor_destroy(&transposed);
    tsr_tensor_destroy(&dst);
    tsr_tensor_destroy(&src);
    tsr_stream_destroy(&second_queue);
    tsr_device_close(&second);
}
END_TEST

static void add_all(TCase *tests)
{
    tcase_add_test(tests, random_views);
    tcase_add_test(tests, transposes);
    tcase_add_test(tests, transposes_that_convert);
    tcase_add_test(tests, rows);
    tcase_add_test(tests, many_dimensions);
}

TESTS(copy)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    add_all(tests);
    tcase_add_test(tests, many_rows);
    tcase_add_test(tests, long_rows);
    tcase_add_loop_test(tests, large_and_contiguous, 0, 4);
    tcase_add_loop_test(tests, large_pieces, 0, 6);
    tcase_add_test(tests, busy_rows);
    tcase_add_test(tests, at_once_or_recorded);
    tcase_add_test(tests, nothing_to_do);
    tcase_add_test(tests, concatenates);
    tcase_add_test(tests, refuses);
    tcase_add_test(tests, across_devices);
}

TESTS(copy_by_device)
{
    tcase_add_checked_fixture(tests, gpu_setup_by_device, gpu_teardown);
    add_all(tests);
    tcase_add_test(tests, many_rows);
    tcase_add_test(tests, at_once_or_recorded);
}

TESTS(copy_staged)
{
    tcase_add_checked_fixture(tests, gpu_setup_staged, gpu_teardown);
    add_all(tests);
    tcase_add_test(tests, many_rows);
    tcase_add_test(tests, across_devices);
}

TESTS(copy_groups)
{
    tcase_add_checked_fixture(tests, gpu_setup_not_shared, gpu_teardown);
    tcase_add_test(tests, groups_of_pairs_are_aligned);
}

TESTS(copy_as_gpu_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu_packed, gpu_teardown);
    add_all(tests);
}
