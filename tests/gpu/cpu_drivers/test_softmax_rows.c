/* Softmax, cross-entropy and their gradients for rows without gaps, for which Mesa's CPU driver has
 * its own kernels. Compares them with references in double precision, for sizes around all limits
 * of these kernels; gaps between rows must stay unchanged. Other drivers use the general
 * kernels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "gpu/cpu_drivers/ops/row_spans.h"
#include "gpu/cpu_drivers/ops/softmax_chunks.h"
#include "gpu/cpu_drivers/ops/softmax_short.h"
#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "support/check_main.h"
#include "support/close.h"
#include "support/gpu.h"

/* A view [planes, rows, columns] from element `offset` on, with gaps of `gap` elements after each
 * row and plane. */
typedef struct shape {
    int64_t planes, rows, columns, gap, offset;
} shape;

/* The dtypes of a, b and y. If an operation is in place, it writes y over a, or over b if it is
 * a gradient. */
typedef struct kind {
    tsr_dtype a, b, y;
    bool in_place;
} kind;

typedef struct operand {
    tsr_tensor *whole, *view;
    double *values;       /* those of the view's elements */
    unsigned char *start; /* the bits of the complete buffer before the operation */
    uint64_t bytes;
} operand;

static void *memory(int64_t count, size_t size)
{
    void *block = calloc((size_t)count, size);
    ck_assert_ptr_nonnull(block);
    return block;
}

static int64_t whole_count(shape s)
{
    return s.offset + s.planes * (s.rows * (s.columns + s.gap) + s.gap) + 3;
}

/* Returns the first element of row number `row` in the complete buffer. */
static int64_t row_start(shape s, int64_t row)
{
    return s.offset + row / s.rows * (s.rows * (s.columns + s.gap) + s.gap) +
           row % s.rows * (s.columns + s.gap);
}

static operand create(gpu_random *random, shape s, int ndim, tsr_dtype dtype, double low,
                      double high)
{
    int64_t count = whole_count(s), rows = s.planes * s.rows;
    operand o = {.whole = gpu_new(dtype, 1, &count),
                 .values = memory(rows * s.columns, sizeof(double)),
                 .bytes = (uint64_t)count * tsr_dtype_size(dtype)};
    tsr_layout layout = *tsr_tensor_layout(o.whole);

    layout.ndim = ndim;
    layout.offset = s.offset;
    const int64_t sizes[] = {s.planes, s.rows, s.columns};
    const int64_t strides[] = {s.rows * (s.columns + s.gap) + s.gap, s.columns + s.gap, 1};
    for (int d = 0; d < ndim; d++) {
        layout.shape[d] = sizes[d + 3 - ndim];
        layout.strides[d] = strides[d + 3 - ndim];
    }
    GPU_OK(tsr_tensor_view(o.whole, &layout, &o.view));
    o.start = memory((int64_t)o.bytes, 1);
    for (uint64_t i = 0; i < o.bytes; i++)
        o.start[i] = (unsigned char)gpu_random_u64(random);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t j = 0; j < s.columns; j++) {
            double *value = &o.values[row * s.columns + j];
            *value = gpu_rounded(low + (high - low) * (gpu_random_unit(random) + 1) / 2, dtype);
            gpu_store_bits(o.start, row_start(s, row) + j, dtype, gpu_bits(*value, dtype));
        }
    GPU_OK(tsr_tensor_upload(queue, o.whole, o.start, o.bytes));
    return o;
}

static void destroy(operand *o)
{
    tsr_tensor_destroy(&o->view);
    tsr_tensor_destroy(&o->whole);
    free(o->values);
    free(o->start);
}

/* Reads the view's values, and checks that the elements around it have not changed. */
static double *results(const operand *o, shape s)
{
    tsr_dtype dtype = tsr_tensor_layout(o->whole)->dtype;
    unsigned char *now = memory((int64_t)o->bytes, 1);
    double *values = memory(s.planes * s.rows * s.columns, sizeof *values);

    GPU_OK(tsr_tensor_download(queue, o->whole, now, o->bytes));
    for (int64_t row = 0; row < s.planes * s.rows; row++)
        for (int64_t j = 0; j < s.columns; j++) {
            int64_t at = row_start(s, row) + j;
            values[row * s.columns + j] = gpu_value(gpu_load_bits(now, at, dtype), dtype);
            gpu_store_bits(now, at, dtype, gpu_load_bits(o->start, at, dtype));
        }
    ck_assert_mem_eq(now, o->start, o->bytes);
    free(now);
    return values;
}

