#include "passes.h"

#include <stdlib.h>

#define TIED 0 /* the number of the only unit of `tied` */

tsr_status passage_init(const gpt_model *self, passage *p)
{
    *p = (passage){.blocks = calloc((size_t)self->block_count, sizeof *p->blocks)};
    return p->blocks ? TSR_OK : TSR_ERR_NO_MEMORY;
}

void passage_finish(const gpt_model *self, passage *p)
{
    tsr_layer_saved_destroy(&p->embedding);
    for (int i = 0; p->blocks && i < self->block_count; i++)
        tsr_layer_saved_destroy(&p->blocks[i]);
    free(p->blocks);
    tsr_layer_saved_destroy(&p->norm);
    tsr_layer_saved_destroy(&p->head);
    tsr_tensor_destroy(&p->at);
    tsr_tensor_destroy(&p->logits);
    *p = (passage){0};
}

/* Replaces the features by a layer's output. */
static void advance(passage *p, tsr_tensor *next)
{
    tsr_tensor_destroy(&p->at);
    p->at = next;
}

static tsr_status view(const tsr_tensor *tensor, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    return tsr_tensor_reshape(tensor, layout->ndim, layout->shape, out);
}

/* The embedding and the head --------------------------------------------------------------------
 *
 * If the head is the embedding, both borrow the parameter that they share. */

static tsr_status lend(gpt_model *self, tsr_layer *layer, tsr_pass pass)
{
    TRY(tsr_fsdp_begin(self->tied, TIED, pass));
    const tsr_parameter *p = tsr_fsdp_parameter(self->tied, TIED, 0);
    return tsr_layer_set_parameter(layer, 0, p->tensor, p->grad, false);
}

static tsr_status take_back(gpt_model *self, tsr_layer *layer)
{
    TRY(tsr_layer_set_parameter(layer, 0, NULL, NULL, false));
    return tsr_fsdp_end(self->tied, TIED);
}

/* Runs the embedding or the head forward. `unit` is its unit in `sharded`; tied layers have
 * none. */
static tsr_status end_forward(gpt_model *self, tsr_layer *layer, int unit, const tsr_tensor *x,
                              tsr_layer_saved **saved, tsr_tensor **y)
{
    if (!self->tied)
        return tsr_fsdp_forward(self->sharded, unit, x, saved, y);
    TRY(lend(self, layer, TSR_PASS_FORWARD));
    TRY(tsr_layer_forward(layer, x, saved, y));
    return take_back(self, layer);
}

static tsr_status end_backward(gpt_model *self, tsr_layer *layer, int unit,
                               const tsr_layer_saved *saved, const tsr_tensor *dy, tsr_tensor **dx)
{
    if (!self->tied)
        return tsr_fsdp_backward(self->sharded, unit, saved, dy, dx);
    TRY(lend(self, layer, TSR_PASS_BACKWARD));
    TRY(tsr_layer_backward(layer, saved, dy, dx));
    return take_back(self, layer);
}

/* Positions ---------------------------------------------------------------------------------- */

static bool has_positions(const gpt_model *self)
{
    return self->config.style == GPT_STYLE_GPT2;
}

/* Computes the features plus the learned positions first, first + 1, … of a sequence's tokens. */
static tsr_status sum_positions(gpt_model *self, const passage *p, int64_t first, tsr_tensor *sum)
{
    const int64_t count = tsr_tensor_layout(p->at)->shape[1];
    tsr_tensor *rows = NULL;
    TRY(tsr_fsdp_begin(self->sharded, self->positions_unit, TSR_PASS_FORWARD));
    TRY(tsr_tensor_slice(tsr_fsdp_parameter(self->sharded, self->positions_unit, 0)->tensor, 0,
                         first, first + count, 1, &rows));
    tsr_status status = tsr_add(self->job->stream, sum, p->at, rows);
    tsr_tensor_destroy(&rows);
    TRY(status);
    return tsr_fsdp_end(self->sharded, self->positions_unit);
}

static tsr_status add_positions(gpt_model *self, passage *p, int64_t first)
{
    tsr_tensor *sum = NULL;
    if (!has_positions(self))
        return TSR_OK;
    TRY(create_like(self->job->device, p->at, &sum));
    tsr_status status = sum_positions(self, p, first, sum);
    if (status == TSR_OK)
        advance(p, sum);
    else
        tsr_tensor_destroy(&sum);
    return status;
}

/* Computes the gradient of the learned positions. It is 0 for those after the last token of a
 * window. */
static tsr_status sum_position_grads(gpt_model *self, const tsr_tensor *dy, tsr_tensor *grad)
{
    const int64_t count = tsr_tensor_layout(dy)->shape[1], all = tsr_tensor_layout(grad)->shape[0];
    tsr_stream *stream = self->job->stream;
    tsr_tensor *used = NULL, *unused = NULL;
    TRY(tsr_tensor_slice(grad, 0, 0, count, 1, &used));
    tsr_status status = tsr_reduce(stream, used, dy, 0, TSR_REDUCE_SUM, false);
    if (status == TSR_OK && count < all)
        status = tsr_tensor_slice(grad, 0, count, all, 1, &unused);
    if (unused)
        status = tsr_fill(stream, unused, 0);
    tsr_tensor_destroy(&used);
    tsr_tensor_destroy(&unused);
    return status;
}

