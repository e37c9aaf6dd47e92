/* The passes of a stack. */
#include "base/alloc.h"
#include "base/error.h"
#include "gpu/internal.h"
#include "model/stack/stack.h"
#include "parallel/internal.h"

struct tsr_stack_saved {
    tsr_layer_saved *embedding, *norm;
    tsr_layer_saved **blocks; /* [block_count] */
    int block_count;
    tsr_tensor
        *positions;   /* of tokens in packed rows, if the stage has learned positions; or NULL */
    uint64_t trained; /* the number of the pass, for dropout of adapters */
    tsr__stack_inputs inputs;
    tsr__shared_keys *keys; /* [block_count]; NULL: no block uses keys of another */
};

/* Makes the structs for keys and values that blocks share, if there are any. */
static tsr_status new_keys(const tsr_stack *s, tsr__shared_keys **out)
{
    *out = s->keys_of ? tsr__calloc((size_t)s->layer_count, sizeof **out) : NULL;
    return s->keys_of && !*out ? TSR_ERR_NO_MEMORY : TSR_OK;
}

static void destroy_keys(tsr__shared_keys *keys, int count)
{
    for (int i = 0; keys && i < count; i++)
        tsr__shared_keys_finish(&keys[i]);
    tsr__free(keys);
}

void tsr_stack_saved_destroy(tsr_stack_saved **saved)
{
    if (!saved || !*saved)
        return;
    tsr_layer_saved_destroy(&(*saved)->embedding);
    tsr_layer_saved_destroy(&(*saved)->norm);
    for (int i = 0; (*saved)->blocks && i < (*saved)->block_count; i++)
        tsr_layer_saved_destroy(&(*saved)->blocks[i]);
    tsr__free((*saved)->blocks);
    tsr_tensor_destroy(&(*saved)->positions);
    tsr__stack_inputs_finish(&(*saved)->inputs);
    destroy_keys((*saved)->keys, (*saved)->block_count);
    tsr__free(*saved);
    *saved = NULL;
}

static tsr_status saved_create(const tsr_stack *s, tsr_stack_saved **out)
{
    tsr_stack_saved *saved = tsr__calloc(1, sizeof *saved);
    if (!saved)
        return TSR_ERR_NO_MEMORY;
    saved->block_count = s->layer_count;
    saved->blocks = tsr__calloc((size_t)s->layer_count, sizeof *saved->blocks);
    if (!saved->blocks || new_keys(s, &saved->keys) != TSR_OK) {
        tsr_stack_saved_destroy(&saved);
        return TSR_ERR_NO_MEMORY;
    }
    *out = saved;
    return TSR_OK;
}

tsr_status tsr_stack_get_choice(const tsr_stack_saved *saved, int block, tsr_moe_choice *out)
{
    TSR__REQUIRE(saved && out, "stack: %s is NULL", saved ? "out" : "saved");
    TSR__REQUIRE(block >= 0 && block < saved->block_count, "stack: block %d; the stage has %d",
                 block, saved->block_count);
    return tsr_moe_get_choice(saved->blocks[block], out);
}

/* Destroys *features, and replaces it by `next`. */
static void advance(tsr_tensor **features, tsr_tensor *next)
{
    tsr_tensor_destroy(features);
    *features = next;
}

static tsr_status view_of(const tsr_tensor *tensor, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    return tsr_tensor_reshape(tensor, layout->ndim, layout->shape, out);
}

/* Returns whether a backward pass computes gradients of a layer's own parameters. */
static bool trains(const tsr_layer *layer)
{
    return layer && !tsr__layer_is_frozen(layer);
}

/* A pass of one layer ------------------------------------------------------------------------ */

static tsr_status layer_forward(tsr_stack *s, tsr_layer *layer, int unit, const tsr_tensor *x,
                                tsr_layer_saved **saved, tsr_tensor **y)
{
    TSR__TRY(tsr__stack_begin(s, layer, unit, TSR_PASS_FORWARD));
    return tsr__stack_end(s, layer, unit, tsr_layer_forward(layer, x, saved, y));
}

