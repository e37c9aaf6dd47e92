/* Adapters in the passes of linear layers. */
#include "parallel/layers/adapter.h"

#include "base/alloc.h"
#include "gpu/internal.h"
#include "parallel/layers/latent_attention.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/moe.h"

tsr__layer_parameter *tsr__adapter_weight(const tsr__adapter *adapter, int part)
{
    const tsr_layer *target = adapter->target;
    const int block = adapter->part[part].block;
    int index = 0;
    if (adapter->kind == TSR__ADAPTER_COLUMN)
        index = tsr__block_parameter((const tsr__column_linear *)target, block, TSR__WEIGHT);
    else if (adapter->kind == TSR__ADAPTER_LATENT)
        index = ((const tsr__latent_attention *)target)->index[block];
    else if (adapter->kind != TSR__ADAPTER_ROW)
        index = ((const tsr__moe *)target)->index[block];
    return target->parameter[index];
}

/* Terms of products -------------------------------------------------------------------------- */

static tsr__layer_parameter *parameter_a(const tsr__adapter *adapter, int part)
{
    return adapter->base.parameter[adapter->part[part].a];
}

static tsr__layer_parameter *parameter_b(const tsr__adapter *adapter, int part)
{
    return adapter->base.parameter[adapter->part[part].b];
}

/* Gets the range of features of y, on this rank, that a part adds to. */
static void range_of(const tsr__adapter *adapter, int part, int64_t *first, int64_t *count)
{
    if (adapter->is_row) {
        *first = 0;
        *count = tsr__adapter_linear(adapter)->output_size;
        return;
    }
    const tsr__column_block *block =
        &((const tsr__column_linear *)adapter->target)->block[adapter->part[part].block];
    *first = block->start;
    *count = block->division.length;
}

/* The rows of B that this rank multiplies: all that it keeps, unless its block is replicated. */
tsr_status tsr__adapter_rows_of(const tsr__adapter *adapter, tsr__temps *temps, int part,
                                tsr_tensor *matrix, tsr_tensor **out)
{
    *out = matrix;
    if (adapter->is_row)
        return TSR_OK;
    const tsr__column_block *block =
        &((const tsr__column_linear *)adapter->target)->block[adapter->part[part].block];
    return block->replicated ? tsr__temp_slice(temps, matrix, 0, block->division.first,
                                               block->division.length, out)
                             : TSR_OK;
}

/* Gets the matrices A of all parts as one, if they follow each other in memory. Otherwise sets *out
 * to NULL. */
static tsr_status join(const tsr__adapter *adapter, tsr__temps *temps, tsr_tensor **out)
{
    const tsr_tensor *first = parameter_a(adapter, 0)->seen.tensor;
    tsr_layout joint = *tsr_tensor_layout(first), next = joint;
    *out = NULL;
    if (!tsr_layout_is_contiguous(&joint))
        return TSR_OK;
    for (int i = 0; i < adapter->a_count; i++) {
        next.shape[0] = adapter->part[i].rank;
        if (!tsr__tensor_is_view(parameter_a(adapter, i)->seen.tensor, first, &next))
            return TSR_OK;
        next.offset += next.shape[0] * next.strides[0];
    }
    joint.shape[0] = adapter->ranks;
    TSR__TRY(tsr_tensor_view(first, &joint, out));
    return tsr__temp_keep(temps, *out);
}

/* y2 = dropout of x2 [m,k], the columns of x that this rank has. A column-parallel layer has all of
 * them. The mask of an element depends on its place in x, not on the ranks. */
static tsr_status drop(const tsr__adapter *adapter, tsr_tensor *y2, const tsr_tensor *x2)
{
    const tsr__row_linear *row = (const tsr__row_linear *)adapter->target;
    const int64_t strides[2] = {tsr__adapter_linear(adapter)->input_size, 1};
    const tsr_random_params params = {
        .struct_size = sizeof params,
        .seed = adapter->dropout->seed,
        .subsequence = adapter->dropout->subsequence ^ adapter->mask,
        .offset = adapter->is_row ? (uint64_t)row->weight_division.first : 0,
        .index_strides = strides};
    return tsr_dropout(adapter->base.stream, y2, x2, adapter->dropout->p, &params);
}

