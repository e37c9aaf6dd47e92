/* tessera bench experts: products of a mixture of experts, beside dense products with the same
 * work. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/bench.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"
#include "tessera/moe.h"
#include "tessera/quant.h"

/* The sizes of a layer. */
typedef struct sizes {
    int64_t tokens, experts, used, width, hidden;
} sizes;

/* Those of Qwen3-30B-A3B, and smaller ones for CPU drivers, with which as many tokens of a prompt
 * choose each expert. */
static const sizes usual = {512, 128, 8, 2048, 768}, small = {128, 16, 4, 1024, 512};

/* The matrices consist of so many different rows. With a prime number, rows of different experts
 * differ. */
#define DIFFERENT_ROWS 251
/* A token chooses other experts in each repetition, so that their matrices are in no cache. */
#define CHOICES 16
/* Tokens of a prompt that are compared with the product in double precision. */
#define CHECKED_TOKENS 4

/* The operands. A dense product has x rows of the same width, one for each chosen expert. */
typedef struct experts {
    bench_context *context;
    sizes of;
    bool is_prompt;
    tsr_dtype dtype;
    float *wide_rows, *narrow_rows; /* different rows of width and of hidden elements */
    float *x, *weights, *y, *dense_y;
    int32_t *ids; /* [choices][tokens][used] */
    int choice, slot, slots;
    tsr_tensor *device_x, *device_weights, *device_ids[CHOICES];
    tsr_tensor *gate, *up, *down, *hidden, *device_y, *order, *offsets;
    tsr_tensor *dense_x, *dense_w[CHOICES], *device_dense_y;
} experts;

static int64_t tokens_of(const experts *e)
{
    return e->is_prompt ? e->of.tokens : 1;
}

/* The rows of the dense product: those of the experts' products with a token's features. */
static int64_t dense_rows(const experts *e)
{
    return e->is_prompt ? e->of.tokens * e->of.used : 1;
}

/* The columns of the dense product, which make its operations those of three matrices of the chosen
 * experts. */
static int64_t dense_columns(const experts *e)
{
    return 3 * e->of.hidden * (e->is_prompt ? 1 : e->of.used);
}

/* Running -------------------------------------------------------------------------------------- */

static tsr_status run_grouped(tsr_stream *stream, void *user)
{
    experts *e = user;
    const tsr_tensor *ids = e->device_ids[e->choice];
    tsr_matmul_grouped_params in = {.struct_size = sizeof in,
                                    .up = e->up,
                                    .activation = TSR_EXPERT_SWIGLU},
                              out = {.struct_size = sizeof out, .weights = e->device_weights};
    tsr_status status = TSR_OK;
    e->choice = (e->choice + 1) % (e->is_prompt ? 1 : CHOICES);
    if (e->is_prompt) {
        status = tsr_route_sort(stream, e->order, e->offsets, ids);
        in.order = out.order = e->order;
        in.offsets = out.offsets = e->offsets;
    }
    if (status == TSR_OK)
        status = tsr_matmul_grouped(stream, e->hidden, e->device_x, e->gate, ids, &in);
    return status == TSR_OK ? tsr_matmul_grouped(stream, e->device_y, e->hidden, e->down, ids, &out)
                            : status;
}

static tsr_status run_dense(tsr_stream *stream, void *user)
{
    experts *e = user;
    const tsr_tensor *w = e->dense_w[e->slot];
    e->slot = (e->slot + 1) % e->slots;
    return tsr_matmul(stream, e->device_dense_y, e->dense_x, w,
                      tsr_matmul_params(.transpose_b = true));
}

/* Operands ------------------------------------------------------------------------------------- */

static bool create_floats(experts *e, int ndim, const int64_t *shape, uint64_t seed, float scale,
                          float **values, tsr_tensor **tensor)
{
    uint64_t count = 1;
    for (int i = 0; i < ndim; i++)
        count *= (uint64_t)shape[i];
    *values = cli_alloc(count, sizeof **values);
    bench_random_values(*values, count, TSR_F32, seed);
    for (uint64_t i = 0; i < count; i++)
        (*values)[i] *= scale;
    BENCH_TRY(e->context, tsr_tensor_create(e->context->device, TSR_F32, ndim, shape, tensor));
    BENCH_TRY(e->context,
              tsr_tensor_upload(e->context->stream, *tensor, *values, count * sizeof **values));
    return true;
}

