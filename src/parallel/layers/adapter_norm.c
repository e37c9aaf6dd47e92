/* Adapters with magnitudes (DoRA; Liu et al. 2024, arXiv:2402.09353): y = g · (x Wᵀ + scale · (x
 * Aᵀ) Bᵀ) + bias, where g = m / ‖W + scale · B A‖, by features of y: m is trained, and the norm of
 * each row counts as a constant in backward passes. The norms are computed once after each change,
 * in the first forward pass, when the weights are in memory. */
#include "parallel/internal.h"
#include "parallel/layers/adapter.h"
#include "tessera/ops.h"

/* Factors ------------------------------------------------------------------------------------ */

/* *out = W + scale · B A, in f32: the rows and columns that this rank keeps. */
static tsr_status add_up(const tsr__adapter *adapter, tsr__temps *temps, int part, tsr_tensor **out)
{
    const tsr__adapted *own = &adapter->part[part];
    tsr_stream *stream = adapter->base.stream;
    const tsr_tensor *weight = tsr__adapter_weight(adapter, part)->seen.tensor;
    TSR__REQUIRE(weight, "%s: %s has no memory, from which an adapter computes norms",
                 adapter->target->who, tsr__adapter_weight(adapter, part)->name);
    TSR__TRY(tsr__parameter_require(&adapter->base, own->a));
    TSR__TRY(tsr__parameter_require(&adapter->base, own->b));
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, tsr_tensor_layout(weight)->shape, out));
    TSR__TRY(tsr_copy(stream, *out, weight));
    return tsr_matmul(stream, *out, adapter->base.parameter[own->b]->seen.tensor,
                      adapter->base.parameter[own->a]->seen.tensor,
                      tsr_matmul_params(.alpha = own->scale, .accumulate = true));
}

/* Added to the square of a norm, so that the norm of a row of zeros is not 0. It does not change
 * the bits of norms above 1e-15. */
#define LEAST_SQUARE 1e-37

/* norm = the norms of all rows that this rank keeps. A row-parallel layer has a part of each row.
 */
static tsr_status compute_norms(const tsr__adapter *adapter, tsr__temps *temps, int part,
                                tsr_tensor *norm)
{
    tsr_stream *stream = adapter->base.stream;
    tsr_tensor *sum;
    TSR__TRY(add_up(adapter, temps, part, &sum));
    TSR__TRY(tsr_binary(stream, sum, sum, sum, TSR_BINARY_MUL));
    TSR__TRY(tsr_fill(stream, norm, LEAST_SQUARE));
    TSR__TRY(tsr_reduce(stream, norm, sum, 1, TSR_REDUCE_SUM, true));
    if (adapter->is_row && adapter->base.size > 1)
        TSR__TRY(tsr_group_all_reduce(adapter->base.group, norm, TSR_OP_SUM, NULL, NULL));
    return tsr_unary(stream, norm, norm, TSR_UNARY_SQRT);
}

static tsr_status need_tensor(const tsr__adapter *adapter, int64_t count, tsr_tensor **tensor)
{
    return *tensor ? TSR_OK : tsr_tensor_create(adapter->base.device, TSR_F32, 1, &count, tensor);
}

/* Computes the norms, unless they have been since the last change. */
static tsr_status need_norms(tsr__adapter *adapter, tsr__temps *temps)
{
    for (int i = 0; adapter->norms_at != *adapter->version && i < adapter->count; i++) {
        const int64_t rows =
            tsr_tensor_layout(adapter->base.parameter[adapter->part[i].b]->seen.tensor)->shape[0];
        TSR__TRY(need_tensor(adapter, rows, &adapter->norm[i]));
        TSR__TRY(compute_norms(adapter, temps, i, adapter->norm[i]));
    }
    adapter->norms_at = *adapter->version;
    return TSR_OK;
}

/* *out = g of the rows that this rank computes. */
static tsr_status factor_of(const tsr__adapter *adapter, tsr__temps *temps, int part,
                            tsr_tensor **out)
{
    tsr_tensor *magnitude, *norm;
    TSR__TRY(tsr__parameter_require(&adapter->base, adapter->part[part].m));
    TSR__TRY(tsr__adapter_rows_of(adapter, temps, part,
                                  adapter->base.parameter[adapter->part[part].m]->seen.tensor,
                                  &magnitude));
    TSR__TRY(tsr__adapter_rows_of(adapter, temps, part, adapter->norm[part], &norm));
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 1, tsr_tensor_layout(norm)->shape, out));
    return tsr_binary(adapter->base.stream, *out, magnitude, norm, TSR_BINARY_DIV);
}