static tsr_status layer_backward(tsr_stack *s, tsr_layer *layer, int unit,
                                 const tsr_layer_saved *saved, const tsr_tensor *dy,
                                 tsr_tensor **dx)
{
    tsr_tensor *made = NULL;
    TSR__TRY(tsr__stack_begin(s, layer, unit, TSR_PASS_BACKWARD));
    tsr_status status = tsr_layer_backward(layer, saved, dy, dx ? &made : NULL);
    status = tsr__stack_end(s, layer, unit, status);
    if (status != TSR_OK)
        tsr_tensor_destroy(&made);
    else if (dx)
        *dx = made;
    return status;
}

/* Converts the output of the embedding to the dtype of features. */
static tsr_status convert_features(tsr_stack *s, tsr_tensor **features)
{
    tsr_tensor *converted = NULL;
    const tsr_layout *layout = tsr_tensor_layout(*features);
    if (layout->dtype == s->features)
        return TSR_OK;
    TSR__TRY(tsr_tensor_create(s->device, s->features, layout->ndim, layout->shape, &converted));
    const tsr_status status = tsr_copy(s->stream, converted, *features);
    if (status == TSR_OK)
        advance(features, converted);
    else
        tsr_tensor_destroy(&converted);
    return status;
}

/* Learned positions -------------------------------------------------------------------------- */

static tsr_tensor *position_table(const tsr_stack *s)
{
    return s->sharded ? tsr__stack_positions(s)->tensor : s->positions;
}

/* Adds the positions 0, 1, … of a sequence to features [rows, tokens, width]. */
static tsr_status add_first_positions(tsr_stack *s, tsr_tensor *features)
{
    const int64_t tokens = tsr_tensor_layout(features)->shape[1];
    tsr_tensor *rows = NULL;
    TSR__REQUIRE(tokens <= s->config->context,
                 "stack: rows of %lld tokens; the model has %lld positions", (long long)tokens,
                 (long long)s->config->context);
    TSR__TRY(tsr_tensor_slice(position_table(s), 0, 0, tokens, 1, &rows));
    const tsr_status status = tsr_binary(s->stream, features, features, rows, TSR_BINARY_ADD);
    tsr_tensor_destroy(&rows);
    return status;
}

/* Adds the positions of tokens, i32 and as many as features has rows. */
static tsr_status add_given_positions(tsr_stack *s, const tsr_tensor *positions,
                                      tsr_tensor *features)
{
    const tsr_layout *layout = tsr_tensor_layout(features);
    const int64_t rows = layout->shape[0] * layout->shape[1], shape[2] = {rows, layout->shape[2]};
    tsr_tensor *flat = NULL, *learned = NULL, *all = NULL;
    tsr_status status = tsr_tensor_reshape(positions, 1, &rows, &flat);
    if (status == TSR_OK)
        status = tsr_tensor_reshape(features, 2, shape, &all);
    if (status == TSR_OK)
        status = tsr_tensor_create(s->device, s->features, 2, shape, &learned);
    if (status == TSR_OK)
        status = tsr_index_select(s->stream, learned, position_table(s), 0, flat);
    if (status == TSR_OK)
        status = tsr_binary(s->stream, all, all, learned, TSR_BINARY_ADD);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&learned);
    tsr_tensor_destroy(&all);
    return status;
}

/* `positions` are those of the tokens; NULL: 0, 1, … in each row. */
static tsr_status add_positions(tsr_stack *s, const tsr_tensor *positions, tsr_tensor *features)
{
    if (!s->is_first || !s->config->learned_positions)
        return TSR_OK;
    TSR__TRY(tsr__stack_begin(s, NULL, s->units.positions, TSR_PASS_FORWARD));
    return tsr__stack_end(s, NULL, s->units.positions,
                          positions ? add_given_positions(s, positions, features)
                                    : add_first_positions(s, features));
}

/* Computes the gradient of the positions. It is 0 for those after the last token of a row. */
static tsr_status sum_position_grads(tsr_stack *s, const tsr_tensor *dy, tsr_tensor *grad)
{
    const int64_t used = tsr_tensor_layout(dy)->shape[1], all = tsr_tensor_layout(grad)->shape[0];
    tsr_tensor *first = NULL, *rest = NULL;
    TSR__TRY(tsr_tensor_slice(grad, 0, 0, used, 1, &first));
    tsr_status status = tsr_reduce(s->stream, first, dy, 0, TSR_REDUCE_SUM, false);
    if (status == TSR_OK && used < all)
        status = tsr_tensor_slice(grad, 0, used, all, 1, &rest);
    if (rest)
        status = tsr_fill(s->stream, rest, 0);
    tsr_tensor_destroy(&first);
    tsr_tensor_destroy(&rest);
    return status;
}

