/* Products of rows and the matrices of their experts: checks, the choice of a kernel, and tiles. */
#include "gpu/experts/grouped.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/given.h"
#include "base/struct_size.h"
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "gpu/quant/dequantize.h"
#include "tensor/check.h"

/* Checks -------------------------------------------------------------------------------------- */

/* Checks a matrix [experts,n,k], and fills in the strides. */
static tsr_status check_weight(const char *op, const char *name, const tsr_stream *stream,
                               const tsr_tensor *w, const tsr__grouped *call)
{
    TSR__TRY(tsr__require_on_device(op, name, stream, w));
    const tsr_layout *l = &w->layout;
    const bool blocks = tsr_quant_format_of(l->dtype) != NULL;
    TSR__REQUIRE(blocks || (l->dtype >= TSR_F32 && l->dtype <= TSR_BF16),
                 "%s: %s is %s; a float or a block format is needed", op, name,
                 tsr_dtype_name(l->dtype));
    TSR__REQUIRE(l->ndim == 3, "%s: %s is %s; [experts,%s] is needed", op, name,
                 TSR__SHAPE(l->ndim, l->shape), call->transposed ? "k,n" : "n,k");
    TSR__REQUIRE(!blocks || !call->transposed,
                 "%s: %s is in the block format %s, with transpose_w; only [experts,n,k] is "
                 "possible",
                 op, name, tsr_dtype_name(l->dtype));
    for (int d = 0; d < 3; d++)
        TSR__REQUIRE(l->strides[d] >= 0, "%s: %s has a negative stride", op, name);
    TSR__REQUIRE(l->shape[0] <= INT32_MAX && l->shape[1] <= INT32_MAX && l->shape[2] <= INT32_MAX,
                 "%s: %s is %s; sizes up to 2^31 - 1 are possible", op, name,
                 TSR__SHAPE(3, l->shape));
    return TSR_OK;
}

static tsr_status check_bias(const char *op, const char *name, const tsr_stream *stream,
                             const tsr_tensor *bias, const tsr__grouped *call)
{
    if (!bias)
        return TSR_OK;
    TSR__TRY(tsr__require_float(op, name, stream, bias));
    const tsr_layout *l = &bias->layout;
    TSR__REQUIRE(l->ndim == 2 && l->shape[0] == call->experts && l->shape[1] == call->n,
                 "%s: %s is %s; [%u,%u] is needed", op, name, TSR__SHAPE(l->ndim, l->shape),
                 call->experts, call->n);
    TSR__REQUIRE((l->strides[1] == 1 || call->n <= 1) && l->strides[0] >= 0 &&
                     (uint64_t)l->strides[0] * (call->experts + UINT64_C(1)) <= INT32_MAX,
                 "%s: the rows of %s must be contiguous", op, name);
    return TSR_OK;
}

static tsr_status check_outputs(const char *op, const tsr__grouped *call)
{
    const tsr_matmul_grouped_params *params = call->params;
    const struct {
        const char *name;
        const tsr_tensor *tensor;
    } inputs[] = {{"x", call->x.tensor},        {"w", call->w},
                  {"ids", call->pairs.ids},     {"bias", params->bias},
                  {"weights", params->weights}, {"up", params->up},
                  {"up_bias", params->up_bias}, {"order", params->order},
                  {"offsets", params->offsets}};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        if (inputs[i].tensor)
            TSR__TRY(tsr__require_disjoint(op, "y", call->y.tensor, inputs[i].name,
                                           inputs[i].tensor, false));
    return TSR_OK;
}

static tsr_status check_second(const char *op, tsr_stream *stream, const tsr__grouped *call)
{
    const tsr_matmul_grouped_params *params = call->params;
    TSR__REQUIRE(!params->up_bias || params->up, "%s: up_bias is given without up", op);
    if (!params->up)
        return TSR_OK;
    TSR__TRY(check_weight(op, "up", stream, params->up, call));
    const tsr_layout *w = &call->w->layout, *up = &params->up->layout;
    TSR__REQUIRE(up->dtype == w->dtype && tsr__layout_same_shape(up, w),
                 "%s: up is %s %s, and w is %s %s; they must be the same", op,
                 tsr_dtype_name(up->dtype), TSR__SHAPE(up->ndim, up->shape),
                 tsr_dtype_name(w->dtype), TSR__SHAPE(w->ndim, w->shape));
    TSR__REQUIRE(!params->accumulate && !params->weights,
                 "%s: up is given with %s, which is not possible", op,
                 params->weights ? "weights" : "accumulate");
    TSR__REQUIRE((unsigned)params->activation <= TSR_EXPERT_SWIGLU_OAI,
                 "%s: activation %d is not a tsr_expert_activation", op, (int)params->activation);
    TSR__REQUIRE(params->limit >= 0, "%s: limit is %g; it must not be negative", op,
                 (double)params->limit);
    return check_bias(op, "up_bias", stream, params->up_bias, call);
}

