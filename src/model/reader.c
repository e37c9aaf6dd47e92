/* Reads weights: the bytes of a rank's part only, in pieces of at most PIECE_BYTES,
 * unless a single row is longer. */
#include "model/reader.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "model/elements.h"
#include "model/quantize.h"
#include "tensor/dtype.h"

#define PIECE_BYTES ((size_t)4 << 20)

void tsr__weight_reader_init(const tsr__model_files *files, tsr_stream *stream,
                             tsr__weight_reader *out)
{
    *out = (tsr__weight_reader){.stream = stream};
    tsr__weight_source_init("model", files, &out->source);
}

void tsr__weight_reader_finish(tsr__weight_reader *r)
{
    tsr__weight_source_finish(&r->source);
    tsr__free(r->raw);
    tsr__free(r->converted);
    tsr__free(r->scratch);
    *r = (tsr__weight_reader){.source = r->source};
}

/* Geometry --------------------------------------------------------------------------------------
 */

/* The bytes of the blocks that hold some columns of a row. */
typedef struct segment {
    uint64_t at, bytes; /* from the start of the row */
    int64_t skip;       /* elements before the first column */
    int64_t elements;   /* of all blocks */
    uint64_t row_bytes; /* of the complete row */
} segment;

static segment segment_of(const tsr_shard_param *param, int64_t row, int64_t first, int64_t count)
{
    const uint64_t block = param->block_count, from = (uint64_t)first / block,
                   to = tsr__div_up_u64((uint64_t)(first + count), block);
    return (segment){
        .at = from * param->block_bytes,
        .bytes = (to - from) * param->block_bytes,
        .skip = first - (int64_t)(from * block),
        .elements = (int64_t)((to - from) * block),
        .row_bytes = (uint64_t)row / block * param->block_bytes,
    };
}

/* A row of the file, and how much of it a part needs. */
static segment segment_for(const tsr__weight *w, const tsr__weight_part *part)
{
    return w->transposed
               ? segment_of(w->file, w->all_rows, w->first_row + part->first_row, part->rows)
               : segment_of(w->file, w->columns, part->first_column, part->columns);
}

uint64_t tsr__weight_part_bytes(const tsr__weight *w, const tsr__weight_part *part)
{
    if (part->rows == 0 || part->columns == 0)
        return 0;
    return segment_for(w, part).bytes * (uint64_t)(w->transposed ? part->columns : part->rows);
}

/* Returns the row of ours that is row `row` of the file, counted from the first one of a head. */
static int64_t row_in_head(int64_t head_dim, int64_t row)
{
    return row % 2 * (head_dim / 2) + row / 2;
}

/* Pieces ----------------------------------------------------------------------------------------
 */

typedef struct piece {
    const tsr__weight *weight;
    const tsr__weight_part *part;
    tsr_dtype to;        /* the tensor's */
    tsr_dtype dtype;     /* of elements on their way: f32 before they are quantised, else `to` */
    int64_t first, rows; /* rows of the part */
} piece;

/* Whether the file has the bytes that the tensor needs, row by row. */
static bool same_bytes(const tsr__weight *w, tsr_dtype to)
{
    return !w->transposed && tsr__elements_dtype(w->file) == to;
}

static uint64_t bytes_of(const piece *p, tsr_dtype dtype)
{
    return tsr__dtype_bytes(dtype, (uint64_t)(p->rows * p->part->columns));
}

/* Reads the blocks of a piece's rows into `raw`, row after row. */
static tsr_status read_rows(tsr__weight_reader *r, const piece *p, const segment *s)
{
    const tsr_shard_param *file = p->weight->file;
    const uint64_t row = (uint64_t)(p->weight->first_row + p->part->first_row + p->first);
    TSR__TRY(tsr__need_staging(&r->raw, &r->raw_bytes, s->bytes * (uint64_t)p->rows, 1));
    if (s->bytes == s->row_bytes)
        return tsr__weight_source_read(&r->source, file, row * s->row_bytes,
                                       s->bytes * (uint64_t)p->rows, r->raw);
    for (int64_t i = 0; i < p->rows; i++)
        TSR__TRY(tsr__weight_source_read(&r->source, file,
                                         (row + (uint64_t)i) * s->row_bytes + s->at, s->bytes,
                                         (char *)r->raw + (uint64_t)i * s->bytes));
    return TSR_OK;
}

/* Converts a piece's rows, and puts them in our order. */
static tsr_status convert_rows(tsr__weight_reader *r, const piece *p, const segment *s)
{
    const tsr_shard_param *file = p->weight->file;
    const int64_t columns = p->part->columns, head = p->weight->interleaved_head;
    const uint64_t row_bytes = tsr__dtype_bytes(p->dtype, (uint64_t)columns);
    if (file->block_count == 1 && head == 0)
        return tsr__elements_convert(file, r->raw, 0, p->rows * columns, p->dtype, r->converted,
                                     r->scratch);
    for (int64_t i = 0; i < p->rows; i++) {
        const int64_t at = head == 0 ? i : i / head * head + row_in_head(head, i % head);
        const char *from = (char *)r->raw + (uint64_t)i * s->bytes;
        char *to = (char *)r->converted + (uint64_t)at * row_bytes;
        if (same_bytes(p->weight, p->dtype))
            memcpy(to, from, row_bytes);
        else
            TSR__TRY(tsr__elements_convert(file, from, s->skip, columns, p->dtype, to, r->scratch));
    }
    return TSR_OK;
}

