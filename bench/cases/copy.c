/* tessera bench copy: copies on the device, and transfers to and from it. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/bench.h"
#include "bench/harness/clock.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

/* Products of matrices that keep a device busy on a stream of their own while something else is
 * measured. Their results are not used. */

#define BUSY_MOST 16

typedef struct busy_products {
    tsr_stream *stream;
    tsr_tensor *x, *y;
    double product_ns; /* the time of one product alone */
    int pending;       /* how many products busy_queue keeps in the queue */
    /* a ring: product number i has ended when the stream reaches points[i % BUSY_MOST] */
    uint64_t points[BUSY_MOST];
    uint64_t count; /* products recorded so far */
} busy_products;

/* The numbers of rows and columns of the matrices. On a GPU of 20 TFLOP/s a product takes about a
 * millisecond. */
#define GPU_SIDE 2048
#define CPU_SIDE 384

/* Records and submits products until `pending` of them have not ended. Does not wait. */
static tsr_status busy_queue(busy_products *busy)
{
    tsr_status status = TSR_OK;
    while (status == TSR_OK) {
        /* Products end in order: if the oldest of the last `pending` ones
         * has not ended, none has. */
        const uint64_t wanted = (uint64_t)busy->pending;
        bool reached = busy->count < wanted;
        if (!reached)
            status = tsr_stream_reached(busy->stream,
                                        busy->points[(busy->count - wanted) % BUSY_MOST], &reached);
        if (status != TSR_OK || !reached)
            break;
        status = tsr_matmul(busy->stream, busy->y, busy->x, busy->x, NULL);
        if (status == TSR_OK)
            status = tsr_stream_mark(busy->stream, &busy->points[busy->count++ % BUSY_MOST]);
        if (status == TSR_OK)
            status = tsr_stream_submit(busy->stream);
    }
    return status;
}

/* Creates the stream and the matrices. The caller calls busy_finish in any case. */
static bool busy_init(bench_context *context, busy_products *busy)
{
    const int64_t side = context->info->type == TSR_DEVICE_CPU ? CPU_SIDE : GPU_SIDE;
    const int64_t shape[] = {side, side};
    *busy = (busy_products){.pending = 1};
    BENCH_TRY(context, tsr_stream_create(context->device, &busy->stream));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 2, shape, &busy->x));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 2, shape, &busy->y));
    BENCH_TRY(context, tsr_fill(busy->stream, busy->x, 1));
    /* The first product builds pipelines, the second one is timed. */
    for (int i = 0; i < 2; i++) {
        const double start = bench_now_ns();
        BENCH_TRY(context, busy_queue(busy));
        BENCH_TRY(context, tsr_stream_wait(busy->stream));
        busy->product_ns = bench_now_ns() - start;
    }
    return true;
}

static void busy_finish(busy_products *busy)
{
    tsr_stream_destroy(&busy->stream);
    tsr_tensor_destroy(&busy->x);
    tsr_tensor_destroy(&busy->y);
}

/* Sets `pending`, the number of products to keep in the queue, so that they take at least `ns`
 * together, but to at most BUSY_MOST. */
static void busy_for(busy_products *busy, double ns)
{
    const double wanted = ceil(ns / busy->product_ns);
    busy->pending = wanted < BUSY_MOST ? (int)wanted : BUSY_MOST;
}

/* Copies --------------------------------------------------------------------------------------- */

#define SEED 9
#define DEFAULT_MIB 64
/* In a complete run on CPU drivers, the size of tensors that are converted or transposed. */
#define COMPLETE_MIB 16

/* The operands of one copy: a matrix on the device, a view of it as the source, and the
 * destination. */
