/* What blocks get in a pass beside the features: the documents of packed rows, keys and values of
 * other layers, and the inputs that some models give each layer. These are, for token t and layer l
 *
 *    p_l = (table[t]_l · √P + norm(projection · x / √width)_l) / √2
 *
 * with P features, where x is the scaled embedding of t. Source: Gemma4TextModel in Hugging Face
 * Transformers. */
#include <math.h>

#include "base/error.h"
#include "model/stack/stack.h"
#include "parallel/internal.h"
#include "tessera/ops.h"

static tsr_status create_projection(tsr_stack *s, int64_t features, const tsr_init_params *init)
{
    return tsr__whole_linear_create(tsr_linear_params(.group = s->group, .name = "input_projection",
                                                      .input_size = s->config->width,
                                                      .output_size = features, .dtype = s->dtype,
                                                      .init = init, .deferred = true),
                                    &s->input_projection);
}

tsr_status tsr__stack_create_inputs(tsr_stack *s, const tsr_partition_params *partition,
                                    const tsr_init_params *init, tsr_dtype norm_dtype)
{
    const tsr_model_config *c = s->config;
    const int64_t features = c->layer_input * c->layers;
    if (!s->is_first || !s->is_last)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "model: layers have inputs of their own, which need the tokens: such a "
                         "model cannot be divided into stages");
    TSR__TRY(tsr_embedding_create(
        tsr_embedding_params(.group = s->group, .name = "input_table",
                             .vocabulary_size = c->vocabulary, .width = features, .dtype = s->dtype,
                             .partition = partition, .init = init, .deferred = true),
        &s->input_table));
    TSR__TRY(create_projection(s, features, init));
    return tsr_norm_create(tsr_norm_params(.group = s->group, .name = "input_norm",
                                           .size = c->layer_input, .kind = TSR_NORM_RMS,
                                           .epsilon = (float)c->norm_epsilon, .dtype = norm_dtype,
                                           .deferred = true),
                           &s->input_norm);
}

/* Replaces *x by a view with another last dimension: [.., layers, P], or [.., layers · P]. */
static tsr_status split(tsr_tensor **x, int ndim, const int64_t *shape)
{
    tsr_tensor *view = NULL;
    TSR__TRY(tsr_tensor_reshape(*x, ndim, shape, &view));
    tsr_tensor_destroy(x);
    *x = view;
    return TSR_OK;
}

static tsr_status by_layers(const tsr_stack *s, tsr_tensor **x)
{
    const tsr_layout *l = tsr_tensor_layout(*x);
    const int64_t shape[4] = {l->shape[0], l->shape[1], s->config->layers, s->config->layer_input};
    return split(x, 4, shape);
}

static tsr_status joined(const tsr_stack *s, tsr_tensor **x)
{
    const tsr_layout *l = tsr_tensor_layout(*x);
    const int64_t shape[3] = {l->shape[0], l->shape[1], s->config->layers * s->config->layer_input};
    return split(x, 3, shape);
}

/* The factors of the table's rows, of the projection, and of its norm. */
typedef struct factors {
    float rows, projection, normed;
} factors;

static factors factors_of(const tsr_stack *s)
{
    const float half = 1 / sqrtf(2);
    return (factors){sqrtf((float)s->config->layer_input) * half,
                     1 / sqrtf((float)s->config->width), half};
}

/* Forward ------------------------------------------------------------------------------------ */

/* *out = norm(projection · x / √width), [.., layers, P]. */
static tsr_status project(tsr_stack *s, const tsr_tensor *x, tsr__stack_inputs *in, bool saves,
                          tsr_tensor **out)
{
    tsr_tensor *projected = NULL;
    TSR__TRY(tsr__stack_begin(s, s->input_projection, s->units.inputs + 1, TSR_PASS_FORWARD));
    tsr_status status = tsr__stack_end(
        s, s->input_projection, s->units.inputs + 1,
        tsr_layer_forward(s->input_projection, x, saves ? &in->projection : NULL, &projected));
    if (status == TSR_OK)
        status = tsr_scale(s->stream, projected, projected, factors_of(s).projection, 0);
    if (status == TSR_OK)
        status = by_layers(s, &projected);
    if (status == TSR_OK)
        status = tsr__stack_begin(s, s->input_norm, s->units.inputs + 2, TSR_PASS_FORWARD);
    if (status == TSR_OK)
        status = tsr__stack_end(
            s, s->input_norm, s->units.inputs + 2,
            tsr_layer_forward(s->input_norm, projected, saves ? &in->norm : NULL, out));
    tsr_tensor_destroy(&projected);
    return status;
}

static tsr_status look_up(tsr_stack *s, const tsr_tensor *ids, tsr__stack_inputs *in, bool saves,
                          tsr_tensor **rows)
{
    TSR__TRY(tsr__stack_begin(s, s->input_table, s->units.inputs, TSR_PASS_FORWARD));
    TSR__TRY(
        tsr__stack_end(s, s->input_table, s->units.inputs,
                       saves ? tsr_layer_forward(s->input_table, ids, &in->table, rows)
                             : tsr__embedding_forward_as(s->input_table, ids, s->features, rows)));
    return by_layers(s, rows);
}

