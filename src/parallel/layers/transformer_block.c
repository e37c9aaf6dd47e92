/* Transformer blocks: h = x + attention(norm1(x)), y = h + mlp(norm2(h)), perhaps with norms after
 * attention and MLP. A delta net or a short convolution may take the place of attention. */
#include "parallel/layers/transformer_block.h"

#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/struct_size.h"
#include "parallel/internal.h"
#include "parallel/layers/context.h"
#include "parallel/layers/delta_net.h"
#include "parallel/layers/latent_attention.h"
#include "parallel/layers/norm_layer.h"
#include "parallel/layers/self_attention.h"
#include "parallel/layers/short_conv.h"
#include "tessera/ops.h"
#include "tessera/transformer.h"

/* Documents ---------------------------------------------------------------------------------- */

/* Returns where a layer has the documents of its rows, or NULL if it has no use for them. */
static const tsr__documents **documents_of(const tsr_layer *layer)
{
    tsr__attention *attention = tsr__attention_of(layer);
    tsr__delta_net *net = tsr__delta_net_of(layer);
    tsr__latent_attention *latent = tsr__latent_of(layer);
    tsr__short_conv *conv = tsr__short_conv_of(layer);
    return attention ? &attention->documents
           : latent  ? &latent->documents
           : net     ? &net->documents
           : conv    ? &conv->documents
                     : NULL;
}

void tsr__layer_set_documents(tsr_layer *layer, const tsr__documents *documents)
{
    const tsr__documents **place = documents_of(layer);
    if (place)
        *place = documents;
}

/* Dropout ------------------------------------------------------------------------------------ */

/* Returns the number of the random sequence that dropout uses in a branch (attention or MLP) of a
 * block. Each branch of each block has its own. */
static uint64_t subsequence_of(const tsr__block *b, const tsr__dropout *dropout, const char *branch)
{
    uint64_t hash = tsr__hash(TSR__HASH_START, b->base.name, strlen(b->base.name));
    hash = tsr__hash(hash, branch, strlen(branch));
    for (int i = 0; i < 8; i++) {
        const uint8_t byte = (uint8_t)(dropout->subsequence >> (8 * i));
        hash = tsr__hash(hash, &byte, 1);
    }
    return hash;
}

/* A range of a dimension of the full tensor, of which a rank has a part. */
typedef struct drop_range {
    int dim; /* −1: it has all */
    int64_t first, whole;
} drop_range;

/* y = dropout of x, a part of a tensor. Uses the part's range of the full tensor's mask. */
static tsr_status drop_part(const tsr__block *b, const tsr__dropout *dropout, const char *branch,
                            const drop_range *range, tsr_tensor *y, const tsr_tensor *x)
{
    const tsr_layout *layout = tsr_tensor_layout(x);
    int64_t strides[TSR_MAX_DIMS];
    uint64_t stride = 1, offset = dropout->offset;
    bool fits = true;
    for (int d = layout->ndim - 1; d >= 0; d--) {
        const bool divided = d == range->dim;
        const int64_t size = divided ? range->whole : layout->shape[d];
        uint64_t first = 0;
        if (divided)
            fits = fits && tsr__mul_u64((uint64_t)range->first, stride, &first) &&
                   tsr__add_u64(offset, first, &offset);
        strides[d] = (int64_t)stride;
        fits = fits && tsr__mul_u64(stride, (uint64_t)size, &stride) && stride <= INT64_MAX;
    }
    if (!fits)
        return tsr__fail(TSR_ERR_OVERFLOW, "%s: dropout of %s from offset %llu on overflows",
                         b->base.who, TSR__SHAPE_OF(x), (unsigned long long)dropout->offset);
    const tsr_random_params params = {
        .struct_size = sizeof params,
        .seed = dropout->seed,
        .subsequence = subsequence_of(b, dropout, branch),
        .offset = offset,
        .index_strides = strides,
    };
    return tsr_dropout(b->base.stream, y, x, dropout->p, &params);
}