/* Gets the operand of A: x2, or a tensor with its dropout. */
static tsr_status dropped(const tsr__adapter *adapter, tsr__temps *temps, const tsr_tensor *x2,
                          const tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(x2);
    tsr_tensor *made;
    *out = x2;
    if (adapter->dropout->p == 0)
        return TSR_OK;
    TSR__TRY(tsr__temp_new(temps, layout->dtype, 2, layout->shape, &made));
    *out = made;
    return drop(adapter, made, x2);
}

/* *h [m,ranks] = x2 Aᵀ of all parts. x2 has had its dropout. */
static tsr_status project(const tsr__adapter *adapter, tsr__temps *temps, const tsr_tensor *x2,
                          tsr_tensor **h)
{
    tsr_stream *stream = adapter->base.stream;
    const tsr_matmul_params *params = tsr_matmul_params(.transpose_b = true);
    const int64_t shape[2] = {tsr_tensor_layout(x2)->shape[0], adapter->ranks};
    tsr_tensor *joint, *columns;
    for (int i = 0; i < adapter->base.parameter_count; i++)
        TSR__TRY(tsr__parameter_require(&adapter->base, i));
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, shape, h));
    TSR__TRY(join(adapter, temps, &joint));
    if (joint)
        return tsr_matmul(stream, *h, x2, joint, params);
    for (int i = 0; i < adapter->a_count; i++) {
        TSR__TRY(
            tsr__temp_slice(temps, *h, 1, adapter->part[i].first, adapter->part[i].rank, &columns));
        TSR__TRY(tsr_matmul(stream, columns, x2, parameter_a(adapter, i)->seen.tensor, params));
    }
    return TSR_OK;
}

static tsr_status add_terms(const tsr__adapter *adapter, tsr__temps *temps, const tsr_tensor *x2,
                            tsr__adapter_terms *terms)
{
    tsr_tensor *all, *h, *b;
    TSR__TRY(dropped(adapter, temps, x2, &x2));
    TSR__TRY(project(adapter, temps, x2, &all));
    for (int i = 0; i < adapter->count; i++) {
        tsr__adapter_term *term = &terms->term[terms->count];
        TSR__TRY(tsr__temp_slice(temps, all, 1, adapter->part[i].first, adapter->part[i].rank, &h));
        TSR__TRY(tsr__adapter_rows_of(adapter, temps, i, parameter_b(adapter, i)->seen.tensor, &b));
        *term = (tsr__adapter_term){.h = h, .b = b, .scale = adapter->part[i].scale};
        range_of(adapter, i, &term->first, &term->count);
        terms->count++;
    }
    return TSR_OK;
}

tsr_status tsr__adapter_terms_find(const tsr__linear *linear, tsr__temps *temps,
                                   const tsr_tensor *x2, tsr__adapter_terms *terms)
{
    int count = 0;
    *terms = (tsr__adapter_terms){0};
    if (linear->base.adapters && linear->base.adapters->choice->mode == TSR__ADAPTERS_BY_ROW)
        return tsr__adapter_rows_find(linear, temps, x2, terms);
    for (const tsr__adapter *a = linear->base.adapters; a; a = a->next)
        count += tsr__adapter_is_active(a) ? a->count : 0;
    if (count == 0)
        return TSR_OK;
    terms->term = tsr__calloc((size_t)count, sizeof *terms->term);
    if (!terms->term)
        return TSR_ERR_NO_MEMORY;
    for (const tsr__adapter *a = linear->base.adapters; a; a = a->next)
        if (tsr__adapter_is_active(a))
            TSR__TRY(add_terms(a, temps, x2, terms));
    return TSR_OK;
}

