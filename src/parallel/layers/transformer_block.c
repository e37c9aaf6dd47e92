/* Transformer blocks: h = x + attention(norm1(x)), y = h + mlp(norm2(h)). */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/hash.h"
#include "base/struct_size.h"
#include "parallel/layers/layer.h"
#include "parallel/layers/norm_layer.h"
#include "tessera/transformer.h"

enum { NORM1, ATTENTION, NORM2, MLP };

typedef struct block {
    tsr_layer base; /* its children are indexed by the enum above */
    bool recompute, sequence;
    int sequence_dim;
    tsr__dropout dropout;
} block;

/* Dropout ------------------------------------------------------------------------------------ */

/* Returns the number of the random sequence that dropout uses in a branch (attention or MLP) of a
 * block. Each branch of each block has its own. */
static uint64_t subsequence_of(const block *b, const tsr__dropout *dropout, const char *branch)
{
    uint64_t hash = tsr__hash(TSR__HASH_START, b->base.name, strlen(b->base.name));
    hash = tsr__hash(hash, branch, strlen(branch));
    for (int i = 0; i < 8; i++) {
        const uint8_t byte = (uint8_t)(dropout->subsequence >> (8 * i));
        hash = tsr__hash(hash, &byte, 1);
    }
    return hash;
}

/* y = dropout of x, this rank's shard of a tensor. Uses the shard's range of the full tensor's
 * mask.
 */
