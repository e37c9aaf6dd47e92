/* Reductions of rows and columns on Mesa's CPU driver. They replace a dispatch of the general
 * kernels (reduction.h). A plane is two of the dimensions of the replaced dispatch, and the host
 * records a dispatch for each plane. */
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/ops/common/rows.h"
#include "shaders/params/reduce.h"

#include "base/checked.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "gpu/ops/common/walk.h"
#include "shaders/params/reduction.h"

enum {
    /* The smallest number of elements for which these kernels are used. It is larger than
     * TSR__MIN_VECTORS (vectors.h), because their pipelines take longer to compile. */
    MIN_ELEMENTS = 16384,
    MAX_PLANES = 64, /* the largest number of planes */
    TREE = 32,       /* the number of lanes of the tree in shaders/include/reduce.glsl */
    LONGEST = 1024,  /* the longest rows or columns; longer ones have been divided into chunks */
    /* Subgroups per workgroup. The array identity[] of the push constants, in which shaders look up
     * the number of their subgroup (lavapipe.glsl), has this many elements. */
    SUBGROUPS = 8,
    MAX_BLOCKS = 65535 * SUBGROUPS,
    MAX_UNITS = 2, /* columns per lane; with 8 lanes, two columns of f32 fill a cache line */
};

/* Two dimensions of a dispatch of the general kernels. Blocks of rows or columns extend along
 * dim[0]. The host iterates over the other dimensions. */
typedef struct area {
    int dim[2]; /* -1: there is no such dimension; its size is 1 */
    uint32_t size[2], others;
} area;

static area choose(const struct tsr_reduce_params *params, int first)
{
    area a = {.dim = {first, -1}, .size = {params->shape[first], 1}};

    for (int d = 0; d < (int)params->ndim; d++)
        if (d != first && params->shape[d] > a.size[1]) {
            a.dim[1] = d;
            a.size[1] = params->shape[d];
        }
    a.others = params->jobs / a.size[0] / a.size[1];
    return a;
}

static uint32_t stride_bytes(const uint32_t strides[TSR_ROW_DIMS], int dim, uint64_t size)
{
    return dim < 0 ? 0 : (uint32_t)(strides[dim] * size);
}

/* The offset in elements of plane number `other`. A plane extends over the two dimensions of the
 * area. */
static uint64_t plane_offset(const struct tsr_reduce_params *params, const area *a,
                             const uint32_t strides[TSR_ROW_DIMS], uint32_t other)
{
    uint64_t offset = 0;

    for (int d = (int)params->ndim - 1; d >= 0; d--) {
        if (d == a->dim[0] || d == a->dim[1])
            continue;
        offset += (uint64_t)(other % params->shape[d]) * strides[d];
        other /= params->shape[d];
    }
    return offset;
}

/* Initialises the push constants. A block has `each` rows or columns along dim[0]. */
static struct tsr_reduction_push begin(const struct tsr_reduce_params *params, const area *a,
                                       uint32_t each)
{
    struct tsr_reduction_push push = {
        .identity = {TSR_IDENTITY_8},
        .step = params->step,
        .count = params->count,
        .rows = a->size[0],
        .across = tsr__div_up_u32(a->size[0], each),
        .accumulate = params->accumulate,
        .scale = params->scale,
    };

    push.blocks = push.across * a->size[1];
    tsr__walk_divisor(push.across, &push.magic, &push.shift);
    return push;
}

/* True for argmax. Its y contains indices (i32) or, in partial results, pairs of value and index
 * (i64). */
static bool is_argmax(const tsr__reduction *r)
{
    return r->kind == TSR_REDUCE_KIND_ARGMAX;
}

/* Checks the conditions that the kernels for rows and those for columns have in common. */
static bool suits(const tsr__reduction *r, const area *a, uint32_t each)
{
    const tsr_device *device = r->device;
    bool narrow = device->storage == TSR__STORAGE_S16;
    uint64_t blocks = (uint64_t)tsr__div_up_u32(a->size[0], each) * a->size[1];

    return (narrow || (r->x_dtype == TSR_F32 && (is_argmax(r) || r->y_dtype == TSR_F32))) &&
           a->others <= MAX_PLANES && blocks <= MAX_BLOCKS;
}

static bool considers(const tsr__reduction *r)
{
    const struct tsr_reduce_params *params = r->params;

    return tsr__vectors_suit(r->device) && params->count > TREE && params->count <= LONGEST &&
           (uint64_t)params->count * params->jobs >= MIN_ELEMENTS;
}

/* Rows --------------------------------------------------------------------------------------- */

/* The number of rows per subgroup. It is two for short rows, because starting a subgroup takes
 * time. With more, the driver's compiler takes two or three times as long. */
static uint32_t rows_of(const tsr__reduction *r)
{
    return r->params->count <= 4 * TREE && !is_argmax(r) ? 2 : 1;
}

/* Chooses dim[0]: among the dimensions that are long enough for a block, the one with the smallest
 * stride. */
static area rows_area(const tsr__reduction *r)
{
    const struct tsr_reduce_params *params = r->params;
    int nearest = (int)params->ndim - 1;

    for (int d = 0; d < (int)params->ndim; d++) {
        bool fills = params->shape[d] >= rows_of(r);
        bool best_fills = params->shape[nearest] >= rows_of(r);
        if (fills == best_fills ? params->x_strides[d] < params->x_strides[nearest] : fills)
            nearest = d;
    }
    return choose(params, nearest);
}

bool tsr__cpu_reduce_rows_suit(const tsr__reduction *r)
{
    if (!considers(r) || !tsr__dtype_is_float(r->x_dtype) ||
        r->params->step != tsr_dtype_size(r->x_dtype))
        return false;
    area a = rows_area(r);
    return suits(r, &a, rows_of(r));
}

