/* The forward passes of latent attention. What is compressed, queries and latents, every rank
 * computes completely, from parameters that all ranks have; then each rank computes its own heads,
 * and a row-parallel layer y.
 *
 * Without a cache, keys and values of all heads are computed from the latents (expanded). With a
 * cache, which has the latents only, and few tokens, the queries are multiplied with the matrices
 * of keys instead, and the results of attention with those of values (absorbed): one head of keys,
 * the latents, then serves all heads of queries. With many tokens, such as those of a prompt, keys
 * and values of all tokens in the cache are expanded in each pass. */
#include "parallel/layers/latent_attention.h"

#include "gpu/internal.h"
#include "parallel/layers/self_attention.h"
#include "tensor/dtype.h"
#include "tessera/moe.h"

/* With at most so many new tokens of a sequence, a pass is absorbed: a pass that checks drafts then
 * computes as those of single tokens do. */
#define MOST_ABSORBED 16
/* With at most so many rows, products with matrices of heads in a block format read the blocks.
 * tsr_matmul_grouped takes one dispatch for them. More rows read floats, to which the matrices are
 * converted first. */
#define MOST_GROUPED 8

const tsr_tensor *tsr__latent_weight(const tsr__latent_attention *a, tsr__latent_parameter which)
{
    return a->base.parameter[a->index[which]]->seen.tensor;
}

tsr_status tsr__latent_floats(const tsr__latent_attention *a, tsr__temps *temps,
                              tsr__latent_parameter which, const tsr_tensor **out)
{
    const tsr_tensor *weight = tsr__latent_weight(a, which);
    const tsr_layout *layout = tsr_tensor_layout(weight);
    tsr_tensor *floats;
    *out = weight;
    if (!tsr__dtype_is_block(layout->dtype))
        return TSR_OK;
    TSR__TRY(tsr__temp_new(temps, a->base.parameter[a->index[which]]->seen.dtype, layout->ndim,
                           layout->shape, &floats));
    *out = floats;
    return tsr_copy(a->base.stream, floats, weight);
}

tsr_attention_params tsr__latent_params(const tsr__latent_attention *a, const tsr_tensor *starts)
{
    return (tsr_attention_params){.struct_size = sizeof(tsr_attention_params),
                                  .scale = a->scale,
                                  .causal = a->causal,
                                  .starts = starts};
}

tsr_status tsr__latent_positions(tsr__latent_attention *a, tsr__temps *temps, int64_t tokens,
                                 tsr_tensor **out)
{
    return tsr__need_positions(&a->base, &a->positions, temps, tokens, out);
}

/* Views -------------------------------------------------------------------------------------- */

tsr_status tsr__latent_by_heads(tsr__temps *temps, const tsr_tensor *in, int64_t each,
                                int64_t first, int64_t count, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(in);
    int64_t shape[3] = {1, layout->shape[layout->ndim - 1] / each, each};
    tsr_tensor *split, *some;
    for (int d = 0; d < layout->ndim - 1; d++)
        shape[0] *= layout->shape[d];
    TSR__TRY(tsr__temp_reshape(temps, in, 3, shape, &split));
    TSR__TRY(tsr__temp_slice(temps, split, 2, first, count, &some));
    return tsr__temp_transpose(temps, some, 0, 1, out);
}

tsr_status tsr__latent_view(tsr__temps *temps, const tsr_tensor *in, int64_t each, int64_t first,
                            int64_t count, tsr_tensor **out)
{
    tsr_tensor *heads;
    TSR__TRY(tsr__heads_of(temps, in, each, &heads));
    return tsr__temp_slice(temps, heads, 3, first, count, out);
}

/* Projections -------------------------------------------------------------------------------- */

/* *y [.., outputs] = x · weightᵀ. */
static tsr_status multiply(const tsr__latent_attention *a, tsr__temps *temps, const tsr_tensor *x,
                           tsr__latent_parameter which, tsr_tensor **y)
{
    const tsr_tensor *weight = tsr__latent_weight(a, which);
    tsr_tensor *x2, *y2;
    TSR__TRY(tsr__temp_like(temps, x, tsr_tensor_layout(x)->dtype, -1,
                            tsr_tensor_layout(weight)->shape[0], y));
    TSR__TRY(tsr__temp_flatten(temps, x, &x2));
    TSR__TRY(tsr__temp_flatten(temps, *y, &y2));
    TSR__TRY(tsr_matmul(
        a->base.stream, y2, x2, weight,
        tsr_matmul_params(.transpose_b = true, .allow_int8 = tsr__group_allows_int8(a->base.group),
                          .precision = tsr__group_precision(a->base.group, weight))));
    return tsr__latent_adapters_project(a, temps, which, x2, y2);
}

