/* Adapters of a mixture of experts: each expert has matrices A and B of its own, which rows of its
 * pairs are multiplied by, as by its weights. If ranks have a part of each expert, A of gate and up
 * and B of down are on every rank; what a rank computes is a contribution, as with the weights. */
#include "parallel/layers/adapter.h"
#include "parallel/layers/moe.h"

static bool is_shared(tsr__moe_parameter which)
{
    return which >= TSR__MOE_SHARED_GATE;
}

/* Returns the part of an adapter that belongs to a weight, or NULL. */
static const tsr__adapted *part_of(const tsr__adapter *adapter, tsr__moe_parameter which)
{
    for (int i = 0; i < adapter->count; i++)
        if (adapter->part[i].block == (int)which)
            return &adapter->part[i];
    return NULL;
}

bool tsr__moe_is_adapted(const tsr__moe *m, bool shared)
{
    const tsr__adapter_kind kind = shared ? TSR__ADAPTER_SHARED : TSR__ADAPTER_EXPERTS;
    for (const tsr__adapter *a = m->base.adapters; a; a = a->next)
        if (a->kind == kind && tsr__adapter_is_active(a))
            return true;
    return false;
}

tsr_status tsr__moe_check_adapters(const tsr__moe *m)
{
    const tsr__adapter *first = m->base.adapters;
    TSR__REQUIRE(!first || first->choice->mode != TSR__ADAPTERS_BY_ROW,
                 "%s: its rows cannot have adapters of their own", m->base.who);
    TSR__REQUIRE(!tsr__moe_over_data(m)->group || !tsr__moe_is_adapted(m, false),
                 "%s: it has adapters, so data-parallel ranks must not divide its experts",
                 m->base.who);
    return TSR_OK;
}

/* Products ----------------------------------------------------------------------------------- */

/* An adapter's matrices of one weight, in a pass. */
typedef struct use {
    const tsr__moe *m;
    tsr__adapter *adapter;
    const tsr__adapted *part;
    tsr__temps *temps;
    const tsr__moe_pairs *pairs; /* NULL: of the shared expert */
} use;

static tsr_tensor *matrix_of(const use *u, bool is_b)
{
    return u->adapter->base.parameter[is_b ? u->part->b : u->part->a]->seen.tensor;
}

/* Multiplies each row by A or B of its expert: y (+)= x · matrixᵀ or, backward, x · matrix. */
static tsr_status multiply(const use *u, bool is_b, bool backward, const tsr_tensor *weights,
                           bool accumulate, const tsr_tensor *x, tsr_tensor *y)
{
    tsr_stream *stream = u->m->base.stream;
    TSR__TRY(tsr__parameter_require(&u->adapter->base, is_b ? u->part->b : u->part->a));
    if (!u->pairs)
        return tsr_matmul(stream, y, x, matrix_of(u, is_b),
                          tsr_matmul_params(.transpose_b = !backward, .accumulate = accumulate));
    return tsr_matmul_grouped(stream, y, x, matrix_of(u, is_b), u->pairs->ids,
                              tsr_matmul_grouped_params(.order = u->pairs->order,
                                                        .offsets = u->pairs->offsets,
                                                        .transpose_w = backward, .weights = weights,
                                                        .accumulate = accumulate));
}

/* Creates a tensor with `columns` numbers for each pair or, of the shared expert, each token. */
static tsr_status rows_new(const use *u, int64_t tokens, int64_t columns, tsr_tensor **out)
{
    const int64_t shape[3] = {tokens, u->pairs ? u->pairs->chosen : columns, columns};
    return tsr__temp_new(u->temps, TSR_F32, u->pairs ? 3 : 2, shape, out);
}

/* *h = scale · (x · matrixᵀ) or, backward, scale · (x · matrix), with `rank` columns. */
static tsr_status project(const use *u, bool is_b, const tsr_tensor *x, tsr_tensor **h)
{
    TSR__TRY(rows_new(u, tsr_tensor_layout(x)->shape[0], u->part->rank, h));
    TSR__TRY(multiply(u, is_b, is_b, NULL, false, x, *h));
    return u->part->scale == 1 ? TSR_OK : tsr_scale(u->m->base.stream, *h, *h, u->part->scale, 0);
}

/* y = dropout of x. The mask of an element depends on its token, on its rank among the token's
 * experts if x has rows of pairs, and on its feature; not on the ranks. `repeats`: x has rows of
 * pairs, but the masks are those of tokens. */
static tsr_status drop(const use *u, const tsr_tensor *x, bool repeats, tsr_tensor *y)
{
    const tsr__adapter *adapter = u->adapter;
    const tsr_parameter *a = &adapter->base.parameter[u->part->a]->seen;
    const int ndim = tsr_tensor_layout(x)->ndim;
    const int64_t columns = a->global_shape[a->ndim - 1],
                  chosen = ndim == 3 && !repeats ? tsr_tensor_layout(x)->shape[1] : 1,
                  strides[3] = {chosen * columns,
                                ndim == 2 ? 1
                                : repeats ? 0
                                          : columns,
                                1};
    const tsr_random_params params = {
        .struct_size = sizeof params,
        .seed = adapter->dropout->seed,
        .subsequence = adapter->dropout->subsequence ^ adapter->mask ^ (uint64_t)u->part->block,
        .offset = a->shard_dim == a->ndim - 1 ? (uint64_t)a->offset : 0,
        .index_strides = strides};
    return tsr_dropout(u->m->base.stream, y, x, adapter->dropout->p, &params);
}