static tsr_status check(const char *op, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                        const tsr_tensor *w, const tsr_tensor *ids, tsr__grouped *call)
{
    const tsr_matmul_grouped_params *params = call->params;
    TSR__TRY(tsr__pairs_of(op, stream, ids, &call->pairs));
    const int64_t tokens = call->pairs.tokens, chosen = call->pairs.chosen;
    call->w = w;
    call->transposed = params->transpose_w;
    TSR__TRY(check_weight(op, "w", stream, w, call));
    call->experts = (uint32_t)w->layout.shape[0];
    call->n = (uint32_t)w->layout.shape[call->transposed ? 2 : 1];
    call->k = (uint32_t)w->layout.shape[call->transposed ? 1 : 2];
    TSR__REQUIRE(params->all_experts == 0 ||
                     (params->all_experts >= call->experts && params->all_experts <= INT32_MAX),
                 "%s: all_experts is %lld; 0, or at least the %u of w and at most %d", op,
                 (long long)params->all_experts, call->experts, INT32_MAX);
    call->all_experts = params->all_experts > 0 ? (uint32_t)params->all_experts : call->experts;
    TSR__TRY(tsr__pair_rows_of(op, "x", stream, x, tokens, chosen, &call->x));
    TSR__TRY(tsr__pair_rows_of(op, "y", stream, y, tokens, chosen, &call->y));
    TSR__REQUIRE(call->x.width == call->k && call->y.width == call->n,
                 "%s: x is %s, w %s and y %s%s; inner sizes differ", op,
                 TSR__SHAPE(x->layout.ndim, x->layout.shape), TSR__SHAPE(3, w->layout.shape),
                 TSR__SHAPE(y->layout.ndim, y->layout.shape),
                 call->transposed ? " with transpose_w" : "");
    TSR__REQUIRE(call->y.per_pair == !params->weights, "%s: y is %s; it has a row for each %s", op,
                 TSR__SHAPE(y->layout.ndim, y->layout.shape),
                 params->weights ? "token if there are weights" : "pair");
    TSR__TRY(check_bias(op, "bias", stream, params->bias, call));
    TSR__TRY(check_second(op, stream, call));
    if (params->weights)
        TSR__TRY(tsr__pair_numbers(op, "weights", stream, params->weights, &call->pairs,
                                   &call->weights_stride));
    TSR__REQUIRE(!params->order == !params->offsets,
                 "%s: one of order and offsets is given; both are needed, or neither", op);
    if (params->order) {
        int64_t experts;
        TSR__TRY(tsr__sorted_of(op, stream, params->order, params->offsets, tokens * chosen,
                                &experts, &call->sorted));
        TSR__REQUIRE(experts == call->experts,
                     "%s: offsets are those of %lld experts, and w has %u", op, (long long)experts,
                     call->experts);
    }
    return check_outputs(op, call);
}

/* Tiles --------------------------------------------------------------------------------------- */

/* A workgroup's tile. Subgroups whose rows the tile lacks do not multiply, and each tile reads the
 * expert's matrix once more, so that tiles are large as soon as many experts have more than 32
 * rows: 512 tokens that use 8 of 128 experts have 128 tiles of 64 rows, or 187 of 32. */
typedef struct tile_shape {
    uint32_t threads, rows, columns, depth, own_rows, own_columns;
} tile_shape;
static const tile_shape small_tile = {64, 32, 64, 16, 4, 8}, large_tile = {128, 64, 64, 16, 4, 8};

static const tile_shape *tile_for(const tsr__grouped *call)
{
    const uint64_t pairs = (uint64_t)call->pairs.tokens * call->pairs.chosen;
    return pairs >= (uint64_t)call->all_experts * 24 ? &large_tile : &small_tile;
}

static uint32_t load_of(const tsr__grouped *call, const tsr_tensor *w)
{
    const tsr_layout *l = &w->layout;
    if (tsr_quant_format_of(l->dtype))
        return TSR_GROUPED_BLOCKS;
    const int line = call->transposed ? 2 : 1, k = call->transposed ? 1 : 2;
    const uint64_t size = tsr_dtype_size(l->dtype);
    if (tsr__tensor_address(w) % (4 * size) != 0 || l->strides[0] % 4 != 0)
        return TSR_GROUPED_SCALAR;
    if (l->strides[k] == 1 && l->strides[line] % 4 == 0 && call->k % 4 == 0)
        return TSR_GROUPED_VEC_K;
    if (l->strides[line] == 1 && l->strides[k] % 4 == 0 && call->n % 4 == 0)
        return TSR_GROUPED_VEC_LINE;
    return TSR_GROUPED_SCALAR;
}