/* Makes DIFFERENT_ROWS rows of k elements in the dtype: *bytes, and the same values as floats. */
static bool create_rows(experts *e, int64_t k, uint64_t seed, uint64_t *row_bytes, uint8_t **bytes,
                        float **values)
{
    const int64_t count = DIFFERENT_ROWS * k;
    const bool is_block = tsr_quant_format_of(e->dtype) != NULL;
    *values = cli_alloc((size_t)count, sizeof **values);
    bench_random_values(*values, (uint64_t)count, is_block ? TSR_F32 : e->dtype, seed);
    if (!is_block) {
        *row_bytes = (uint64_t)k * tsr_dtype_size(e->dtype);
        *bytes = cli_alloc(DIFFERENT_ROWS, *row_bytes);
        bench_encode(e->dtype, *values, (uint64_t)count, *bytes);
        return true;
    }
    BENCH_TRY(e->context, tsr_quant_bytes(e->dtype, k, row_bytes));
    *bytes = cli_alloc(DIFFERENT_ROWS, *row_bytes);
    BENCH_TRY(e->context,
              tsr_quantize(e->dtype, *values, count, *bytes, DIFFERENT_ROWS * *row_bytes));
    BENCH_TRY(e->context,
              tsr_dequantize(e->dtype, *bytes, DIFFERENT_ROWS * *row_bytes, *values, count));
    return true;
}

/* The number of a matrix: its first row, from which its rows follow in turn. */
enum { GATE = 0, UP = 83, DOWN = 167 };

/* Creates a matrix with this number, [rows, k] or, with experts, [experts, rows / experts, k]. */
static bool create_matrix(experts *e, int64_t count, int64_t rows, int64_t k, int number,
                          const uint8_t *bytes, uint64_t row_bytes, tsr_tensor **out)
{
    const int64_t shape[] = {count, rows / (count > 0 ? count : 1), k};
    uint8_t *all = cli_alloc((size_t)rows, row_bytes);
    for (int64_t r = 0; r < rows; r++)
        memcpy(all + (uint64_t)r * row_bytes,
               bytes + (uint64_t)((r + number) % DIFFERENT_ROWS) * row_bytes, row_bytes);
    const int skip = count > 0 ? 0 : 1;
    const bool done =
        bench_passed(e->context,
                     tsr_tensor_create(e->context->device, e->dtype, 3 - skip, shape + skip, out),
                     "tsr_tensor_create") &&
        bench_passed(e->context,
                     tsr_tensor_upload(e->context->stream, *out, all, (uint64_t)rows * row_bytes),
                     "tsr_tensor_upload");
    free(all);
    return done;
}

static bool create_matrices(experts *e)
{
    const sizes *s = &e->of;
    uint8_t *wide = NULL, *narrow = NULL;
    uint64_t wide_bytes = 0, narrow_bytes = 0;
    bool done = create_rows(e, s->width, 11, &wide_bytes, &wide, &e->wide_rows) &&
                create_rows(e, s->hidden, 12, &narrow_bytes, &narrow, &e->narrow_rows) &&
                create_matrix(e, s->experts, s->experts * s->hidden, s->width, GATE, wide,
                              wide_bytes, &e->gate) &&
                create_matrix(e, s->experts, s->experts * s->hidden, s->width, UP, wide, wide_bytes,
                              &e->up) &&
                create_matrix(e, s->experts, s->experts * s->width, s->hidden, DOWN, narrow,
                              narrow_bytes, &e->down);
    /* As many dense matrices as experts have bytes, so that a token's are in no cache either. */
    e->slots = e->is_prompt ? 1 : (int)(s->experts / s->used);
    e->slots = e->slots > CHOICES ? CHOICES : e->slots;
    for (int i = 0; i < e->slots && done; i++)
        done = create_matrix(e, 0, dense_columns(e), s->width, i, wide, wide_bytes, &e->dense_w[i]);
    free(wide);
    free(narrow);
    return done;
}

