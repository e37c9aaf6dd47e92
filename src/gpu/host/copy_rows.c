#include <string.h>

#include "base/checked.h"
#include "gpu/host/copy.h"
#include "gpu/ops/common/walk.h"

enum {
    /* the minimum number of elements in a row; the elements of shorter rows are copied faster one
     * at a time */
    SHORTEST_ROW = 8,
};

bool tsr__host_rows(const tsr__host_piece *work)
{
    return tsr__piece_row_elements(work->piece) >= SHORTEST_ROW;
}

void tsr__host_copy_rows(const tsr__host_piece *work, uint64_t first, uint64_t end)
{
    const tsr__piece *piece = work->piece;
    const uint32_t inner = tsr__piece_row_elements(piece);
    const int outer_dims = piece->ndim - 1;
    uint32_t position[TSR__PIECE_DIMS] = {0};

    uint64_t row = first / inner, in_row = first % inner;
    for (int i = outer_dims - 1; i >= 0; i--) {
        position[i] = (uint32_t)(row % piece->shape[i]);
        row /= piece->shape[i];
    }
    uint64_t next;
    for (uint64_t at = first; at < end; at = next) {
        uint64_t to = (uint64_t)piece->offset[0] + in_row,
                 from = (uint64_t)piece->offset[1] + in_row;
        for (int i = 0; i < outer_dims; i++) {
            to += (uint64_t)position[i] * piece->strides[0][i];
            from += (uint64_t)position[i] * piece->strides[1][i];
        }
        next = tsr__min_u64(at + inner - in_row, end);
        char *target = work->to + to * work->to_bytes;
        const char *source = work->from + from * work->from_bytes;
        if (work->convert)
            work->convert(target, source, (size_t)(next - at));
        else
            memcpy(target, source, (size_t)(next - at) * work->from_bytes);
        in_row = 0;
        for (int i = outer_dims - 1; i >= 0 && ++position[i] == piece->shape[i]; i--)
            position[i] = 0;
    }
}