/* Where the rows of a product go. */
typedef struct tile_target {
    uint64_t y;
    tsr__access access;
    tsr_dtype dtype;
    uint32_t stride;
    bool accumulate;
    bool gated; /* y = activation(product with w, product with `up`) */
} tile_target;

static void set_specialization(const tsr__grouped *call, const tsr_tensor *w,
                               const tile_shape *tile, const tile_target *to, uint32_t load,
                               const tsr_tensor *bias, tsr__dispatch *dispatch)
{
    const bool blocks = load == TSR_GROUPED_BLOCKS;
    tsr__quant_describe(blocks ? w->layout.dtype : TSR_Q4_0, dispatch->spec);
    const uint32_t spec[] = {
        tile->threads,
        tile->rows,
        tile->columns,
        tile->depth,
        tile->own_rows,
        tile->own_columns,
        (uint32_t)call->x.tensor->layout.dtype,
        blocks ? TSR_F32 : (uint32_t)w->layout.dtype,
        (uint32_t)to->dtype,
        bias ? (uint32_t)bias->layout.dtype : TSR_F32,
        tsr__pair_rows_aligned(&call->x) ? TSR_GROUPED_VEC_K : TSR_GROUPED_SCALAR,
        load,
        to->accumulate,
        to->gated,
        to->gated ? (uint32_t)call->params->activation : 0,
    };
    dispatch->spec_count = TSR_QUANT_SPECS + (int)(sizeof spec / sizeof spec[0]);
    memcpy(dispatch->spec + TSR_QUANT_SPECS, spec, sizeof spec);
}

/* Records the tiles first_slot … slots − 1 of rows, as many at a time as the device's work limit
 * allows. */
static tsr_status record_slots(tsr_stream *stream, uint64_t across, double tile_work,
                               struct tsr_grouped_push *push, tsr__dispatch *dispatch)
{
    const uint32_t slots = push->slots;
    const double work = (double)across * tile_work,
                 most = fmax(tsr_stream_device(stream)->work_limit / work, 1);
    const uint32_t step = most < slots ? (uint32_t)most : slots;
    const double read_bytes = dispatch->read_bytes, products = dispatch->multiply_adds;
    if (step < slots)
        dispatch->independent_group = tsr__stream_new_independent_group(stream);
    for (uint32_t first = 0; first < slots; first += step) {
        const uint32_t count = first + step < slots ? step : slots - first;
        push->first_slot = first;
        push->slots = first + count;
        dispatch->work = work * count;
        dispatch->read_bytes = read_bytes * count / slots;
        dispatch->multiply_adds = products * count / slots;
        tsr__groups_for(count * across, 1, dispatch->groups);
        TSR__TRY(tsr__stream_dispatch(stream, dispatch));
    }
    return TSR_OK;
}