typedef struct copy {
    bench_context *context;
    tsr_dtype from_dtype, to_dtype;
    int64_t rows, columns; /* of the matrix from which is copied */
    int64_t kept;          /* the view that is copied has the first `kept` columns of the matrix */
    bool transpose, from_host;
    float *values; /* the matrix in f32, on the host */
    /* `source` has the bytes of the matrix, and `wanted` those that the destination should have */
    void *source, *wanted;
    void *result;
    uint64_t source_bytes, result_bytes;
    tsr_tensor *whole, *view, *to;
    const bench_row *ceiling;
    busy_products busy; /* the products; used only by copies that run while products are computed */
} copy;

static tsr_status run_copy(tsr_stream *stream, void *user)
{
    copy *test = user;
    return tsr_copy(stream, test->to, test->view);
}

static tsr_status run_upload(tsr_stream *stream, void *user)
{
    copy *test = user;
    tsr_status status = tsr_tensor_upload(stream, test->to, test->source, test->source_bytes);
    return status == TSR_OK ? tsr_stream_wait(stream) : status;
}

static tsr_status run_download(tsr_stream *stream, void *user)
{
    copy *test = user;
    return tsr_tensor_download(stream, test->whole, test->result, test->source_bytes);
}

static tsr_status run_upload_beside(tsr_stream *stream, void *user)
{
    copy *test = user;
    tsr_status status = busy_queue(&test->busy);
    return status == TSR_OK ? run_upload(stream, user) : status;
}

static tsr_status run_download_beside(tsr_stream *stream, void *user)
{
    copy *test = user;
    tsr_status status = busy_queue(&test->busy);
    return status == TSR_OK ? run_download(stream, user) : status;
}

typedef struct copy_case {
    const char *name;
    tsr_status (*run)(tsr_stream *stream, void *user);
    tsr_dtype from, to;
    bool half;         /* the case copies the left half of a square matrix */
    int64_t row_bytes; /* bytes in a row of the matrix; 0: the matrix is square */
    bool transpose;
    bool alone; /* left out of a complete run */
    /* Products run on another stream during the copy. On CPU drivers a complete run leaves the case
     * out, because there the products use the processors that copy. */
    bool beside;
    bool from_host; /* the device reads the matrix from the host's memory */
} copy_case;

static const copy_case cases[] = {
    {"contiguous", run_copy, TSR_F32, TSR_F32, .row_bytes = 0},
    {"left half", run_copy, TSR_F32, TSR_F32, .half = true},
    {"rows", run_copy, TSR_F32, TSR_F32, .row_bytes = 64},
    {"rows", run_copy, TSR_F32, TSR_F32, .row_bytes = 256, .alone = true},
    {"rows", run_copy, TSR_F32, TSR_F32, .row_bytes = 1 << 10, .alone = true},
    {"rows", run_copy, TSR_F32, TSR_F32, .row_bytes = 4 << 10},
    {"rows", run_copy, TSR_F32, TSR_F32, .row_bytes = 16 << 10, .alone = true},
    {"rows", run_copy, TSR_F32, TSR_F32, .row_bytes = 64 << 10, .alone = true},
    {"transpose", run_copy, TSR_F32, TSR_F32, .transpose = true},
    {"convert", run_copy, TSR_F32, TSR_F16, .row_bytes = 0},
    {"convert", run_copy, TSR_F16, TSR_F32, .row_bytes = 0},
    {"convert", run_copy, TSR_F32, TSR_BF16, .alone = true},
    {"from the host", run_copy, TSR_F32, TSR_F32, .from_host = true, .alone = true},
    {"upload", run_upload, TSR_F32, TSR_F32, .row_bytes = 0},
    {"download", run_download, TSR_F32, TSR_F32, .row_bytes = 0},
    {"upload beside products", run_upload_beside, TSR_F32, TSR_F32, .beside = true},
    {"download beside products", run_download_beside, TSR_F32, TSR_F32, .beside = true},
};