tsr_status tsr__adapter_terms_add(const tsr__linear *linear, tsr__temps *temps,
                                  const tsr__adapter_terms *terms, int64_t row, int64_t first,
                                  int64_t count, tsr_tensor *y2)
{
    const int64_t rows = tsr_tensor_layout(y2)->shape[0];
    for (int i = 0; i < terms->count; i++) {
        const tsr__adapter_term *term = &terms->term[i];
        const int64_t from = first > term->first ? first : term->first,
                      end = first + count < term->first + term->count ? first + count
                                                                      : term->first + term->count;
        tsr_tensor *h, *b, *y;
        if (from >= end || rows == 0)
            continue;
        if (term->ids) { /* all rows and features together: see overlapped_product.c */
            TSR__TRY(tsr__adapter_rows_add(linear, temps, term, y2));
            continue;
        }
        TSR__TRY(tsr__temp_slice(temps, term->h, 0, row, rows, &h));
        TSR__TRY(tsr__temp_slice(temps, term->b, 0, from - term->first, end - from, &b));
        TSR__TRY(tsr__temp_slice(temps, y2, 1, from - first, end - from, &y));
        TSR__TRY(tsr_matmul(
            linear->base.stream, y, h, b,
            tsr_matmul_params(.transpose_b = true, .alpha = term->scale, .accumulate = true)));
    }
    return TSR_OK;
}

tsr_status tsr__adapters_forward(const tsr__linear *linear, tsr__temps *temps, const tsr_tensor *x2,
                                 tsr_tensor *y2)
{
    tsr__adapter_terms terms;
    tsr_status status = tsr__adapter_terms_find(linear, temps, x2, &terms);
    if (status == TSR_OK)
        status = tsr__adapter_terms_add(linear, temps, &terms, 0, 0,
                                        tsr_tensor_layout(y2)->shape[1], y2);
    tsr__free(terms.term);
    return status;
}

/* Backward ----------------------------------------------------------------------------------- */

tsr_status tsr__adapter_grad(tsr__adapter *adapter, int index, tsr_tensor **grad, bool *adds)
{
    *adds = true;
    *grad = adapter->contribution[index];
    if (*grad)
        return TSR_OK;
    TSR__TRY(tsr__parameter_need_grad(&adapter->base, index));
    *grad = adapter->base.parameter[index]->seen.grad;
    *adds = !adapter->base.parameter[index]->grad_empty;
    return TSR_OK;
}

/* grad += factor · dy2ᵀ · x2, where the gradient is that of `rows` of a parameter, or this rank's
 * contribution to it. */
static tsr_status add_grad(tsr__adapter *adapter, tsr__temps *temps, int index, int part,
                           const tsr_tensor *dy2, const tsr_tensor *x2, float factor)
{
    const bool is_b = index == adapter->part[part].b;
    tsr_tensor *grad, *rows;
    bool add;
    TSR__TRY(tsr__adapter_grad(adapter, index, &grad, &add));
    rows = grad;
    if (is_b)
        TSR__TRY(tsr__adapter_rows_of(adapter, temps, part, grad, &rows));
    TSR__TRY(
        tsr_matmul(adapter->base.stream, rows, dy2, x2,
                   tsr_matmul_params(.transpose_a = true, .alpha = factor, .accumulate = add)));
    tsr__adapter_grad_done(adapter, index);
    return TSR_OK;
}

tsr_status tsr__adapter_columns_of(const tsr__adapter *adapter, tsr__temps *temps, int part,
                                   const tsr_tensor *dy2, tsr_tensor **out)
{
    int64_t first, count;
    range_of(adapter, part, &first, &count);
    return tsr__temp_slice(temps, dy2, 1, first, count, out);
}