/* Chooses different experts for each token. */
static void choose(experts *e, int choice, int32_t *ids)
{
    for (int64_t t = 0; t < tokens_of(e); t++)
        for (int64_t u = 0; u < e->of.used; u++) {
            uint64_t n = (uint64_t)((choice * tokens_of(e) + t) * e->of.used + u) * 64;
            int32_t *mine = ids + t * e->of.used;
            bool taken = true;
            while (taken) {
                mine[u] = (int32_t)(bench_random(13, n++) % (uint64_t)e->of.experts);
                taken = false;
                for (int64_t v = 0; v < u; v++)
                    taken = taken || mine[v] == mine[u];
            }
        }
}

static bool create_ids(experts *e)
{
    const int64_t shape[] = {tokens_of(e), e->of.used}, order[] = {tokens_of(e) * e->of.used},
                  offsets[] = {e->of.experts + 1};
    const uint64_t count = (uint64_t)order[0];
    e->ids = cli_alloc(CHOICES * count, sizeof *e->ids);
    for (int i = 0; i < (e->is_prompt ? 1 : CHOICES); i++) {
        choose(e, i, e->ids + (uint64_t)i * count);
        BENCH_TRY(e->context,
                  tsr_tensor_create(e->context->device, TSR_I32, 2, shape, &e->device_ids[i]));
        BENCH_TRY(e->context,
                  tsr_tensor_upload(e->context->stream, e->device_ids[i],
                                    e->ids + (uint64_t)i * count, count * sizeof *e->ids));
    }
    BENCH_TRY(e->context, tsr_tensor_create(e->context->device, TSR_I32, 1, order, &e->order));
    BENCH_TRY(e->context, tsr_tensor_create(e->context->device, TSR_I32, 1, offsets, &e->offsets));
    return true;
}

static bool create(experts *e)
{
    const sizes *s = &e->of;
    const int64_t tokens = tokens_of(e), x[] = {tokens, s->width},
                  hidden[] = {tokens, s->used, s->hidden}, weights[] = {tokens, s->used},
                  dense_x[] = {dense_rows(e), s->width},
                  dense_y[] = {dense_rows(e), dense_columns(e)};
    tsr_device *device = e->context->device;
    float *ignored = NULL;
    e->y = cli_alloc((size_t)(tokens * s->width), sizeof *e->y);
    e->dense_y = cli_alloc((size_t)(dense_y[0] * dense_y[1]), sizeof *e->dense_y);
    /* Features are small enough that products of experts are about 1. */
    const bool done =
        create_matrices(e) && create_ids(e) &&
        create_floats(e, 2, x, 14, 1 / sqrtf((float)s->width), &e->x, &e->device_x) &&
        create_floats(e, 2, weights, 15, 1 / sqrtf((float)s->hidden), &e->weights,
                      &e->device_weights) &&
        create_floats(e, 2, dense_x, 14, 1 / sqrtf((float)s->width), &ignored, &e->dense_x);
    free(ignored);
    if (!done)
        return false;
    BENCH_TRY(e->context, tsr_tensor_create(device, TSR_F32, 3, hidden, &e->hidden));
    BENCH_TRY(e->context, tsr_tensor_create(device, TSR_F32, 2, x, &e->device_y));
    BENCH_TRY(e->context, tsr_tensor_create(device, TSR_F32, 2, dense_y, &e->device_dense_y));
    return true;
}

static void finish(experts *e)
{
    tsr_tensor **const tensors[] = {&e->device_x, &e->device_weights, &e->gate,          &e->up,
                                    &e->down,     &e->hidden,         &e->device_y,      &e->order,
                                    &e->offsets,  &e->dense_x,        &e->device_dense_y};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tsr_tensor_destroy(tensors[i]);
    for (int i = 0; i < CHOICES; i++) {
        tsr_tensor_destroy(&e->device_ids[i]);
        tsr_tensor_destroy(&e->dense_w[i]);
    }
    free(e->wide_rows);
    free(e->narrow_rows);
    free(e->x);
    free(e->weights);
    free(e->y);
    free(e->dense_y);
    free(e->ids);
}

/* Checking ------------------------------------------------------------------------------------- */