static void choose_rows(tsr__dispatch *dispatch, const tsr__reduction *r)
{
    uint32_t lanes = r->device->info.subgroup_size, count = r->params->count;
    uint32_t *spec = dispatch->spec;

    *spec++ = SUBGROUPS * lanes;
    *spec++ = lanes;
    if (is_argmax(r)) {
        dispatch->shader = TSR__SHADER_ARGMAX_ROWS;
        *spec++ = tsr__div_up_u32(count, lanes);
        *spec++ = count % lanes != 0;
        *spec++ = (uint32_t)r->x_dtype;
        *spec++ = r->y_dtype == TSR_I64 ? TSR_ARGMAX_PAIRS : TSR_ARGMAX_INDICES;
    } else {
        dispatch->shader = TSR__SHADER_REDUCTION_ROWS;
        *spec++ = rows_of(r);
        *spec++ = tsr__div_up_u32(count, TREE);
        *spec++ = count % TREE != 0;
        *spec++ = (uint32_t)r->x_dtype;
        *spec++ = (uint32_t)r->y_dtype;
        *spec++ = r->kind;
    }
    dispatch->spec_count = (int)(spec - dispatch->spec);
}

tsr_status tsr__cpu_reduce_rows(tsr__dispatches *list, const tsr__reduction *r)
{
    const struct tsr_reduce_params *params = r->params;
    uint64_t x_size = tsr_dtype_size(r->x_dtype), y_size = tsr_dtype_size(r->y_dtype);
    area a = rows_area(r);
    struct tsr_reduction_push push = begin(params, &a, rows_of(r));
    tsr__dispatch dispatch = {
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32(push.blocks, SUBGROUPS), 1, 1},
        .access_count = 2,
        .access = {r->x, r->y},
    };

    choose_rows(&dispatch, r);
    push.x_row = stride_bytes(params->x_strides, a.dim[0], x_size);
    push.x_plane = stride_bytes(params->x_strides, a.dim[1], x_size);
    push.y_row = stride_bytes(params->y_strides, a.dim[0], y_size);
    push.y_plane = stride_bytes(params->y_strides, a.dim[1], y_size);
    for (uint32_t i = 0; i < a.others; i++) {
        push.x = params->x + plane_offset(params, &a, params->x_strides, i) * x_size;
        push.y = params->y + plane_offset(params, &a, params->y_strides, i) * y_size;
        TSR__TRY(tsr__dispatches_add(list, &dispatch));
    }
    return TSR_OK;
}

/* Columns ------------------------------------------------------------------------------------ */

static uint32_t units_of(const tsr__reduction *r)
{
    uint32_t columns = r->params->shape[r->params->ndim - 1];

    return tsr__min_u32(columns / r->device->info.subgroup_size, MAX_UNITS);
}

uint64_t tsr__cpu_reduce_columns_bytes(const tsr_device *device, int64_t rows, int64_t count,
                                       int64_t chunk)
{
    uint64_t columns, bytes;

    if (!tsr__vectors_suit(device) || count <= TREE ||
        !tsr__mul_u64((uint64_t)rows, (uint64_t)(count / chunk + 1), &columns) ||
        !tsr__mul_u64(columns, TSR__REDUCTION_SLICES * sizeof(float), &bytes) ||
        bytes > INT64_MAX / 2)
        return 0;
    return bytes;
}

bool tsr__cpu_reduce_columns_suit(const tsr__reduction *r)
{
    const struct tsr_reduce_params *params = r->params;
    int inner = (int)params->ndim - 1;

    if (!considers(r) || is_argmax(r) || params->x_strides[inner] != 1 || units_of(r) == 0)
        return false;
    area a = choose(params, inner);
    return suits(r, &a, units_of(r) * r->device->info.subgroup_size);
}

tsr_status tsr__cpu_reduce_columns(tsr__dispatches *list, const tsr__reduction *r, uint64_t slices,
                                   tsr__access access)
{
    const struct tsr_reduce_params *params = r->params;
    int inner = (int)params->ndim - 1;
    uint32_t lanes = r->device->info.subgroup_size, units = units_of(r);
    uint64_t x_size = tsr_dtype_size(r->x_dtype);
    area a = choose(params, inner);
    struct tsr_reduction_push push = begin(params, &a, units * lanes);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_REDUCTION_COLUMNS,
        .spec_count = 8,
        .spec = {SUBGROUPS * lanes, lanes, TREE / TSR__REDUCTION_SLICES, units,
                 tsr__div_up_u32(params->count, TREE), params->count % TREE != 0,
                 (uint32_t)r->x_dtype, r->kind},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32(push.blocks, SUBGROUPS), TSR__REDUCTION_SLICES, 1},
        .access_count = 2,
        .access = {r->x, access},
    };
    uint32_t strides[TSR_ROW_DIMS] = {0}; /* the row-major strides of the slices */

    for (int d = inner, size = 1; d >= 0; d--) {
        strides[d] = (uint32_t)size;
        size *= (int)params->shape[d];
    }
    dispatch.access[1].write = true;
    push.x_plane = stride_bytes(params->x_strides, a.dim[1], x_size);
    push.y_row = params->jobs * (uint32_t)sizeof(float);
    push.y_plane = stride_bytes(strides, a.dim[1], sizeof(float));
    for (uint32_t i = 0; i < a.others; i++) {
        push.x = params->x + plane_offset(params, &a, params->x_strides, i) * x_size;
        push.y = slices + plane_offset(params, &a, strides, i) * sizeof(float);
        TSR__TRY(tsr__dispatches_add(list, &dispatch));
    }
    return TSR_OK;
}