/* The same for the tokens of each chunk of rows that context ranks divide. */
static tsr_status drop_chunks(const tsr__block *b, const tsr__dropout *dropout, const char *branch,
                              const tsr__context *context, tsr_tensor *y, const tsr_tensor *x)
{
    tsr__temps temps = {.stream = b->base.stream};
    const int dim = tsr_tensor_layout(x)->ndim - 2, rank = tsr_group_rank(context->group);
    tsr_status status = TSR_OK;
    for (int i = 0; i < 2 && status == TSR_OK; i++) {
        const drop_range range = {dim, (int64_t)context->chunks[i].start, context->tokens};
        const int64_t first = i == 0 ? 0 : tsr__context_chunk(context, rank, 0);
        tsr_tensor *from, *to;
        status =
            tsr__temp_slice(&temps, x, dim, first, tsr__context_chunk(context, rank, i), &from);
        if (status == TSR_OK)
            status =
                tsr__temp_slice(&temps, y, dim, first, tsr__context_chunk(context, rank, i), &to);
        if (status == TSR_OK)
            status = drop_part(b, dropout, branch, &range, to, from);
    }
    tsr__temps_finish(&temps);
    return status;
}

/* y = dropout of x, this rank's part of a tensor. `context` may be NULL. */
static tsr_status apply_dropout(const tsr__block *b, const tsr__dropout *dropout,
                                const char *branch, const tsr__context *context, tsr_tensor *y,
                                const tsr_tensor *x)
{
    drop_range range = {.dim = -1};
    if (context)
        return drop_chunks(b, dropout, branch, context, y, x);
    if (b->sequence) {
        const int64_t size = tsr_tensor_layout(x)->shape[b->sequence_dim];
        range = (drop_range){b->sequence_dim, size * b->base.rank, size * b->base.size};
    }
    return drop_part(b, dropout, branch, &range, y, x);
}

/* Returns how context ranks divide the rows of the forward pass that runs, whose attention has been
 * computed; NULL: they do not. */
static const tsr__context *context_of(const tsr__block *b)
{
    const tsr__attention *attention = tsr__attention_of(&b->base);
    const tsr__delta_net *net = tsr__delta_net_of(&b->base);
    const tsr__documents **documents = documents_of(&b->base);
    if (documents && *documents && (*documents)->context)
        return (*documents)->context;
    return attention && attention->context_group ? attention->context
           : net && net->context_group           ? net->context
                                                 : NULL;
}

/* Forward ------------------------------------------------------------------------------------ */

/* Replaces *x by layer(*x). */
static tsr_status replace_by(tsr_layer *layer, tsr_layer_saved **saved, tsr_tensor **x)
{
    tsr_tensor *y = NULL;
    TSR__TRY(tsr_layer_forward(layer, *x, saved, &y));
    tsr_tensor_destroy(x);
    *x = y;
    return TSR_OK;
}

/* Replaces *out, the layer's output for x, by the sum of its norm and that of the experts' output
 * for x. */
static tsr_status add_beside(tsr__block *b, const tsr__residual_branch *of, const tsr_tensor *x,
                             tsr_layer_saved *saved, tsr_tensor **out)
{
    tsr_layer **child = b->base.child;
    tsr_layer_saved **kept = saved ? saved->child : NULL;
    tsr_tensor *experts = NULL;
    TSR__TRY(replace_by(child[of->layer_norm], kept ? &kept[of->layer_norm] : NULL, out));
    TSR__TRY(tsr_layer_forward(child[of->experts], x, kept ? &kept[of->experts] : NULL, &experts));
    tsr_status status =
        replace_by(child[of->experts_norm], kept ? &kept[of->experts_norm] : NULL, &experts);
    if (status == TSR_OK)
        status = tsr_binary(b->base.stream, *out, *out, experts, TSR_BINARY_ADD);
    tsr_tensor_destroy(&experts);
    return status;
}