/* What the projections of x compute. */
typedef struct projected {
    tsr_tensor *q_raw; /* the compressed queries before their norm; NULL: they are not compressed */
    tsr_tensor *q_normed;
    tsr_tensor *q;       /* [.., heads · (nope + rotary)] of this rank's heads, not rotated */
    tsr_tensor *kv_raw;  /* the latents before norm and rotation; with `in_place`, they become: */
    tsr_tensor *latents; /* [.., kv_rank + rotary], normalised and rotated */
} projected;

static tsr_status normalise(const tsr__latent_attention *a, tsr__latent_parameter weight,
                            tsr_tensor *y, const tsr_tensor *x)
{
    return tsr_norm(a->base.stream, y, x, tsr__latent_weight(a, weight), NULL, TSR_NORM_RMS,
                    a->norm_epsilon);
}

/* y = x, rotated. */
static tsr_status rotate(const tsr__latent_attention *a, tsr_tensor *y, const tsr_tensor *x,
                         const tsr_tensor *positions)
{
    if (a->rope)
        return tsr_rope_apply(a->base.stream, a->rope, y, x, positions);
    return y == x ? TSR_OK : tsr_copy(a->base.stream, y, x);
}

/* Normalises and rotates the latents. */
static tsr_status finish_latents(const tsr__latent_attention *a, tsr__temps *temps,
                                 const tsr_tensor *positions, bool in_place, projected *p)
{
    const int64_t each = a->kv_rank + a->rotary;
    tsr_tensor *from[2], *to[2];
    p->latents = p->kv_raw;
    if (!in_place)
        TSR__TRY(tsr__temp_like(temps, p->kv_raw, tsr_tensor_layout(p->kv_raw)->dtype, -1, each,
                                &p->latents));
    for (int i = 0; i < 2; i++) {
        const int64_t first = i == 0 ? 0 : a->kv_rank, count = i == 0 ? a->kv_rank : a->rotary;
        TSR__TRY(tsr__latent_view(temps, p->kv_raw, each, first, count, &from[i]));
        to[i] = from[i];
        if (!in_place)
            TSR__TRY(tsr__latent_view(temps, p->latents, each, first, count, &to[i]));
    }
    TSR__TRY(normalise(a, TSR__LATENT_KV_A_NORM, to[0], from[0]));
    return rotate(a, to[1], from[1], positions);
}

static tsr_status project(const tsr__latent_attention *a, tsr__temps *temps, const tsr_tensor *x,
                          const tsr_tensor *positions, bool in_place, projected *p)
{
    *p = (projected){0};
    if (a->q_rank > 0) {
        TSR__TRY(multiply(a, temps, x, TSR__LATENT_Q_A, &p->q_raw));
        p->q_normed = p->q_raw;
        if (!in_place)
            TSR__TRY(tsr__temp_like(temps, p->q_raw, tsr_tensor_layout(x)->dtype, -1, a->q_rank,
                                    &p->q_normed));
        TSR__TRY(normalise(a, TSR__LATENT_Q_A_NORM, p->q_normed, p->q_raw));
    }
    TSR__TRY(multiply(a, temps, p->q_normed ? p->q_normed : x, TSR__LATENT_Q, &p->q));
    TSR__TRY(multiply(a, temps, x, TSR__LATENT_KV_A, &p->kv_raw));
    return finish_latents(a, temps, positions, in_place, p);
}

static tsr_status check_input(const tsr__latent_attention *a, const tsr_tensor *x)
{
    TSR__TRY(tsr__layer_check_input(&a->base, "x", x));
    const tsr_layout *layout = tsr_tensor_layout(x);
    TSR__REQUIRE(layout->ndim >= 2 && layout->shape[layout->ndim - 1] == a->size,
                 "%s: x is %s; [.., tokens, %lld] is needed", a->base.who, TSR__SHAPE_OF(x),
                 (long long)a->size);
    return TSR_OK;
}

/* Without a cache ---------------------------------------------------------------------------- */