/* The same for packed rows, whose tokens have the given positions. */
static tsr_status sum_packed_position_grads(tsr_stack *s, const tsr_tensor *positions,
                                            const tsr_tensor *dy, tsr_tensor *grad)
{
    const tsr_layout *layout = tsr_tensor_layout(dy);
    const int64_t rows = layout->shape[0] * layout->shape[1], shape[2] = {rows, layout->shape[2]};
    tsr_tensor *flat = NULL, *all = NULL;
    tsr_status status = tsr_tensor_reshape(positions, 1, &rows, &flat);
    if (status == TSR_OK)
        status = tsr_tensor_reshape(dy, 2, shape, &all);
    if (status == TSR_OK)
        status = tsr__embedding_grad(s->stream, grad, all, flat, 0, false);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&all);
    return status;
}

static tsr_status positions_backward(tsr_stack *s, const tsr_tensor *positions,
                                     const tsr_tensor *dy)
{
    if (!s->config->learned_positions)
        return TSR_OK;
    TSR__TRY(tsr__stack_begin(s, NULL, s->units.positions, TSR_PASS_BACKWARD));
    tsr_tensor *grad = tsr__stack_positions(s)->grad;
    return tsr__stack_end(s, NULL, s->units.positions,
                          positions ? sum_packed_position_grads(s, positions, dy, grad)
                                    : sum_position_grads(s, dy, grad));
}

/* Forward ------------------------------------------------------------------------------------ */

/* Looks up the embeddings of tokens. Without a backward pass, they have the features' dtype if this
 * needs no exchange between ranks. */
static tsr_status embed(tsr_stack *s, const tsr_tensor *x, tsr_stack_saved *saved,
                        tsr_tensor **features)
{
    if (saved)
        return layer_forward(s, s->embedding, s->units.embedding, x, &saved->embedding, features);
    TSR__TRY(tsr__stack_begin(s, s->embedding, s->units.embedding, TSR_PASS_FORWARD));
    return tsr__stack_end(s, s->embedding, s->units.embedding,
                          tsr__embedding_forward_as(s->embedding, x, s->features, features));
}

tsr_status tsr__stack_embed(tsr_stack *s, const tsr_tensor *ids, tsr_tensor **features)
{
    TSR__TRY(embed(s, ids, NULL, features));
    tsr_status status = convert_features(s, features);
    if (status == TSR_OK && s->config->embedding_scale != 1)
        status = tsr_scale(s->stream, *features, *features, (float)s->config->embedding_scale, 0);
    if (status != TSR_OK)
        tsr_tensor_destroy(features);
    return status;
}

/* Sets the features before the first block of this stage. `positions` are those of the tokens;
 * NULL: 0, 1, … in each row. */
static tsr_status enter(tsr_stack *s, const tsr_tensor *x, const tsr_tensor *positions,
                        tsr_stack_saved *saved, tsr_tensor **features)
{
    if (!s->is_first)
        return view_of(x, features);
    TSR__TRY(embed(s, x, saved, features));
    TSR__TRY(convert_features(s, features));
    if (s->config->embedding_scale != 1)
        TSR__TRY(tsr_scale(s->stream, *features, *features, (float)s->config->embedding_scale, 0));
    return add_positions(s, positions, *features);
}

static tsr_status leave(tsr_stack *s, tsr_stack_saved *saved, tsr_tensor **features)
{
    tsr_tensor *next = NULL;
    if (!s->is_last)
        return TSR_OK;
    TSR__TRY(
        layer_forward(s, s->norm, s->units.norm, *features, saved ? &saved->norm : NULL, &next));
    advance(features, next);
    return TSR_OK;
}