/* Replaces *out by x + its norm, with dropout and residual_scale as far as the branch has them. */
static tsr_status finish_branch(tsr__block *b, const tsr__residual_branch *of,
                                const tsr__dropout *dropout, const tsr_tensor *x,
                                tsr_layer_saved *saved, tsr_tensor **out)
{
    tsr_stream *stream = b->base.stream;
    const int post = of->post_norm;
    if (of->experts >= 0)
        TSR__TRY(add_beside(b, of, x, saved, out));
    if (post >= 0)
        TSR__TRY(replace_by(b->base.child[post], saved ? &saved->child[post] : NULL, out));
    if (dropout->p > 0)
        TSR__TRY(apply_dropout(b, dropout, of->name, context_of(b), *out, *out));
    if (b->residual_scale != 1)
        TSR__TRY(tsr_scale(stream, *out, *out, b->residual_scale, 0));
    return tsr_binary(stream, *out, *out, x, TSR_BINARY_ADD);
}

/* *y = x + layer(norm(x)). */
static tsr_status branch_forward(tsr__block *b, const tsr__residual_branch *of,
                                 const tsr__dropout *dropout, const tsr__cached *cached,
                                 const tsr_tensor *x, tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr_tensor *normalised = NULL, *out = NULL;
    tsr_layer *layer = b->base.child[of->layer];
    /* Whether the layer's last product adds x, and whether its first product normalises x. */
    const bool adds =
        dropout->p == 0 && of->post_norm < 0 && of->experts < 0 && b->residual_scale == 1;
    const bool passes_norm = cached && of->norm >= 0 && layer->type->normalises;
    tsr__cached own = {0};
    if (cached)
        own = *cached;
    own.norm = passes_norm ? b->base.child[of->norm] : NULL;
    if (of->norm >= 0 && !passes_norm)
        TSR__TRY(tsr_layer_forward(b->base.child[of->norm], x,
                                   saved ? &saved->child[of->norm] : NULL, &normalised));
    tsr_status status =
        tsr__layer_forward_added(layer, normalised ? normalised : x,
                                 cached && (passes_norm || of == &b->attention) ? &own : NULL,
                                 adds ? x : NULL, saved ? &saved->child[of->layer] : NULL, &out);
    tsr_tensor_destroy(&normalised);
    if (status == TSR_OK && !adds)
        status = finish_branch(b, of, dropout, x, saved, &out);
    if (status == TSR_OK)
        *y = out;
    else
        tsr_tensor_destroy(&out);
    return status;
}

static tsr_status new_like(const tsr__block *b, const tsr_tensor *tensor, tsr_tensor **out)
{
    const tsr_layout *l = tsr_tensor_layout(tensor);
    return tsr_tensor_create(tsr_stream_device(b->base.stream), l->dtype, l->ndim, l->shape, out);
}

/* Replaces *gate by gelu(*gate) ⊙ input. If the backward pass needs the gate, `saved` gets it. */
static tsr_status multiply_input(tsr__block *b, tsr_layer_saved *saved, tsr_tensor **gate)
{
    tsr_tensor *product = *gate;
    if (saved) {
        TSR__TRY(new_like(b, *gate, &product));
        saved->gate = *gate;
        *gate = product;
    }
    return tsr_activate(b->base.stream, product, saved ? saved->gate : product, b->input,
                        TSR_ACT_GELU_TANH);
}

/* *y += norm((gelu(*y · gateᵀ) ⊙ input) · outᵀ): in place, or, if the backward pass needs *y, to
 * new memory. */
