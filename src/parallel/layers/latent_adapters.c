/* Adapters of latent attention: those of projections of x and of compressed queries, and those of
 * the matrices of heads. What k_b and v_b add to keys and values of all heads is scale · (c Aᵀ) Bᵀ
 * of the latents c, where each head has its rows of B. All parts of an adapter that begin with the
 * same matrix A, as k_b and v_b do, read the same input. */
#include "parallel/layers/adapter.h"
#include "parallel/layers/latent_attention.h"

/* An adapter's part of one weight, in a pass. */
typedef struct use {
    const tsr__latent_attention *a;
    tsr__adapter *adapter;
    const tsr__adapted *part;
    tsr__temps *temps;
} use;

/* Finds the first part of `which` from an adapter on that passes apply. Returns false if there is
 * none. */
static bool find_use(const tsr__latent_attention *a, tsr__temps *temps, tsr__adapter *from,
                     tsr__latent_parameter which, use *out)
{
    for (; from; from = from->next)
        for (int i = 0; i < from->count && tsr__adapter_is_active(from); i++)
            if (from->part[i].block == (int)which) {
                *out = (use){a, from, &from->part[i], temps};
                return true;
            }
    return false;
}

tsr_status tsr__latent_check_adapters(const tsr__latent_attention *a)
{
    const tsr__adapter *first = a->base.adapters;
    TSR__REQUIRE(!first || first->choice->mode != TSR__ADAPTERS_BY_ROW,
                 "%s: its rows cannot have adapters of their own", a->base.who);
    return TSR_OK;
}

tsr_status tsr__latent_rows(const tsr__latent_attention *a, tsr__temps *temps,
                            const tsr_tensor *latents, tsr_tensor **out)
{
    tsr_tensor *rows;
    TSR__TRY(tsr__temp_flatten(temps, latents, &rows));
    return tsr__temp_slice(temps, rows, 1, 0, a->kv_rank, out);
}

static tsr_tensor *matrix_a(const use *u)
{
    return u->adapter->base.parameter[u->part->a]->seen.tensor;
}

/* Gets the rows of B of heads `first` … `first` + `count` − 1 as [count, rows of a head, rank]. */
static tsr_status heads_of_b(const use *u, int64_t first, int64_t count, tsr_tensor **out)
{
    const tsr_tensor *b = u->adapter->base.parameter[u->part->b]->seen.tensor;
    const int64_t each = u->part->block == TSR__LATENT_K_B ? u->a->nope : u->a->value,
                  shape[3] = {count, each, u->part->rank};
    tsr_tensor *rows;
    TSR__TRY(tsr__temp_slice(u->temps, b, 0, first * each, count * each, &rows));
    return tsr__temp_reshape(u->temps, rows, 3, shape, out);
}

/* Gives a matrix a first dimension of 1, so that it serves all heads. */
static tsr_status for_heads(const use *u, const tsr_tensor *matrix, tsr_tensor **out)
{
    const int64_t *own = tsr_tensor_layout(matrix)->shape, shape[3] = {1, own[0], own[1]};
    return tsr__temp_reshape(u->temps, matrix, 3, shape, out);
}

static tsr_status require(const use *u)
{
    TSR__TRY(tsr__parameter_require(&u->adapter->base, u->part->a));
    return tsr__parameter_require(&u->adapter->base, u->part->b);
}

/* y2 = dropout of x2. All ranks have all of x2, and the same mask. */
static tsr_status drop(const use *u, const tsr_tensor *x2, tsr_tensor *y2)
{
    const tsr__adapter_dropout *dropout = u->adapter->dropout;
    const int64_t strides[2] = {tsr_tensor_layout(x2)->shape[1], 1};
    const tsr_random_params params = {.struct_size = sizeof params,
                                      .seed = dropout->seed,
                                      .subsequence = dropout->subsequence ^ u->adapter->mask,
                                      .index_strides = strides};
    return tsr_dropout(u->a->base.stream, y2, x2, dropout->p, &params);
}

/* Gets the operand of A: x2, or a tensor with its dropout. */
static tsr_status dropped(const use *u, const tsr_tensor *x2, const tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(x2);
    tsr_tensor *made;
    *out = x2;
    if (u->adapter->dropout->p == 0)
        return TSR_OK;
    TSR__TRY(tsr__temp_new(u->temps, layout->dtype, 2, layout->shape, &made));
    *out = made;
    return drop(u, x2, made);
}

/* *h [rows, rank] = x2 Aᵀ. x2 has had its dropout. */
static tsr_status project(const use *u, const tsr_tensor *x2, tsr_tensor **h)
{
    const int64_t shape[2] = {tsr_tensor_layout(x2)->shape[0], u->part->rank};
    TSR__TRY(require(u));
    TSR__TRY(tsr__temp_new(u->temps, TSR_F32, 2, shape, h));
    return tsr_matmul(u->a->base.stream, *h, x2, matrix_a(u),
                      tsr_matmul_params(.transpose_b = true));
}