static void assert_close_at(const char *what, shape s, int64_t index, double got, double want,
                            double tolerance)
{
    if (!is_close(got, want, tolerance))
        ck_abort_msg("%s of [%lld,%lld,%lld]: row %lld, column %lld is %.9g, not %.9g (±%.2g)",
                     what, (long long)s.planes, (long long)s.rows, (long long)s.columns,
                     (long long)(index / s.columns), (long long)(index % s.columns), got, want,
                     tolerance);
}

/* Returns Σ e^(x − largest), and sets *largest to the largest x. */
static double exponentials(const double *x, int64_t count, double *largest)
{
    double sum = 0;

    *largest = -INFINITY;
    for (int64_t j = 0; j < count; j++)
        *largest = x[j] > *largest ? x[j] : *largest;
    for (int64_t j = 0; j < count; j++)
        sum += exp(x[j] - *largest);
    return sum;
}

static void check_forward(shape s, kind k, bool logarithm)
{
    gpu_random random = {(uint64_t)s.columns};
    operand x = create(&random, s, 3, k.a, -9, 9);
    operand other = create(&random, s, 3, k.y, -1, 1), *y = k.in_place ? &x : &other;
    tsr_dtype dtype = k.in_place ? k.a : k.y;

    GPU_OK(tsr_softmax(queue, y->view, x.view, logarithm));
    double *got = results(y, s), largest;
    for (int64_t row = 0; row < s.planes * s.rows; row++) {
        double sum = exponentials(x.values + row * s.columns, s.columns, &largest);
        for (int64_t i = row * s.columns; i < (row + 1) * s.columns; i++) {
            double part = x.values[i] - largest,
                   want = logarithm ? part - log(sum) : exp(part) / sum;
            double tolerance = logarithm ? 8e-6 : 2e-6 * want;
            assert_close_at(logarithm ? "log_softmax" : "softmax", s, i, got[i], want,
                            tolerance + 2 * storage_error(want, dtype));
        }
    }
    free(got);
    destroy(&x);
    destroy(&other);
}

static void check_gradient(shape s, kind k, bool logarithm)
{
    gpu_random random = {(uint64_t)s.columns + 1};
    operand y = create(&random, s, 3, k.a, logarithm ? -9 : 0, logarithm ? 0 : 1);
    operand dy = create(&random, s, 3, k.b, -2, 2);
    operand other = create(&random, s, 3, k.y, -1, 1), *dx = k.in_place ? &dy : &other;
    tsr_dtype dtype = k.in_place ? k.b : k.y;

    GPU_OK(tsr_softmax_grad(queue, dx->view, y.view, dy.view, logarithm));
    double *got = results(dx, s);
    for (int64_t row = 0; row < s.planes * s.rows; row++) {
        double sum = 0, size = 0;
        for (int64_t i = row * s.columns; i < (row + 1) * s.columns; i++) {
            double part = logarithm ? dy.values[i] : y.values[i] * dy.values[i];
            sum += part;
            size += fabs(part);
        }
        for (int64_t i = row * s.columns; i < (row + 1) * s.columns; i++) {
            double factor = logarithm ? exp(y.values[i]) : y.values[i];
            double want = logarithm ? dy.values[i] - factor * sum : factor * (dy.values[i] - sum);
            assert_close_at(logarithm ? "log_softmax_grad" : "softmax_grad", s, i, got[i], want,
                            factor * (4e-6 * size + 1e-6) + 1e-6 * fabs(want) +
                                2 * storage_error(want, dtype));
        }
    }
    free(got);
    destroy(&y);
    destroy(&dy);
    destroy(&other);
}

static void check_all(shape s, kind k)
{
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        check_forward(s, k, logarithm != 0);
        check_gradient(s, k, logarithm != 0);
    }
}