static tsr_status add_input(tsr__block *b, tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr_layer **child = b->base.child;
    tsr_layer_saved **kept = saved ? saved->child : NULL;
    tsr_tensor *x = NULL;
    TSR__REQUIRE(b->input, "%s: the layer's own input is missing", b->base.who);
    TSR__TRY(tsr_layer_forward(child[b->gate], *y, kept ? &kept[b->gate] : NULL, &x));
    tsr_status status = multiply_input(b, saved, &x);
    if (status == TSR_OK)
        status = replace_by(child[b->out], kept ? &kept[b->out] : NULL, &x);
    if (status == TSR_OK)
        status = replace_by(child[b->end_norm], kept ? &kept[b->end_norm] : NULL, &x);
    tsr_tensor *sum = *y;
    if (status == TSR_OK && saved)
        status = new_like(b, *y, &sum);
    if (status == TSR_OK) {
        status = tsr_binary(b->base.stream, sum, *y, x, TSR_BINARY_ADD);
        if (saved) /* the gate's `saved` keeps the memory */
            tsr_tensor_destroy(y);
        *y = sum;
    }
    tsr_tensor_destroy(&x);
    return status;
}

/* Multiplies *y by the block's scale: in place, or, if the backward pass needs it, to new memory.
 */
static tsr_status scale_output(tsr__block *b, tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr_tensor *scaled = *y;
    if (saved)
        TSR__TRY(new_like(b, *y, &scaled));
    const tsr_status status =
        tsr_binary(b->base.stream, scaled, *y, b->base.parameter[0]->seen.tensor, TSR_BINARY_MUL);
    if (status == TSR_OK && saved)
        saved->hidden = *y;
    else if (saved)
        tsr_tensor_destroy(&scaled);
    if (status == TSR_OK)
        *y = scaled;
    return status;
}

/* What follows the two branches. */
static tsr_status end_forward(tsr__block *b, tsr_layer_saved *saved, tsr_tensor **y)
{
    if (b->gate >= 0)
        TSR__TRY(add_input(b, saved, y));
    return b->output_scale ? scale_output(b, saved, y) : TSR_OK;
}

static tsr_status branches_forward(tsr__block *b, const tsr__dropout *dropout,
                                   const tsr__cached *cached, const tsr_tensor *x,
                                   tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr_tensor *between = NULL, *out = NULL;
    TSR__TRY(branch_forward(b, &b->attention, dropout, cached, x, saved, &between));
    tsr_status status = branch_forward(b, &b->mlp, dropout, cached, between, saved, &out);
    tsr_tensor_destroy(&between);
    if (status == TSR_OK)
        status = end_forward(b, saved, &out);
    if (status == TSR_OK)
        *y = out;
    else
        tsr_tensor_destroy(&out);
    return status;
}

/* A forward pass that keeps only the choice of experts. */
static tsr_status forward_with_choice(tsr__block *b, const tsr_tensor *x, tsr_layer_saved *saved,
                                      tsr_tensor **y)
{
    tsr_layer_saved *all = NULL;
    TSR__TRY(tsr__layer_saved_new(&b->base, x, &all));
    const tsr_status status = branches_forward(b, &b->dropout, NULL, x, all, y);
    if (status == TSR_OK)
        tsr__moe_take_choice(all, saved);
    tsr_layer_saved_destroy(&all);
    return status;
}

static tsr_status block_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                                tsr_tensor **y)
{
    tsr__block *b = (tsr__block *)layer;
    if (saved)
        saved->dropout = b->dropout;
    if (saved && b->recompute)
        TSR__TRY(tsr__documents_keep(*documents_of(layer), saved));
    if (saved && b->recompute && b->has_experts)
        return forward_with_choice(b, x, saved, y);
    return branches_forward(b, &b->dropout, NULL, x, b->recompute ? NULL : saved, y);
}

static tsr_status block_forward_cached(tsr_layer *layer, const tsr_tensor *x,
                                       const tsr__cached *cached, tsr_tensor **y)
{
    return branches_forward((tsr__block *)layer, &(tsr__dropout){0}, cached, x, NULL, y);
}

/* Backward ----------------------------------------------------------------------------------- */

/* Sets *out to the gradient of the output of the branch's layer: dy, or a tensor in `temps` or
 * *made, which the caller must destroy. */