/* Computes the destination's expected elements in row-major order on the host. */
static void compute_wanted(copy *test)
{
    float *moved = cli_alloc((size_t)(test->rows * test->kept), sizeof *moved);
    for (int64_t row = 0; row < test->rows; row++)
        for (int64_t column = 0; column < test->kept; column++) {
            int64_t position =
                test->transpose ? column * test->rows + row : row * test->kept + column;
            moved[position] = test->values[row * test->columns + column];
        }
    bench_encode(test->to_dtype, moved, (uint64_t)(test->rows * test->kept), test->wanted);
    free(moved);
}

static bool create(copy *test)
{
    bench_context *context = test->context;
    uint64_t count = (uint64_t)(test->rows * test->columns);
    uint64_t moved = (uint64_t)(test->rows * test->kept);
    test->source_bytes = count * tsr_dtype_size(test->from_dtype);
    test->result_bytes = moved * tsr_dtype_size(test->to_dtype);
    test->values = cli_alloc(count, sizeof *test->values);
    test->source = cli_alloc(test->source_bytes, 1);
    test->wanted = cli_alloc(test->result_bytes, 1);
    test->result = cli_alloc(test->result_bytes, 1);
    /* The f32 values use all bits of the significand, so that conversions to 16 bits must round. */
    bench_random_values(test->values, count, test->from_dtype, SEED);
    bench_encode(test->from_dtype, test->values, count, test->source);
    compute_wanted(test);

    tsr_tensor *kept = NULL;
    int64_t shape[] = {test->rows, test->columns}, to_shape[] = {test->rows, test->kept};
    if (test->transpose)
        memcpy(to_shape, (int64_t[]){test->kept, test->rows}, sizeof to_shape);
    BENCH_TRY(context, (test->from_host ? tsr_tensor_create_host : tsr_tensor_create)(
                           context->device, test->from_dtype, 2, shape, &test->whole));
    BENCH_TRY(context, tsr_tensor_create(context->device, test->to_dtype, 2, to_shape, &test->to));
    BENCH_TRY(context,
              tsr_tensor_upload(context->stream, test->whole, test->source, test->source_bytes));
    BENCH_TRY(context, tsr_tensor_slice(test->whole, 1, 0, test->kept, 1, &kept));
    if (!test->transpose) {
        test->view = kept;
        return true;
    }
    tsr_status status = tsr_tensor_transpose(kept, 0, 1, &test->view);
    tsr_tensor_destroy(&kept);
    BENCH_TRY(context, status);
    return true;
}

static void finish(copy *test)
{
    busy_finish(&test->busy);
    tsr_tensor_destroy(&test->view);
    tsr_tensor_destroy(&test->whole);
    tsr_tensor_destroy(&test->to);
    free(test->values);
    free(test->source);
    free(test->wanted);
    free(test->result);
}

/* Compares bit by bit, as 32- or 16-bit words. */
static void check_bits(const copy *test, bench_check *check, int64_t columns)
{
    bench_check_begin(check, "every element's bits");
    uint64_t size = tsr_dtype_size(test->to_dtype), count = test->result_bytes / size;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t want = 0, got = 0;
        memcpy(&want, (const char *)test->wanted + i * size, size);
        memcpy(&got, (const char *)test->result + i * size, size);
        bench_check_value(check, (int64_t)i / columns, (int64_t)i % columns, got, want, 0);
    }
}

/* Compares the destination with the expected elements. Must be called after one or more runs of the
 * copy. */
static bool verify(copy *test, bench_row *row, const copy_case *which)
{
    bench_context *context = test->context;
    const bool on_host = which->run == run_download || which->run == run_download_beside;
    if (!on_host)
        BENCH_TRY(context,
                  tsr_tensor_download(context->stream, test->to, test->result, test->result_bytes));
    check_bits(test, &row->check, test->transpose ? test->rows : test->kept);
    return bench_verified(context, row);
}

/* Starts the products that run during the transfer. They take twice as long as the transfer alone,
 * so that they still run when it ends. On a device with only one queue, the transfer begins only
 * when the products have ended. */