tsr_status tsr__latent_expand(const tsr__latent_attention *a, tsr__temps *temps,
                              const tsr_tensor *latents, const tsr_tensor *k_b,
                              const tsr_tensor *v_b, int64_t first, int64_t count,
                              const tsr_tensor *k, const tsr_tensor *v)
{
    const int64_t each = a->nope + a->rotary, wide = a->kv_rank + a->rotary;
    tsr_tensor *one, *products, *rotated, *copies, *matrices;
    TSR__TRY(tsr__latent_by_heads(temps, latents, wide, 0, a->kv_rank, &one));
    TSR__TRY(tsr__temp_slice(temps, k_b, 0, first, count, &matrices));
    TSR__TRY(tsr__latent_by_heads(temps, k, each, 0, a->nope, &products));
    TSR__TRY(tsr_matmul(a->base.stream, products, one, matrices,
                        tsr_matmul_params(.precision = tsr__group_precision(a->base.group, k_b))));
    TSR__TRY(
        tsr__latent_adapters_expand(a, temps, TSR__LATENT_K_B, first, count, latents, products));
    TSR__TRY(tsr__latent_view(temps, latents, wide, a->kv_rank, a->rotary, &rotated));
    TSR__TRY(tsr__latent_view(temps, k, each, a->nope, a->rotary, &copies));
    TSR__TRY(tsr_copy(a->base.stream, copies, rotated));
    TSR__TRY(tsr__latent_by_heads(temps, v, a->value, 0, a->value, &products));
    TSR__TRY(tsr__temp_slice(temps, v_b, 0, first, count, &matrices));
    TSR__TRY(tsr_matmul(a->base.stream, products, one, matrices,
                        tsr_matmul_params(.transpose_b = true,
                                          .precision = tsr__group_precision(a->base.group, v_b))));
    return tsr__latent_adapters_expand(a, temps, TSR__LATENT_V_B, first, count, latents, products);
}

/* Rotates the queries of this rank's heads in place. */
static tsr_status rotate_queries(const tsr__latent_attention *a, tsr__temps *temps, tsr_tensor *q,
                                 const tsr_tensor *positions)
{
    tsr_tensor *rotated;
    if (a->division.length == 0 || !a->rope)
        return TSR_OK;
    TSR__TRY(tsr__latent_view(temps, q, a->nope + a->rotary, a->nope, a->rotary, &rotated));
    return rotate(a, rotated, rotated, positions);
}

/* Attention of this rank's heads: *y [.., heads · value]. `lse` may be NULL. */
static tsr_status attend(const tsr__latent_attention *a, tsr__temps *temps, const projected *p,
                         tsr_tensor **lse, tsr_tensor **y)
{
    const int64_t each = a->nope + a->rotary;
    const tsr_dtype dtype = tsr_tensor_layout(p->q)->dtype;
    const tsr_tensor *k_b, *v_b;
    tsr_tensor *k, *v, *views[4];
    TSR__TRY(tsr__temp_like(temps, p->q, dtype, -1, a->division.length * a->value, y));
    TSR__TRY(tsr__latent_view(temps, p->q, each, 0, each, &views[0]));
    if (lse)
        TSR__TRY(tsr__temp_new(temps, TSR_F32, 3, tsr_tensor_layout(views[0])->shape, lse));
    if (a->division.length == 0)
        return TSR_OK;
    const tsr_attention_params params =
        tsr__latent_params(a, a->documents ? a->documents->starts : NULL);
    TSR__TRY(tsr__temp_like(temps, p->q, dtype, -1, a->division.length * each, &k));
    TSR__TRY(tsr__temp_like(temps, p->q, dtype, -1, a->division.length * a->value, &v));
    TSR__TRY(tsr__latent_floats(a, temps, TSR__LATENT_K_B, &k_b));
    TSR__TRY(tsr__latent_floats(a, temps, TSR__LATENT_V_B, &v_b));
    TSR__TRY(tsr__latent_expand(a, temps, p->latents, k_b, v_b, 0, a->division.length, k, v));
    TSR__TRY(tsr__latent_view(temps, k, each, 0, each, &views[1]));
    TSR__TRY(tsr__latent_view(temps, v, a->value, 0, a->value, &views[2]));
    TSR__TRY(tsr__latent_view(temps, *y, a->value, 0, a->value, &views[3]));
    return tsr_attention(a->base.stream, views[3], lse ? *lse : NULL, views[0], views[1], views[2],
                         &params);
}