static tsr_status forward_blocks(tsr_stack *s, const tsr_tensor *x, const tsr__stack_pass *pass,
                                 tsr_stack_saved *saved, tsr_tensor **features)
{
    tsr_tensor *next = NULL;
    TSR__TRY(enter(s, x, pass->documents ? pass->documents->positions : NULL, saved, features));
    TSR__TRY(tsr__stack_compute_inputs(s, x, *features, saved != NULL, pass->inputs));
    for (int i = 0; i < s->layer_count; i++) {
        TSR__TRY(tsr__stack_open_block(s, i, pass));
        const tsr_status status = layer_forward(s, s->blocks[i], s->units.first_block + i,
                                                *features, saved ? &saved->blocks[i] : NULL, &next);
        tsr__stack_close_block(s, i);
        TSR__TRY(status);
        advance(features, next);
    }
    return leave(s, saved, features);
}

/* `documents` are those of packed rows, or NULL. */
static tsr_status forward_layers(tsr_stack *s, const tsr_tensor *x, const tsr__documents *documents,
                                 tsr_stack_saved *saved, tsr_tensor **features)
{
    tsr__stack_inputs inputs = {0};
    tsr__stack_pass pass = {documents, saved ? &saved->inputs : &inputs,
                            saved ? saved->keys : NULL};
    if (!saved)
        TSR__TRY(new_keys(s, &pass.keys));
    const tsr_status status = forward_blocks(s, x, &pass, saved, features);
    tsr__stack_inputs_finish(&inputs);
    if (!saved)
        destroy_keys(pass.keys, s->layer_count);
    return status;
}

static tsr_status forward(tsr_stack *s, const tsr_tensor *x, const tsr__documents *documents,
                          tsr_stack_saved *saved, tsr_tensor **features)
{
    if (saved)
        saved->trained = ++s->trained_passes;
    const tsr__adapter_pass pass = {.pass = TSR_PASS_FORWARD,
                                    .trained = saved ? saved->trained : 0};
    TSR__TRY(tsr__stack_adapters_begin(s, &pass));
    return tsr__stack_adapters_end(s, &pass, forward_layers(s, x, documents, saved, features));
}

/* The same for rows with starts, or that a context group divides. */
static tsr_status forward_packed(tsr_stack *s, const tsr_tensor *x, const int32_t *starts,
                                 tsr_stack_saved *saved, tsr_tensor **features)
{
    tsr__documents documents = {0};
    tsr_status status = tsr__stack_documents(s, x, starts, &documents);
    if (status == TSR_OK)
        status = forward(s, x, &documents, saved, features);
    if (status == TSR_OK && saved && s->is_first && s->config->learned_positions) {
        saved->positions = documents.positions;
        documents.positions = NULL;
    }
    tsr__stack_documents_finish(&documents);
    return status;
}

tsr_status tsr_stack_forward(tsr_stack *s, const tsr_tensor *x, const int32_t *starts,
                             tsr_stack_saved **saved, tsr_tensor **y)
{
    tsr_stack_saved *own = NULL;
    tsr_tensor *features = NULL;
    TSR__REQUIRE(s && x && y, "stack: %s is NULL", !s ? "stack" : !x ? "x" : "y");
    if (saved)
        TSR__TRY(saved_create(s, &own));
    const tsr_status status = starts || s->context_group
                                  ? forward_packed(s, x, starts, own, &features)
                                  : forward(s, x, NULL, own, &features);
    if (status != TSR_OK) {
        tsr_tensor_destroy(&features);
        tsr_stack_saved_destroy(&own);
        return status;
    }
    if (saved)
        *saved = own;
    *y = features;
    return TSR_OK;
}

static tsr_status cached_block(tsr_stack *s, int index, tsr_kv_cache *cache, const tsr_tensor *x,
                               tsr_tensor **y)
{
    const int unit = s->units.first_block + index;
    TSR__TRY(tsr__stack_begin(s, s->blocks[index], unit, TSR_PASS_FORWARD));
    const tsr_status status =
        tsr_layer_forward_cached(s->blocks[index], x, cache, tsr__stack_keys_layer(s, index), y);
    return tsr__stack_end(s, s->blocks[index], unit, status);
}