static tsr_status positions_backward(gpt_model *self, const tsr_tensor *dy)
{
    if (!has_positions(self))
        return TSR_OK;
    TRY(tsr_fsdp_begin(self->sharded, self->positions_unit, TSR_PASS_BACKWARD));
    TRY(sum_position_grads(self, dy,
                           tsr_fsdp_parameter(self->sharded, self->positions_unit, 0)->grad));
    return tsr_fsdp_end(self->sharded, self->positions_unit);
}

/* Forward ------------------------------------------------------------------------------------ */

/* Sets the features before the first block of this stage. */
static tsr_status enter(gpt_model *self, const tsr_tensor *tokens, const tsr_tensor *x,
                        int64_t first, bool learning, passage *p)
{
    if (!self->is_first)
        return view(x, &p->at);
    TRY(end_forward(self, self->embedding, self->embedding_unit, tokens,
                    learning ? &p->embedding : NULL, &p->at));
    return add_positions(self, p, first);
}

static tsr_status leave(gpt_model *self, bool learning, passage *p)
{
    tsr_tensor *next = NULL;
    if (!self->is_last)
        return TSR_OK;
    TRY(tsr_fsdp_forward(self->sharded, self->norm_unit, p->at, learning ? &p->norm : NULL, &next));
    advance(p, next);
    return end_forward(self, self->head, self->head_unit, p->at, learning ? &p->head : NULL,
                       &p->logits);
}

tsr_status passes_forward(gpt_model *self, const tsr_tensor *tokens, const tsr_tensor *x,
                          bool learning, passage *p)
{
    tsr_tensor *next = NULL;
    TRY(enter(self, tokens, x, 0, learning, p));
    for (int i = 0; i < self->block_count; i++) {
        TRY(tsr_fsdp_forward(self->sharded, self->block_unit + i, p->at,
                             learning ? &p->blocks[i] : NULL, &next));
        advance(p, next);
    }
    return leave(self, learning, p);
}

/* Runs a block with the cache. Its parameters are gathered for the call. */
static tsr_status forward_cached(gpt_model *self, int block, tsr_kv_cache *cache, passage *p)
{
    int unit = self->block_unit + block;
    tsr_tensor *next = NULL;
    TRY(tsr_fsdp_begin(self->sharded, unit, TSR_PASS_FORWARD));
    TRY(tsr_layer_forward_cached(self->blocks[block], p->at, cache, block, &next));
    advance(p, next);
    return tsr_fsdp_end(self->sharded, unit);
}

tsr_status passes_cached(gpt_model *self, const tsr_tensor *tokens, const tsr_tensor *x,
                         tsr_kv_cache *cache, int64_t first, passage *p)
{
    tsr_tensor *last = NULL;
    TRY(enter(self, tokens, x, first, false, p));
    for (int i = 0; i < self->block_count; i++)
        TRY(forward_cached(self, i, cache, p));
    if (!self->is_last)
        return TSR_OK;
    int64_t count = tsr_tensor_layout(p->at)->shape[1];
    TRY(tsr_tensor_slice(p->at, 1, count - 1, count, 1, &last));
    advance(p, last);
    return leave(self, false, p);
}

/* Backward ----------------------------------------------------------------------------------- */

/* Replaces *d, the gradient after a unit, by the gradient before it. */
static tsr_status back(gpt_model *self, int unit, const tsr_layer_saved *saved, tsr_tensor **d)
{
    tsr_tensor *before = NULL;
    TRY(tsr_fsdp_backward(self->sharded, unit, saved, *d, &before));
    tsr_tensor_destroy(d);
    *d = before;
    return TSR_OK;
}

static tsr_status backward_from(gpt_model *self, const passage *p, tsr_tensor **d)
{
    if (self->is_last)
        TRY(back(self, self->norm_unit, p->norm, d));
    for (int i = self->block_count - 1; i >= 0; i--)
        TRY(back(self, self->block_unit + i, p->blocks[i], d));
    if (!self->is_first)
        return TSR_OK;
    TRY(positions_backward(self, *d));
    return end_backward(self, self->embedding, self->embedding_unit, p->embedding, *d, NULL);
}

tsr_status passes_backward(gpt_model *self, const passage *p, const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr_tensor *d = NULL;
    TRY(self->is_last ? end_backward(self, self->head, self->head_unit, p->head, dy, &d)
                      : view(dy, &d));
    tsr_status status = backward_from(self, p, &d);
    if (status == TSR_OK && !self->is_first)
        *dx = d;
    else
        tsr_tensor_destroy(&d);
    return status;
}
