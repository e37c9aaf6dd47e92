/* Runs vectors.comp on pieces of rows without gaps. A plane is the rows along one dimension. A
 * subgroup computes a block of a plane. */
#include "gpu/cpu_drivers/ops/vectors.h"

#include <string.h>

#include "base/checked.h"
#include "shaders/params/types.h"
#include "shaders/params/vectors.h"

/* How a plane is divided: the dimension of the rows, and the size of a block. */
typedef struct tiling {
    int row_dim; /* -1: there is one row */
    uint32_t lanes, rows, vectors;
    uint32_t block_rows, units;
} tiling;

/* The number of elements of y in one vector. */
static uint32_t group_of(const tsr__vectors *work)
{
    return TSR_VECTOR_BYTES / (uint32_t)tsr_dtype_size(work->tensor[0]->layout.dtype);
}

uint32_t tsr__vectors_common(uint64_t bits)
{
    bits |= TSR_VECTOR_BYTES;
    return (uint32_t)(bits & (~bits + 1));
}

uint32_t tsr__vectors_digits(uint32_t last, uint32_t digit_bits)
{
    uint32_t bits = digit_bits;
    while (bits < 32 && last >> bits)
        bits += digit_bits;
    return bits;
}

uint32_t tsr__vectors_least_alignment(const tsr_device *device)
{
    return device->storage == TSR__STORAGE_S16 ? 2 : 4;
}

uint32_t tsr__vectors_alignment(const tsr__piece *piece, int operand, const tsr_tensor *tensor)
{
    uint64_t bits = tsr__piece_address(piece, operand, tensor);
    uint64_t size = tsr_dtype_size(tensor->layout.dtype);

    for (int i = 0; i + 1 < piece->ndim; i++)
        bits |= piece->strides[operand][i] * size;
    return tsr__vectors_common(bits);
}

static uint32_t form_of(const tsr__piece *piece, int operand, const tsr_tensor *tensor)
{
    return piece->strides[operand][piece->ndim - 1] == 0
               ? TSR_VECTORS_ONE
               : tsr__vectors_alignment(piece, operand, tensor);
}

static bool operand_suits(const tsr__vectors *work, const tsr__piece *piece, int operand)
{
    const tsr_tensor *tensor = work->tensor[operand];
    uint32_t stride = piece->strides[operand][piece->ndim - 1];

    if (tensor->layout.dtype == TSR_U8 && work->function != TSR_VECTORS_MOVE)
        return false;
    if (stride == 0)
        return operand > 0 && work->function != TSR_VECTORS_MOVE;
    return stride == 1 && tsr__vectors_alignment(piece, operand, tensor) >=
                              tsr__vectors_least_alignment(tensor->buffer->device);
}

/* The number of vectors per lane in one row of a block, chosen so that covering a row takes the
 * least work. A block with fewer vectors per row has more rows. */
static uint32_t units_for(uint32_t vectors, uint32_t lanes)
{
    uint32_t best = 1, least = UINT32_MAX;

    for (uint32_t units = TSR__VECTORS_LANE; units > 0; units /= 2) {
        uint32_t covered = tsr__div_up_u32(vectors, units * lanes) * units;
        if (units * lanes <= vectors && covered < least) {
            best = units;
            least = covered;
        }
    }
    return best;
}

static tiling tile(const tsr__vectors *work, const tsr__piece *piece)
{
    tiling t = {.row_dim = -1,
                .rows = 1,
                .lanes = work->tensor[0]->buffer->device->info.subgroup_size,
                .vectors = tsr__piece_inner(piece) / group_of(work)};

    for (int i = 0; i + 1 < piece->ndim; i++)
        if (piece->shape[i] > t.rows) {
            t.rows = piece->shape[i];
            t.row_dim = i;
        }
    t.units = units_for(t.vectors, t.lanes);
    t.block_rows = t.rows > 1 ? TSR__VECTORS_LANE / t.units : 1;
    return t;
}

bool tsr__vectors_suit(const tsr_device *device)
{
    return device->traits.device_class == TSR__CLASS_LAVAPIPE && device->info.int64 &&
           device->info.subgroup_size >= 4 && device->info.subgroup_size <= 16;
}

bool tsr__vectors_cut(const tsr__vectors *work, const tsr__piece *piece, tsr__piece *vectors,
                      tsr__piece *rest)
{
    const tsr_device *device = work->tensor[0]->buffer->device;
    uint32_t columns = tsr__piece_inner(piece), whole = columns / group_of(work) * group_of(work);

    if (!tsr__vectors_suit(device) || piece->count < TSR__MIN_VECTORS)
        return false;
    for (int i = 0; i < work->count; i++)
        if (!operand_suits(work, piece, i))
            return false;
    tiling t = tile(work, piece);
    if (t.vectors < t.lanes || piece->count / columns / t.rows > TSR__VECTORS_MAX_PLANES)
        return false;

    *vectors = *rest = *piece;
    tsr__piece_columns(vectors, work->count, 0, whole);
    tsr__piece_columns(rest, work->count, whole, columns);
    return true;
}