static tsr_status cached_blocks(tsr_stack *s, tsr_kv_cache *cache, tsr__stack_inputs *inputs,
                                tsr_tensor **features)
{
    const tsr__stack_pass pass = {.inputs = inputs};
    tsr_tensor *next = NULL;
    for (int i = 0; i < s->layer_count; i++) {
        TSR__TRY(tsr__stack_open_block(s, i, &pass));
        const tsr_status status = cached_block(s, i, cache, *features, &next);
        tsr__stack_close_block(s, i);
        TSR__TRY(status);
        advance(features, next);
    }
    return TSR_OK;
}

/* If `leaves` is false, the last norm is left to tsr__stack_head_after_blocks. */
static tsr_status cached_layers(tsr_stack *s, const tsr_tensor *x, tsr_kv_cache *cache, bool leaves,
                                tsr_tensor **features)
{
    tsr__stack_inputs inputs = {0};
    TSR__TRY(enter(s, x, tsr__kv_cache_positions(cache), NULL, features));
    TSR__TRY(tsr__stack_compute_inputs(s, x, *features, false, &inputs));
    const tsr_status status = cached_blocks(s, cache, &inputs, features);
    tsr__stack_inputs_finish(&inputs);
    TSR__TRY(status);
    return leaves ? leave(s, NULL, features) : TSR_OK;
}

static tsr_status forward_cached(tsr_stack *s, const tsr_tensor *x, tsr_kv_cache *cache,
                                 bool leaves, tsr_tensor **features)
{
    const tsr__adapter_pass pass = {.pass = TSR_PASS_FORWARD};
    TSR__TRY(tsr__stack_adapters_begin(s, &pass));
    return tsr__stack_adapters_end(s, &pass, cached_layers(s, x, cache, leaves, features));
}

tsr_status tsr__stack_blocks_cached(tsr_stack *s, const tsr_tensor *x, tsr_kv_cache *cache,
                                    tsr_tensor **y)
{
    tsr_tensor *features = NULL;
    const tsr_status status = forward_cached(s, x, cache, false, &features);
    if (status == TSR_OK)
        *y = features;
    else
        tsr_tensor_destroy(&features);
    return status;
}

tsr_status tsr_stack_forward_cached(tsr_stack *s, const tsr_tensor *x, tsr_kv_cache *cache,
                                    tsr_tensor **y)
{
    tsr_tensor *features = NULL;
    TSR__REQUIRE(s && x && cache && y, "stack: %s is NULL",
                 !s       ? "stack"
                 : !x     ? "x"
                 : !cache ? "cache"
                          : "y");
    const tsr_status status = forward_cached(s, x, cache, true, &features);
    if (status == TSR_OK)
        *y = features;
    else
        tsr_tensor_destroy(&features);
    return status;
}

/* Backward ----------------------------------------------------------------------------------- */

/* Replaces *d, the gradient after a layer, by the gradient before it. */
static tsr_status back(tsr_stack *s, tsr_layer *layer, int unit, const tsr_layer_saved *saved,
                       tsr_tensor **d)
{
    tsr_tensor *before = NULL;
    TSR__TRY(layer_backward(s, layer, unit, saved, *d, &before));
    advance(d, before);
    return TSR_OK;
}

/* Computes the gradients of the parameters before the first block. Overwrites d. */
static tsr_status backward_entry(tsr_stack *s, const tsr_stack_saved *saved,
                                 const tsr__stack_inputs *inputs, tsr_tensor *d)
{
    TSR__TRY(tsr__stack_inputs_backward(s, inputs, d));
    TSR__TRY(positions_backward(s, saved->positions, d));
    if (s->config->embedding_scale != 1)
        TSR__TRY(tsr_scale(s->stream, d, d, (float)s->config->embedding_scale, 0));
    return layer_backward(s, s->embedding, s->units.embedding, saved->embedding, d, NULL);
}

/* Returns the first block that computes a gradient other than dx: of its own parameters, or of an
 * adapter's. */
static int first_trained(const tsr_stack *s)
{
    int first = 0;
    while (!s->adapters && first < s->layer_count && !trains(s->blocks[first]))
        first++;
    return first;
}

/* The backward pass of a block. If `dx` is NULL, only gradients of parameters are computed;
 * otherwise *dx becomes the gradient of its input. */