/* *dh [m,ranks] = scale · dy2 B of all parts. */
static tsr_status project_back(const tsr__adapter *adapter, tsr__temps *temps,
                               const tsr_tensor *dy2, tsr_tensor **dh)
{
    const int64_t shape[2] = {tsr_tensor_layout(dy2)->shape[0], adapter->ranks};
    tsr_tensor *dy, *b, *columns;
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, shape, dh));
    for (int i = 0; i < adapter->count; i++) {
        TSR__TRY(tsr__adapter_columns_of(adapter, temps, i, dy2, &dy));
        TSR__TRY(tsr__adapter_rows_of(adapter, temps, i, parameter_b(adapter, i)->seen.tensor, &b));
        TSR__TRY(tsr__temp_slice(temps, *dh, 1, adapter->part[i].first, adapter->part[i].rank,
                                 &columns));
        TSR__TRY(tsr_matmul(adapter->base.stream, columns, dy, b,
                            tsr_matmul_params(.alpha = adapter->part[i].scale,
                                              .accumulate = i >= adapter->a_count)));
    }
    return TSR_OK;
}

/* dx2 += dh A of all parts, or overwrites dx2 if `adds` is false. */
static tsr_status multiply_back(const tsr__adapter *adapter, tsr__temps *temps,
                                const tsr_tensor *dh, bool adds, tsr_tensor *dx2)
{
    tsr_stream *stream = adapter->base.stream;
    tsr_tensor *joint, *columns;
    TSR__TRY(join(adapter, temps, &joint));
    if (joint)
        return tsr_matmul(stream, dx2, dh, joint, tsr_matmul_params(.accumulate = adds));
    for (int i = 0; i < adapter->a_count; i++) {
        TSR__TRY(
            tsr__temp_slice(temps, dh, 1, adapter->part[i].first, adapter->part[i].rank, &columns));
        TSR__TRY(tsr_matmul(stream, dx2, columns, parameter_a(adapter, i)->seen.tensor,
                            tsr_matmul_params(.accumulate = adds || i > 0)));
    }
    return TSR_OK;
}

static tsr_status add_input_grad(const tsr__adapter *adapter, tsr__temps *temps,
                                 const tsr_tensor *dh, tsr_tensor *dx2)
{
    tsr_tensor *own;
    if (adapter->dropout->p == 0)
        return multiply_back(adapter, temps, dh, true, dx2);
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, tsr_tensor_layout(dx2)->shape, &own));
    TSR__TRY(multiply_back(adapter, temps, dh, false, own));
    TSR__TRY(drop(adapter, own, own));
    return tsr_axpy(adapter->base.stream, dx2, 1, own);
}

static tsr_status add_parameter_grads(tsr__adapter *adapter, tsr__temps *temps,
                                      const tsr_tensor *dy2, const tsr_tensor *dh,
                                      const tsr_tensor *x2)
{
    tsr_tensor *all, *h, *dy, *columns;
    TSR__TRY(dropped(adapter, temps, x2, &x2));
    TSR__TRY(project(adapter, temps, x2, &all));
    for (int i = 0; i < adapter->count; i++) {
        const tsr__adapted *part = &adapter->part[i];
        TSR__TRY(tsr__adapter_columns_of(adapter, temps, i, dy2, &dy));
        TSR__TRY(tsr__temp_slice(temps, all, 1, part->first, part->rank, &h));
        TSR__TRY(add_grad(adapter, temps, part->b, i, dy, h, part->scale));
    }
    for (int i = 0; i < adapter->a_count; i++) {
        const tsr__adapted *part = &adapter->part[i];
        TSR__TRY(tsr__temp_slice(temps, dh, 1, part->first, part->rank, &columns));
        TSR__TRY(add_grad(adapter, temps, part->a, i, columns, x2, 1));
    }
    return TSR_OK;
}

tsr_status tsr__adapters_backward(const tsr__linear *linear, tsr__temps *temps,
                                  const tsr_tensor *dy2, const tsr_tensor *x2, tsr_tensor *dx2)
{
    for (tsr__adapter *adapter = linear->base.adapters; adapter; adapter = adapter->next) {
        tsr_tensor *dh;
        if (!adapter->enabled || (adapter->base.frozen && !dx2))
            continue;
        TSR__TRY(project_back(adapter, temps, dy2, &dh));
        if (dx2)
            TSR__TRY(add_input_grad(adapter, temps, dh, dx2));
        if (!adapter->base.frozen)
            TSR__TRY(add_parameter_grads(adapter, temps, dy2, dh, x2));
    }
    return TSR_OK;
}