tsr_status tsr__adapter_fill_magnitudes(tsr__adapter *adapter)
{
    tsr__temps temps = {.stream = adapter->base.stream};
    tsr_status status = TSR_OK;
    for (int i = 0; status == TSR_OK && i < adapter->count; i++)
        status = compute_norms(adapter, &temps, i,
                               adapter->base.parameter[adapter->part[i].m]->seen.tensor);
    tsr__temps_finish(&temps);
    return status;
}

/* Finds out whether the adapters that a pass applies have magnitudes. They are then of one set, for
 * different blocks of the layer. */
static tsr_status find_magnitudes(const tsr__linear *linear, bool *found)
{
    const tsr__adapter *first = NULL;
    bool mixed = false;
    *found = false;
    for (const tsr__adapter *a = linear->base.adapters; a; a = a->next) {
        if (!tsr__adapter_is_active(a))
            continue;
        first = first ? first : a;
        *found = *found || a->has_magnitudes;
        mixed = mixed || a->version != first->version || a->choice->mode == TSR__ADAPTERS_BY_ROW;
    }
    TSR__REQUIRE(!*found || !mixed,
                 "%s: an adapter with magnitudes (DoRA) cannot be used together with others",
                 linear->base.who);
    return TSR_OK;
}

/* Passes ------------------------------------------------------------------------------------- */

/* Gets the bias of the rows that this rank computes, or NULL. */
static tsr_status bias_of(const tsr__adapter *adapter, tsr__temps *temps, int part,
                          tsr_tensor **out)
{
    const tsr__linear *linear = tsr__adapter_linear(adapter);
    const int index = adapter->is_row ? 1
                                      : tsr__block_parameter((const tsr__column_linear *)linear,
                                                             adapter->part[part].block, TSR__BIAS);
    *out = NULL;
    return linear->has_bias ? tsr__adapter_rows_of(adapter, temps, part,
                                                   linear->base.parameter[index]->seen.tensor, out)
                            : TSR_OK;
}

/* y2 = g · y2 + (1 − g) · bias, of the features of one adapter. */
static tsr_status multiply(tsr__adapter *adapter, tsr__temps *temps, tsr_tensor *y2)
{
    tsr_stream *stream = adapter->base.stream;
    TSR__TRY(need_norms(adapter, temps));
    for (int i = 0; i < adapter->count; i++) {
        tsr_tensor *y, *factor, *bias, *rest;
        TSR__TRY(tsr__adapter_columns_of(adapter, temps, i, y2, &y));
        TSR__TRY(factor_of(adapter, temps, i, &factor));
        TSR__TRY(bias_of(adapter, temps, i, &bias));
        TSR__TRY(tsr_binary(stream, y, y, factor, TSR_BINARY_MUL));
        if (!bias)
            continue;
        /* y had the bias already: the rest is (1 − g) · bias. */
        TSR__TRY(tsr__temp_new(temps, TSR_F32, 1, tsr_tensor_layout(factor)->shape, &rest));
        TSR__TRY(tsr_binary(stream, rest, bias, factor, TSR_BINARY_MUL));
        TSR__TRY(tsr_binary(stream, rest, bias, rest, TSR_BINARY_SUB));
        TSR__TRY(tsr_binary(stream, y, y, rest, TSR_BINARY_ADD));
    }
    return TSR_OK;
}

tsr_status tsr__adapter_norms_forward(const tsr__linear *linear, tsr__temps *temps, tsr_tensor *y2)
{
    bool found;
    TSR__TRY(find_magnitudes(linear, &found));
    for (tsr__adapter *a = linear->base.adapters; found && a; a = a->next)
        if (tsr__adapter_is_active(a))
            TSR__TRY(multiply(a, temps, y2));
    return TSR_OK;
}