static tsr_status block_backward(tsr_stack *s, const tsr_stack_saved *saved,
                                 tsr__stack_inputs *inputs, int index, const tsr_tensor *dy,
                                 tsr_tensor **dx)
{
    const tsr__stack_pass pass = {.inputs = inputs, .keys = saved->keys};
    TSR__TRY(tsr__stack_open_block(s, index, &pass));
    const tsr_status status = layer_backward(s, s->blocks[index], s->units.first_block + index,
                                             saved->blocks[index], dy, dx);
    tsr__stack_close_block(s, index);
    return status;
}

/* In the first stage, dx is not needed of the first block that is trained, and of all before it, if
 * the embedding is frozen. */
static tsr_status backward_from(tsr_stack *s, const tsr_stack_saved *saved,
                                tsr__stack_inputs *inputs, tsr_tensor **d)
{
    tsr_tensor *before = NULL;
    const bool needs_input = !s->is_first || trains(s->embedding);
    const int last = needs_input ? -1 : first_trained(s);
    if (s->is_last)
        TSR__TRY(back(s, s->norm, s->units.norm, saved->norm, d));
    if (needs_input)
        TSR__TRY(tsr__stack_need_input_grads(s, inputs));
    for (int i = s->layer_count - 1; i > last; i--) {
        TSR__TRY(block_backward(s, saved, inputs, i, *d, &before));
        advance(d, before);
    }
    if (needs_input)
        return s->is_first ? backward_entry(s, saved, inputs, *d) : TSR_OK;
    return last < s->layer_count ? block_backward(s, saved, inputs, last, *d, NULL) : TSR_OK;
}

static tsr_status backward_layers(tsr_stack *s, const tsr_stack_saved *saved, tsr_tensor **d)
{
    tsr__stack_inputs inputs = saved->inputs;
    const tsr_status status = backward_from(s, saved, &inputs, d);
    tsr_tensor_destroy(&inputs.grads);
    return status;
}

static tsr_status backward(tsr_stack *s, const tsr_stack_saved *saved, tsr_tensor **d)
{
    const tsr__adapter_pass pass = {.pass = TSR_PASS_BACKWARD, .trained = saved->trained};
    TSR__TRY(tsr__stack_adapters_begin(s, &pass));
    return tsr__stack_adapters_end(s, &pass, backward_layers(s, saved, d));
}

tsr_status tsr_stack_backward(tsr_stack *s, const tsr_stack_saved *saved, const tsr_tensor *dy,
                              tsr_tensor **dx)
{
    tsr_tensor *d = NULL;
    TSR__REQUIRE(s && saved && dy, "stack: %s is NULL", !s ? "stack" : !saved ? "saved" : "dy");
    TSR__TRY(tsr__stack_check_backward(s));
    TSR__REQUIRE(s->is_first || dx, "stack: dx is NULL");
    TSR__TRY(view_of(dy, &d));
    const tsr_status status = backward(s, saved, &d);
    if (status == TSR_OK && !s->is_first)
        *dx = d;
    else
        tsr_tensor_destroy(&d);
    return status;
}

/* The head ----------------------------------------------------------------------------------- */

/* Replaces logits by c · tanh(logits · scale / c). `saved`, if not NULL, keeps the result of tanh
 * for the backward pass. */
static tsr_status cap_logits(tsr_stack *s, tsr_layer_saved *saved, tsr_tensor *logits)
{
    const double cap = s->config->logit_softcap;
    const tsr_layout *layout = tsr_tensor_layout(logits);
    tsr_tensor *bounded = NULL;
    TSR__TRY(tsr_tensor_create(s->device, layout->dtype, layout->ndim, layout->shape, &bounded));
    tsr_status status =
        tsr_scale(s->stream, bounded, logits, (float)(s->config->logit_scale / cap), 0);
    if (status == TSR_OK)
        status = tsr_unary(s->stream, bounded, bounded, TSR_UNARY_TANH);
    if (status == TSR_OK)
        status = tsr_scale(s->stream, logits, bounded, (float)cap, 0);
    if (status == TSR_OK && saved)
        tsr__layer_saved_keep(saved, bounded);
    else
        tsr_tensor_destroy(&bounded);
    return status;
}