/* One dispatch ------------------------------------------------------------------------------- */

/* The part of a plane that one dispatch covers: rows row … row + rows − 1 and vectors vector …
 * vector + vectors − 1 of the plane that starts at `offset`, in elements. */
typedef struct area {
    uint64_t offset[TSR__VECTORS_OPERANDS];
    uint32_t row, rows, vector, vectors;
} area;

static uint64_t operand_address(const tsr__vectors *work, const tsr__piece *piece, const tiling *t,
                                const area *at, int i)
{
    const tsr_tensor *tensor = work->tensor[i];
    uint64_t column = (uint64_t)at->vector * group_of(work), elements = at->offset[i];

    elements += column * piece->strides[i][piece->ndim - 1];
    if (t->row_dim >= 0)
        elements += (uint64_t)at->row * piece->strides[i][t->row_dim];
    return tsr__piece_address(piece, i, tensor) + elements * tsr_dtype_size(tensor->layout.dtype);
}

static tsr_status emit(tsr_stream *stream, const tsr__vectors *work, const tsr__piece *piece,
                       const tiling *t, const area *at)
{
    bool move = work->function == TSR_VECTORS_MOVE;
    struct tsr_vectors_push push = {
        .identity = {TSR_IDENTITY_16},
        .rows = at->rows,
        .vectors = at->vectors,
    };
    uint32_t across = tsr__div_up_u32(at->vectors, t->units * t->lanes);
    uint32_t blocks = across * tsr__div_up_u32(at->rows, t->block_rows);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_VECTORS,
        .spec_count = 14,
        .spec = {TSR__VECTORS_SUBGROUPS * t->lanes, t->lanes, t->block_rows, t->units},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32(blocks, TSR__VECTORS_SUBGROUPS), 1, 1},
        .access_count = work->count,
    };
    uint64_t *address[] = {&push.y, &push.a, &push.b, &push.c};
    uint32_t *row_bytes[] = {&push.y_row, &push.a_row, &push.b_row, &push.c_row};

    memcpy(&push.c, (float[2]){work->alpha, work->beta}, sizeof push.c);
    tsr__walk_divisor(across, &push.magic, &push.shift);
    for (int i = 0; i < work->count; i++) {
        const tsr_tensor *tensor = work->tensor[i];
        uint32_t size = (uint32_t)tsr_dtype_size(tensor->layout.dtype);
        *address[i] = operand_address(work, piece, t, at, i);
        *row_bytes[i] = t->row_dim < 0 ? 0 : piece->strides[i][t->row_dim] * size;
        /* Moving elements does not depend on the dtype. Always using the same dtype avoids
         * compiling more pipelines. */
        dispatch.spec[4 + i] = move ? TSR_DT_F32 : (uint32_t)tensor->layout.dtype;
        dispatch.spec[8 + i] = form_of(piece, i, tensor);
        dispatch.access[i] = i == 0 ? tsr__write_of(tensor) : tsr__read_of(tensor);
    }
    dispatch.spec[12] = work->function;
    dispatch.spec[13] = work->activation;
    return tsr__stream_dispatch(stream, &dispatch);
}

/* Records the dispatches for all blocks of a plane. If a row is divided among several
 * dispatches, their shares of it have about the same length, so that none is shorter than a
 * block. */
static tsr_status run_plane(tsr_stream *stream, const tsr__vectors *work, const tsr__piece *piece,
                            const tiling *t, area *at)
{
    uint32_t across = tsr__div_up_u32(t->vectors, t->units * t->lanes);
    uint32_t areas = tsr__div_up_u32(across, TSR__VECTORS_MAX_BLOCKS / 2);
    uint32_t band = areas > 1 ? t->block_rows : TSR__VECTORS_MAX_BLOCKS / across * t->block_rows;

    for (uint32_t i = 0; i < areas; i++) {
        at->vector = (uint32_t)((uint64_t)t->vectors * i / areas);
        at->vectors = (uint32_t)((uint64_t)t->vectors * (i + 1) / areas) - at->vector;
        for (at->row = 0; at->row < t->rows; at->row += at->rows) {
            at->rows = tsr__min_u32(band, t->rows - at->row);
            TSR__TRY(emit(stream, work, piece, t, at));
        }
    }
    return TSR_OK;
}

tsr_status tsr__vectors_run(tsr_stream *stream, const tsr__vectors *work, const tsr__piece *piece)
{
    tiling t = tile(work, piece);
    uint32_t planes = piece->count / tsr__piece_inner(piece) / t.rows;

    for (uint32_t plane = 0; plane < planes; plane++) {
        area at = {{0}, 0, 0, 0, 0};
        for (int i = 0; i < work->count; i++)
            at.offset[i] = tsr__piece_plane(piece, i, t.row_dim, piece->ndim - 1, plane);
        TSR__TRY(run_plane(stream, work, piece, &t, &at));
    }
    return TSR_OK;
}