/* Records the products with w or, if `to` says so, with w and `up`. */
static tsr_status record_tiles(tsr_stream *stream, const tsr__grouped *call, const tsr_tensor *w,
                               const tsr_tensor *bias, const tile_target *to)
{
    const tile_shape *tile = tile_for(call);
    const uint32_t tile_rows = call->matrices.dtype ? call->matrices.rows : tile->rows;
    const tsr_layout *l = &w->layout;
    const tsr_tensor *up = to->gated ? call->params->up : NULL,
                     *up_bias = to->gated ? call->params->up_bias : NULL;
    const tsr_tensor *some_bias = bias ? bias : up_bias;
    const int line = call->transposed ? 2 : 1, k = call->transposed ? 1 : 2;
    const uint32_t rows = call->pairs.tokens * call->pairs.chosen;
    const uint32_t load =
        up && load_of(call, up) != load_of(call, w) ? TSR_GROUPED_SCALAR : load_of(call, w);
    struct tsr_grouped_push push = {
        .x = tsr__tensor_address(call->x.tensor),
        .w = tsr__tensor_address(w),
        .y = to->y,
        .bias = bias ? tsr__tensor_address(bias) : 0,
        .order = tsr__access_address(call->sorted.order),
        .offsets = tsr__access_address(call->sorted.offsets),
        .w_expert = tsr__dtype_bytes(l->dtype, (uint64_t)l->strides[0]),
        .w_line = tsr__dtype_bytes(l->dtype, (uint64_t)l->strides[line]),
        .w_k = load == TSR_GROUPED_BLOCKS ? 0 : tsr__dtype_bytes(l->dtype, (uint64_t)l->strides[k]),
        .up = up ? tsr__tensor_address(up) : 0,
        .up_bias = up_bias ? tsr__tensor_address(up_bias) : 0,
        .experts = call->experts,
        .n = call->n,
        .k = call->k,
        .x_stride = call->x.stride,
        .x_divide = call->x.divide,
        .y_stride = to->stride,
        .bias_stride = some_bias ? (uint32_t)some_bias->layout.strides[0] : 0,
        .slots = rows / tile_rows + call->experts,
        .limit = call->limit,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_MATMUL_GROUPED,
        .push = &push,
        .push_bytes = sizeof push,
        .multiply_adds = (double)rows * call->n * call->k * (up ? 2 : 1),
        .read_bytes = tsr__grouped_read_bytes(call, w) * (up ? 2 : 1),
        .access_count = 5,
        .access = {tsr__read_of(call->x.tensor), tsr__read_of(w), to->access, call->sorted.order,
                   call->sorted.offsets},
    };
    const tsr_tensor *others[] = {bias, up, up_bias};
    for (int i = 0; i < 3; i++)
        if (others[i])
            dispatch.access[dispatch.access_count++] = tsr__read_of(others[i]);
    if (call->matrices.dtype)
        tsr__grouped_use_matrices(call, w, to->dtype, some_bias ? some_bias->layout.dtype : TSR_F32,
                                  to->accumulate, to->gated, &push, &dispatch);
    else
        set_specialization(call, w, tile, to, load, some_bias, &dispatch);
    const uint32_t columns = call->matrices.dtype ? call->matrices.columns : tile->columns,
                   own = up ? columns / 2 : columns;
    return record_slots(stream, tsr__div_up_u64(call->n, own),
                        (double)tile_rows * columns * fmax(call->k, 1), &push, &dispatch);
}

/* The tiles' product as a sequence of commands. Scratch memory has the sorted pairs if the caller
 * has not sorted them, and the rows of pairs if they are activated or summed afterwards. */
typedef struct tiles_work {
    tsr__grouped call;
    tsr__buffer *scratch;
    uint64_t order_bytes, sorted_bytes, row_bytes;
} tiles_work;

static tsr__access part_of(tsr__buffer *buffer, uint64_t begin, uint64_t size, bool write)
{
    return (tsr__access){buffer, begin, begin + size, write};
}

static tsr_status record_rows(tsr_stream *stream, const tiles_work *work, const tsr__access *rows)
{
    const tsr__grouped *call = &work->call;
    const tsr_matmul_grouped_params *params = call->params;
    const uint32_t halves = params->up ? 2 : 1;
    tile_target to = {
        .y = tsr__access_address(*rows),
        .access = *rows,
        .dtype = TSR_F32,
        .stride = halves * call->n,
    };
    to.access.write = true;
    TSR__TRY(record_tiles(stream, call, call->w, params->bias, &to));
    if (params->up) {
        to.y += (uint64_t)call->n * sizeof(float);
        TSR__TRY(record_tiles(stream, call, params->up, params->up_bias, &to));
    }
    return TSR_OK;
}

static tsr_status run_tiles(tsr_stream *stream, void *arg)
{
    tiles_work *work = arg;
    tsr__grouped *call = &work->call;
    const tsr_matmul_grouped_params *params = call->params;
    if (!params->order && call->experts > 0)
        TSR__TRY(tsr__sort_pairs(stream, &call->pairs, call->experts, &call->sorted));
    if (call->matrices.x_narrowed)
        TSR__TRY(tsr__grouped_narrow(stream, call));
    const bool gated = params->up && tsr__grouped_pairs_up(call);
    if (gated || (!params->up && !params->weights)) {
        if (call->experts == 0)
            return TSR_OK;
        const tile_target to = {
            .y = tsr__tensor_address(call->y.tensor),
            .access = tsr__write_of(call->y.tensor),
            .dtype = call->y.tensor->layout.dtype,
            .stride = call->y.stride,
            .accumulate = params->accumulate,
            .gated = gated,
        };
        return record_tiles(stream, call, call->w, params->bias, &to);
    }
    const tsr__access rows = part_of(work->scratch, work->sorted_bytes, work->row_bytes, false);
    if (call->experts > 0)
        TSR__TRY(record_rows(stream, work, &rows));
    if (params->up)
        return tsr__pair_activate_record(stream, call, &rows);
    return tsr__pair_sum_record(stream, &call->y, tsr__access_address(rows), rows, TSR_F32, call->n,
                                &call->pairs, call->experts, params->weights, call->added,
                                params->accumulate);
}