static tsr_status forward_with(tsr__latent_attention *a, tsr__temps *temps, const tsr_tensor *x,
                               const tsr_tensor *added, tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr_tensor *positions = NULL, *lse, *heads;
    projected p;
    TSR__TRY(check_input(a, x));
    const tsr_layout *layout = tsr_tensor_layout(x);
    if (a->rope && a->documents)
        positions = a->documents->positions;
    else if (a->rope)
        TSR__TRY(tsr__latent_positions(a, temps, layout->shape[layout->ndim - 2], &positions));
    TSR__TRY(project(a, temps, x, positions, !saved, &p));
    TSR__TRY(rotate_queries(a, temps, p.q, positions));
    TSR__TRY(attend(a, temps, &p, saved ? &lse : NULL, &heads));
    TSR__TRY(tsr__layer_forward_added(a->base.child[0], heads, NULL, added,
                                      saved ? &saved->child[0] : NULL, y));
    if (!saved)
        return TSR_OK;
    TSR__TRY(tsr__documents_keep(a->documents, saved));
    saved->hidden = tsr__temp_take(temps, p.q);
    saved->lse = tsr__temp_take(temps, lse);
    saved->latent[TSR__SAVED_KV_RAW] = tsr__temp_take(temps, p.kv_raw);
    saved->latent[TSR__SAVED_LATENTS] = tsr__temp_take(temps, p.latents);
    if (a->q_rank > 0) {
        saved->latent[TSR__SAVED_Q_RAW] = tsr__temp_take(temps, p.q_raw);
        saved->latent[TSR__SAVED_Q_NORMED] = tsr__temp_take(temps, p.q_normed);
    }
    return TSR_OK;
}

/* With a cache ------------------------------------------------------------------------------- */

/* Checks that x has the shape of the cache's step. */
static tsr_status check_step(const tsr__latent_attention *a, const tsr_tensor *x,
                             const tsr_tensor *positions)
{
    TSR__REQUIRE(positions, "%s: the cache has no step; tsr_kv_cache_begin starts one",
                 a->base.who);
    const tsr_layout *step = tsr_tensor_layout(positions), *layout = tsr_tensor_layout(x);
    TSR__REQUIRE(layout->ndim == 3 && layout->shape[0] == step->shape[0] &&
                     layout->shape[1] == step->shape[1],
                 "%s: x is %s; the cache's step has %lld sequences of up to %lld tokens",
                 a->base.who, TSR__SHAPE_OF(x), (long long)step->shape[0],
                 (long long)step->shape[1]);
    return TSR_OK;
}

/* y [heads, rows, n] = x [heads, rows, k] · the matrices [heads, n, k]ᵀ of k_b or v_b. */
static tsr_status multiply_heads(tsr__latent_attention *a, tsr__temps *temps,
                                 tsr__latent_parameter which, const tsr_tensor *x, tsr_tensor *y)
{
    const tsr_tensor *weight = tsr__latent_weight(a, which);
    const int64_t *shape = tsr_tensor_layout(x)->shape;
    tsr_tensor *ids, *from, *to;
    if (!tsr__dtype_is_block(tsr_tensor_layout(weight)->dtype) || shape[1] > MOST_GROUPED) {
        TSR__TRY(tsr__latent_floats(a, temps, which, &weight));
        return tsr_matmul(a->base.stream, y, x, weight,
                          tsr_matmul_params(.transpose_b = true, .precision = tsr__group_precision(
                                                                     a->base.group, weight)));
    }
    /* The heads of each row are to the product what the chosen experts of a token are. */
    TSR__TRY(tsr__latent_positions(a, temps, shape[0], &ids));
    tsr_layout rows = *tsr_tensor_layout(ids);
    rows.ndim = 2;
    rows.shape[0] = shape[1];
    rows.shape[1] = shape[0];
    rows.strides[1] = 1;
    rows.strides[0] = 0;
    TSR__TRY(tsr_tensor_view(ids, &rows, &ids));
    TSR__TRY(tsr__temp_keep(temps, ids));
    TSR__TRY(tsr__temp_transpose(temps, x, 0, 1, &from));
    TSR__TRY(tsr__temp_transpose(temps, y, 0, 1, &to));
    return tsr_matmul_grouped(a->base.stream, to, from, weight, ids, NULL);
}

/* *out [.., heads · (kv_rank + rotary)]: for each head, its query times the matrix of its keys, and
 * the rotated part. */
