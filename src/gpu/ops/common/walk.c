#include "gpu/ops/common/walk.h"

void tsr__walk_divisor(uint32_t divisor, uint32_t *magic, uint32_t *shift)
{
    *shift = 0;
    while ((UINT64_C(1) << *shift) < divisor)
        (*shift)++;
    *magic = (uint32_t)((((UINT64_C(1) << *shift) - divisor) << 32) / divisor + 1);
}

static void set_divisor(struct tsr_walk *walk, int i, uint32_t divisor)
{
    uint32_t shift;

    tsr__walk_divisor(divisor, &walk->magic[i], &shift);
    walk->size[i] = divisor;
    walk->shifts |= shift << (8 * i);
}

void tsr__walk_init(struct tsr_walk *walk, const tsr__piece *piece, uint32_t group)
{
    uint32_t inner = tsr__piece_inner(piece);
    uint32_t groups = inner / group + (inner % group != 0);
    *walk = (struct tsr_walk){.items = piece->count / inner * groups, .inner = inner};
    set_divisor(walk, 0, groups);
    set_divisor(walk, 1, piece->ndim > 1 ? piece->shape[piece->ndim - 2] : 1);
    set_divisor(walk, 2, piece->ndim > 2 ? piece->shape[piece->ndim - 3] : 1);
}

void tsr__walk_strides(const tsr__piece *piece, int operand, uint32_t out[TSR_WALK_DIMS])
{
    _Static_assert(TSR_WALK_DIMS == TSR__PIECE_DIMS, "a walk covers a piece");
    int missing = TSR_WALK_DIMS - piece->ndim;
    for (int i = 0; i < TSR_WALK_DIMS; i++)
        out[i] = i < missing ? 0 : piece->strides[operand][i - missing];
}

uint32_t tsr__piece_inner(const tsr__piece *piece)
{
    return piece->shape[piece->ndim - 1];
}

uint32_t tsr__piece_inner_stride(const tsr__piece *piece, int operand)
{
    return tsr__piece_inner(piece) == 1 ? 1 : piece->strides[operand][piece->ndim - 1];
}

uint32_t tsr__piece_row_elements(const tsr__piece *piece)
{
    bool in_rows = tsr__piece_inner_stride(piece, 0) == 1 && tsr__piece_inner_stride(piece, 1) == 1;

    return in_rows ? tsr__piece_inner(piece) : 1;
}

void tsr__piece_columns(tsr__piece *piece, int operands, uint32_t begin, uint32_t end)
{
    int inner = piece->ndim - 1;

    piece->count = piece->count / piece->shape[inner] * (end - begin);
    piece->shape[inner] = end - begin;
    for (int i = 0; i < operands; i++)
        piece->offset[i] += (int64_t)begin * piece->strides[i][inner];
}

uint64_t tsr__piece_address(const tsr__piece *piece, int operand, const tsr_tensor *tensor)
{
    return tensor->buffer->address +
           (uint64_t)piece->offset[operand] * tsr_dtype_size(tensor->layout.dtype);
}

bool tsr__piece_aligned(const tsr__piece *piece, int operand, const tsr_tensor *tensor,
                        uint64_t unit_bytes, uint64_t alignment_bytes)
{
    if (tsr__piece_inner_stride(piece, operand) != 1 ||
        tsr__piece_address(piece, operand, tensor) % alignment_bytes != 0)
        return false;
    for (int i = 0; i + 1 < piece->ndim; i++)
        if (piece->strides[operand][i] * unit_bytes % alignment_bytes != 0)
            return false;
    return true;
}

static bool fits_unit(const tsr__piece *piece, int operands, const tsr_tensor *const *tensors,
                      uint64_t unit_bytes)
{
    const uint64_t size = tsr_dtype_size(tensors[0]->layout.dtype);
    for (int i = 0; i < operands; i++)
        if (!tsr__piece_aligned(piece, i, tensors[i], size, unit_bytes))
            return false;
    return tsr__piece_inner(piece) * size % unit_bytes == 0;
}

uint32_t tsr__piece_widen(tsr__piece *piece, int operands, const tsr_tensor *const *tensors)
{
    const int inner = piece->ndim - 1;
    const uint64_t size = tsr_dtype_size(tensors[0]->layout.dtype);
    uint64_t unit = 16;
    while (unit > size && !fits_unit(piece, operands, tensors, unit))
        unit /= 2;
    if (unit == size)
        return (uint32_t)unit;

    const uint32_t ratio = (uint32_t)(unit / size);
    piece->shape[inner] /= ratio;
    piece->count /= ratio;
    for (int operand = 0; operand < operands; operand++)
        for (int i = 0; i < inner; i++)
            piece->strides[operand][i] /= ratio;
    return (uint32_t)unit;
}

int tsr__piece_transposed(const tsr__piece *piece)
{
    int inner = piece->ndim - 1;
    if (piece->strides[0][inner] != 1 || piece->strides[1][inner] <= 1)
        return -1;
    for (int i = 0; i < inner; i++)
        if (piece->strides[1][i] == 1)
            return i;
    return -1;
}

uint64_t tsr__piece_plane(const tsr__piece *piece, int operand, int a, int b, uint32_t plane)
{
    uint64_t offset = 0;
    for (int i = piece->ndim - 1; i >= 0; i--) {
        if (i == a || i == b)
            continue;
        offset += (uint64_t)(plane % piece->shape[i]) * piece->strides[operand][i];
        plane /= piece->shape[i];
    }
    return offset;
}
