#include "base/alloc.h"
#include "base/checked.h"
#include "parallel/checkpoint/checkpoint.h"
#include "tessera/ops.h"

#define CHUNK_BYTES (UINT64_C(1) << 20)

/* A copy between an entry's memory and a file. */
typedef struct mover {
    const tsr_checkpoint_entry *entry;
    tsr__checkpoint_rows rows;
    uint64_t at_bytes, width;
    tsr__checkpoint_move_fn move;
    void *file;
} mover;

/* Moves elements first … first + count − 1 of the block; `data` points to the first of them.
 * Elements that follow each other in the block also follow each other in the file, but only until
 * the end of a row. */
static tsr_status move_elements(const mover *m, uint64_t first, uint64_t count, uint8_t *data)
{
    const tsr__checkpoint_rows *rows = &m->rows;
    /* If the block's rows are complete rows of the tensor, the whole block is one range of the
     * file. */
    const bool whole = rows->row == rows->whole_row;
    while (count > 0) {
        const uint64_t row = first / rows->row, column = first % rows->row;
        const uint64_t run = whole ? count : tsr__min_u64(count, rows->row - column);
        const uint64_t element = row * rows->whole_row + rows->start + column;
        TSR__TRY(m->move(m->file, m->at_bytes + element * m->width, run * m->width, data));
        data += run * m->width;
        first += run;
        count -= run;
    }
    return TSR_OK;
}

static tsr_status move_chunk(const mover *m, tsr_stream *stream, const tsr_tensor *flat,
                             uint64_t first, uint64_t count, bool saving, uint8_t *buffer)
{
    tsr_tensor *chunk = NULL;
    TSR__TRY(tsr_tensor_slice(flat, 0, (int64_t)first, (int64_t)(first + count), 1, &chunk));
    tsr_status status = TSR_OK;
    if (saving)
        status = tsr_tensor_download(stream, chunk, buffer, count * m->width);
    if (status == TSR_OK)
        status = move_elements(m, m->entry->first + first, count, buffer);
    if (status == TSR_OK && !saving)
        status = tsr_tensor_upload(stream, chunk, buffer, count * m->width);
    tsr_tensor_destroy(&chunk);
    return status;
}

static tsr_status move_flat(const mover *m, tsr_stream *stream, const tsr_tensor *flat, bool saving)
{
    const uint64_t most = tsr__min_u64(CHUNK_BYTES / m->width, m->entry->count);
    uint8_t *buffer = tsr__calloc(most, m->width);
    if (!buffer)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = TSR_OK;
    for (uint64_t first = 0; first < m->entry->count && status == TSR_OK; first += most)
        status = move_chunk(m, stream, flat, first, tsr__min_u64(most, m->entry->count - first),
                            saving, buffer);
    tsr__free(buffer);
    return status;
}

/* Moves a non-contiguous tensor by means of a contiguous copy. */
static tsr_status move_strided(const mover *m, tsr_stream *stream, bool saving)
{
    const tsr_layout *layout = tsr_tensor_layout(m->entry->tensor);
    tsr_tensor *dense = NULL, *flat = NULL;
    TSR__TRY(tsr_tensor_create(tsr_stream_device(stream), layout->dtype, layout->ndim,
                               layout->shape, &dense));
    tsr_status status = saving ? tsr_copy(stream, dense, m->entry->tensor) : TSR_OK;
    if (status == TSR_OK)
        status = tsr_tensor_reshape(dense, 1, (int64_t[]){-1}, &flat);
    if (status == TSR_OK)
        status = move_flat(m, stream, flat, saving);
    if (status == TSR_OK && !saving)
        status = tsr_copy(stream, m->entry->tensor, dense);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&dense);
    return status;
}

tsr_status tsr__checkpoint_transfer(tsr_stream *stream, const tsr_checkpoint_entry *entry,
                                    uint64_t at_bytes, bool saving, tsr__checkpoint_move_fn move,
                                    void *file)
{
    const mover m = {entry,    tsr__checkpoint_rows_of(entry),
                     at_bytes, tsr__checkpoint_width(entry->dtype),
                     move,     file};
    if (entry->count == 0)
        return TSR_OK;
    if (!entry->tensor)
        return move_elements(&m, entry->first, entry->count, entry->data);
    if (!tsr_layout_is_contiguous(tsr_tensor_layout(entry->tensor)))
        return move_strided(&m, stream, saving);
    tsr_tensor *flat = NULL;
    TSR__TRY(tsr_tensor_reshape(entry->tensor, 1, (int64_t[]){-1}, &flat));
    tsr_status status = move_flat(&m, stream, flat, saving);
    tsr_tensor_destroy(&flat);
    return status;
}