static const kind plain = {TSR_F32, TSR_F32, TSR_F32, false};
static const kind plain_in_place = {TSR_F32, TSR_F32, TSR_F32, true};

/* Tests the last length for each kernel and the first length for the next one, with rows that start
 * at even and at odd elements. */
START_TEST(rows_of_any_length)
{
    static const shape shapes[] = {
        {1, 400, 31, 1, 0},  {1, 400, 32, 0, 0},  {1, 200, 63, 0, 1},  {1, 130, 97, 3, 2},
        {1, 40, 257, 2, 0},  {1, 20, 1024, 0, 0}, {1, 33, 1025, 1, 1}, {1, 32, 1027, 0, 0},
        {1, 17, 2048, 4, 2}, {1, 40, 1599, 2, 3}, {1, 9, 12345, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_all(shapes[i], i % 2 == 0 ? plain : plain_in_place);
}
END_TEST

START_TEST(planes)
{
    check_all((shape){3, 70, 130, 6, 0}, plain);
    check_all((shape){5, 8, 2050, 2, 0}, plain_in_place);
    check_all((shape){20, 6, 300, 2, 0}, plain); /* more planes than these kernels take */
}
END_TEST

/* The tensor has so many elements that the kernel for short rows is used even though the rows
 * have more than 1024 elements. */
START_TEST(many_long_rows)
{
    check_forward((shape){1, 2100, 2047, 1, 0}, plain, false);
}
END_TEST

START_TEST(float16)
{
    static const kind kinds[] = {{TSR_F16, TSR_F32, TSR_BF16, false},
                                 {TSR_BF16, TSR_F16, TSR_F16, false},
                                 {TSR_F32, TSR_BF16, TSR_F32, true}};
    static const shape shapes[] = {
        {1, 100, 200, 0, 0}, {1, 60, 333, 0, 1}, {1, 30, 1501, 2, 0}, {1, 20, 2048, 0, 2}};
    for (size_t i = 0; i < 3; i++)
        for (size_t j = i % 2; j < sizeof shapes / sizeof *shapes; j += 2)
            check_all(shapes[j], kinds[i]);
}
END_TEST

/* Computes cross-entropy in one call, and in `parts` calls, each with a range of the columns, as
 * ranks that divide the vocabulary would. The gradient may overwrite the logits. */
static void check_cross_entropy(shape s, kind k, int parts)
{
    gpu_random random = {(uint64_t)s.columns + 2};
    operand logits = create(&random, s, 2, k.a, -9, 9);
    operand other = create(&random, s, 2, k.y, -1, 1), *d = k.in_place ? &logits : &other;
    tsr_dtype dtype = k.in_place ? k.a : k.y;
    tsr_tensor *labels = gpu_new(TSR_I32, 1, &s.rows), *loss = gpu_new(TSR_F32, 1, &s.rows);
    tsr_tensor *stats = gpu_new(TSR_F32, 3, (int64_t[]){parts, 3, s.rows});
    double *label = memory(s.rows, sizeof *label), *losses = memory(s.rows, sizeof *losses);

    for (int64_t r = 0; r < s.rows;
         r++) /* some labels are among the last columns, some are -100, which is ignored */
        label[r] = (double)(r % 7 == 3   ? -100
                            : r % 5 == 0 ? s.columns - 1 - r % 4
                                         : gpu_random_between(&random, 0, s.columns - 1));
    gpu_put(labels, label);
    gpu_poison(loss);
    gpu_poison(stats);
    if (parts == 0)
        GPU_OK(tsr_cross_entropy(queue, loss, d->view, logits.view, labels, 0.75F));
    for (int step = 0; step < 2; step++)
        for (int p = 0; p < parts; p++) {
            int64_t first = s.columns * p / parts, end = s.columns * (p + 1) / parts;
            tsr_tensor *part, *dpart, *mine;
            GPU_OK(tsr_tensor_slice(logits.view, 1, first, end, 1, &part));
            GPU_OK(tsr_tensor_slice(d->view, 1, first, end, 1, &dpart));
            GPU_OK(tsr_tensor_select(stats, 0, p, &mine));
            if (step == 0)
                GPU_OK(tsr__cross_entropy_shard_stats(queue, mine, part, labels, first));
            else
                GPU_OK(tsr__cross_entropy_shard(queue, loss, dpart, part, labels, stats, first,
                                                s.columns, 0.75F));
            tsr_tensor_destroy(&part);
            tsr_tensor_destroy(&dpart);
            tsr_tensor_destroy(&mine);
        }
    gpu_get(loss, losses);
    double *got = results(d, s), largest;
    for (int64_t r = 0; r < s.rows; r++) {
        double *x = logits.values + r * s.columns, sum = exponentials(x, s.columns, &largest);
        bool ignored = label[r] < 0;
        double want = ignored ? 0 : log(sum) + largest - x[(int64_t)label[r]];
        assert_close_at("loss", s, r * s.columns, losses[r], want, ignored ? 0 : 1e-5);
        for (int64_t j = 0; j < s.columns; j++) {
            double share = exp(x[j] - largest) / sum;
            want = ignored ? 0 : 0.75 * (share - (j == (int64_t)label[r]));
            assert_close_at(
                "dlogits", s, r * s.columns + j, got[r * s.columns + j], want,
                ignored ? 0 : 2e-6 * share + 1e-7 * fabs(want) + 2 * storage_error(want, dtype));
        }
    }
    free(got);
    free(label);
    free(losses);
    destroy(&logits);
    destroy(&other);
    tsr_tensor *tensors[] = {labels, loss, stats};
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&tensors[i]);
}

START_TEST(cross_entropy)
{
    static const shape shapes[] = {
        {1, 128, 255, 0, 0}, {1, 130, 256, 0, 0}, {1, 77, 1027, 1, 1}, {1, 12, 5003, 2, 0}};
    for (int i = 0; i < 4; i++) {
        check_cross_entropy(shapes[i], i % 2 == 0 ? plain : plain_in_place, 0);
        check_cross_entropy(shapes[i], i % 2 == 0 ? plain_in_place : plain, 1 + i % 3);
    }
    check_cross_entropy((shape){1, 50, 2000, 0, 0}, (kind){TSR_BF16, TSR_F32, TSR_F32, false}, 0);
    check_cross_entropy((shape){1, 50, 2001, 0, 0}, (kind){TSR_F16, TSR_F32, TSR_F16, true}, 2);
}
END_TEST

/* Computes only the loss; the logits must stay unchanged. */
START_TEST(losses_only)
{
    enum { ROWS = 64, COLUMNS = 700 };
    shape s = {1, ROWS, COLUMNS, 1, 0};
    gpu_random random = {61};
    operand logits = create(&random, s, 2, TSR_F32, -9, 9);
    tsr_tensor *labels = gpu_new(TSR_U8, 1, &s.rows), *loss = gpu_new(TSR_F32, 1, &s.rows);
    double label[ROWS], got[ROWS], largest;

    for (int r = 0; r < ROWS; r++)
        label[r] = 3 * r;
    gpu_put(labels, label);
    gpu_poison(loss);
    GPU_OK(tsr_cross_entropy(queue, loss, NULL, logits.view, labels, 1));
    gpu_get(loss, got);
    for (int r = 0; r < ROWS; r++) {
        const double *x = logits.values + (ptrdiff_t)r * COLUMNS;
        double sum = exponentials(x, COLUMNS, &largest);
        assert_close_at("loss", s, r * COLUMNS, got[r], log(sum) + largest - x[3 * r], 1e-5);
    }
    double *kept = results(&logits, s);
    ck_assert_mem_eq(kept, logits.values, ROWS * COLUMNS * sizeof *kept);
    free(kept);
    destroy(&logits);
    tsr_tensor_destroy(&labels);
    tsr_tensor_destroy(&loss);
}
END_TEST

/* Fills a row with ordinary values, or with one kind of special values. */
static void fill_row(double *row, int64_t count, int64_t number)
{
    for (int64_t j = 0; j < count; j++) {
        row[j] = (double)(j % 13) - 6;
        if (number == 1 || (number == 2 && j < count - 1))
            row[j] = -INFINITY; /* in all elements, or in all but the last, so in complete chunks */
        if (number == 5)
            row[j] = j == 1 ? 3e38 : -3e38;
        if (number == 6)
            row[j] = j == 0 ? 0 : -80; /* e^x is subnormal for most elements */
        if (number == 7)
            row[j] = j == 0 ? 0 : -95;
    }
    if (number == 3)
        row[count / 2] = NAN;
    if (number == 4)
        row[count - 2] = INFINITY;
}

static void check_extremes(int64_t columns)
{
    enum { KINDS = 9 };
    const int64_t size[] = {180, columns}, total = size[0] * columns;
    double *x = memory(total, sizeof *x), *y = memory(total, sizeof *y);
    double *log_y = memory(total, sizeof *log_y);
    tsr_tensor *in = gpu_new(TSR_F32, 2, size), *out = gpu_new(TSR_F32, 2, size);

    for (int64_t row = 0; row < size[0]; row++)
        fill_row(x + row * columns, columns, row % KINDS);
    gpu_put(in, x);
    gpu_poison(out);
    GPU_OK(tsr_softmax(queue, out, in, false));
    gpu_get(out, y);
    GPU_OK(tsr_softmax(queue, out, in, true));
    gpu_get(out, log_y);
    for (int64_t row = 0; row < size[0]; row++) {
        double largest, sum = exponentials(x + row * columns, columns, &largest);
        int64_t number = row % KINDS;
        for (int64_t i = row * columns; i < (row + 1) * columns; i++) {
            /* All results of such a row are NaN, as in PyTorch. */
            if (number == 1 || number == 3 || number == 4) {
                ck_assert(isnan(y[i]) && isnan(log_y[i]));
                continue;
            }
            double share = exp(x[i] - largest) / sum, part = x[i] - largest - log(sum);
            ck_assert(fabs(y[i] - share) <= 2e-6 * share + 0x1p-126);
            ck_assert(log_y[i] == part || fabs(log_y[i] - part) <= 8e-6 * fmax(1, fabs(part)) ||
                      (isinf(log_y[i]) && part < -3.4e38));
        }
    }
    free(x);
    free(y);
    free(log_y);
    tsr_tensor_destroy(&in);
    tsr_tensor_destroy(&out);
}

START_TEST(extreme_values)
{
    check_extremes(64);
    check_extremes(1300);
}
END_TEST

/* Computes softmax of rows that need scratch memory and several dispatches. The nth event of a
 * kind (an allocation or a Vulkan call) fails, for all n. Each call must give an error and leave
 * y unchanged, or give the result. */
static void survive_faults(tsr__fault_kind fault, int code)
{
    shape s = {1, 40, 1300, 1, 0};
    gpu_random random = {62};
    operand x = create(&random, s, 3, TSR_F32, -9, 9), y = create(&random, s, 3, TSR_F32, -1, 1);
    int failed = 0;
    bool reached = true;

    for (uint64_t nth = 0; reached; nth++) {
        tsr_stream *stream; /* a new one has no scratch memory yet */
        GPU_OK(tsr_stream_create(gpu, &stream));
        GPU_OK(tsr_tensor_upload(queue, y.whole, y.start, y.bytes));
        GPU_OK(tsr_stream_wait(queue));
        tsr__fault_arm(fault, nth, code);
        tsr_status status = tsr_softmax(stream, y.view, x.view, false);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        GPU_OK(tsr_stream_wait(stream));
        double *got = results(&y, s);
        if (status != TSR_OK) {
            failed++;
            ck_assert_mem_eq(got, y.values, (size_t)(s.rows * s.columns) * sizeof *got);
        } else {
            for (int64_t row = 0; row < s.rows; row++) {
                double sum = 0;
                for (int64_t j = 0; j < s.columns; j++)
                    sum += got[row * s.columns + j];
                ck_assert(fabs(sum - 1) < 1e-4);
            }
        }
        free(got);
        tsr_stream_destroy(&stream);
        ck_assert(reached || status == TSR_OK);
        ck_assert_uint_lt(nth, 1000);
    }
    ck_assert_int_gt(failed, 3);
    destroy(&x);
    destroy(&y);
}

START_TEST(failures_leave_nothing_half_done)
{
    survive_faults(TSR__FAULT_VULKAN, -3 /* VK_ERROR_INITIALIZATION_FAILED */);
    survive_faults(TSR__FAULT_ALLOC, 0);
}
END_TEST

/* Tests that Mesa's CPU driver uses its own kernels. If it did not, the tests above would test the
 * general ones. */
START_TEST(own_kernels_are_used)
{
    tsr__softmax_rows work = {.device = gpu,
                              .function = TSR_SOFTMAX,
                              .y = {.address = 4096, .stride = 4096, .dtype = TSR_F32},
                              .a = {.address = 4096, .stride = 4096, .dtype = TSR_F32},
                              .rows = 400,
                              .count = 97};
    bool lavapipe = gpu->traits.device_class == TSR__CLASS_LAVAPIPE;

    ck_assert_int_eq(tsr__softmax_short_suit(&work), lavapipe);
    ck_assert(!tsr__softmax_chunks_suit(&work));
    work.count = 1025;
    ck_assert(!tsr__softmax_short_suit(&work));
    ck_assert_int_eq(tsr__softmax_chunks_suit(&work), lavapipe);
    work.rows = 4096; /* enough rows to be worth building a pipeline */
    ck_assert_int_eq(tsr__softmax_short_suit(&work), lavapipe);
    work.count = 2049;
    ck_assert(!tsr__softmax_short_suit(&work));
    work.rows = 400;
    work.count = 1025;
    work.a.address++; /* no longer a multiple of a float's size */
    ck_assert(!tsr__softmax_chunks_suit(&work));
    work.a.address--;
    work.b = (tsr__softmax_operand){.address = 4096, .stride = UINT64_C(1) << 32, .dtype = TSR_F32};
    ck_assert(!tsr__softmax_chunks_suit(&work));
    work.b = (tsr__softmax_operand){0};
    work.rows = UINT32_MAX; /* would need 100 GB of scratch memory */
    ck_assert(!tsr__softmax_chunks_suit(&work));
    work.rows = 1;
    ck_assert(!tsr__softmax_chunks_suit(&work));
    work.count = INT32_MAX;
    ck_assert(!tsr__softmax_chunks_suit(&work));
}
END_TEST

/* Rows that are divided into more parts than one dispatch covers. Only the division is tested,
 * because computing the result would take gigabytes. */
START_TEST(rows_for_several_dispatches)
{
    enum { ROWS = 600000, ACROSS = 3 };
    struct tsr_row_spans parts = tsr__row_spans_of((tsr__row_cut){64, ACROSS}, 1030);
    uint64_t row = 0;
    int dispatches = 0;
    for (; row < ROWS; row += parts.rows, dispatches++) {
        uint32_t groups[3];
        tsr__row_spans_take(&parts, ROWS - row, groups);
        ck_assert(parts.rows > 0 && groups[0] <= 65535 && groups[1] == 1 && groups[2] == 1);
        ck_assert_uint_ge(groups[0] * TSR__SPAN_SUBGROUPS, parts.rows * ACROSS);
        ck_assert_uint_lt((groups[0] - 1) * TSR__SPAN_SUBGROUPS, parts.rows * ACROSS);
    }
    ck_assert(row == ROWS && dispatches == 4 && parts.extent == 1030 && parts.across == ACROSS);
}
END_TEST

TESTS(softmax_rows)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, rows_of_any_length);
    tcase_add_test(tests, planes);
    tcase_add_test(tests, many_long_rows);
    tcase_add_test(tests, float16);
    tcase_add_test(tests, cross_entropy);
    tcase_add_test(tests, losses_only);
    tcase_add_test(tests, extreme_values);
    tcase_add_test(tests, failures_leave_nothing_half_done);
    tcase_add_test(tests, own_kernels_are_used);
    tcase_add_test(tests, rows_for_several_dispatches);
}

TESTS(softmax_rows_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_test(tests, float16);
    tcase_add_test(tests, planes);
}