tsr_status tsr__stack_compute_inputs(tsr_stack *s, const tsr_tensor *ids, const tsr_tensor *x,
                                     bool saves, tsr__stack_inputs *in)
{
    tsr_tensor *rows = NULL, *projected = NULL;
    if (!s->input_table)
        return TSR_OK;
    saves = saves && !tsr__layer_is_frozen(s->input_table);
    tsr_status status = look_up(s, ids, in, saves, &rows);
    if (status == TSR_OK)
        status = project(s, x, in, saves, &projected);
    if (status == TSR_OK) /* the sum, with the dtype of features */
        status = tsr_scale(s->stream, projected, projected, factors_of(s).normed, 0);
    if (status == TSR_OK)
        status = tsr_axpy(s->stream, projected, factors_of(s).rows, rows);
    tsr_tensor_destroy(&rows);
    if (status == TSR_OK)
        in->all = projected;
    else
        tsr_tensor_destroy(&projected);
    return status;
}

void tsr__stack_inputs_finish(tsr__stack_inputs *in)
{
    tsr_tensor_destroy(&in->all);
    tsr_tensor_destroy(&in->grads);
    tsr_layer_saved_destroy(&in->table);
    tsr_layer_saved_destroy(&in->projection);
    tsr_layer_saved_destroy(&in->norm);
}

/* What blocks get in a pass ------------------------------------------------------------------ */

tsr_status tsr__stack_open_block(tsr_stack *s, int index, const tsr__stack_pass *pass)
{
    tsr_layer *block = s->blocks[index];
    tsr__layer_set_documents(block, pass->documents);
    if (pass->keys && s->keys_of[index] >= 0)
        tsr__layer_set_shared_keys(block, &pass->keys[s->keys_of[index]]);
    if (!pass->inputs || !pass->inputs->all)
        return TSR_OK;
    tsr_status status = tsr_tensor_select(pass->inputs->all, 2, index, &s->input);
    if (status == TSR_OK && pass->inputs->grads)
        status = tsr_tensor_select(pass->inputs->grads, 2, index, &s->input_grad);
    tsr__block_set_input(block, s->input, s->input_grad);
    if (status != TSR_OK)
        tsr__stack_close_block(s, index);
    return status;
}

void tsr__stack_close_block(tsr_stack *s, int index)
{
    tsr_layer *block = s->blocks[index];
    tsr__layer_set_documents(block, NULL);
    tsr__layer_set_shared_keys(block, NULL);
    tsr__block_set_input(block, NULL, NULL);
    tsr_tensor_destroy(&s->input);
    tsr_tensor_destroy(&s->input_grad);
}

/* Backward ----------------------------------------------------------------------------------- */

tsr_status tsr__stack_need_input_grads(tsr_stack *s, tsr__stack_inputs *in)
{
    if (!in->all || in->grads || tsr__layer_is_frozen(s->input_table))
        return TSR_OK;
    const tsr_layout *l = tsr_tensor_layout(in->all);
    return tsr_tensor_create(s->device, l->dtype, l->ndim, l->shape, &in->grads);
}

/* A backward pass of one of the three layers, whose output is the dy that it destroys. */
static tsr_status back(tsr_stack *s, tsr_layer *layer, int number, const tsr_layer_saved *saved,
                       tsr_tensor **dy, tsr_tensor **dx)
{
    tsr_tensor *made = NULL;
    tsr_status status = tsr__stack_begin(s, layer, s->units.inputs + number, TSR_PASS_BACKWARD);
    if (status == TSR_OK)
        status = tsr__stack_end(s, layer, s->units.inputs + number,
                                tsr_layer_backward(layer, saved, *dy, dx ? &made : NULL));
    tsr_tensor_destroy(dy);
    if (status != TSR_OK)
        tsr_tensor_destroy(&made);
    else if (dx)
        *dx = made;
    return status;
}

/* *out = factor · the gradients of the inputs, in new memory. */
static tsr_status scaled(tsr_stack *s, const tsr_tensor *grads, float factor, tsr_tensor **out)
{
    const tsr_layout *l = tsr_tensor_layout(grads);
    TSR__TRY(tsr_tensor_create(s->device, l->dtype, l->ndim, l->shape, out));
    const tsr_status status = tsr_scale(s->stream, *out, grads, factor, 0);
    if (status != TSR_OK)
        tsr_tensor_destroy(out);
    return status;
}

tsr_status tsr__stack_inputs_backward(tsr_stack *s, const tsr__stack_inputs *in, tsr_tensor *d)
{
    tsr_tensor *dy = NULL, *dx = NULL;
    if (!in->grads)
        return TSR_OK;
    TSR__TRY(scaled(s, in->grads, factors_of(s).normed, &dy));
    TSR__TRY(back(s, s->input_norm, 2, in->norm, &dy, &dx));
    tsr_status status = tsr_scale(s->stream, dx, dx, factors_of(s).projection, 0);
    if (status == TSR_OK)
        status = joined(s, &dx);
    if (status != TSR_OK) {
        tsr_tensor_destroy(&dx);
        return status;
    }
    dy = dx;
    dx = NULL;
    TSR__TRY(back(s, s->input_projection, 1, in->projection, &dy, &dx));
    status = tsr_axpy(s->stream, d, 1, dx);
    tsr_tensor_destroy(&dx);
    TSR__TRY(status);
    TSR__TRY(scaled(s, in->grads, factors_of(s).rows, &dy));
    status = joined(s, &dy);
    if (status != TSR_OK) {
        tsr_tensor_destroy(&dy);
        return status;
    }
    return back(s, s->input_table, 0, in->table, &dy, NULL);
}