static tsr_status add(const use *u, tsr_tensor *y, const tsr_tensor *h, const tsr_tensor *b)
{
    return tsr_matmul(
        u->a->base.stream, y, h, b,
        tsr_matmul_params(.transpose_b = true, .alpha = u->part->scale, .accumulate = true));
}

/* Forward ------------------------------------------------------------------------------------ */

tsr_status tsr__latent_adapters_project(const tsr__latent_attention *a, tsr__temps *temps,
                                        tsr__latent_parameter which, const tsr_tensor *x2,
                                        tsr_tensor *y2)
{
    use u;
    for (tsr__adapter *from = a->base.adapters; find_use(a, temps, from, which, &u);
         from = u.adapter->next) {
        const tsr_tensor *operand;
        tsr_tensor *h;
        TSR__TRY(dropped(&u, x2, &operand));
        TSR__TRY(project(&u, operand, &h));
        TSR__TRY(add(&u, y2, h, u.adapter->base.parameter[u.part->b]->seen.tensor));
    }
    return TSR_OK;
}

tsr_status tsr__latent_adapters_expand(const tsr__latent_attention *a, tsr__temps *temps,
                                       tsr__latent_parameter which, int64_t first, int64_t count,
                                       const tsr_tensor *latents, tsr_tensor *y)
{
    use u;
    for (tsr__adapter *from = a->base.adapters; find_use(a, temps, from, which, &u);
         from = u.adapter->next) {
        const tsr_tensor *operand;
        tsr_tensor *c2, *h, *b;
        TSR__TRY(tsr__latent_rows(a, temps, latents, &c2));
        TSR__TRY(dropped(&u, c2, &operand));
        TSR__TRY(project(&u, operand, &h));
        TSR__TRY(for_heads(&u, h, &h));
        TSR__TRY(heads_of_b(&u, first, count, &b));
        TSR__TRY(add(&u, y, h, b));
    }
    return TSR_OK;
}

/* Creates a tensor [heads, rows, rank] for products with the heads of `x`. */
static tsr_status new_products(const use *u, const tsr_tensor *x, tsr_tensor **out)
{
    const int64_t *own = tsr_tensor_layout(x)->shape, shape[3] = {own[0], own[1], u->part->rank};
    TSR__TRY(require(u));
    return tsr__temp_new(u->temps, TSR_F32, 3, shape, out);
}

tsr_status tsr__latent_adapters_absorb(const tsr__latent_attention *a, tsr__temps *temps,
                                       const tsr_tensor *q, tsr_tensor *y)
{
    use u;
    for (tsr__adapter *from = a->base.adapters; find_use(a, temps, from, TSR__LATENT_K_B, &u);
         from = u.adapter->next) {
        tsr_tensor *products, *b, *matrix;
        TSR__TRY(new_products(&u, q, &products));
        TSR__TRY(heads_of_b(&u, 0, a->division.length, &b));
        TSR__TRY(tsr_matmul(a->base.stream, products, q, b, NULL));
        TSR__TRY(for_heads(&u, matrix_a(&u), &matrix));
        TSR__TRY(tsr_matmul(a->base.stream, y, products, matrix,
                            tsr_matmul_params(.alpha = u.part->scale, .accumulate = true)));
    }
    return TSR_OK;
}

tsr_status tsr__latent_adapters_values(const tsr__latent_attention *a, tsr__temps *temps,
                                       const tsr_tensor *results, tsr_tensor *y)
{
    use u;
    for (tsr__adapter *from = a->base.adapters; find_use(a, temps, from, TSR__LATENT_V_B, &u);
         from = u.adapter->next) {
        tsr_tensor *products, *b, *matrix;
        TSR__TRY(new_products(&u, results, &products));
        TSR__TRY(for_heads(&u, matrix_a(&u), &matrix));
        TSR__TRY(tsr_matmul(a->base.stream, products, results, matrix,
                            tsr_matmul_params(.transpose_b = true)));
        TSR__TRY(heads_of_b(&u, 0, a->division.length, &b));
        TSR__TRY(add(&u, y, products, b));
    }
    return TSR_OK;
}

/* Backward ----------------------------------------------------------------------------------- */

