#include "model/convert/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "model/weights/elements.h"
#include "model/weights/quantize.h"
#include "tensor/float_conversion.h"
#include "tessera/quant.h"

#define PIECE_ELEMENTS ((int64_t)1 << 20)

void tsr__tensor_copier_init(const tsr__model_files *files, tsr__output *output,
                             tsr__tensor_copier *out)
{
    *out = (tsr__tensor_copier){.output = output};
    tsr__weight_source_init("convert", files, &out->source);
}

void tsr__tensor_copier_finish(tsr__tensor_copier *c)
{
    tsr__weight_source_finish(&c->source);
    tsr__free(c->raw);
    tsr__free(c->made);
    tsr__free(c->values);
    tsr__free(c->scratch);
    *c = (tsr__tensor_copier){.source = c->source};
}

/* Encoding ------------------------------------------------------------------------------------- */

/* Checks that no finite element becomes infinite. */
static tsr_status check_range(const tsr__converted *t, int64_t first_row, int64_t count,
                              const float *values)
{
    /* The smallest magnitude that rounds to infinity. */
    const float limit = t->dtype == TSR_F16 ? 65520.0f : 0x1.ffp127f;
    for (int64_t i = 0; i < count; i++)
        TSR__REQUIRE(!(fabsf(values[i]) >= limit) || isinf(values[i]),
                     "convert: tensor %s, row %" PRId64 ": %g is too large for %s", t->name,
                     first_row + i / t->columns, (double)values[i], tsr_dtype_name(t->dtype));
    return TSR_OK;
}

/* Encodes rows of the destination from c->values, and sets *out to their bytes. */
tsr_status tsr__tensor_encode(tsr__tensor_copier *c, const tsr__converted *t, int64_t first_row,
                              int64_t rows, uint64_t bytes, const void **out)
{
    const int64_t count = rows * t->columns;
    *out = c->values;
    if (t->dtype == TSR_F32)
        return TSR_OK;
    TSR__TRY(tsr__need_bytes(&c->made, &c->made_bytes, bytes));
    *out = c->made;
    if (tsr_quant_format_of(t->dtype)) {
        const tsr_status status =
            tsr__quantize_rows(t->dtype, c->values, rows, t->columns, c->made, bytes);
        return status == TSR_OK ? TSR_OK
                                : tsr__fail_context(status, "convert: tensor %s, from row %" PRId64,
                                                    t->name, first_row);
    }
    TSR__TRY(check_range(t, first_row, count, c->values));
    tsr__converter(t->dtype, TSR_F32)(c->made, c->values, (size_t)count);
    return TSR_OK;
}

tsr_status tsr__tensor_write_rows(tsr__tensor_copier *c, const tsr__converted *t, int64_t first_row,
                                  int64_t rows, const void *bytes)
{
    const uint64_t row_bytes = t->size_bytes / (uint64_t)t->rows, size = row_bytes * (uint64_t)rows;
    TSR__TRY(tsr__output_write(c->output, bytes, size, t->at + (uint64_t)first_row * row_bytes));
    c->done_bytes += size;
    if (c->progress && !c->progress(c->user, c->done_bytes, c->total_bytes))
        return tsr__fail(TSR_ERR_IO, "convert: stopped after %" PRIu64 " of %" PRIu64 " bytes",
                         c->done_bytes, c->total_bytes);
    return TSR_OK;
}

/* Rows that stay rows -------------------------------------------------------------------------- */

/* Returns the row of the source that becomes this row of the destination. */
static int64_t source_row(const tsr__converted *t, int64_t row)
{
    const int64_t head = t->split_head > 0 ? t->split_head : t->join_head;
    if (head == 0)
        return row;
    const int64_t in = row % head, half = head / 2;
    return row - in + (t->split_head > 0 ? in % half * 2 + in / half : in % 2 * half + in / 2);
}