/* Reads a piece of a file that has columns as rows: each row of the file becomes a column. */
static tsr_status read_transposed(tsr__weight_reader *r, const piece *p)
{
    const tsr_shard_param *file = p->weight->file;
    const int64_t columns = p->part->columns;
    const segment s = segment_of(file, p->weight->all_rows,
                                 p->weight->first_row + p->part->first_row + p->first, p->rows);
    const size_t size = tsr_dtype_size(p->dtype), line = (size_t)p->rows * size;
    TSR__TRY(tsr__need_staging(&r->raw, &r->raw_bytes, (size_t)s.bytes + line, 1));
    char *values = (char *)r->raw + s.bytes;
    for (int64_t c = 0; c < columns; c++) {
        const uint64_t row = (uint64_t)(p->part->first_column + c);
        TSR__TRY(
            tsr__weight_source_read(&r->source, file, row * s.row_bytes + s.at, s.bytes, r->raw));
        TSR__TRY(
            tsr__elements_convert(file, r->raw, s.skip, p->rows, p->dtype, values, r->scratch));
        for (int64_t i = 0; i < p->rows; i++)
            memcpy((char *)r->converted + (size_t)(i * columns + c) * size,
                   values + (size_t)i * size, size);
    }
    return TSR_OK;
}

/* Quantises the converted elements into `raw`, which is not needed any more. */
static tsr_status quantise(tsr__weight_reader *r, const piece *p)
{
    const uint64_t bytes = bytes_of(p, p->to);
    TSR__TRY(tsr__need_staging(&r->raw, &r->raw_bytes, bytes, 1));
    const tsr_status status =
        tsr__quantize_rows(p->to, r->converted, p->rows, p->part->columns, r->raw, bytes);
    return status == TSR_OK
               ? TSR_OK
               : tsr__fail_context(status, "model: tensor %s, rows from %" PRId64,
                                   p->weight->file->name, p->part->first_row + p->first);
}

static tsr_status upload(tsr__weight_reader *r, const piece *p, const void *values, tsr_tensor *out)
{
    tsr_tensor *rows = NULL;
    TSR__TRY(tsr_tensor_slice(out, 0, p->first, p->first + p->rows, 1, &rows));
    tsr_status status = tsr_tensor_upload(r->stream, rows, values, bytes_of(p, p->to));
    tsr_tensor_destroy(&rows);
    return status;
}

static tsr_status read_piece(tsr__weight_reader *r, const piece *p, const segment *s,
                             tsr_tensor *out)
{
    TSR__TRY(tsr__need_staging(&r->converted, &r->converted_bytes, bytes_of(p, p->dtype), 1));
    if (p->weight->file->block_count > 1)
        TSR__TRY(tsr__need_staging((void **)&r->scratch, &r->scratch_count, (size_t)s->elements,
                                   sizeof *r->scratch));
    if (p->weight->transposed) {
        TSR__TRY(read_transposed(r, p));
    } else {
        TSR__TRY(read_rows(r, p, s));
        TSR__TRY(convert_rows(r, p, s));
    }
    if (p->dtype == p->to)
        return upload(r, p, r->converted, out);
    TSR__TRY(quantise(r, p));
    return upload(r, p, r->raw, out);
}

/* Reads complete rows of the same dtype into memory that both the host and the device reach. */
static tsr_status read_mapped(tsr__weight_reader *r, const tsr__weight *w,
                              const tsr__weight_part *part, const segment *s, void *memory)
{
    const uint64_t all = s->row_bytes * (uint64_t)part->rows,
                   start = (uint64_t)(w->first_row + part->first_row) * s->row_bytes;
    for (uint64_t at = 0; at < all; at += PIECE_BYTES) {
        const uint64_t bytes = tsr__min_u64(PIECE_BYTES, all - at);
        TSR__TRY(
            tsr__weight_source_read(&r->source, w->file, start + at, bytes, (char *)memory + at));
        if (r->progress)
            r->progress(r->user, r->source.read_bytes, r->total_bytes);
    }
    return TSR_OK;
}

tsr_status tsr__weight_read(tsr__weight_reader *r, const tsr__weight *w,
                            const tsr__weight_part *part, tsr_tensor *out)
{
    const tsr_layout *layout = tsr_tensor_layout(out);
    void *memory;
    if (part->rows == 0 || part->columns == 0)
        return TSR_OK;
    const segment s = segment_for(w, part);
    const tsr_dtype to = layout->dtype;
    if (same_bytes(w, to) && w->interleaved_head == 0 && s.bytes == s.row_bytes &&
        layout->ndim == 2 && tsr_tensor_map(out, &memory) == TSR_OK)
        return read_mapped(r, w, part, &s, memory);
    const uint64_t wide = (uint64_t)s.elements * sizeof(float);
    int64_t step = (int64_t)tsr__max_u64(
        1, PIECE_BYTES / (w->transposed ? (uint64_t)part->columns * sizeof(float) : wide));
    if (w->interleaved_head > 0)
        step = step < w->interleaved_head ? w->interleaved_head
                                          : step / w->interleaved_head * w->interleaved_head;
    for (int64_t first = 0; first < part->rows; first += step) {
        const piece p = {
            .weight = w,
            .part = part,
            .to = to,
            .dtype = tsr__dtype_is_block(to) && !same_bytes(w, to) ? TSR_F32 : to,
            .first = first,
            .rows = part->rows - first < step ? part->rows - first : step,
        };
        TSR__TRY(read_piece(r, &p, &s, out));
        if (r->progress)
            r->progress(r->user, r->source.read_bytes, r->total_bytes);
    }
    return TSR_OK;
}