static tsr_status run_with_scratch(tsr_stream *stream, const tsr__grouped *call)
{
    tiles_work work = {.call = *call};
    const uint64_t pairs = (uint64_t)call->pairs.tokens * call->pairs.chosen;
    const tsr_matmul_grouped_params *params = call->params;
    if (!params->order) {
        TSR__TRY(tsr__sort_check("matmul_grouped", stream, &call->pairs));
        work.order_bytes = tsr__align_up_u64(pairs * sizeof(int32_t), 256);
        work.sorted_bytes = tsr__align_up_u64(
            work.order_bytes + (call->experts + UINT64_C(1)) * sizeof(int32_t), 256);
    }
    if ((params->up && !tsr__grouped_pairs_up(call)) || params->weights)
        work.row_bytes = pairs * call->n * (params->up ? 2 : 1) * sizeof(float);
    if (work.sorted_bytes + work.row_bytes > 0)
        TSR__TRY(tsr__stream_scratch(stream, work.sorted_bytes + work.row_bytes, &work.scratch));
    if (!params->order) {
        work.call.sorted.order = part_of(work.scratch, 0, work.order_bytes, false);
        work.call.sorted.offsets =
            part_of(work.scratch, work.order_bytes, work.sorted_bytes - work.order_bytes, false);
    }
    const uint64_t narrow_bytes = tsr__grouped_narrow_bytes(call);
    if (narrow_bytes > 0)
        TSR__TRY(tsr__stream_keep_scratch(stream, narrow_bytes, &work.call.matrices.narrowed));
    const tsr_status status = tsr__stream_atomic(stream, run_tiles, &work);
    tsr__stream_return_scratch(stream, work.call.matrices.narrowed);
    return status;
}

/* Calls --------------------------------------------------------------------------------------- */

/* Checks that `added` has the rows of y, which is written after `added` has been read. */
static tsr_status check_added(const char *op, const tsr_stream *stream, const tsr__grouped *call)
{
    const tsr_tensor *y = call->y.tensor;
    tsr__pair_rows rows;
    TSR__TRY(tsr__pair_rows_of(op, "added", stream, call->added, call->pairs.tokens,
                               call->pairs.chosen, &rows));
    TSR__REQUIRE(call->params->weights && call->added->layout.dtype == y->layout.dtype &&
                     tsr__layout_same_shape(&call->added->layout, &y->layout) &&
                     rows.stride == call->y.stride,
                 "%s: added is %s %s, and y is %s %s; weights, the same shape and the same strides "
                 "are needed",
                 op, tsr_dtype_name(call->added->layout.dtype),
                 TSR__SHAPE(call->added->layout.ndim, call->added->layout.shape),
                 tsr_dtype_name(y->layout.dtype), TSR__SHAPE(y->layout.ndim, y->layout.shape));
    return tsr__require_disjoint(op, "y", y, "added", call->added, false);
}

tsr_status tsr__matmul_grouped_added(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                     const tsr_tensor *w, const tsr_tensor *ids,
                                     const tsr_matmul_grouped_params *params,
                                     const tsr_tensor *added)
{
    const char *op = "matmul_grouped";
    TSR__TAKE(tsr_matmul_grouped_params, params);
    tsr__grouped call = {.params = params, .added = added};
    TSR__TRY(check(op, stream, y, x, w, ids, &call));
    if (added)
        TSR__TRY(check_added(op, stream, &call));
    call.limit = params->limit > 0 ? params->limit : 7;
    /* All loops of an invocation together: a quarter of k, and the steps along k. */
    const uint32_t most = tsr_stream_device(stream)->traits.most_iterations;
    TSR__REQUIRE(call.k / 3 < most, "%s: k is %u; at most %u on this device", op, call.k, most * 3);
    if (call.pairs.tokens == 0 || call.n == 0)
        return TSR_OK;
    const tsr__cpu_kernels *cpu = tsr_stream_device(stream)->cpu;
    bool done = false;
    if (cpu)
        TSR__TRY(cpu->matmul_grouped(stream, &call, &done));
    if (done)
        return TSR_OK;
    if (tsr__grouped_few_suits(stream, &call))
        return tsr__grouped_few(stream, &call);
    tsr__grouped_choose_matrices(stream, &call, tile_for(&call)->rows);
    return run_with_scratch(stream, &call);
}

tsr_status tsr_matmul_grouped(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                              const tsr_tensor *w, const tsr_tensor *ids,
                              const tsr_matmul_grouped_params *params)
{
    return tsr__matmul_grouped_added(stream, y, x, w, ids, params, NULL);
}