/* dx2 += dh A. */
static tsr_status add_input_grad(const use *u, const tsr_tensor *dh, tsr_tensor *dx2)
{
    tsr_stream *stream = u->a->base.stream;
    tsr_tensor *own;
    if (u->adapter->dropout->p == 0)
        return tsr_matmul(stream, dx2, dh, matrix_a(u), tsr_matmul_params(.accumulate = true));
    TSR__TRY(tsr__temp_new(u->temps, TSR_F32, 2, tsr_tensor_layout(dx2)->shape, &own));
    TSR__TRY(tsr_matmul(stream, own, dh, matrix_a(u), NULL));
    TSR__TRY(drop(u, own, own));
    return tsr_axpy(stream, dx2, 1, own);
}

/* grad += factor · dy2ᵀ x2, or writes it. */
static tsr_status add_grad(const use *u, int index, const tsr_tensor *dy2, const tsr_tensor *x2,
                           float factor)
{
    tsr_tensor *grad;
    bool adds;
    TSR__TRY(tsr__adapter_grad(u->adapter, index, &grad, &adds));
    TSR__TRY(
        tsr_matmul(u->a->base.stream, grad, dy2, x2,
                   tsr_matmul_params(.transpose_a = true, .alpha = factor, .accumulate = adds)));
    tsr__adapter_grad_done(u->adapter, index);
    return TSR_OK;
}

/* Of a projection that all ranks compute completely, the first rank's gradients are the sum. */
static bool counts(const use *u)
{
    const bool everywhere = u->part->block == TSR__LATENT_Q_A || u->part->block == TSR__LATENT_KV_A;
    return !u->adapter->base.frozen && (!everywhere || u->a->base.rank == 0);
}

tsr_status tsr__latent_adapters_back(const tsr__latent_attention *a, tsr__temps *temps,
                                     tsr__latent_parameter which, const tsr_tensor *dy2,
                                     const tsr_tensor *x2, tsr_tensor *dx2)
{
    use u;
    for (tsr__adapter *from = a->base.adapters; find_use(a, temps, from, which, &u);
         from = u.adapter->next) {
        const int64_t shape[2] = {tsr_tensor_layout(dy2)->shape[0], u.part->rank};
        const tsr_tensor *b = u.adapter->base.parameter[u.part->b]->seen.tensor, *operand;
        tsr_tensor *dh, *h;
        if (!dx2 && !counts(&u))
            continue;
        TSR__TRY(require(&u));
        TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, shape, &dh));
        TSR__TRY(tsr_matmul(a->base.stream, dh, dy2, b, tsr_matmul_params(.alpha = u.part->scale)));
        if (dx2)
            TSR__TRY(add_input_grad(&u, dh, dx2));
        if (!counts(&u))
            continue;
        TSR__TRY(dropped(&u, x2, &operand));
        TSR__TRY(project(&u, operand, &h));
        TSR__TRY(add_grad(&u, u.part->b, dy2, h, u.part->scale));
        TSR__TRY(add_grad(&u, u.part->a, dh, operand, 1));
    }
    return TSR_OK;
}

tsr_status tsr__latent_adapters_empty(const tsr__latent_attention *a)
{
    for (tsr__adapter *adapter = a->base.adapters; adapter; adapter = adapter->next)
        for (int i = 0; i < adapter->count; i++) {
            const int index = adapter->part[i].b;
            if (adapter->base.frozen || !adapter->enabled ||
                adapter->base.parameter[index]->seen.shard_dim < 0)
                continue;
            TSR__TRY(tsr__parameter_need_grad(&adapter->base, index));
            tsr__adapter_grad_done(adapter, index);
        }
    return TSR_OK;
}

/* Merging ------------------------------------------------------------------------------------ */

tsr_status tsr__latent_adapters_merge(const tsr__adapter *adapter, tsr__temps *temps, int part,
                                      tsr_tensor *weight)
{
    const tsr__latent_attention *a = (const tsr__latent_attention *)adapter->target;
    const use u = {a, (tsr__adapter *)adapter, &adapter->part[part], temps};
    const tsr_tensor *b = adapter->base.parameter[u.part->b]->seen.tensor;
    const float scale = u.part->scale;
    tsr_tensor *heads, *matrix;
    TSR__TRY(require(&u));
    if (tsr_tensor_layout(weight)->ndim == 2)
        return tsr_matmul(a->base.stream, weight, b, matrix_a(&u),
                          tsr_matmul_params(.alpha = scale, .accumulate = true));
    if (a->division.length == 0)
        return TSR_OK;
    TSR__TRY(heads_of_b(&u, 0, a->division.length, &heads));
    TSR__TRY(for_heads(&u, matrix_a(&u), &matrix));
    return u.part->block == TSR__LATENT_V_B
               ? tsr_matmul(a->base.stream, weight, heads, matrix,
                            tsr_matmul_params(.alpha = scale, .accumulate = true))
               : tsr_matmul(a->base.stream, weight, matrix, heads,
                            tsr_matmul_params(.transpose_a = true, .transpose_b = true,
                                              .alpha = scale, .accumulate = true));
}