static tsr_status begin_backward(tsr__block *b, const tsr__residual_branch *of, tsr__temps *temps,
                                 const tsr_layer_saved *saved, const tsr_tensor *dy,
                                 tsr_tensor **made, const tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(dy);
    tsr_tensor *scaled = NULL;
    *out = dy;
    if (saved->dropout.p > 0 || b->residual_scale != 1) {
        TSR__TRY(tsr__temp_new(temps, layout->dtype, layout->ndim, layout->shape, &scaled));
        *out = scaled;
    }
    if (saved->dropout.p > 0)
        TSR__TRY(apply_dropout(b, &saved->dropout, of->name,
                               saved->child[b->attention.layer]->context, scaled, dy));
    if (b->residual_scale != 1)
        TSR__TRY(tsr_scale(b->base.stream, scaled, saved->dropout.p > 0 ? scaled : dy,
                           b->residual_scale, 0));
    if (of->post_norm < 0)
        return TSR_OK;
    TSR__TRY(
        tsr_layer_backward(b->base.child[of->post_norm], saved->child[of->post_norm], *out, made));
    *out = *made;
    return TSR_OK;
}

/* The backward pass of the sum of the layer's norm and the experts' norm: *dlayer is the gradient
 * of the layer's output, and *dx that of the branch's input through the experts. `dx` may be NULL.
 */
static tsr_status beside_backward(tsr__block *b, const tsr__residual_branch *of,
                                  const tsr_layer_saved *saved, const tsr_tensor *dy,
                                  tsr_tensor **dx, tsr_tensor **dlayer)
{
    tsr_layer **child = b->base.child;
    tsr_tensor *dexperts = NULL;
    TSR__TRY(
        tsr_layer_backward(child[of->experts_norm], saved->child[of->experts_norm], dy, &dexperts));
    tsr_status status =
        tsr_layer_backward(child[of->experts], saved->child[of->experts], dexperts, dx);
    tsr_tensor_destroy(&dexperts);
    return status == TSR_OK
               ? tsr_layer_backward(child[of->layer_norm], saved->child[of->layer_norm], dy, dlayer)
               : status;
}

/* *dx = dy + the gradient of x through the branch's layer and norms. `dx` may be NULL. */
static tsr_status branch_backward(tsr__block *b, const tsr__residual_branch *of,
                                  const tsr_layer_saved *saved, const tsr_tensor *dy,
                                  tsr_tensor **dx)
{
    tsr__temps temps = {.stream = b->base.stream};
    const int norm = of->norm, layer = of->layer;
    tsr_tensor *made = NULL, *dinput = NULL, *out = NULL, *dmlp = NULL, *dbeside = NULL;
    const tsr_tensor *dlayer = NULL;
    const bool trains_norm = norm >= 0 && !b->base.child[norm]->frozen;
    tsr_status status = begin_backward(b, of, &temps, saved, dy, &made, &dlayer);
    if (status == TSR_OK && of->experts >= 0) {
        status = beside_backward(b, of, saved, dlayer, dx ? &dbeside : NULL, &dmlp);
        dlayer = dmlp;
    }
    if (status == TSR_OK)
        status = tsr_layer_backward(b->base.child[layer], saved->child[layer], dlayer,
                                    trains_norm || dx ? &dinput : NULL);
    if (status == TSR_OK && norm >= 0 && (trains_norm || dx))
        status =
            dx ? tsr__norm_backward_added(b->base.child[norm], saved->child[norm], dinput, dy, &out)
               : tsr_layer_backward(b->base.child[norm], saved->child[norm], dinput, NULL);
    if (status == TSR_OK && norm < 0 && dx) {
        status = tsr_binary(b->base.stream, dinput, dinput, dy, TSR_BINARY_ADD);
        out = dinput;
        dinput = NULL;
    }
    if (status == TSR_OK && dbeside)
        status = tsr_binary(b->base.stream, out, out, dbeside, TSR_BINARY_ADD);
    if (status == TSR_OK && dx)
        *dx = out;
    else
        tsr_tensor_destroy(&out);
    tsr_tensor_destroy(&dinput);
    tsr_tensor_destroy(&dmlp);
    tsr_tensor_destroy(&dbeside);
    tsr_tensor_destroy(&made);
    tsr__temps_finish(&temps);
    return status;
}