static tsr_status apply_dropout(const block *b, const tsr__dropout *dropout, const char *branch,
                                tsr_tensor *y, const tsr_tensor *x)
{
    const tsr_layout *layout = tsr_tensor_layout(x);
    int64_t strides[TSR_MAX_DIMS];
    uint64_t stride = 1, offset = dropout->offset;
    bool fits = true;
    for (int d = layout->ndim - 1; d >= 0; d--) {
        const bool divided = b->sequence && d == b->sequence_dim;
        uint64_t size = (uint64_t)layout->shape[d], first = 0;
        if (divided)
            fits = fits && tsr__mul_u64(size * (uint64_t)b->base.rank, stride, &first) &&
                   tsr__add_u64(offset, first, &offset);
        strides[d] = (int64_t)stride;
        fits = fits && tsr__mul_u64(size, divided ? (uint64_t)b->base.size : 1, &size) &&
               tsr__mul_u64(stride, size, &stride) && stride <= INT64_MAX;
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

/* Forward ------------------------------------------------------------------------------------ */

/* *y = x + layer(norm(x)). */
static tsr_status branch_forward(block *b, int norm, const char *name, const tsr__dropout *dropout,
                                 const tsr__cached *cached, const tsr_tensor *x,
                                 tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr_tensor *normalised = NULL, *out = NULL;
    const bool dropped = dropout->p > 0;
    const bool passes_norm = cached && b->base.child[norm + 1]->type->normalises;
    tsr__cached own = {0};
    if (cached)
        own = *cached;
    own.norm = passes_norm ? b->base.child[norm] : NULL;
    if (!passes_norm)
        TSR__TRY(tsr_layer_forward(b->base.child[norm], x, saved ? &saved->child[norm] : NULL,
                                   &normalised));
    tsr_status status =
        tsr__layer_forward_added(b->base.child[norm + 1], passes_norm ? x : normalised,
                                 cached && (passes_norm || norm + 1 == ATTENTION) ? &own : NULL,
                                 dropped ? NULL : x, saved ? &saved->child[norm + 1] : NULL, &out);
    tsr_tensor_destroy(&normalised);
    if (status == TSR_OK && dropped)
        status = apply_dropout(b, dropout, name, out, out);
    if (status == TSR_OK && dropped)
        status = tsr_binary(b->base.stream, out, out, x, TSR_BINARY_ADD);
    if (status == TSR_OK)
        *y = out;
    else
        tsr_tensor_destroy(&out);
    return status;
}

static tsr_status branches_forward(block *b, const tsr__dropout *dropout, const tsr__cached *cached,
                                   const tsr_tensor *x, tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr_tensor *between = NULL;
    TSR__TRY(branch_forward(b, NORM1, "attention", dropout, cached, x, saved, &between));
    tsr_status status = branch_forward(b, NORM2, "mlp", dropout, cached, between, saved, y);
    tsr_tensor_destroy(&between);
    return status;
}

static tsr_status block_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                                tsr_tensor **y)
{
    block *b = (block *)layer;
    if (saved)
        saved->dropout = b->dropout;
    return branches_forward(b, &b->dropout, NULL, x, b->recompute ? NULL : saved, y);
}

static tsr_status block_forward_cached(tsr_layer *layer, const tsr_tensor *x,
                                       const tsr__cached *cached, tsr_tensor **y)
{
    return branches_forward((block *)layer, &(tsr__dropout){0}, cached, x, NULL, y);
}

/* Backward ----------------------------------------------------------------------------------- */

/* *dx = dy + the gradient of x through the branch's layer and norm. `dx` may be NULL. */
static tsr_status branch_backward(block *b, int norm, const char *name,
                                  const tsr_layer_saved *saved, const tsr_tensor *dy,
                                  tsr_tensor **dx)
{
    tsr__temps temps = {.stream = b->base.stream};
    const tsr_layout *layout = tsr_tensor_layout(dy);
    tsr_tensor *dropped = NULL, *dnormalised = NULL, *out = NULL;
    tsr_status status = TSR_OK;
    if (saved->dropout.p > 0) {
        status = tsr__temp_new(&temps, layout->dtype, layout->ndim, layout->shape, &dropped);
        if (status == TSR_OK)
            status = apply_dropout(b, &saved->dropout, name, dropped, dy);
    }
    if (status == TSR_OK)
        status = tsr_layer_backward(b->base.child[norm + 1], saved->child[norm + 1],
                                    dropped ? dropped : dy, &dnormalised);
    if (status == TSR_OK)
        status =
            dx ? tsr__norm_backward_added(b->base.child[norm], saved->child[norm], dnormalised, dy,
                                          &out)
               : tsr_layer_backward(b->base.child[norm], saved->child[norm], dnormalised, NULL);
    if (status == TSR_OK && dx)
        *dx = out;
    else
        tsr_tensor_destroy(&out);
    tsr_tensor_destroy(&dnormalised);
    tsr__temps_finish(&temps);
    return status;
}

static tsr_status branches_backward(block *b, const tsr_layer_saved *saved, const tsr_tensor *dy,
                                    tsr_tensor **dx)
{
    tsr_tensor *between = NULL;
    TSR__TRY(branch_backward(b, NORM2, "mlp", saved, dy, &between));
    tsr_status status = branch_backward(b, NORM1, "attention", saved, between, dx);
    tsr_tensor_destroy(&between);
    return status;
}

/* Runs the forward pass again to get the tensors that it saves, and then runs the backward pass. */
static tsr_status block_recompute(block *b, const tsr_layer_saved *saved, const tsr_tensor *dy,
                                  tsr_tensor **dx)
{
    tsr_layer_saved *again = NULL;
    tsr_tensor *y = NULL;
    TSR__TRY(tsr__layer_saved_new(&b->base, saved->x, &again));
    again->dropout = saved->dropout;
    tsr_status status = branches_forward(b, &saved->dropout, NULL, saved->x, again, &y);
    tsr_tensor_destroy(&y);
    if (status == TSR_OK)
        status = branches_backward(b, again, dy, dx);
    tsr_layer_saved_destroy(&again);
    return status;
}

static tsr_status block_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                 const tsr_tensor *dy, tsr_tensor **dx)
{
    block *b = (block *)layer;
    TSR__REQUIRE(tsr__layout_same_shape(tsr_tensor_layout(saved->x), tsr_tensor_layout(dy)),
                 "%s: dy is %s; y was %s", layer->who, TSR__SHAPE_OF(dy), TSR__SHAPE_OF(saved->x));
    return b->recompute ? block_recompute(b, saved, dy, dx) : branches_backward(b, saved, dy, dx);
}

/* Creating ----------------------------------------------------------------------------------- */

static const tsr__layer_type block_type = {.name = "block",
                                           .forward = block_forward,
                                           .backward = block_backward,
                                           .forward_cached = block_forward_cached};

tsr_status tsr_block_set_dropout(tsr_layer *layer, float p, const tsr_random_params *params)
{
    TSR__REQUIRE(layer, "block_set_dropout: layer is NULL");
    TSR__REQUIRE(layer->type == &block_type, "%s: it is not a block", layer->who);
    TSR__REQUIRE(p >= 0 && p < 1, "%s: dropout p is %g; 0 <= p < 1 is needed", layer->who,
                 (double)p);
    TSR__REQUIRE(params || p == 0, "%s: dropout p is %g, but params is NULL", layer->who,
                 (double)p);
    TSR__TAKE(tsr_random_params, params);
    TSR__REQUIRE(!params->index_strides, "%s: index_strides must be NULL", layer->who);
    ((block *)layer)->dropout = (tsr__dropout){
        .p = p, .seed = params->seed, .subsequence = params->subsequence, .offset = params->offset};
    return TSR_OK;
}

