/* Softmax, its logarithm and their gradients on Mesa's CPU driver: the choice between the kernel
 * for short rows and those that divide rows into chunks. */
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/ops/softmax_chunks.h"
#include "gpu/cpu_drivers/ops/softmax_short.h"
#include "gpu/ops/common/walk.h"

enum {
    MAX_PLANES = 16, /* the largest number of planes of a piece, and so of dispatches of a kernel */
};

/* Returns the longest dimension of the piece, whose elements are rows. */
static int longest_dim(const tsr__piece *piece)
{
    int longest = 0;

    for (int d = 1; d < piece->ndim; d++)
        if (piece->shape[d] > piece->shape[longest])
            longest = d;
    return longest;
}

/* Describes the rows along dimension `dim` of the piece: a plane. There is one plane for each index
 * of the other dimensions; `plane` is its number. */
static tsr__softmax_rows rows_of(uint32_t function, const tsr_tensor *const tensors[3],
                                 const tsr__piece *piece, int dim, uint32_t plane)
{
    const tsr_layout *layout = &tensors[0]->layout;
    tsr__softmax_rows work = {
        .device = tensors[2]->buffer->device,
        .function = function,
        .rows = piece->shape[dim],
        .count = (uint32_t)layout->shape[layout->ndim - 1],
    };
    tsr__softmax_operand *operands[3] = {&work.a, &work.b, &work.y};

    for (int i = 0; i < 3; i++) {
        if (!tensors[i])
            continue;
        uint64_t size = tsr_dtype_size(tensors[i]->layout.dtype);
        *operands[i] = (tsr__softmax_operand){
            .address = tsr__piece_address(piece, i, tensors[i]) +
                       tsr__piece_plane(piece, i, dim, -1, plane) * size,
            .stride = piece->strides[i][dim] * size,
            .dtype = tensors[i]->layout.dtype,
            .access = i == 2 ? tsr__write_of(tensors[i]) : tsr__read_of(tensors[i]),
        };
    }
    return work;
}

static tsr_status add_plane(tsr_stream *stream, tsr__softmax_rows *work, tsr__dispatches *list)
{
    if (tsr__softmax_short_suit(work))
        return tsr__softmax_short_add(list, work);
    tsr__buffer *scratch;
    TSR__TRY(tsr__stream_scratch(stream, tsr__softmax_scratch_bytes(work), &scratch));
    work->scratch = tsr__write_buffer(scratch);
    TSR__TRY(tsr__softmax_chunks_add(list, work));
    TSR__TRY(tsr__softmax_rows_add(list, work));
    return tsr__softmax_apply_add(list, work);
}

tsr_status tsr__cpu_softmax(tsr__dispatches *list, tsr_stream *stream, uint32_t function,
                            const tsr_tensor *const tensors[3], const tsr__piece *piece, bool *done)
{
    int dim = longest_dim(piece);
    uint32_t planes = piece->count / piece->shape[dim];

    *done = planes <= MAX_PLANES;
    for (int i = 0; i < 3; i++)
        *done = *done && tsr__softmax_without_gaps(tensors[i]);
    for (uint32_t plane = 0; *done && plane < planes; plane++) {
        tsr__softmax_rows work = rows_of(function, tensors, piece, dim, plane);
        *done = tsr__softmax_short_suit(&work) || tsr__softmax_chunks_suit(&work);
    }
    for (uint32_t plane = 0; *done && plane < planes; plane++) {
        tsr__softmax_rows work = rows_of(function, tensors, piece, dim, plane);
        TSR__TRY(add_plane(stream, &work, list));
    }
    return TSR_OK;
}