static double dot(const float *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static const float *row_of(const float *rows, int64_t row, int number, int64_t k)
{
    return rows + (row + number) % DIFFERENT_ROWS * k;
}

/* Adds weight · expert(x) to y[width], in double precision. */
static void add_expert(const experts *e, int64_t expert, double weight, const double *x, double *h,
                       double *y)
{
    const sizes *s = &e->of;
    for (int64_t i = 0; i < s->hidden; i++) {
        const int64_t row = expert * s->hidden + i;
        const double gate = dot(row_of(e->wide_rows, row, GATE, s->width), x, s->width),
                     up = dot(row_of(e->wide_rows, row, UP, s->width), x, s->width);
        h[i] = gate / (1 + exp(-gate)) * up;
    }
    for (int64_t i = 0; i < s->width; i++)
        y[i] += weight *
                dot(row_of(e->narrow_rows, expert * s->width + i, DOWN, s->hidden), h, s->hidden);
}

/* Compares the result of some tokens, with the experts of a choice, with double precision. */
static void check_tokens(experts *e, const int32_t *ids, bench_check *check)
{
    const sizes *s = &e->of;
    const int64_t tokens = tokens_of(e), count = tokens < CHECKED_TOKENS ? tokens : CHECKED_TOKENS;
    double *x = cli_alloc((size_t)s->width, sizeof *x),
           *h = cli_alloc((size_t)s->hidden, sizeof *h),
           *y = cli_alloc((size_t)s->width, sizeof *y);
    for (int64_t c = 0; c < count; c++) {
        const int64_t t = count > 1 ? c * (tokens - 1) / (count - 1) : 0;
        double squares = 0;
        memset(y, 0, (size_t)s->width * sizeof *y);
        for (int64_t i = 0; i < s->width; i++)
            x[i] = (double)e->x[t * s->width + i];
        for (int64_t u = 0; u < s->used; u++)
            add_expert(e, ids[t * s->used + u], (double)e->weights[t * s->used + u], x, h, y);
        for (int64_t i = 0; i < s->width; i++)
            squares += y[i] * y[i];
        /* Devices may round features to 16 bits, in two summands. A wrong expert changes elements
         * by as much as they are. */
        const double tolerance = 2e-3 * sqrt(squares / (double)s->width);
        for (int64_t i = 0; i < s->width; i++)
            bench_check_value(check, t, i, (double)e->y[t * s->width + i], y[i], tolerance);
    }
    free(x);
    free(h);
    free(y);
}

/* Checks the grouped products, for a token with all choices of experts. */
static bool verify_grouped(experts *e, bench_row *row)
{
    const sizes *s = &e->of;
    const uint64_t pairs = (uint64_t)(tokens_of(e) * s->used);
    bench_check_begin(&row->check, "every element of some tokens against double precision");
    for (int i = 0; i < (e->is_prompt ? 1 : CHOICES); i++) {
        e->choice = i;
        BENCH_TRY(e->context, run_grouped(e->context->stream, e));
        BENCH_TRY(e->context,
                  tsr_tensor_download(e->context->stream, e->device_y, e->y,
                                      (uint64_t)(tokens_of(e) * s->width) * sizeof *e->y));
        check_tokens(e, e->ids + (uint64_t)i * pairs, &row->check);
    }
    e->choice = 0;
    return bench_verified(e->context, row);
}

/* Checks the first and the last row of the dense product, which adds to the row's check. */
static bool verify_dense(experts *e, bench_row *row)
{
    const int64_t rows = dense_rows(e), columns = dense_columns(e), width = e->of.width;
    double *x = cli_alloc((size_t)width, sizeof *x);
    float *values = cli_alloc((size_t)(rows * width), sizeof *values);
    e->slot = 0;
    bool done = bench_passed(e->context, run_dense(e->context->stream, e), "tsr_matmul") &&
                bench_passed(e->context,
                             tsr_tensor_download(e->context->stream, e->device_dense_y, e->dense_y,
                                                 (uint64_t)(rows * columns) * sizeof *e->dense_y),
                             "tsr_tensor_download") &&
                bench_passed(e->context,
                             tsr_tensor_download(e->context->stream, e->dense_x, values,
                                                 (uint64_t)(rows * width) * sizeof *values),
                             "tsr_tensor_download");
    for (int64_t c = 0; c < 2 && done; c++) {
        const int64_t r = c * (rows - 1);
        for (int64_t i = 0; i < width; i++)
            x[i] = (double)values[r * width + i];
        for (int64_t i = 0; i < columns; i++)
            bench_check_value(&row->check, r, i, (double)e->dense_y[r * columns + i],
                              dot(row_of(e->wide_rows, i, 0, width), x, width), 2e-3);
    }
    e->slot = 0;
    free(x);
    free(values);
    return done && bench_verified(e->context, row);
}

/* Measuring ------------------------------------------------------------------------------------ */

/* The bytes of the matrices that a token reads. */
static bool token_bytes(experts *e, double *out)
{
    const double elements = 3 * (double)(e->of.used * e->of.hidden * e->of.width);
    uint64_t bytes = 0;
    if (tsr_quant_format_of(e->dtype) == NULL) {
        *out = elements * (double)tsr_dtype_size(e->dtype);
        return true;
    }
    BENCH_TRY(e->context, tsr_quant_bytes(e->dtype, (int64_t)elements, &bytes));
    *out = (double)bytes;
    return true;
}

static bool measure(experts *e)
{
    const sizes *s = &e->of;
    bench_context *context = e->context;
    const char *peer = e->is_prompt ? "one dense product with the same operations"
                                    : "dense rows of the same format and number";
    double bytes = 0;
    const bench_row *memory = bench_memory_peak(context), *arithmetic = bench_fma_peak(context);
    if (memory == NULL || arithmetic == NULL || !create(e) || !token_bytes(e, &bytes))
        return false;
    bench_row *row = bench_add(
        context, "experts", e->is_prompt ? BENCH_GFLOPS : BENCH_GBYTES,
        e->is_prompt ? 6.0 * (double)(s->tokens * s->used * s->width) * (double)s->hidden : bytes);
    bench_text(row, "dtype", "%s", tsr_dtype_name(e->dtype));
    bench_integer(row, "tokens", tokens_of(e));
    bench_integer(row, "experts", s->experts);
    bench_integer(row, "used", s->used);
    bench_integer(row, "width", s->width);
    bench_integer(row, "hidden", s->hidden);
    if (!e->is_prompt)
        row->memory = memory;
    else if (e->dtype != TSR_F32 && bench_has_coopmat(context->info))
        row->arithmetic = bench_coopmat_peak(context);
    else
        row->arithmetic = arithmetic;
    return verify_grouped(e, row) && verify_dense(e, row) &&
           bench_measure(context, row, &(bench_task){.run = run_grouped, .user = e}) &&
           bench_measure_peer(context, row, peer, &(bench_task){.run = run_dense, .user = e}) &&
           verify_grouped(e, row);
}

static bool run_experts(bench_context *context)
{
    static const tsr_dtype large_dtypes[] = {TSR_F16, TSR_Q4_K},
                           small_dtypes[] = {TSR_F16, TSR_Q4_0};
    const bench_options *o = context->options;
    const bool is_small = context->info->type == TSR_DEVICE_CPU && !o->large;
    const tsr_dtype *dtypes = o->dtype_count > 0 ? o->dtypes
                              : is_small         ? small_dtypes
                                                 : large_dtypes;
    const int count = o->dtype_count > 0 ? o->dtype_count : 2;
    for (int i = 0; i < 2 * count; i++) {
        experts e = {.context = context,
                     .of = is_small ? small : usual,
                     .is_prompt = i < count,
                     .dtype = dtypes[i % count]};
        const bool done = measure(&e);
        finish(&e);
        if (!done)
            return false;
    }
    return true;
}

const bench bench_experts = {
    .name = "experts",
    .summary = "products of a mixture of experts beside dense ones; GFLOP/s, GB/s",
    .help = "The three products of the chosen experts of a layer, with SwiGLU and the weighted "
            "sum: for a prompt, with sorting, in GFLOP/s; and for one token, which chooses other "
            "experts in each repetition, in GB/s of the chosen experts' matrices. The peer is one "
            "dense product of the library with as many operations, or with as many bytes of "
            "weights in the same format, and 'of peer' the ratio. Sizes are those of "
            "Qwen3-30B-A3B: 512 tokens, 8 of 128 experts, width 2048, 768 features; on CPU "
            "drivers 128 tokens, 4 of 16 experts, width 1024, 512 features, unless --large is "
            "given. Weights are f16 and q4_k (q4_0 on CPU drivers), features are f32.\n",
    .takes = BENCH_DTYPES | BENCH_LARGE,
    .alone = true,
    .run = run_experts,
};