static bool begin_products(copy *test, const copy_case *which)
{
    bench_context *context = test->context;
    if (!busy_init(context, &test->busy))
        return false;
    double start = 0;
    for (int i = 0; i < 2; i++) { /* the first transfer allocates staging memory */
        start = bench_now_ns();
        BENCH_TRY(context, (which->run == run_upload_beside ? run_upload
                                                            : run_download)(context->stream, test));
    }
    busy_for(&test->busy, 2 * (bench_now_ns() - start));
    return true;
}

static bool measure_copies(copy *test, const copy_case *which)
{
    bench_context *context = test->context;
    if (!create(test) || (which->beside && !begin_products(test, which)))
        return false;
    uint64_t elements = test->result_bytes / tsr_dtype_size(test->to_dtype);
    uint64_t read = elements * tsr_dtype_size(test->from_dtype);
    bench_row *row = bench_add(context, "copy", BENCH_GBYTES, (double)(read + test->result_bytes));
    bench_text(row, "what", "%s", which->name);
    bench_text(row, "dtypes", "%s to %s", tsr_dtype_name(test->from_dtype),
               tsr_dtype_name(test->to_dtype));
    bench_text(row, "moved", "[%" PRId64 ",%" PRId64 "]", test->rows, test->kept);
    bench_integer(row, "row_bytes", test->kept * (int64_t)tsr_dtype_size(test->from_dtype));
    row->memory = test->ceiling;

    bool by_device = which->run == run_copy && context->info->type != TSR_DEVICE_CPU;
    BENCH_TRY(context, which->run(context->stream, test));
    if (!verify(test, row, which) ||
        !bench_measure(
            context, row,
            &(bench_task){.run = which->run, .user = test, .no_device_clock = !by_device}) ||
        !verify(test, row, which))
        return false;
    return true;
}

static int64_t side_of(int64_t mib)
{
    int64_t side = 1;
    while (4 * (2 * side) * (2 * side) <= mib << 20)
        side *= 2;
    return side;
}

static bool run_case(bench_context *context, const copy_case *which)
{
    bool slow = which->transpose || which->from != which->to;
    bool small = slow && context->options->complete && context->info->type == TSR_DEVICE_CPU;
    int64_t mib = small ? COMPLETE_MIB : DEFAULT_MIB;
    if (context->options->size_mib > 0)
        mib = context->options->size_mib;
    copy test = {.context = context,
                 .from_dtype = which->from,
                 .to_dtype = which->to,
                 .transpose = which->transpose,
                 .from_host = which->from_host};
    test.ceiling = bench_memory_peak(context);
    if (test.ceiling == NULL)
        return false;
    if (which->row_bytes > 0) {
        test.kept = which->row_bytes / 4;
        test.columns = 2 * test.kept;
        test.rows = (mib << 20) / (8 * test.kept);
    } else {
        test.rows = test.columns = side_of(mib);
        test.kept = which->half ? test.columns / 2 : test.columns;
    }
    bool done = measure_copies(&test, which);
    finish(&test);
    return done;
}

static bool run_copies(bench_context *context)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bool by_host = cases[i].beside && context->info->type == TSR_DEVICE_CPU;
        if (!(context->options->complete && (cases[i].alone || by_host)) &&
            !run_case(context, &cases[i]))
            return false;
    }
    return true;
}

const bench bench_copy = {
    .name = "copy",
    .summary = "copies of slices, transposes and conversions, and transfers; GB/s",
    .help =
        "Copies views of a random matrix of --size MiB (default: 64) with tsr_copy. 'upload' and "
        "'download' move the whole matrix between host and device, waiting each time; 'from the "
        "host' "
        "reads a matrix that stays in the host's memory; 'beside "
        "products' means while matrix products run on another stream. GB/s count bytes read plus "
        "bytes written, also for transfers. The ceiling is the bandwidth of the memory, measured "
        "in "
        "the same run. With CPU drivers, the host copies on all CPUs.\n",
    .takes = BENCH_SIZE,
    .run = run_copies,
};