static tsr_status absorb(tsr__latent_attention *a, tsr__temps *temps, const tsr_tensor *q,
                         const tsr_tensor *positions, tsr_tensor **out)
{
    const int64_t each = a->nope + a->rotary, wide = a->kv_rank + a->rotary;
    tsr_tensor *from, *to;
    TSR__TRY(
        tsr__temp_like(temps, q, tsr_tensor_layout(q)->dtype, -1, a->division.length * wide, out));
    TSR__TRY(tsr__latent_by_heads(temps, q, each, 0, a->nope, &from));
    TSR__TRY(tsr__latent_by_heads(temps, *out, wide, 0, a->kv_rank, &to));
    TSR__TRY(multiply_heads(a, temps, TSR__LATENT_K_B, from, to));
    TSR__TRY(tsr__latent_adapters_absorb(a, temps, from, to));
    TSR__TRY(tsr__latent_view(temps, q, each, a->nope, a->rotary, &from));
    TSR__TRY(tsr__latent_view(temps, *out, wide, a->kv_rank, a->rotary, &to));
    return rotate(a, to, from, positions);
}

bool tsr__latent_expands(const tsr__latent_attention *a, int64_t sequences, int64_t tokens,
                         int64_t keys, double pairs)
{
    /* For one head; the projections are the same in both forms. Products with matrices of heads
     * have rows for `tokens` tokens of each sequence; attention leaves out those that are not
     * there. */
    const double of_matrices =
                     (double)sequences * (double)a->kv_rank * (double)(a->nope + a->value),
                 absorbed =
                     (double)tokens * of_matrices + pairs * (double)(2 * a->kv_rank + a->rotary),
                 expanded =
                     (double)keys * of_matrices + pairs * (double)(a->nope + a->rotary + a->value);
    return tokens > MOST_ABSORBED && expanded < absorbed;
}

/* Attention of heads `first` … `first` + `count` − 1 of this rank with keys k and values v of as
 * many heads. q are rotated queries of all heads of the rank, and y is [.., heads · value]. */
static tsr_status attend_some(const tsr__latent_attention *a, tsr__temps *temps, int64_t first,
                              int64_t count, const tsr_tensor *q, const tsr_tensor *k,
                              const tsr_tensor *v, const tsr_tensor *y,
                              const tsr_attention_params *params)
{
    const int64_t each = a->nope + a->rotary;
    tsr_tensor *views[4];
    TSR__TRY(tsr__latent_view(temps, q, each, 0, each, &views[0]));
    TSR__TRY(tsr__latent_view(temps, y, a->value, 0, a->value, &views[3]));
    TSR__TRY(tsr__temp_slice(temps, views[0], 1, first, count, &views[0]));
    TSR__TRY(tsr__temp_slice(temps, views[3], 1, first, count, &views[3]));
    TSR__TRY(tsr__latent_view(temps, k, each, 0, each, &views[1]));
    TSR__TRY(tsr__latent_view(temps, v, a->value, 0, a->value, &views[2]));
    return tsr_attention(a->base.stream, views[3], NULL, views[0], views[1], views[2], params);
}

/* Attention of this rank's heads with keys and values that are computed from the latents in the
 * cache, for some heads after the others: y [.., heads · value]. Rotates the queries in place. */
static tsr_status attend_expanded(const tsr__latent_attention *a, tsr__temps *temps,
                                  const tsr__cached *cached, tsr_tensor *q,
                                  const tsr_tensor *positions, tsr_tensor *y)
{
    const int64_t heads = a->division.length, each = a->nope + a->rotary;
    const tsr_dtype dtype = tsr_tensor_layout(q)->dtype;
    const tsr_tensor *k_b, *v_b;
    tsr_attention_params params = tsr__latent_params(a, NULL);
    int64_t shape[3] = {tsr_tensor_layout(q)->shape[0],
                        tsr__kv_cache_step_keys(cached->cache, &params), a->kv_rank + a->rotary};
    const int64_t fit = a->most_expanded / (shape[0] * shape[1] * (each + a->value)),
                  most = fit > 0 ? fit : 1, groups = (heads + most - 1) / most,
                  at_once = (heads + groups - 1) / groups;
    tsr_tensor *latents, *k, *v, *own_k, *own_v;
    TSR__TRY(rotate_queries(a, temps, q, positions));
    TSR__TRY(tsr__latent_floats(a, temps, TSR__LATENT_K_B, &k_b));
    TSR__TRY(tsr__latent_floats(a, temps, TSR__LATENT_V_B, &v_b));
    TSR__TRY(tsr__temp_new(temps, dtype, 3, shape, &latents));
    TSR__TRY(tsr__kv_cache_read_keys(cached->cache, cached->layer, latents));
    TSR__TRY(tsr__temp_like(temps, latents, dtype, -1, at_once * each, &k));
    TSR__TRY(tsr__temp_like(temps, latents, dtype, -1, at_once * a->value, &v));
    for (int64_t first = 0; first < heads; first += at_once) {
        const int64_t count = heads - first < at_once ? heads - first : at_once;
        TSR__TRY(tsr__temp_slice(temps, k, 2, 0, count * each, &own_k));
        TSR__TRY(tsr__temp_slice(temps, v, 2, 0, count * a->value, &own_v));
        TSR__TRY(tsr__latent_expand(a, temps, latents, k_b, v_b, first, count, own_k, own_v));
        TSR__TRY(attend_some(a, temps, first, count, q, own_k, own_v, y, &params));
    }
    return TSR_OK;
}