/* Adds the gradient of the block's scale, and sets *out to that of the output before the scale. */
static tsr_status scale_backward(tsr__block *b, tsr__temps *temps, const tsr_layer_saved *saved,
                                 const tsr_tensor *dy, tsr_tensor **out)
{
    tsr_layer *layer = &b->base;
    tsr__layer_parameter *scale = layer->parameter[0];
    const tsr_layout *l = tsr_tensor_layout(dy);
    tsr_tensor *products, *rows, *sums, *column;
    if (!layer->frozen) {
        TSR__TRY(tsr__parameter_need_grad(layer, 0));
        TSR__TRY(tsr__temp_new(temps, TSR_F32, l->ndim, l->shape, &products));
        TSR__TRY(tsr_binary(layer->stream, products, dy, saved->hidden, TSR_BINARY_MUL));
        TSR__TRY(tsr__temp_flatten(temps, products, &rows));
        const int64_t count = tsr_tensor_layout(rows)->shape[0], of_column[] = {count, 1};
        TSR__TRY(tsr__temp_new(temps, TSR_F32, 1, &count, &sums));
        TSR__TRY(tsr_reduce(layer->stream, sums, rows, 1, TSR_REDUCE_SUM, false));
        TSR__TRY(tsr__temp_reshape(temps, sums, 2, of_column, &column));
        TSR__TRY(tsr_reduce(layer->stream, scale->seen.grad, column, 0, TSR_REDUCE_SUM,
                            !scale->grad_empty));
        scale->grad_empty = false;
    }
    TSR__TRY(tsr__temp_new(temps, l->dtype, l->ndim, l->shape, out));
    return tsr_binary(layer->stream, *out, dy, scale->seen.tensor, TSR_BINARY_MUL);
}

/* Sets *out to the gradient of y before the layer's own input is added, and computes that of the
 * input if somebody wants it. */
static tsr_status input_backward(tsr__block *b, tsr__temps *temps, const tsr_layer_saved *saved,
                                 const tsr_tensor *dy, tsr_tensor **out)
{
    tsr_stream *stream = b->base.stream;
    tsr_layer **child = b->base.child;
    tsr_tensor *d = NULL, *dproduct = NULL;
    TSR__REQUIRE(b->input, "%s: the layer's own input is missing", b->base.who);
    TSR__TRY(tsr_layer_backward(child[b->end_norm], saved->child[b->end_norm], dy, &d));
    TSR__TRY(tsr__temp_keep(temps, d));
    TSR__TRY(tsr_layer_backward(child[b->out], saved->child[b->out], d, &dproduct));
    TSR__TRY(tsr__temp_keep(temps, dproduct));
    if (b->input_grad)
        TSR__TRY(tsr_activate(stream, b->input_grad, saved->gate, dproduct, TSR_ACT_GELU_TANH));
    TSR__TRY(tsr_binary(stream, dproduct, dproduct, b->input, TSR_BINARY_MUL));
    TSR__TRY(tsr_activate_grad(stream, dproduct, saved->gate, dproduct, TSR_ACT_GELU_TANH));
    TSR__TRY(tsr_layer_backward(child[b->gate], saved->child[b->gate], dproduct, out));
    TSR__TRY(tsr__temp_keep(temps, *out));
    return tsr_binary(stream, *out, *out, dy, TSR_BINARY_ADD);
}

/* Replaces *d, the gradient of the block's output, by that of the sum of its branches. */
static tsr_status end_backward(tsr__block *b, tsr__temps *temps, const tsr_layer_saved *saved,
                               const tsr_tensor **d)
{
    tsr_tensor *before;
    if (b->output_scale) {
        TSR__TRY(scale_backward(b, temps, saved, *d, &before));
        *d = before;
    }
    if (b->gate >= 0) {
        TSR__TRY(input_backward(b, temps, saved, *d, &before));
        *d = before;
    }
    return TSR_OK;
}

