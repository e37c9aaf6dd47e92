/* Converts tensors of experts: one tensor for each expert or one for all, gate and up apart or
 * together, and matrices in MXFP4 as one tensor or as two. */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "model/convert/tensor.h"
#include "model/weights/elements.h"
#include "model/weights/mxfp4.h"

#define PIECE_ELEMENTS ((int64_t)1 << 20)

/* A matrix of the source that is transposed is read as a whole, because each of its rows is a
 * column. */
typedef struct reading {
    tsr__tensor_copier *copier;
    const tsr__converted *tensor;
    const tsr__weight *held; /* the transposed matrix whose values `matrix` has; NULL: none */
    float *matrix;
    size_t capacity;
} reading;

/* Finds the source of a row, and its number in there. */
static const tsr__weight *source_of(const tsr__converted_experts *x, int64_t row, int64_t *own)
{
    const int64_t each = x->latents ? x->both : x->parts * x->rows, expert = row / each,
                  in = row % each;
    if (x->latents) {
        *own = in < x->rows ? in : in - x->rows;
        return &x->sources[2 * expert + (in < x->rows ? 0 : 1)];
    }
    const int64_t part = x->alternates ? in % x->parts : in / x->rows;
    *own = x->alternates ? in / x->parts : in % x->rows;
    return &x->sources[expert * x->parts + part];
}

static uint64_t row_bytes(const tsr__weight *w)
{
    return (uint64_t)w->columns / w->file->block_count * w->file->block_bytes;
}

/* Reads a row of a source that is not transposed into c->raw. */
static tsr_status read_row(tsr__tensor_copier *c, const tsr__weight *w, int64_t row)
{
    const uint64_t bytes = row_bytes(w),
                   at = (uint64_t)(w->matrix * w->all_rows + w->first_row + row * w->row_step);
    TSR__TRY(tsr__need_bytes(&c->raw, &c->raw_bytes, bytes));
    return tsr__weight_source_read(&c->source, w->file, at * bytes, bytes, c->raw);
}

/* Reads a matrix as a whole: a transposed one with all its columns, and those of other parameters
 * between them. */
static tsr_status hold(reading *r, const tsr__weight *w)
{
    tsr__tensor_copier *c = r->copier;
    const uint64_t count = (uint64_t)(w->columns * w->all_rows),
                   bytes = count / w->file->block_count * w->file->block_bytes,
                   all_columns = (uint64_t)(w->all_columns > 0 ? w->all_columns : w->columns),
                   all_bytes = all_columns * (uint64_t)w->all_rows / w->file->block_count *
                               w->file->block_bytes;
    if (r->held && r->held->file == w->file && r->held->matrix == w->matrix)
        return TSR_OK;
    TSR__TRY(tsr__need_bytes(&c->raw, &c->raw_bytes, bytes));
    TSR__TRY(tsr__need_floats(&r->matrix, &r->capacity, count));
    TSR__TRY(tsr__need_floats(&c->scratch, &c->scratch_count, count));
    TSR__TRY(tsr__weight_source_read(&c->source, w->file, (uint64_t)w->matrix * all_bytes, bytes,
                                     c->raw));
    r->held = w;
    return tsr__elements_convert(w->file, c->raw, 0, (int64_t)count, TSR_F32, r->matrix,
                                 c->scratch);
}

/* Gives column `column` of a matrix of keys. */
static tsr_status column_values(reading *r, const tsr__weight *w, int64_t column, float *out)
{
    TSR__TRY(hold(r, w));
    for (int64_t i = 0; i < w->rows; i++)
        out[i] = r->matrix[w->transposed ? column * w->all_rows + i : i * w->columns + column];
    return TSR_OK;
}

/* Gives a row of the tensor, seen as rows of `columns` elements, in f32. */
static tsr_status row_values(reading *r, int64_t row, float *out)
{
    int64_t own;
    const tsr__converted_experts *x = &r->tensor->experts;
    const tsr__weight *w = source_of(x, row, &own);
    tsr__tensor_copier *c = r->copier;
    if (x->latents && row % x->both < x->rows)
        return column_values(r, w, own, out);
    if (!w->transposed) {
        TSR__TRY(read_row(c, w, own));
        if (w->file->block_count > 1)
            TSR__TRY(tsr__need_floats(&c->scratch, &c->scratch_count, (uint64_t)w->columns));
        return tsr__elements_convert(w->file, c->raw, 0, w->columns, TSR_F32, out, c->scratch);
    }
    TSR__TRY(hold(r, w));
    for (int64_t i = 0; i < w->columns; i++)
        out[i] = r->matrix[i * w->all_rows + w->first_row + own * w->row_step];
    return TSR_OK;
}

/* Rows whose bytes do not change -------------------------------------------------------------- */