tsr_status tsr__stack_finish_logits(tsr_stack *s, tsr_layer_saved *saved, tsr_tensor *logits)
{
    if (s->config->logit_softcap != 0)
        return cap_logits(s, saved, logits);
    return s->config->logit_scale == 1
               ? TSR_OK
               : tsr_scale(s->stream, logits, logits, (float)s->config->logit_scale, 0);
}

/* Creates a tensor with the shape of `like` and the distance tsr__row_pitch from row to row. */
static tsr_status new_pitched(tsr_device *device, const tsr_layout *like, tsr_tensor **out)
{
    const int64_t size = like->shape[like->ndim - 1];
    tsr_layout whole = *like;
    tsr_tensor *rows = NULL;
    whole.shape[whole.ndim - 1] = tsr__row_pitch(device, like->dtype, size);
    TSR__TRY(tsr_tensor_create(device, like->dtype, whole.ndim, whole.shape, &rows));
    const tsr_status status = tsr_tensor_slice(rows, like->ndim - 1, 0, size, 1, out);
    tsr_tensor_destroy(&rows);
    return status;
}

tsr_status tsr__stack_finish_logits_grad(tsr_stack *s, const tsr_layer_saved *saved,
                                         const tsr_tensor *dlogits, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(dlogits);
    const tsr_tensor *bounded = tsr__layer_saved_kept(saved);
    const float scale = (float)s->config->logit_scale;
    tsr_tensor *d = NULL;
    tsr_status status = new_pitched(s->device, layout, &d);
    if (status != TSR_OK)
        return status;
    if (bounded) { /* dlogits · scale · (1 − bounded²) */
        status = tsr_binary(s->stream, d, bounded, bounded, TSR_BINARY_MUL);
        if (status == TSR_OK)
            status = tsr_scale(s->stream, d, d, -scale, scale);
        if (status == TSR_OK)
            status = tsr_binary(s->stream, d, d, dlogits, TSR_BINARY_MUL);
    } else {
        status = tsr_scale(s->stream, d, dlogits, scale, 0);
    }
    if (status == TSR_OK)
        *out = d;
    else
        tsr_tensor_destroy(&d);
    return status;
}

/* The head's layer, with its adapters. Their dropout is that of the last forward pass. */
static tsr_status head_forward(tsr_stack *s, const tsr_tensor *hidden, tsr_layer_saved **saved,
                               tsr_tensor **logits)
{
    const tsr__adapter_pass pass = {
        .pass = TSR_PASS_FORWARD, .is_head = true, .trained = saved ? s->trained_passes : 0};
    TSR__TRY(tsr__stack_adapters_begin(s, &pass));
    const tsr_status status = tsr__stack_adapters_end(
        s, &pass, layer_forward(s, s->head, s->units.head, hidden, saved, logits));
    if (status != TSR_OK) {
        tsr_tensor_destroy(logits);
        tsr_layer_saved_destroy(saved);
    }
    return status;
}

static tsr_status head_backward(tsr_stack *s, const tsr_layer_saved *saved, const tsr_tensor *dy,
                                tsr_tensor **dhidden)
{
    const tsr__adapter_pass pass = {
        .pass = TSR_PASS_BACKWARD, .is_head = true, .trained = s->trained_passes};
    tsr_tensor *made = NULL;
    TSR__TRY(tsr__stack_adapters_begin(s, &pass));
    const tsr_status status = tsr__stack_adapters_end(
        s, &pass, layer_backward(s, s->head, s->units.head, saved, dy, &made));
    if (status == TSR_OK)
        *dhidden = made;
    else
        tsr_tensor_destroy(&made);
    return status;
}

tsr_status tsr_stack_head_forward(tsr_stack *s, const tsr_tensor *hidden, tsr_layer_saved **saved,
                                  tsr_tensor **logits)
{
    TSR__REQUIRE(s && hidden && logits, "stack: %s is NULL",
                 !s        ? "stack"
                 : !hidden ? "hidden"
                           : "logits");
    TSR__REQUIRE(s->is_last, "stack: only the last stage has the head");
    tsr_tensor *made = NULL;
    tsr_layer_saved *kept = NULL;
    TSR__TRY(head_forward(s, hidden, saved ? &kept : NULL, &made));
    const tsr_status status = tsr__stack_finish_logits(s, kept, made);
    if (status != TSR_OK) {
        tsr_tensor_destroy(&made);
        tsr_layer_saved_destroy(&kept);
        return status;
    }
    if (saved)
        *saved = kept;
    *logits = made;
    return TSR_OK;
}

