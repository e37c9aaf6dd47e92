/* Converts tensors that are made of several weights, or whose rows or columns are in another order
 * than in the source: those of delta nets and short convolutions. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/convert/tensor.h"
#include "model/weights/elements.h"
#include "tensor/dtype.h"

#define PIECE_ELEMENTS ((int64_t)1 << 20)

/* Where a row of the destination comes from. */
typedef struct origin {
    const tsr__converted_weight *weight;
    int64_t row; /* of ours */
} origin;

/* Finds the origins of all rows. */
static tsr_status find_origins(const tsr__converted *t, origin *out)
{
    for (size_t i = 0; i < t->weights.count; i++) {
        const tsr__converted_weight *w = &t->weights.items[i];
        for (int64_t row = 0; row < w->to.rows; row++)
            out[w->to.first_row + tsr__order_in_file(&w->to.row_order, row)] = (origin){w, row};
    }
    for (int64_t i = 0; i < t->rows; i++)
        TSR__REQUIRE(out[i].weight, "convert: row %lld of tensor %s has no source", (long long)i,
                     t->name);
    return TSR_OK;
}

static uint64_t row_bytes(const tsr__weight *w)
{
    return (uint64_t)w->columns / w->file->block_count * w->file->block_bytes;
}

static tsr_status read_row(tsr__tensor_copier *c, const origin *from)
{
    const tsr__weight *w = &from->weight->from;
    const uint64_t bytes = row_bytes(w),
                   at = (uint64_t)(w->first_row + tsr__order_in_file(&w->row_order, from->row));
    TSR__TRY(tsr__need_bytes(&c->raw, &c->raw_bytes, bytes));
    return tsr__weight_source_read(&c->source, w->file, at * bytes, bytes, c->raw);
}

static bool same_order(const tsr__order *a, const tsr__order *b)
{
    return a->run == b->run && a->runs == b->runs && a->run_step == b->run_step &&
           a->group_step == b->group_step;
}

/* Returns whether the rows of a weight have the same bytes in both files. */
static bool same_row(const tsr__converted *t, const tsr__converted_weight *w)
{
    return tsr__elements_dtype(w->from.file) == t->dtype && w->from.minus_exp == w->to.minus_exp &&
           same_order(&w->from.column_order, &w->to.column_order);
}

/* Gives element x of ours from a value of the source, and the destination's value of it. */
static float change(const tsr__converted_weight *w, float value)
{
    if (w->from.minus_exp && !w->to.minus_exp)
        return (float)log(-(double)value);
    return w->to.minus_exp && !w->from.minus_exp ? (float)-exp((double)value) : value;
}

/* Gives a row of the destination in f32. `row` has room for one of the source. */
static tsr_status row_values(tsr__tensor_copier *c, const origin *from, float *row, float *out)
{
    const tsr__weight *a = &from->weight->from, *b = &from->weight->to;
    TSR__TRY(read_row(c, from));
    if (a->file->block_count > 1)
        TSR__TRY(tsr__need_floats(&c->scratch, &c->scratch_count, (uint64_t)a->columns));
    TSR__TRY(tsr__elements_convert(a->file, c->raw, 0, a->columns, TSR_F32, row, c->scratch));
    TSR__REQUIRE(!a->minus_exp || row[0] < 0,
                 "convert: tensor %s: the element of row %lld is %g; it must be less than 0",
                 a->file->name, (long long)from->row, (double)row[0]);
    for (int64_t i = 0; i < a->columns; i++)
        out[tsr__order_in_file(&b->column_order, i)] =
            change(from->weight, row[tsr__order_in_file(&a->column_order, i)]);
    return TSR_OK;
}

static tsr_status convert_rows(tsr__tensor_copier *c, const tsr__converted *t,
                               const origin *origins, float *row, int64_t first, int64_t rows)
{
    const uint64_t each = t->size_bytes / (uint64_t)t->rows;
    const void *out;
    TSR__TRY(tsr__need_floats(&c->values, &c->value_count, (uint64_t)(rows * t->columns)));
    for (int64_t i = 0; i < rows; i++)
        TSR__TRY(row_values(c, &origins[first + i], row, c->values + i * t->columns));
    tsr__addition_add(t->addition, first, rows, t->columns, c->values);
    TSR__TRY(tsr__tensor_encode(c, t, first, rows, each * (uint64_t)rows, &out));
    return tsr__tensor_write_rows(c, t, first, rows, out);
}

static tsr_status copy_rows(tsr__tensor_copier *c, const tsr__converted *t, const origin *origins,
                            int64_t first, int64_t rows)
{
    const uint64_t each = t->size_bytes / (uint64_t)t->rows;
    TSR__TRY(tsr__need_bytes(&c->made, &c->made_bytes, each * (uint64_t)rows));
    for (int64_t i = 0; i < rows; i++) {
        TSR__TRY(read_row(c, &origins[first + i]));
        memcpy(c->made + (uint64_t)i * each, c->raw, each);
    }
    return tsr__tensor_write_rows(c, t, first, rows, c->made);
}

tsr_status tsr__weights_convert(tsr__tensor_copier *c, const tsr__converted *t)
{
    bool same = t->addition == NULL;
    for (size_t i = 0; i < t->weights.count; i++)
        same = same && same_row(t, &t->weights.items[i]);
    const int64_t most = PIECE_ELEMENTS / t->columns, step = most < 1 ? 1 : most;
    origin *origins = tsr__calloc((size_t)t->rows, sizeof *origins);
    float *row = tsr__calloc((size_t)t->columns, sizeof *row);
    tsr_status status = origins && row ? find_origins(t, origins) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__addition_begin(t->addition);
    for (int64_t first = 0; status == TSR_OK && first < t->rows; first += step) {
        const int64_t rows = t->rows - first < step ? t->rows - first : step;
        status = same ? copy_rows(c, t, origins, first, rows)
                      : convert_rows(c, t, origins, row, first, rows);
    }
    tsr__addition_end(t->addition);
    tsr__free(row);
    tsr__free(origins);
    return status;
}