/* Gets the operand of A: x, or a tensor with its dropout. */
static tsr_status dropped(const use *u, const tsr_tensor *x, const tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(x);
    tsr_tensor *made;
    *out = x;
    if (u->adapter->dropout->p == 0)
        return TSR_OK;
    TSR__TRY(tsr__temp_new(u->temps, layout->dtype, layout->ndim, layout->shape, &made));
    *out = made;
    return drop(u, x, false, made);
}

/* Forward ------------------------------------------------------------------------------------ */

static tsr_status add_output(const use *u, const tsr_tensor *x, tsr_tensor *y)
{
    const bool sums = u->pairs && u->part->block == TSR__MOE_DOWN;
    tsr_tensor *h;
    TSR__TRY(dropped(u, x, &x));
    TSR__TRY(project(u, false, x, &h));
    return multiply(u, true, false, sums ? u->pairs->weights : NULL, true, h, y);
}

tsr_status tsr__moe_adapters_forward(const tsr__moe *m, tsr__temps *temps,
                                     const tsr__moe_pairs *pairs, tsr__moe_parameter which,
                                     const tsr_tensor *x, tsr_tensor *y)
{
    for (tsr__adapter *a = m->base.adapters; a; a = a->next) {
        const use u = {m, a, part_of(a, which), temps, is_shared(which) ? NULL : pairs};
        if (u.part && tsr__adapter_is_active(a))
            TSR__TRY(add_output(&u, x, y));
    }
    return TSR_OK;
}

/* Backward ----------------------------------------------------------------------------------- */

static tsr_status add_input_grad(const use *u, const tsr_tensor *dy, tsr_tensor *dx)
{
    const tsr_layout *layout = tsr_tensor_layout(dx);
    const bool repeats = u->pairs && u->part->block != TSR__MOE_DOWN;
    tsr_tensor *dh, *own;
    TSR__TRY(project(u, true, dy, &dh));
    if (u->adapter->dropout->p == 0)
        return multiply(u, false, true, NULL, true, dh, dx);
    TSR__TRY(tsr__temp_new(u->temps, TSR_F32, layout->ndim, layout->shape, &own));
    TSR__TRY(tsr_fill(u->m->base.stream, own, 0)); /* rows of pairs of other ranks' experts */
    TSR__TRY(multiply(u, false, true, NULL, true, dh, own));
    TSR__TRY(drop(u, own, repeats, own));
    return tsr_axpy(u->m->base.stream, dx, 1, own);
}

tsr_status tsr__moe_adapters_input_grad(const tsr__moe *m, tsr__temps *temps,
                                        const tsr__moe_pairs *pairs, tsr__moe_parameter which,
                                        const tsr_tensor *dy, tsr_tensor *dx)
{
    for (tsr__adapter *a = m->base.adapters; a; a = a->next) {
        const use u = {m, a, part_of(a, which), temps, is_shared(which) ? NULL : pairs};
        if (u.part && a->enabled)
            TSR__TRY(add_input_grad(&u, dy, dx));
    }
    return TSR_OK;
}

/* grad += Σ dyᵀ · x over each expert's pairs. */
static tsr_status add_grad(const use *u, int index, const tsr_tensor *dy, const tsr_tensor *x)
{
    tsr_stream *stream = u->m->base.stream;
    tsr_tensor *grad;
    bool adds;
    TSR__TRY(tsr__adapter_grad(u->adapter, index, &grad, &adds));
    if (!u->pairs)
        TSR__TRY(tsr_matmul(stream, grad, dy, x,
                            tsr_matmul_params(.transpose_a = true, .accumulate = adds)));
    else if (u->pairs->order)
        TSR__TRY(tsr_matmul_grouped_grad(stream, grad, dy, x, u->pairs->order, u->pairs->offsets,
                                         u->pairs->chosen, adds));
    tsr__adapter_grad_done(u->adapter, index);
    return TSR_OK;
}

tsr_status tsr__moe_adapters_grads(const tsr__moe *m, tsr__temps *temps,
                                   const tsr__moe_pairs *pairs, tsr__moe_parameter which,
                                   const tsr_tensor *dy, const tsr_tensor *x)
{
    for (tsr__adapter *a = m->base.adapters; a; a = a->next) {
        const use u = {m, a, part_of(a, which), temps, is_shared(which) ? NULL : pairs};
        const tsr_tensor *operand;
        tsr_tensor *h, *dh;
        if (!u.part || !a->enabled || a->base.frozen)
            continue;
        TSR__TRY(dropped(&u, x, &operand));
        TSR__TRY(project(&u, false, operand, &h));
        TSR__TRY(project(&u, true, dy, &dh));
        TSR__TRY(add_grad(&u, u.part->b, dy, h));
        TSR__TRY(add_grad(&u, u.part->a, dh, operand));
    }
    return TSR_OK;
}