tsr_status tsr__stack_head_after_blocks(tsr_stack *s, const tsr_tensor *features,
                                        tsr_tensor **logits)
{
    tsr_tensor *hidden = NULL;
    *logits = NULL;
    if (!s->sharded)
        TSR__TRY(
            tsr__column_forward_normed(s->head, s->norm, features, false, TSR_ACT_NONE, logits));
    if (*logits) {
        const tsr_status finished = tsr__stack_finish_logits(s, NULL, *logits);
        if (finished != TSR_OK)
            tsr_tensor_destroy(logits);
        return finished;
    }
    TSR__TRY(layer_forward(s, s->norm, s->units.norm, features, NULL, &hidden));
    const tsr_status status = tsr_stack_head_forward(s, hidden, NULL, logits);
    tsr_tensor_destroy(&hidden);
    return status;
}

tsr_status tsr_stack_head_backward(tsr_stack *s, const tsr_layer_saved *saved,
                                   const tsr_tensor *dlogits, tsr_tensor **dhidden)
{
    TSR__REQUIRE(s && saved && dlogits && dhidden, "stack: %s is NULL",
                 !s         ? "stack"
                 : !saved   ? "saved"
                 : !dlogits ? "dlogits"
                            : "dhidden");
    TSR__REQUIRE(s->is_last, "stack: only the last stage has the head");
    TSR__TRY(tsr__stack_check_backward(s));
    if (!tsr__stack_finishes_logits(s))
        return head_backward(s, saved, dlogits, dhidden);
    tsr_tensor *d = NULL;
    TSR__TRY(tsr__stack_finish_logits_grad(s, saved, dlogits, &d));
    const tsr_status status = head_backward(s, saved, d, dhidden);
    tsr_tensor_destroy(&d);
    return status;
}

tsr_status tsr_stack_gather_logits(tsr_stack *s, const tsr_tensor *logits, float *out)
{
    TSR__REQUIRE(s && logits && out, "stack: %s is NULL",
                 !s        ? "stack"
                 : !logits ? "logits"
                           : "out");
    const tsr_layout *layout = tsr_tensor_layout(logits);
    const int64_t own = s->vocabulary[tsr_group_rank(s->group)], vocabulary = s->config->vocabulary;
    TSR__REQUIRE(layout->ndim == 3 && layout->shape[2] == own,
                 "stack: logits are not [rows, tokens, %lld]", (long long)own);
    const int64_t rows = layout->shape[0] * layout->shape[1];
    tsr_tensor *flat = NULL, *wide = NULL, *all = NULL;
    tsr_status status = tsr_tensor_reshape(logits, 2, (int64_t[]){rows, own}, &flat);
    if (status == TSR_OK && own == vocabulary && layout->dtype == TSR_F32 &&
        tsr_group_size(s->group) == 1) {
        status =
            tsr_tensor_download(s->stream, flat, out, (uint64_t)(rows * vocabulary) * sizeof *out);
        tsr_tensor_destroy(&flat);
        return status;
    }
    if (status == TSR_OK && layout->dtype != TSR_F32) {
        status = tsr_tensor_create(s->device, TSR_F32, 2, (int64_t[]){rows, own}, &wide);
        if (status == TSR_OK)
            status = tsr_copy(s->stream, wide, flat);
    }
    if (status == TSR_OK)
        status = tsr_tensor_create(s->device, TSR_F32, 2, (int64_t[]){rows, vocabulary}, &all);
    if (status == TSR_OK)
        status = tsr_group_all_gather(s->group, all, wide ? wide : flat, 1,
                                      tsr_collective_params(.sizes = s->vocabulary), NULL);
    if (status == TSR_OK)
        status =
            tsr_tensor_download(s->stream, all, out, (uint64_t)(rows * vocabulary) * sizeof *out);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&wide);
    tsr_tensor_destroy(&all);
    return status;
}
