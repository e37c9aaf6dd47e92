#include "gpu/ops/sums.h"

#include "base/checked.h"
#include "gpu/ops/packets.h"
#include "gpu/ops/walk.h"
#include "shaders/params/sums.h"

enum {
    /* As in packets.c, for pipelines that take longer to make. */
    FEWEST_ELEMENTS = 16384,
    MOST_PLANES = 64, /* dispatches for dimensions beyond two */
    TREE = 32,        /* lanes of the tree, in shaders/reduce.glsl */
    LONGEST = 1024,   /* row or column: longer ones come in chunks */
    SUBGROUPS = 8,    /* of a workgroup: as many as the identity table counts */
    MOST_BLOCKS = 65535 * SUBGROUPS,
    MOST_UNITS = 2, /* of columns a lane: a line of cache */
};

/* Two dimensions of a dispatch of the general kernels, 0 being the one that blocks lie along; the
 * rest are walked here. */
typedef struct area {
    int dim[2]; /* -1: of size 1 */
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

/* Where the plane of number `other` starts, in elements. */
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

/* Each block takes `each` of dimension 0. */
static struct tsr_sums_push begin(const struct tsr_reduce_params *params, const area *a,
                                  uint32_t each)
{
    struct tsr_sums_push push = {
        .step = params->step,
        .count = params->count,
        .rows = a->size[0],
        .across = tsr__div_up_u32(a->size[0], each),
        .accumulate = params->accumulate,
        .scale = params->scale,
    };

    for (uint32_t i = 0; i < 8; i++)
        push.identity[i] = i;
    push.blocks = push.across * a->size[1];
    tsr__walk_divisor(push.across, &push.magic, &push.shift);
    return push;
}

/* What both kinds need. */
static bool suits(const tsr__sum *sum, const area *a, uint32_t each)
{
    const tsr_device *device = sum->device;
    bool narrow = device->storage == TSR__STORAGE_S16;
    uint64_t blocks = (uint64_t)tsr__div_up_u32(a->size[0], each) * a->size[1];

    return (narrow || (sum->x_dtype == TSR_F32 && sum->y_dtype == TSR_F32)) &&
           a->others <= MOST_PLANES && blocks <= MOST_BLOCKS;
}

static bool considers(const tsr__sum *sum)
{
    const struct tsr_reduce_params *params = sum->params;

    return tsr__packets_suit(sum->device) && params->count > TREE && params->count <= LONGEST &&
           (uint64_t)params->count * params->jobs >= FEWEST_ELEMENTS;
}

/* Rows ------------------------------------------------------------------------------------------
 */

/* Of a subgroup. Two make up for its start where they are short; with more the driver's compiler
 * takes two or three times as long. */
static uint32_t rows_of(const tsr__sum *sum)
{
    return sum->params->count <= 4 * TREE ? 2 : 1;
}

/* Blocks lie along the dimension whose elements are nearest to each other, if it fills one. */
static area rows_area(const tsr__sum *sum)
{
    const struct tsr_reduce_params *params = sum->params;
    int nearest = (int)params->ndim - 1;

    for (int d = 0; d < (int)params->ndim; d++) {
        bool fills = params->shape[d] >= rows_of(sum);
        bool best_fills = params->shape[nearest] >= rows_of(sum);
        if (fills == best_fills ? params->x_strides[d] < params->x_strides[nearest] : fills)
            nearest = d;
    }
    return choose(params, nearest);
}

bool tsr__sum_rows_suit(const tsr__sum *sum)
{
    if (!considers(sum) || sum->params->step != tsr_dtype_size(sum->x_dtype))
        return false;
    area a = rows_area(sum);
    return suits(sum, &a, rows_of(sum));
}

tsr_status tsr__sum_rows_add(tsr__dispatches *list, const tsr__sum *sum)
{
    const struct tsr_reduce_params *params = sum->params;
    uint32_t lanes = sum->device->info.subgroup_size, rows = rows_of(sum);
    uint64_t x_size = tsr_dtype_size(sum->x_dtype), y_size = tsr_dtype_size(sum->y_dtype);
    area a = rows_area(sum);
    struct tsr_sums_push push = begin(params, &a, rows);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_SUM_ROWS,
        .spec_count = 7,
        .spec = {SUBGROUPS * lanes, lanes, rows, tsr__div_up_u32(params->count, TREE),
                 params->count % TREE != 0, (uint32_t)sum->x_dtype, (uint32_t)sum->y_dtype},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32(push.blocks, SUBGROUPS), 1, 1},
        .access_count = 2,
        .access = {sum->x, sum->y},
    };

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

/* Columns ---------------------------------------------------------------------------------------
 */

static uint32_t units_of(const tsr__sum *sum)
{
    uint32_t columns = sum->params->shape[sum->params->ndim - 1];

    return tsr__min_u32(columns / sum->device->info.subgroup_size, MOST_UNITS);
}

uint64_t tsr__sum_parts_bytes(const tsr_device *device, int64_t rows, int64_t count, int64_t chunk)
{
    uint64_t columns, bytes;

    if (!tsr__packets_suit(device) || count <= TREE ||
        !tsr__mul_u64((uint64_t)rows, (uint64_t)(count / chunk + 1), &columns) ||
        !tsr__mul_u64(columns, TSR__SUM_PARTS * sizeof(float), &bytes) || bytes > INT64_MAX / 2)
        return 0;
    return bytes;
}

bool tsr__sum_columns_suit(const tsr__sum *sum)
{
    const struct tsr_reduce_params *params = sum->params;
    int inner = (int)params->ndim - 1;

    if (!considers(sum) || params->x_strides[inner] != 1 || units_of(sum) == 0)
        return false;
    area a = choose(params, inner);
    return suits(sum, &a, units_of(sum) * sum->device->info.subgroup_size);
}

tsr_status tsr__sum_columns_add(tsr__dispatches *list, const tsr__sum *sum, uint64_t parts,
                                tsr__access access)
{
    const struct tsr_reduce_params *params = sum->params;
    int inner = (int)params->ndim - 1;
    uint32_t lanes = sum->device->info.subgroup_size, units = units_of(sum);
    uint64_t x_size = tsr_dtype_size(sum->x_dtype);
    area a = choose(params, inner);
    struct tsr_sums_push push = begin(params, &a, units * lanes);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_SUM_COLUMNS,
        .spec_count = 7,
        .spec = {SUBGROUPS * lanes, lanes, TREE / TSR__SUM_PARTS, units,
                 tsr__div_up_u32(params->count, TREE), params->count % TREE != 0,
                 (uint32_t)sum->x_dtype},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32(push.blocks, SUBGROUPS), TSR__SUM_PARTS, 1},
        .access_count = 2,
        .access = {sum->x, access},
    };
    uint32_t strides[TSR_ROW_DIMS] = {0}; /* of a part, row-major */

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
        push.y = parts + plane_offset(params, &a, strides, i) * sizeof(float);
        TSR__TRY(tsr__dispatches_add(list, &dispatch));
    }
    return TSR_OK;
}