/* grad of m += Σ dy · (x Wᵀ + scale · (x Aᵀ) Bᵀ) / norm, over the rows of x. */
static tsr_status add_grad(tsr__adapter *adapter, tsr__temps *temps, int part, const tsr_tensor *dy,
                           const tsr_tensor *x2, const tsr__adapter_term *term)
{
    tsr_stream *stream = adapter->base.stream;
    tsr_tensor *z, *weight, *sum, *norm, *grad, *rows;
    bool adds;
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, tsr_tensor_layout(dy)->shape, &z));
    TSR__TRY(tsr__adapter_rows_of(adapter, temps, part,
                                  tsr__adapter_weight(adapter, part)->seen.tensor, &weight));
    TSR__TRY(tsr_matmul(stream, z, x2, weight, tsr_matmul_params(.transpose_b = true)));
    TSR__TRY(tsr_matmul(
        stream, z, term->h, term->b,
        tsr_matmul_params(.transpose_b = true, .alpha = term->scale, .accumulate = true)));
    TSR__TRY(tsr_binary(stream, z, z, dy, TSR_BINARY_MUL));
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 1, &tsr_tensor_layout(z)->shape[1], &sum));
    TSR__TRY(tsr_reduce(stream, sum, z, 0, TSR_REDUCE_SUM, false));
    TSR__TRY(tsr__adapter_rows_of(adapter, temps, part, adapter->norm[part], &norm));
    TSR__TRY(tsr_binary(stream, sum, sum, norm, TSR_BINARY_DIV));
    const int index = adapter->part[part].m;
    TSR__TRY(tsr__adapter_grad(adapter, index, &grad, &adds));
    if (!adds)
        TSR__TRY(tsr_fill(stream, grad, 0));
    TSR__TRY(tsr__adapter_rows_of(adapter, temps, part, grad, &rows));
    TSR__TRY(tsr_axpy(stream, rows, 1, sum));
    tsr__adapter_grad_done(adapter, index);
    return TSR_OK;
}

static tsr_status add_grads(const tsr__linear *linear, tsr__temps *temps, const tsr_tensor *dy2,
                            const tsr_tensor *x2)
{
    tsr__adapter_terms terms;
    int term = 0;
    tsr_status status = tsr__adapter_terms_find(linear, temps, x2, &terms);
    for (tsr__adapter *a = linear->base.adapters; status == TSR_OK && a; a = a->next) {
        for (int i = 0; status == TSR_OK && tsr__adapter_is_active(a) && i < a->count; i++) {
            tsr_tensor *dy;
            status = tsr__adapter_columns_of(a, temps, i, dy2, &dy);
            if (status == TSR_OK)
                status = add_grad(a, temps, i, dy, x2, &terms.term[term++]);
        }
    }
    tsr__free(terms.term);
    return status;
}

tsr_status tsr__adapter_norms_backward(const tsr__linear *linear, tsr__temps *temps,
                                       const tsr_tensor *x2, tsr_tensor **dy2)
{
    const tsr_layout *layout = tsr_tensor_layout(*dy2);
    tsr_stream *stream = linear->base.stream;
    bool found, trains = false;
    tsr_tensor *scaled, *dy, *factor;
    TSR__TRY(find_magnitudes(linear, &found));
    if (!found)
        return TSR_OK;
    TSR__REQUIRE(linear->base.frozen,
                 "%s: it has an adapter with magnitudes (DoRA), and must be "
                 "frozen",
                 linear->base.who);
    for (const tsr__adapter *a = linear->base.adapters; a; a = a->next)
        trains = trains || (tsr__adapter_is_active(a) && !a->base.frozen);
    if (trains)
        TSR__TRY(add_grads(linear, temps, *dy2, x2));
    TSR__TRY(tsr__temp_new(temps, layout->dtype, 2, layout->shape, &scaled));
    TSR__TRY(tsr_copy(stream, scaled, *dy2));
    for (tsr__adapter *a = linear->base.adapters; a; a = a->next)
        for (int i = 0; tsr__adapter_is_active(a) && i < a->count; i++) {
            TSR__TRY(tsr__adapter_columns_of(a, temps, i, scaled, &dy));
            TSR__TRY(factor_of(a, temps, i, &factor));
            TSR__TRY(tsr_binary(stream, dy, dy, factor, TSR_BINARY_MUL));
        }
    *dy2 = scaled;
    return TSR_OK;
}

/* Merging ------------------------------------------------------------------------------------ */

tsr_status tsr__adapter_merge_normed(tsr__adapter *adapter, tsr__temps *temps, int part)
{
    tsr_stream *stream = adapter->base.stream;
    tsr_tensor *sum, *factor, *column;
    const tsr_tensor *magnitude = adapter->base.parameter[adapter->part[part].m]->seen.tensor;
    const int64_t shape[2] = {tsr_tensor_layout(magnitude)->shape[0], 1};
    TSR__TRY(need_norms(adapter, temps));
    TSR__TRY(add_up(adapter, temps, part, &sum));
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 1, shape, &factor));
    TSR__TRY(tsr_binary(stream, factor, magnitude, adapter->norm[part], TSR_BINARY_DIV));
    TSR__TRY(tsr__temp_reshape(temps, factor, 2, shape, &column));
    TSR__TRY(tsr_binary(stream, sum, sum, column, TSR_BINARY_MUL));
    return tsr_copy(stream, tsr__adapter_weight(adapter, part)->seen.tensor, sum);
}