static tsr_status convert_rows(tsr__tensor_copier *c, const tsr__converted *t, int64_t first,
                               int64_t rows)
{
    const uint64_t from_bytes = t->from->size_bytes / (uint64_t)t->rows,
                   to_bytes = t->size_bytes / (uint64_t)t->rows;
    const bool moves = t->split_head > 0 || t->join_head > 0,
               same = t->from_dtype == t->dtype && t->shift == 0 && !t->addition;
    const void *out = c->raw;
    TSR__TRY(tsr__need_bytes(&c->raw, &c->raw_bytes, from_bytes * (uint64_t)rows));
    TSR__TRY(tsr__weight_source_read(&c->source, t->from, (uint64_t)first * from_bytes,
                                     from_bytes * (uint64_t)rows, c->raw));
    if (same && !moves)
        return tsr__tensor_write_rows(c, t, first, rows, c->raw);
    if (same)
        TSR__TRY(tsr__need_bytes(&c->made, &c->made_bytes, to_bytes * (uint64_t)rows));
    else
        TSR__TRY(tsr__need_floats(&c->values, &c->value_count, (uint64_t)(rows * t->columns)));
    if (t->from->block_count > 1)
        TSR__TRY(tsr__need_floats(&c->scratch, &c->scratch_count, (uint64_t)t->columns));
    for (int64_t i = 0; i < rows; i++) {
        const uint8_t *from = c->raw + (uint64_t)(source_row(t, first + i) - first) * from_bytes;
        if (same)
            memcpy(c->made + (uint64_t)i * to_bytes, from, to_bytes);
        else
            TSR__TRY(tsr__elements_convert(t->from, from, 0, t->columns, TSR_F32,
                                           c->values + i * t->columns, c->scratch));
    }
    for (int64_t i = 0; !same && t->shift != 0 && i < rows * t->columns; i++)
        c->values[i] += t->shift;
    if (t->addition)
        tsr__addition_add(t->addition, first, rows, t->columns, c->values);
    if (same)
        out = c->made;
    else
        TSR__TRY(tsr__tensor_encode(c, t, first, rows, to_bytes * (uint64_t)rows, &out));
    return tsr__tensor_write_rows(c, t, first, rows, out);
}

/* Columns that become rows --------------------------------------------------------------------- */

static tsr_status transpose_rows(tsr__tensor_copier *c, const tsr__converted *t, int64_t first,
                                 int64_t rows)
{
    const uint64_t block = t->from->block_count, block_bytes = t->from->block_bytes,
                   row_bytes = t->from->size_bytes / (uint64_t)t->columns,
                   size = tsr__div_up_u64((uint64_t)rows, block) * block_bytes,
                   to_bytes = t->size_bytes / (uint64_t)t->rows * (uint64_t)rows;
    const void *out;
    TSR__TRY(tsr__need_bytes(&c->raw, &c->raw_bytes, size));
    TSR__TRY(tsr__need_floats(&c->values, &c->value_count, (uint64_t)(rows * t->columns)));
    TSR__TRY(tsr__need_floats(&c->scratch, &c->scratch_count, (uint64_t)rows * 2 + 2 * block));
    float *column = c->scratch + tsr__div_up_u64((uint64_t)rows, block) * block;
    for (int64_t i = 0; i < t->columns; i++) {
        TSR__TRY(tsr__weight_source_read(
            &c->source, t->from, (uint64_t)i * row_bytes + (uint64_t)first / block * block_bytes,
            size, c->raw));
        TSR__TRY(tsr__elements_convert(t->from, c->raw, 0, rows, TSR_F32, column, c->scratch));
        for (int64_t r = 0; r < rows; r++)
            c->values[r * t->columns + i] = column[r];
    }
    if (t->addition)
        tsr__addition_add(t->addition, first, rows, t->columns, c->values);
    TSR__TRY(tsr__tensor_encode(c, t, first, rows, to_bytes, &out));
    return tsr__tensor_write_rows(c, t, first, rows, out);
}

static tsr_status convert_pieces(tsr__tensor_copier *c, const tsr__converted *t)
{
    const int64_t head = t->split_head > 0 ? t->split_head : t->join_head;
    /* A piece is the range of the destination's rows that is converted at a time. It has whole
     * heads or, if those rows are columns of the source, whole blocks of the source's rows. */
    const int64_t unit = t->transposed ? (int64_t)t->from->block_count : head > 0 ? head : 1;
    int64_t step = PIECE_ELEMENTS / t->columns / unit * unit;
    step = step < unit ? unit : step;
    for (int64_t first = 0; first < t->rows; first += step) {
        const int64_t rows = t->rows - first < step ? t->rows - first : step;
        TSR__TRY(t->transposed ? transpose_rows(c, t, first, rows)
                               : convert_rows(c, t, first, rows));
    }
    return TSR_OK;
}

tsr_status tsr__tensor_convert(tsr__tensor_copier *c, const tsr__converted *t)
{
    if (!t->addition)
        return convert_pieces(c, t);
    tsr_status status = tsr__addition_begin(t->addition);
    if (status == TSR_OK)
        status = convert_pieces(c, t);
    tsr__addition_end(t->addition);
    return status;
}
