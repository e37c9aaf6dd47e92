/* Initial values of parameters. The random value of an element depends on its position in the full
 * parameter, not on the rank that draws it. */
#include <math.h>
#include <string.h>

#include "base/given.h"
#include "base/hash.h"
#include "parallel/layers/layer.h"

void tsr__initial_choose(tsr__layer_parameter *parameter, const tsr__parameter_spec *spec)
{
    const double in = (double)spec->fan_in, out = (double)spec->fan_out;
    double scale = 0;
    parameter->draw = spec->bias ? TSR__DRAW_ZEROS : TSR__DRAW_NORMAL;
    switch (spec->init.kind) {
    case TSR_INIT_DEFAULT:
    case TSR_INIT_XAVIER_NORMAL:
        scale = sqrt(2 / (in + out));
        break;
    case TSR_INIT_XAVIER_UNIFORM:
        scale = sqrt(6 / (in + out));
        if (!spec->bias)
            parameter->draw = TSR__DRAW_UNIFORM;
        break;
    case TSR_INIT_KAIMING_NORMAL:
        scale = sqrt(2 / in);
        break;
    case TSR_INIT_TORCH:
        scale = 1 / sqrt(in);
        parameter->draw = TSR__DRAW_UNIFORM;
        break;
    case TSR_INIT_NORMAL:
        scale = (double)tsr__given_float(spec->init.deviation, 1);
        break;
    case TSR_INIT_ZEROS:
        parameter->draw = TSR__DRAW_ZEROS;
        break;
    case TSR_INIT_NONE:
        parameter->draw = TSR__DRAW_NOTHING;
        break;
    }
    if (spec->ones && spec->init.kind != TSR_INIT_NONE)
        parameter->draw = TSR__DRAW_ONES;
    if (spec->log && spec->init.kind != TSR_INIT_NONE)
        parameter->draw = TSR__DRAW_LOG;
    parameter->scale = (float)scale;
    parameter->seed = spec->init.seed;
}

static tsr_status draw_values(const tsr__layer_parameter *parameter, tsr_stream *stream,
                              tsr_tensor *out, int64_t first, const int64_t *index_strides)
{
    const tsr_random_params params = {
        .struct_size = sizeof params,
        .seed = parameter->seed,
        .subsequence = tsr__hash(TSR__HASH_START, parameter->name, strlen(parameter->name)),
        .offset = (uint64_t)first,
        .index_strides = index_strides,
    };
    switch (parameter->draw) {
    case TSR__DRAW_ZEROS:
        return tsr_fill(stream, out, 0);
    case TSR__DRAW_ONES:
        return tsr_fill(stream, out, 1);
    case TSR__DRAW_NORMAL:
        return tsr_random_normal(stream, out, 0, parameter->scale, &params);
    case TSR__DRAW_UNIFORM:
        return tsr_random_uniform(stream, out, -parameter->scale, parameter->scale, &params);
    case TSR__DRAW_LOG:
        TSR__TRY(tsr_random_uniform(stream, out, 1, 16, &params));
        return tsr_unary(stream, out, out, TSR_UNARY_LOG);
    case TSR__DRAW_NOTHING:
        break;
    }
    return TSR_OK;
}

/* The number of elements of the full parameter from one index of dimension `dim` to the next. */
static int64_t stride_of(const tsr_parameter *seen, int dim)
{
    int64_t stride = 1;
    for (int d = dim + 1; d < seen->ndim; d++)
        stride *= seen->global_shape[d];
    return stride;
}

/* Returns the position in the full parameter of the first element of this rank's shard. */
static int64_t shard_start(const tsr_parameter *seen)
{
    return seen->offset * stride_of(seen, seen->shard_dim > 0 ? seen->shard_dim : 0);
}

tsr_status tsr__initial_fill(const tsr__layer_parameter *parameter, tsr_stream *stream,
                             tsr_tensor *out)
{
    int64_t strides[TSR__PARAMETER_DIMS] = {1, 1, 1};
    for (int d = 0; d < parameter->seen.ndim; d++)
        strides[d] = stride_of(&parameter->seen, d);
    return draw_values(parameter, stream, out, shard_start(&parameter->seen), strides);
}

/* The state while a range of elements of a rank's shard is written, if the shard is divided along
 * another dimension than the first. Its elements are then rows: those that have the same indices in
 * the dimensions before. Such a range consists of the end of a row, complete rows, and the start of
 * a row. */
typedef struct column_shard_writer {
    const tsr__layer_parameter *parameter;
    tsr_stream *stream;
    tsr_tensor *out;
    int64_t done; /* number of elements of `out` that have been written */
} column_shard_writer;

static tsr_status write_rows(column_shard_writer *writer, int64_t row, int64_t column, int64_t rows,
                             int64_t columns)
{
    const tsr_parameter *seen = &writer->parameter->seen;
    const int64_t row_stride = stride_of(seen, seen->shard_dim - 1);
    if (rows * columns == 0)
        return TSR_OK;
    tsr_tensor *view = NULL;
    tsr_layout layout = *tsr_tensor_layout(writer->out);
    layout.ndim = 2;
    layout.shape[0] = rows;
    layout.shape[1] = columns;
    layout.strides[0] = columns;
    layout.strides[1] = 1;
    layout.offset += writer->done;
    TSR__TRY(tsr_tensor_view(writer->out, &layout, &view));
    tsr_status status =
        draw_values(writer->parameter, writer->stream, view,
                    shard_start(seen) + row * row_stride + column, (int64_t[]){row_stride, 1});
    tsr_tensor_destroy(&view);
    writer->done += rows * columns;
    return status;
}

tsr_status tsr__initial_range(const tsr__layer_parameter *parameter, tsr_stream *stream,
                              int64_t first, tsr_tensor *out)
{
    const tsr_parameter *seen = &parameter->seen;
    const int64_t count = tsr_tensor_layout(out)->shape[0];
    if (count == 0)
        return TSR_OK;
    if (seen->shard_dim < 1)
        return draw_values(parameter, stream, out, shard_start(seen) + first, NULL);

    const int64_t columns = seen->length * stride_of(seen, seen->shard_dim);
    column_shard_writer writer = {parameter, stream, out, 0};
    int64_t row = first / columns, column = first % columns;
    if (column > 0) {
        int64_t head = columns - column < count ? columns - column : count;
        TSR__TRY(write_rows(&writer, row++, column, 1, head));
    }
    int64_t rows = (count - writer.done) / columns;
    TSR__TRY(write_rows(&writer, row, 0, rows, columns));
    return write_rows(&writer, row + rows, 0, 1, count - writer.done);
}