/* Makes the name of a child: for "h.0" and "norm1", "h.0.norm1". */
static tsr_status child_name(const tsr_layer *layer, const char *last, char **out)
{
    const size_t size = strlen(layer->name) + strlen(last) + 2;
    *out = tsr__calloc(size, 1);
    if (!*out)
        return TSR_ERR_NO_MEMORY;
    strcpy(*out, layer->name);
    if (*layer->name)
        strcat(*out, ".");
    strcat(*out, last);
    return TSR_OK;
}

static tsr_status create_norm(block *b, const tsr_block_params *params, const char *last)
{
    tsr_norm_params norm;
    TSR__TRY(TSR__TAKE_PART(tsr_norm_params, params->norm, &norm));
    tsr_layer *child = NULL;
    char *name;
    TSR__TRY(child_name(&b->base, last, &name));
    norm.group = b->base.group;
    norm.name = name;
    norm.size = params->size;
    norm.sequence = params->sequence;
    norm.dtype = norm.dtype != 0 ? norm.dtype : params->dtype;
    norm.grad_dtype = params->grad_dtype;
    norm.deferred = params->deferred;
    tsr_status status = tsr_norm_create(&norm, &child);
    tsr__free(name);
    return status == TSR_OK ? tsr__layer_add_child(&b->base, child) : status;
}

static tsr_status create_attention(block *b, const tsr_block_params *params)
{
    tsr_self_attention_params attention;
    TSR__TRY(TSR__TAKE_PART(tsr_self_attention_params, params->attention, &attention));
    tsr_layer *child = NULL;
    char *name;
    TSR__TRY(child_name(&b->base, "attention", &name));
    attention.group = b->base.group;
    attention.name = name;
    attention.size = params->size;
    attention.sequence = params->sequence;
    attention.sequence_dim = params->sequence_dim;
    attention.dtype = params->dtype;
    attention.grad_dtype = params->grad_dtype;
    attention.deferred = params->deferred;
    tsr_status status = tsr_self_attention_create(&attention, &child);
    tsr__free(name);
    return status == TSR_OK ? tsr__layer_add_child(&b->base, child) : status;
}

static tsr_status create_experts(block *b, const tsr_block_params *params)
{
    tsr_moe_params experts;
    TSR__TRY(TSR__TAKE_PART(tsr_moe_params, params->experts, &experts));
    TSR__REQUIRE(!params->mlp, "%s: mlp and experts are given; only one is possible", b->base.who);
    TSR__REQUIRE(!params->sequence, "%s: experts are given with sequence, which is not possible",
                 b->base.who);
    tsr_layer *child = NULL;
    char *name;
    TSR__TRY(child_name(&b->base, "mlp", &name));
    experts.group = b->base.group;
    experts.name = name;
    experts.input_size = params->size;
    experts.dtype = params->dtype;
    experts.grad_dtype = params->grad_dtype;
    experts.deferred = params->deferred;
    tsr_status status = tsr_moe_create(&experts, &child);
    tsr__free(name);
    return status == TSR_OK ? tsr__layer_add_child(&b->base, child) : status;
}

static tsr_status create_mlp(block *b, const tsr_block_params *params)
{
    tsr_mlp_params mlp;
    TSR__TRY(TSR__TAKE_PART(tsr_mlp_params, params->mlp, &mlp));
    tsr_layer *child = NULL;
    char *name;
    TSR__TRY(child_name(&b->base, "mlp", &name));
    mlp.group = b->base.group;
    mlp.name = name;
    mlp.input_size = mlp.output_size = params->size;
    mlp.sequence = params->sequence;
    mlp.sequence_dim = params->sequence_dim;
    mlp.dtype = params->dtype;
    mlp.grad_dtype = params->grad_dtype;
    mlp.deferred = params->deferred;
    tsr_status status = tsr_mlp_create(&mlp, &child);
    tsr__free(name);
    return status == TSR_OK ? tsr__layer_add_child(&b->base, child) : status;
}

static tsr_status init_block(block *b, const tsr_block_params *params)
{
    b->recompute = params->recompute;
    b->sequence = params->sequence;
    b->sequence_dim = params->sequence_dim;
    TSR__REQUIRE(params->size >= 1, "%s: size is %lld; it must be at least 1", b->base.who,
                 (long long)params->size);
    TSR__TRY(create_norm(b, params, "norm1"));
    TSR__TRY(create_attention(b, params));
    TSR__TRY(create_norm(b, params, "norm2"));
    return params->experts ? create_experts(b, params) : create_mlp(b, params);
}

tsr_status tsr_block_create(const tsr_block_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params && out, "block: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_block_params, params);
    tsr_layer *layer;
    TSR__TRY(tsr__layer_new(&block_type, sizeof(block), params->group, params->name, &layer));
    tsr_status status = init_block((block *)layer, params);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return TSR_OK;
}
