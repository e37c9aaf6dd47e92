/* Grouped products, with the kernels of dense products. Pairs are arranged in tiles of rows of one
 * expert (grouped_rows.comp). A table says which expert's matrix a tile is multiplied by; otherwise
 * the tiles are one dense product, whose kernel gets the matrix from the table. The number of tiles
 * is known on the device only, and the product dispatches as many workgroups. grouped_finish.comp
 * computes y from the sums.
 *
 * With few pairs, each pair is a tile of one row. With many, they are sorted, and the last tile of
 * an expert may have rows without pairs. */
#include <string.h>

#include "base/checked.h"
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/matmul/plan.h"
#include "gpu/cpu_drivers/matmul/quant_rows.h"
#include "gpu/experts/grouped.h"
#include "shaders/params/grouped_cpu.h"
#include "shaders/params/matmul.h"
#include "shaders/params/matmul_cpu.h"

enum {
    /* Calls with fewer multiply-adds of a matrix are as fast with the kernels for GPUs, which need
     * fewer dispatches, and fewer pipelines. */
    LEAST_PRODUCTS = 1 << 16,
    LONGEST = 128, /* steps of a range of k, with few pairs */
    MOST_SPLITS = 16,
    MOST_COLUMNS = TSR_MATMUL_CPU_GROUPS * 4, /* more would be divided into bands (plan.c) */
    BLOCK_TILES = 8 /* tiles that are multiplied before the next columns are read */
};

/* The most scratch memory; 1 GiB. */
static const uint64_t most_bytes = UINT64_C(1) << 30;

/* The kernels of products. */
typedef enum kernels { NONE, FLOATS, BLOCKS, SWIFTSHADER } kernels;

typedef struct grouped_run {
    tsr__grouped call;
    kernels kernels;
    tsr__lavapipe_product product; /* of a tile; only with FLOATS */
    bool is_sorted;
    uint32_t tile_rows;
    uint32_t tiles, block;   /* tiles: at most, a multiple of `block` */
    uint32_t groups[2];      /* the workgroups of a product in x and y */
    uint32_t halves, splits; /* of sums */
    uint32_t row_stride;     /* of the rows of x in scratch memory */
    uint32_t lanes;
    tsr__buffer *scratch;
    tsr__access rows, sums, experts_of, places, counts; /* in scratch memory */
    /* of the product that is recorded: with w or `up` */
    const tsr_tensor *w;
    uint32_t half;
} grouped_run;

static uint32_t pairs_of(const grouped_run *r)
{
    return r->call.pairs.tokens * r->call.pairs.chosen;
}

