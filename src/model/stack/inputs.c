/* The inputs that some models give each layer beside the features: for token t and layer l
 *
 *    p_l = (table[t]_l · √P + norm(projection · x / √width)_l) / √2
 *
 * with P features, where x is the scaled embedding of t. Source: Gemma4TextModel in Hugging Face
 * Transformers. */
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/stack/stack.h"
#include "tessera/ops.h"

static tsr_status create_projection(tsr_stack *s, int64_t features)
{
    return tsr__whole_linear_create(tsr_linear_params(.group = s->group, .name = "input_projection",
                                                      .input_size = s->config->width,
                                                      .output_size = features, .dtype = s->dtype,
                                                      .deferred = true),
                                    &s->input_projection);
}

tsr_status tsr__stack_create_inputs(tsr_stack *s, const tsr_partition_params *partition,
                                    tsr_dtype norm_dtype)
{
    const tsr_model_config *c = s->config;
    const int64_t features = c->layer_input * c->layers;
    if (!s->is_first || !s->is_last)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "model: layers have inputs of their own, which need the tokens: such a "
                         "model cannot be divided into stages");
    TSR__TRY(tsr_embedding_create(tsr_embedding_params(.group = s->group, .name = "input_table",
                                                       .vocabulary_size = c->vocabulary,
                                                       .width = features, .dtype = s->dtype,
                                                       .partition = partition, .deferred = true),
                                  &s->input_table));
    TSR__TRY(create_projection(s, features));
    s->inputs = tsr__calloc((size_t)s->layer_count, sizeof *s->inputs);
    if (!s->inputs)
        return TSR_ERR_NO_MEMORY;
    return tsr_norm_create(tsr_norm_params(.group = s->group, .name = "input_norm",
                                           .size = c->layer_input, .kind = TSR_NORM_RMS,
                                           .epsilon = (float)c->norm_epsilon, .dtype = norm_dtype,
                                           .deferred = true),
                           &s->input_norm);
}

/* Replaces *x by its view [.., layers, P]. */
static tsr_status by_layers(const tsr_stack *s, tsr_tensor **x)
{
    const tsr_layout *l = tsr_tensor_layout(*x);
    const int64_t shape[4] = {l->shape[0], l->shape[1], s->config->layers, s->config->layer_input};
    tsr_tensor *view = NULL;
    TSR__TRY(tsr_tensor_reshape(*x, 4, shape, &view));
    tsr_tensor_destroy(x);
    *x = view;
    return TSR_OK;
}

/* *out = norm(projection · x / √width), [.., layers, P]. */
static tsr_status project(tsr_stack *s, const tsr_tensor *x, tsr_tensor **out)
{
    tsr_tensor *projected = NULL;
    TSR__TRY(tsr_layer_forward(s->input_projection, x, NULL, &projected));
    tsr_status status =
        tsr_scale(s->stream, projected, projected, 1 / sqrtf((float)s->config->width), 0);
    if (status == TSR_OK)
        status = by_layers(s, &projected);
    if (status == TSR_OK)
        status = tsr_layer_forward(s->input_norm, projected, NULL, out);
    tsr_tensor_destroy(&projected);
    return status;
}

static tsr_status compute(tsr_stack *s, const tsr_tensor *ids, const tsr_tensor *x,
                          tsr_tensor **all)
{
    const float root = sqrtf(2);
    tsr_tensor *rows = NULL, *projected = NULL;
    TSR__TRY(tsr__embedding_forward_as(s->input_table, ids, s->features, &rows));
    tsr_status status = by_layers(s, &rows);
    if (status == TSR_OK)
        status = project(s, x, &projected);
    if (status == TSR_OK) /* the sum, with the dtype of features */
        status = tsr_scale(s->stream, projected, projected, 1 / root, 0);
    if (status == TSR_OK)
        status = tsr_axpy(s->stream, projected, sqrtf((float)s->config->layer_input) / root, rows);
    tsr_tensor_destroy(&rows);
    if (status == TSR_OK)
        *all = projected;
    else
        tsr_tensor_destroy(&projected);
    return status;
}

tsr_status tsr__stack_begin_inputs(tsr_stack *s, const tsr_tensor *ids, const tsr_tensor *x,
                                   tsr_tensor **all)
{
    if (!s->input_table)
        return TSR_OK;
    TSR__TRY(compute(s, ids, x, all));
    for (int i = 0; i < s->layer_count; i++) {
        const tsr_status status = tsr_tensor_select(*all, 2, i, &s->inputs[i]);
        if (status != TSR_OK) {
            tsr__stack_end_inputs(s, all);
            return status;
        }
        tsr__block_set_input(s->blocks[i], s->inputs[i]);
    }
    return TSR_OK;
}

void tsr__stack_end_inputs(tsr_stack *s, tsr_tensor **all)
{
    for (int i = 0; *all && i < s->layer_count; i++) {
        tsr__block_set_input(s->blocks[i], NULL);
        tsr_tensor_destroy(&s->inputs[i]);
    }
    tsr_tensor_destroy(all);
}