/* Writes blocks of MXFP4 to the tensors of blocks and of scales, which follow each other. */
static tsr_status write_pair(tsr__tensor_copier *c, const tsr__converted *t, int64_t first,
                             int64_t rows, uint64_t each)
{
    const tsr__converted *const scales = t + 1;
    const uint64_t count = (uint64_t)rows * each / 17;
    TSR__TRY(tsr__need_bytes(&c->raw, &c->raw_bytes, count * 17));
    tsr__mxfp4_to_pair(c->made, count, c->raw, c->raw + count * 16);
    TSR__TRY(tsr__output_write(c->output, c->raw + count * 16, count,
                               scales->at + (uint64_t)first * (each / 17)));
    c->done_bytes += count;
    return tsr__tensor_write_rows(c, t, first, rows, c->raw);
}

static tsr_status copy_rows(tsr__tensor_copier *c, const tsr__converted *t, int64_t first,
                            int64_t rows)
{
    const uint64_t each = row_bytes(&t->experts.sources[0]);
    TSR__TRY(tsr__need_bytes(&c->made, &c->made_bytes, each * (uint64_t)rows));
    for (int64_t i = 0; i < rows; i++) {
        int64_t own;
        const tsr__weight *w = source_of(&t->experts, first + i, &own);
        TSR__TRY(read_row(c, w, own));
        memcpy(c->made + (uint64_t)i * each, c->raw, each);
    }
    return t->form == TSR__CONVERTED_MXFP4_BLOCKS
               ? write_pair(c, t, first, rows, each)
               : tsr__tensor_write_rows(c, t, first, rows, c->made);
}

/* Rows whose elements are converted ----------------------------------------------------------- */

static tsr_status convert_rows(reading *r, int64_t first, int64_t rows)
{
    tsr__tensor_copier *c = r->copier;
    const tsr__converted *t = r->tensor;
    const void *out;
    const uint64_t bytes = t->size_bytes / (uint64_t)t->rows * (uint64_t)rows;
    TSR__TRY(tsr__need_floats(&c->values, &c->value_count, (uint64_t)(rows * t->columns)));
    for (int64_t i = 0; i < rows; i++)
        TSR__TRY(row_values(r, first + i, c->values + i * t->columns));
    tsr__addition_add(t->addition, first, rows, t->columns, c->values);
    TSR__TRY(tsr__tensor_encode(c, t, first, rows, bytes, &out));
    return tsr__tensor_write_rows(c, t, first, rows, out);
}

/* Writes one matrix transposed. `t` has the sizes of the destination: `rows` are columns of ours.
 */
static tsr_status convert_transposed(reading *r, int64_t matrix)
{
    tsr__tensor_copier *c = r->copier;
    const tsr__converted *t = r->tensor;
    const int64_t wide = t->columns, rows = t->rows / t->experts.count;
    const void *out;
    float *row = NULL;
    size_t capacity = 0;
    tsr_status status = tsr__need_floats(&c->values, &c->value_count, (uint64_t)(rows * wide));
    if (status == TSR_OK)
        status = tsr__need_floats(&row, &capacity, (uint64_t)rows);
    for (int64_t i = 0; status == TSR_OK && i < wide; i++) {
        status = row_values(r, matrix * wide + i, row);
        for (int64_t k = 0; status == TSR_OK && k < rows; k++)
            c->values[k * wide + i] = row[k];
    }
    tsr__free(row);
    TSR__TRY(status);
    TSR__TRY(tsr__tensor_encode(c, t, matrix * rows, rows,
                                t->size_bytes / (uint64_t)t->rows * (uint64_t)rows, &out));
    return tsr__tensor_write_rows(c, t, matrix * rows, rows, out);
}

/* Returns whether all rows have the same bytes in the source and in the destination. */
static bool stays(const tsr__converted *t)
{
    const tsr__converted_experts *x = &t->experts;
    if (t->transposed || t->addition || x->latents)
        return false;
    for (int64_t i = 0; i < x->count * x->parts; i++)
        if (x->sources[i].transposed || (t->form == TSR__CONVERTED_ELEMENTS &&
                                         tsr__elements_dtype(x->sources[i].file) != t->dtype))
            return false;
    return true;
}

tsr_status tsr__experts_convert(tsr__tensor_copier *c, const tsr__converted *t)
{
    reading r = {.copier = c, .tensor = t};
    if (t->form == TSR__CONVERTED_MXFP4_SCALES) /* written with the blocks */
        return TSR_OK;
    const bool same = stays(t);
    int64_t step = PIECE_ELEMENTS / t->experts.sources[0].columns;
    step = t->transposed ? t->rows / t->experts.count : step < 1 ? 1 : step;
    tsr_status status = tsr__addition_begin(t->addition);
    for (int64_t first = 0; status == TSR_OK && first < t->rows; first += step) {
        const int64_t rows = t->rows - first < step ? t->rows - first : step;
        status = t->transposed ? convert_transposed(&r, first / step)
                 : same        ? copy_rows(c, t, first, rows)
                               : convert_rows(&r, first, rows);
    }
    tsr__addition_end(t->addition);
    tsr__free(r.matrix);
    return status;
}