static tsr_status branches_backward(tsr__block *b, const tsr_layer_saved *saved,
                                    const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr__temps temps = {.stream = b->base.stream};
    tsr_tensor *between = NULL;
    tsr_status status = end_backward(b, &temps, saved, &dy);
    if (status == TSR_OK)
        status = branch_backward(b, &b->mlp, saved, dy, &between);
    if (status == TSR_OK)
        status = branch_backward(b, &b->attention, saved, between, dx);
    tsr_tensor_destroy(&between);
    tsr__temps_finish(&temps);
    return status;
}

/* Runs the forward pass again to get the tensors that it saves, and then runs the backward pass. */
static tsr_status block_recompute(tsr__block *b, const tsr_layer_saved *saved, const tsr_tensor *dy,
                                  tsr_tensor **dx)
{
    tsr_layer_saved *again = NULL;
    tsr_tensor *y = NULL;
    TSR__TRY(tsr__layer_saved_new(&b->base, saved->x, &again));
    again->dropout = saved->dropout;
    const tsr__documents documents = {saved->starts, saved->positions, saved->context,
                                      saved->chunk_starts};
    if (saved->positions)
        tsr__layer_set_documents(&b->base, &documents);
    tsr_status status = branches_forward(b, &saved->dropout, NULL, saved->x, again, &y);
    tsr__layer_set_documents(&b->base, NULL);
    tsr_tensor_destroy(&y);
    if (status == TSR_OK)
        status = branches_backward(b, again, dy, dx);
    tsr_layer_saved_destroy(&again);
    return status;
}

static tsr_status block_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                 const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr__block *b = (tsr__block *)layer;
    TSR__REQUIRE(tsr__layout_same_shape(tsr_tensor_layout(saved->x), tsr_tensor_layout(dy)),
                 "%s: dy is %s; y was %s", layer->who, TSR__SHAPE_OF(dy), TSR__SHAPE_OF(saved->x));
    return b->recompute ? block_recompute(b, saved, dy, dx) : branches_backward(b, saved, dy, dx);
}

/* The type ------------------------------------------------------------------------------------ */

const tsr__layer_type tsr__block_type = {.name = "block",
                                         .forward = block_forward,
                                         .backward = block_backward,
                                         .forward_cached = block_forward_cached};

static bool has_context(const tsr_layer *layer)
{
    const tsr__attention *attention = tsr__attention_of(layer);
    return attention && attention->context_group;
}

tsr_status tsr_block_set_dropout(tsr_layer *layer, float p, const tsr_random_params *params)
{
    TSR__REQUIRE(layer, "block_set_dropout: layer is NULL");
    TSR__REQUIRE(layer->type == &tsr__block_type, "%s: it is not a block", layer->who);
    TSR__REQUIRE(p >= 0 && p < 1, "%s: dropout p is %g; 0 <= p < 1 is needed", layer->who,
                 (double)p);
    TSR__REQUIRE(params || p == 0, "%s: dropout p is %g, but params is NULL", layer->who,
                 (double)p);
    if (p > 0 && ((tsr__block *)layer)->sequence && has_context(layer))
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: dropout with sequence and a context_group is not supported",
                         layer->who);
    TSR__TAKE(tsr_random_params, params);
    TSR__REQUIRE(!params->index_strides, "%s: index_strides must be NULL", layer->who);
    ((tsr__block *)layer)->dropout = (tsr__dropout){
        .p = p, .seed = params->seed, .subsequence = params->subsequence, .offset = params->offset};
    return TSR_OK;
}

void tsr__block_set_input(tsr_layer *layer, const tsr_tensor *input, tsr_tensor *gradient)
{
    if (layer->type != &tsr__block_type)
        return;
    ((tsr__block *)layer)->input = input;
    ((tsr__block *)layer)->input_grad = gradient;
}
