#include "bench/harness/in_f32.h"

#include <stdlib.h>

#include "cli/lib/memory.h"

/* Twice y's own memory may be more than there is: so many elements at a time, or one slice of the
 * first dimension. */
#define MOST_AT_ONCE ((int64_t)1 << 24)

typedef struct product {
    bench_context *context;
    const tsr_tensor *x, *w;
    const tsr_matmul_params *params;
    tsr_layout y;
} product;

/* What `rows` slices of the first dimension from `first` on are of y, into `out`. */
static tsr_status compute(const product *all, int64_t first, int64_t rows, float *out)
{
    tsr_tensor *x = NULL, *w = NULL, *y = NULL;
    const bool batched = all->y.ndim > 2;
    tsr_layout shape = all->y;
    shape.shape[0] = rows;
    tsr_status status =
        tsr_tensor_create(all->context->device, TSR_F32, shape.ndim, shape.shape, &y);
    if (status == TSR_OK)
        status = tsr_tensor_slice(all->x, 0, first, first + rows, 1, &x);
    if (status == TSR_OK && batched)
        status = tsr_tensor_slice(all->w, 0, first, first + rows, 1, &w);
    if (status == TSR_OK)
        status = tsr_matmul(all->context->stream, y, x, batched ? w : all->w, all->params);
    if (status == TSR_OK)
        status = tsr_tensor_download(all->context->stream, y, out,
                                     (uint64_t)tsr_layout_count(&shape) * sizeof *out);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&w);
    tsr_tensor_destroy(&y);
    return status;
}

tsr_status bench_product_in_f32(bench_context *context, const tsr_tensor *y, const tsr_tensor *x,
                                const tsr_tensor *w, const tsr_matmul_params *params, float **out)
{
    const product all = {
        .context = context, .x = x, .w = w, .params = params, .y = *tsr_tensor_layout(y)};
    *out = NULL;
    if (all.y.dtype == TSR_F32)
        return TSR_OK;
    const int64_t count = tsr_layout_count(&all.y), rows = all.y.shape[0], row = count / rows;
    const int64_t most = row < MOST_AT_ONCE ? MOST_AT_ONCE / row : 1;
    float *values = cli_alloc((size_t)count, sizeof *values);
    tsr_status status = TSR_OK;
    for (int64_t first = 0; first < rows && status == TSR_OK; first += most)
        status =
            compute(&all, first, rows - first < most ? rows - first : most, values + first * row);
    if (status == TSR_OK)
        *out = values;
    else
        free(values);
    return status;
}