/* Attention of this rank's heads with the latents in the cache: *y [.., heads · value]. */
static tsr_status attend_absorbed(tsr__latent_attention *a, tsr__temps *temps,
                                  const tsr__cached *cached, const tsr_tensor *q,
                                  const tsr_tensor *positions, tsr_tensor *y)
{
    const int64_t wide = a->kv_rank + a->rotary;
    const tsr_attention_params params = tsr__latent_params(a, NULL);
    tsr_tensor *absorbed, *results, *q_view, *view, *from, *to;
    TSR__TRY(absorb(a, temps, q, positions, &absorbed));
    TSR__TRY(tsr__temp_like(temps, q, tsr_tensor_layout(q)->dtype, -1,
                            a->division.length * a->kv_rank, &results));
    TSR__TRY(tsr__latent_view(temps, absorbed, wide, 0, wide, &q_view));
    TSR__TRY(tsr__latent_view(temps, results, a->kv_rank, 0, a->kv_rank, &view));
    TSR__TRY(tsr_kv_cache_attention(cached->cache, cached->layer, view, NULL, q_view, &params));
    TSR__TRY(tsr__latent_by_heads(temps, results, a->kv_rank, 0, a->kv_rank, &from));
    TSR__TRY(tsr__latent_by_heads(temps, y, a->value, 0, a->value, &to));
    TSR__TRY(multiply_heads(a, temps, TSR__LATENT_V_B, from, to));
    return tsr__latent_adapters_values(a, temps, from, to);
}

static tsr_status forward_cached_with(tsr__latent_attention *a, tsr__temps *temps,
                                      const tsr_tensor *x, const tsr__cached *cached,
                                      const tsr_tensor *added, tsr_tensor **y)
{
    const tsr_tensor *step = tsr__kv_cache_positions(cached->cache);
    const int64_t wide = a->kv_rank + a->rotary;
    tsr_tensor *positions, *keys, *heads;
    projected p;
    TSR__TRY(check_input(a, x));
    TSR__TRY(check_step(a, x, step));
    TSR__TRY(tsr__layer_check_forward(a->base.child[0]));
    const int64_t *shape = tsr_tensor_layout(step)->shape;
    TSR__TRY(tsr__temp_reshape(temps, step, 3, (int64_t[]){shape[0], 1, shape[1]}, &positions));
    TSR__TRY(project(a, temps, x, positions, true, &p));
    TSR__TRY(tsr__temp_like(temps, x, tsr_tensor_layout(x)->dtype, -1,
                            a->division.length * a->value, &heads));
    if (a->division.length > 0) {
        TSR__TRY(tsr__latent_view(temps, p.latents, wide, 0, wide, &keys));
        TSR__TRY(tsr_kv_cache_append(cached->cache, cached->layer, keys, NULL));
        const bool expands =
            tsr__latent_expands(a, shape[0], shape[1], tsr__kv_cache_step_keys(cached->cache, NULL),
                                tsr__kv_cache_step_pairs(cached->cache));
        TSR__TRY(expands ? attend_expanded(a, temps, cached, p.q, positions, heads)
                         : attend_absorbed(a, temps, cached, p.q, positions, heads));
    }
    return tsr__layer_forward_added(a->base.child[0], heads, NULL, added, NULL, y);
}

/* Passes ------------------------------------------------------------------------------------- */

tsr_status tsr__latent_forward_added(tsr_layer *layer, const tsr_tensor *x,
                                     const tsr__cached *cached, const tsr_tensor *added,
                                     tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr__latent_attention *a = (tsr__latent_attention *)layer;
    tsr__temps temps = {.stream = layer->stream};
    TSR__TRY(tsr__latent_check_adapters(a));
    const tsr_status status = cached ? forward_cached_with(a, &temps, x, cached, added, y)
                                     : forward_with(a, &temps, x, added, saved, y);
    tsr__temps_finish(&temps);
    return status;
}