/* Records the dispatch that arranges the pairs. */
static tsr_status arrange(tsr_stream *stream, const grouped_run *r)
{
    const tsr__grouped *call = &r->call;
    const struct tsr_grouped_rows_push push = {
        .x = tsr__tensor_address(call->x.tensor),
        .ids = tsr__tensor_address(call->pairs.ids),
        .order = r->is_sorted ? tsr__access_address(call->sorted.order) : 0,
        .offsets = r->is_sorted ? tsr__access_address(call->sorted.offsets) : 0,
        .rows = tsr__access_address(r->rows),
        .experts_of = tsr__access_address(r->experts_of),
        .places = tsr__access_address(r->places),
        .groups = tsr__access_address(r->counts),
        .pairs = pairs_of(r),
        .chosen = call->pairs.chosen,
        .experts = call->experts,
        .k = call->k,
        .x_stride = call->x.stride,
        .x_divide = call->x.divide,
        .ids_stride = call->pairs.ids_stride,
        .row_stride = r->row_stride,
        .tiles = r->tiles,
        .tile_rows = r->tile_rows,
        .block = r->block,
        .groups_x = r->groups[0],
        .groups_y = r->groups[1],
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_GROUPED_ROWS,
        .spec_count = 4,
        .spec = {r->lanes, (uint32_t)call->x.tensor->layout.dtype, r->is_sorted,
                 tsr__pair_rows_aligned(&call->x)},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 6,
        .access = {tsr__read_of(call->x.tensor), tsr__read_of(call->pairs.ids), r->rows,
                   r->experts_of, r->places, r->counts},
    };
    for (int i = 2; i < 6; i++)
        dispatch.access[i].write = true;
    if (r->is_sorted) {
        dispatch.access[dispatch.access_count++] = call->sorted.order;
        dispatch.access[dispatch.access_count++] = call->sorted.offsets;
    }
    tsr__groups_for(r->tiles, 1, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}

/* Records a dispatch that multiplies all tiles over a share of k. */
static tsr_status dispatch_tiles(tsr_stream *stream, const grouped_run *r, double share,
                                 tsr__dispatch *dispatch)
{
    dispatch->groups[0] = r->groups[0];
    dispatch->groups[1] = r->groups[1];
    dispatch->groups[2] = r->tiles / r->block;
    dispatch->counted = r->counts;
    dispatch->multiply_adds = share * pairs_of(r) * r->call.n * r->call.k;
    dispatch->read_bytes = share * tsr__grouped_read_bytes(&r->call, r->w);
    dispatch->access[0] = r->rows;
    dispatch->access[1] = tsr__read_of(r->w);
    dispatch->access[2] = r->sums;
    dispatch->access[2].write = true;
    dispatch->access[3] = r->experts_of;
    dispatch->access[4] = r->counts;
    dispatch->access_count = 5;
    return tsr__stream_dispatch(stream, dispatch);
}

typedef struct emit_context {
    tsr_stream *stream;
    const grouped_run *run;
} emit_context;

/* Records one range of k of the product of all tiles. */
static tsr_status emit(void *user, const tsr__lavapipe_piece *piece)
{
    const emit_context *context = user;
    const grouped_run *r = context->run;
    const tsr_layout *w = &r->w->layout;
    const double share = (double)piece->k * r->splits / r->call.k;
    const struct tsr_matmul_cpu_push push = {
        .identity = {TSR_IDENTITY_8},
        .a = tsr__access_address(r->rows) + piece->a * sizeof(float),
        .b = tsr__tensor_address(r->w) + piece->b * tsr_dtype_size(w->dtype),
        .sums = tsr__access_address(r->sums) +
                ((uint64_t)r->half * r->call.n + piece->sums) * sizeof(float),
        .bias = tsr__access_address(r->experts_of),
        .a_stride = r->row_stride,
        .b_stride = (uint32_t)w->strides[1],
        .sums_stride = r->halves * r->call.n,
        .m = r->tiles * r->tile_rows,
        .n = piece->n,
        .k = piece->k,
        .skip = piece->skip,
        .accumulate = piece->accumulate,
        .b_batch = (uint32_t)w->strides[0],
        .block = r->block,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_MATMUL_LAVAPIPE_NT,
        .spec_count = TSR__LAVAPIPE_CONSTANTS,
        .push = &push,
        .push_bytes = sizeof push,
    };
    memcpy(dispatch.spec, piece->constants, sizeof piece->constants);
    dispatch.spec[TSR__LAVAPIPE_BATCHED] = 2;
    dispatch.spec[TSR__LAVAPIPE_SPLIT] = r->splits > 1 ? 2 : 0;
    return dispatch_tiles(context->stream, r, share, &dispatch);
}

/* Records the product of all tiles and matrices in a block format. */
static tsr_status multiply_blocks(tsr_stream *stream, const grouped_run *r)
{
    struct tsr_matmul_quant_rows_push push;
    tsr__dispatch dispatch = tsr__lavapipe_quant_tiles(r->w, r->tile_rows, &push);
    push.a = tsr__access_address(r->rows);
    push.y = tsr__access_address(r->sums) + (uint64_t)r->half * r->call.n * sizeof(float);
    push.bias = tsr__access_address(r->experts_of);
    push.a_row = r->row_stride;
    push.y_row = r->halves * r->call.n;
    dispatch.push = &push;
    dispatch.push_bytes = sizeof push;
    return dispatch_tiles(stream, r, 1, &dispatch);
}

/* True if four neighbours along k can be loaded as one vector. */
static bool has_vectors(const tsr_tensor *w)
{
    const tsr_layout *l = &w->layout;
    return l->shape[2] % 4 == 0 && l->strides[0] % 4 == 0 && l->strides[1] % 4 == 0 &&
           tsr__tensor_address(w) % (4 * tsr_dtype_size(l->dtype)) == 0;
}

/* Records the product of all tiles on SwiftShader: each is a matrix of a batch. */
static tsr_status multiply_on_swiftshader(tsr_stream *stream, const grouped_run *r)
{
    const tsr__grouped *call = &r->call;
    const tsr_layout *w = &r->w->layout;
    const struct tsr_matmul_push push = {
        .a = tsr__access_address(r->rows),
        .b = tsr__tensor_address(r->w),
        .y = tsr__access_address(r->sums) + (uint64_t)r->half * call->n * sizeof(float),
        .bias = tsr__access_address(r->experts_of),
        .m = r->tile_rows,
        .n = call->n,
        .k = call->k,
        .k_chunk = call->k,
        .a_row = r->row_stride,
        .a_k = 1,
        .b_k = 1,
        .b_col = (uint32_t)w->strides[1],
        .y_row = r->halves * call->n,
        .y_col = 1,
        .batch_inner = UINT32_MAX,
        .splits = 1,
        .a_inner = r->tile_rows * r->row_stride,
        .b_inner = (uint32_t)w->strides[0],
        .y_inner = r->tile_rows * r->halves * call->n,
        .alpha = 1,
        .mode = TSR_DT_F32 << TSR_MM_Y_DTYPE_SHIFT | TSR_DT_F32 << TSR_MM_BIAS_DTYPE_SHIFT,
    };
    tsr__dispatch dispatch = {
        .shader =
            r->tile_rows == 1 ? TSR__SHADER_MATMUL_SWIFTSHADER4 : TSR__SHADER_MATMUL_SWIFTSHADER8,
        .spec_count = 5,
        .spec = {TSR_F32, (uint32_t)w->dtype,
                 call->k % 4 == 0 ? TSR_MM_LOAD_VEC_K : TSR_MM_LOAD_SCALAR,
                 has_vectors(r->w) ? TSR_MM_LOAD_VEC_K : TSR_MM_LOAD_SCALAR, true},
        .push = &push,
        .push_bytes = sizeof push,
    };
    return dispatch_tiles(stream, r, 1, &dispatch);
}

/* Records the dispatch that computes y from the sums. */
static tsr_status finish(tsr_stream *stream, const grouped_run *r)
{
    const tsr__grouped *call = &r->call;
    const tsr_matmul_grouped_params *params = call->params;
    const tsr_tensor *bias = params->bias ? params->bias : params->up_bias;
    const struct tsr_grouped_finish_push push = {
        .sums = tsr__access_address(r->sums),
        .y = tsr__tensor_address(call->y.tensor),
        .ids = tsr__tensor_address(call->pairs.ids),
        .places = tsr__access_address(r->places),
        .bias = params->bias ? tsr__tensor_address(params->bias) : 0,
        .up_bias = params->up_bias ? tsr__tensor_address(params->up_bias) : 0,
        .weights = params->weights ? tsr__tensor_address(params->weights) : 0,
        .added = call->added ? tsr__tensor_address(call->added) : 0,
        .rows = params->weights ? call->pairs.tokens : pairs_of(r),
        .chosen = call->pairs.chosen,
        .experts = call->experts,
        .n = call->n,
        .sums_stride = r->halves * call->n,
        .y_stride = call->y.stride,
        .ids_stride = call->pairs.ids_stride,
        .weights_stride = call->weights_stride,
        .splits = r->splits,
        .split_rows = r->tiles * r->tile_rows,
        .bias_stride = bias ? (uint32_t)bias->layout.strides[0] : 0,
        .accumulate = params->accumulate,
        .limit = call->limit,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_GROUPED_FINISH,
        .spec_count = 6,
        .spec = {r->lanes, (uint32_t)call->y.tensor->layout.dtype,
                 bias ? (uint32_t)bias->layout.dtype : TSR_F32, params->weights != NULL,
                 params->up != NULL, params->up ? (uint32_t)params->activation : 0},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 4,
        .access = {r->sums, tsr__write_of(call->y.tensor), tsr__read_of(call->pairs.ids),
                   r->places},
    };
    const tsr_tensor *others[] = {params->bias, params->up_bias, params->weights, call->added};
    for (int i = 0; i < 4; i++)
        if (others[i])
            dispatch.access[dispatch.access_count++] = tsr__read_of(others[i]);
    const uint32_t across =
        tsr__div_up_u32(call->n, TSR_GROUPED_FINISH_VECTORS * r->lanes); /* of a row */
    tsr__groups_for((uint64_t)push.rows * across, 1, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}

static tsr_status record(tsr_stream *stream, void *work)
{
    grouped_run *r = work;
    const tsr__grouped *call = &r->call;
    emit_context context = {stream, r};
    if (r->is_sorted && !call->params->order)
        TSR__TRY(tsr__sort_pairs(stream, &call->pairs, call->experts, &call->sorted));
    TSR__TRY(arrange(stream, r));
    for (r->half = 0; r->half < r->halves; r->half++) {
        r->w = r->half == 0 ? call->w : call->params->up;
        TSR__TRY(r->kernels == SWIFTSHADER ? multiply_on_swiftshader(stream, r)
                 : r->kernels == BLOCKS    ? multiply_blocks(stream, r)
                                           : tsr__lavapipe_plan(&r->product, emit, &context));
    }
    return finish(stream, r);
}

/* Divides k into ranges of at most LONGEST steps: into splits, so that workgroups read lines of w
 * from start to end, or else into stretches. The kernel's steps are a multiple of two. */
static void divide_k(uint32_t k, uint32_t lanes, tsr__lavapipe_method *method)
{
    const uint32_t least = tsr__div_up_u32(k, LONGEST * lanes), pair = 2 * lanes;
    method->stretch = tsr__min_u32(tsr__div_up_u32(k, least * pair), k / pair) * 2;
    for (uint32_t splits = least; splits <= MOST_SPLITS; splits++)
        if (k % (splits * pair) == 0) {
            method->splits = splits;
            method->stretch = method->split_steps = k / (splits * lanes);
            return;
        }
}

/* Chooses tiles for matrices in a block format. */
static void choose_for_blocks(grouped_run *r, bool few)
{
    struct tsr_matmul_quant_rows_push unused;
    r->tile_rows = few ? 1 : TSR__QUANT_TILE_ROWS;
    r->groups[0] = tsr__lavapipe_quant_tiles(r->call.w, r->tile_rows, &unused).groups[0];
    r->groups[1] = r->splits = r->block = 1;
}

/* Chooses tiles for matrices of floats, and describes their product. */
static void choose_for_floats(grouped_run *r, bool few, bool long_code)
{
    const tsr__grouped *call = &r->call;
    const uint32_t average = pairs_of(r) / call->all_experts, least_rows = 9; /* of an expert */
    r->product = (tsr__lavapipe_product){
        .form = TSR__LAVAPIPE_NT,
        .all_rows = few                    ? 1
                    : average > least_rows ? average
                                           : least_rows,
        .n = call->n,
        .k = call->k,
        .lanes = r->lanes,
        .a_stride = r->row_stride,
        .b_stride = (uint64_t)call->w->layout.strides[1],
        .sums_stride = (uint64_t)r->halves * call->n,
        .a_dtype = TSR_F32,
        .b_dtype = call->w->layout.dtype,
        .batched = true,
        .sums_paired = call->n % 2 == 0,
        .long_code = long_code,
    };
    tsr__lavapipe_method *method = &r->product.method;
    *method = tsr__lavapipe_resolve(&r->product);
    method->splits = 1;
    if (few)
        divide_k(call->k, r->lanes, method);
    r->product.m = r->product.all_rows = r->tile_rows = method->rows;
    r->splits = method->splits;
    r->block = few ? 1 : BLOCK_TILES;
    /* A workgroup's index in x is that of a split, or that of a tile in its block. Workgroups have
     * as many subgroups as in plan.c. */
    const uint32_t across = tsr__div_up_u32(call->n, method->vectors);
    r->groups[0] = r->splits > 1 ? r->splits : r->block;
    r->groups[1] =
        r->splits > 1 ? across : tsr__div_up_u32(across, tsr__lavapipe_subgroups(across));
}

static void choose_for_swiftshader(grouped_run *r, bool few)
{
    const uint32_t columns = 32, rows = 8; /* of matmul_swiftshader8.comp */
    r->tile_rows = few ? 1 : rows;
    r->groups[0] = tsr__div_up_u32(r->call.n, columns);
    r->groups[1] = r->splits = r->block = 1;
}

static void choose(grouped_run *r, const tsr_device *device)
{
    const tsr__grouped *call = &r->call;
    const uint32_t pairs = pairs_of(r), threshold = 2;
    const bool few = pairs <= (uint64_t)threshold * call->all_experts;
    r->lanes = device->info.subgroup_size;
    r->is_sorted = !few;
    r->halves = call->params->up ? 2 : 1;
    /* rows of a tile do not map to the same few sets of a cache; see packed_stride in operands.c */
    r->row_stride = (uint32_t)tsr__align_up_u64(call->k, 16) | 16;
    if (r->kernels == BLOCKS)
        choose_for_blocks(r, few);
    else if (r->kernels == SWIFTSHADER)
        choose_for_swiftshader(r, few);
    else
        choose_for_floats(r, few, device->long_code);
    const uint64_t tiles = few ? pairs : (uint64_t)pairs / r->tile_rows + call->experts;
    r->tiles = (uint32_t)tsr__align_up_u64(tiles, r->block);
}

/* Returns the kernels that can multiply rows by w on the device. */
static kernels kernels_for(const tsr_device *device, const tsr_tensor *w)
{
    const tsr_dtype dtype = w->layout.dtype;
    const uint32_t lanes = device->info.subgroup_size;
    const bool is_16_bit = dtype == TSR_F16 || dtype == TSR_BF16,
               is_float = dtype == TSR_F32 || is_16_bit;
    if (device->traits.device_class == TSR__CLASS_CPU)
        return is_float && lanes == 4 && device->subgroup_quads ? SWIFTSHADER : NONE;
    if (!device->info.int64 || (lanes != 4 && lanes != 8 && lanes != 16))
        return NONE;
    if (is_float)
        return is_16_bit && device->storage != TSR__STORAGE_S16 ? NONE : FLOATS;
    return tsr__lavapipe_quant_tiles_suit(w) ? BLOCKS : NONE;
}

/* True if the kernels can compute the call, and it is large enough. */
static bool suits(const tsr__grouped *call)
{
    const tsr_layout *w = &call->w->layout;
    return !call->transposed && call->experts > 0 && call->experts <= TSR_MATMUL_CPU_GROUPS &&
           call->k > 0 && call->k <= UINT32_C(1) << 15 && call->n <= MOST_COLUMNS &&
           (double)call->pairs.tokens * call->pairs.chosen * call->n * call->k >= LEAST_PRODUCTS &&
           (w->strides[2] == 1 || w->shape[2] == 1) && w->strides[1] <= UINT32_MAX &&
           w->strides[0] <= UINT32_MAX && (!call->params->up || tsr__grouped_pairs_up(call));
}

tsr_status tsr__cpu_matmul_grouped(tsr_stream *stream, const tsr__grouped *call, bool *done)
{
    grouped_run r = {.call = *call};
    *done = false;
    r.kernels = kernels_for(tsr_stream_device(stream), call->w);
    if (r.kernels == NONE || !suits(call))
        return TSR_OK;
    choose(&r, tsr_stream_device(stream));
    const uint64_t pairs = pairs_of(&r), rows = (uint64_t)r.tiles * r.tile_rows;
    const bool sorts = r.is_sorted && !call->params->order;
    struct {
        tsr__access *range;
        uint64_t bytes;
    } const parts[] = {
        {&r.rows, rows * r.row_stride * sizeof(float)},
        {&r.sums, rows * r.splits * r.halves * call->n * sizeof(float)},
        {&r.experts_of, r.tiles * sizeof(uint32_t)},
        {&r.places, pairs * sizeof(uint32_t)},
        {&r.counts, 3 * sizeof(uint32_t)},
        {&r.call.sorted.order, sorts ? pairs * sizeof(int32_t) : 0},
        {&r.call.sorted.offsets, sorts ? (call->experts + UINT64_C(1)) * sizeof(int32_t) : 0},
    };
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        bytes += tsr__align_up_u64(parts[i].bytes, 256);
    /* of the loops of grouped_rows.comp */
    const uint64_t iterations =
        (r.is_sorted ? call->experts : pairs) + r.tile_rows * (call->k / r.lanes + UINT64_C(2));
    if (bytes > most_bytes || r.tiles / r.block > TSR_MATMUL_CPU_GROUPS ||
        r.groups[0] > TSR_MATMUL_CPU_GROUPS || r.groups[1] > TSR_MATMUL_CPU_GROUPS ||
        iterations > tsr_stream_device(stream)->traits.most_iterations)
        return TSR_OK;
    if (sorts)
        TSR__TRY(tsr__sort_check("matmul_grouped", stream, &call->pairs));
    const tsr_status status = tsr__stream_scratch(stream, bytes, &r.scratch);
    if (status == TSR_ERR_DEVICE_MEMORY) /* the kernels for GPUs need hardly any */
        return TSR_OK;
    TSR__TRY(status);
    uint64_t at = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].bytes > 0)
            *parts[i].range = (tsr__access){r.scratch, at, at + parts[i].bytes, false};
        at += tsr__align_up_u64(parts[i].bytes, 256);
    }
    *done = true;
    return tsr__stream_atomic(stream, record, &r);
}
