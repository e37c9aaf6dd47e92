/* The first of a model's layers that predict further tokens: a block like those with attention. Its
 * input is a product with a norm of the embedding and a norm of the features before. Such files
 * have been trained with features after the model's last norm. The output has a norm of its own,
 * and the model's head. */
#include "base/error.h"
#include "gpu/internal.h"
#include "model/config/config.h"
#include "model/stack/stack.h"

/* Creating ----------------------------------------------------------------------------------- */

static tsr_status create_norm(const tsr_stack *s, const tsr__stack_options *o, const char *ours,
                              tsr_layer **out)
{
    const tsr_model_config *c = s->config;
    return tsr_norm_create(
        tsr_norm_params(.group = s->group, .name = tsr__stack_layer_name(s, ours), .size = c->width,
                        .kind = c->norm, .bias = c->norm_bias, .epsilon = (float)c->norm_epsilon,
                        .dtype = o->norm_dtype, .deferred = true),
        out);
}

tsr_status tsr__stack_create_next(tsr_stack *s, const tsr__stack_options *o)
{
    tsr__stack_next *n = &s->next;
    const tsr_init_params none = {.struct_size = sizeof none, .kind = TSR_INIT_NONE};
    TSR__TRY(create_norm(s, o, "next.embedding_norm", &n->embedding_norm));
    TSR__TRY(create_norm(s, o, "next.hidden_norm", &n->hidden_norm));
    TSR__TRY(tsr_column_linear_create(
        tsr_linear_params(.group = s->group, .name = tsr__stack_layer_name(s, "next.join"),
                          .input_size = 2 * s->config->width, .output_size = s->config->width,
                          .output = TSR_LAYOUT_FULL, .dtype = s->dtype, .partition = &o->partition,
                          .init = &none, .deferred = true),
        &n->join));
    TSR__TRY(create_norm(s, o, "next.norm", &n->norm));
    const tsr_status status = tsr__stack_create_block(s, o, 0, s->config->layers, &n->block);
    return status == TSR_OK ? TSR_OK
                            : tsr__fail_context(status, "model: layer %d", s->config->layers);
}

void tsr__stack_destroy_next(tsr_stack *s)
{
    tsr_layer_destroy(&s->next.embedding_norm);
    tsr_layer_destroy(&s->next.hidden_norm);
    tsr_layer_destroy(&s->next.join);
    tsr_layer_destroy(&s->next.block);
    tsr_layer_destroy(&s->next.norm);
}

/* Passes ------------------------------------------------------------------------------------- */

/* Copies the norm of x to columns first … first + width − 1 of `both`. */
static tsr_status put_norm(const tsr_stack *s, tsr_layer *norm, const tsr_tensor *x, int64_t first,
                           const tsr_tensor *both)
{
    tsr_tensor *normed = NULL, *columns = NULL;
    tsr_status status = tsr_layer_forward(norm, x, NULL, &normed);
    if (status == TSR_OK)
        status = tsr_tensor_slice(both, 2, first, first + s->config->width, 1, &columns);
    if (status == TSR_OK)
        status = tsr_copy(s->stream, columns, normed);
    tsr_tensor_destroy(&normed);
    tsr_tensor_destroy(&columns);
    return status;
}

/* Computes the input of the block from the embeddings and the features after the last norm. */
static tsr_status join(const tsr_stack *s, const tsr_tensor *embedded, const tsr_tensor *hidden,
                       tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(hidden);
    const int64_t width = s->config->width,
                  shape[3] = {layout->shape[0], layout->shape[1], 2 * width};
    tsr_tensor *both = NULL;
    TSR__TRY(tsr_tensor_create(s->device, s->features, 3, shape, &both));
    tsr_status status = put_norm(s, s->next.embedding_norm, embedded, 0, both);
    if (status == TSR_OK)
        status = put_norm(s, s->next.hidden_norm, hidden, width, both);
    if (status == TSR_OK)
        status = tsr_layer_forward(s->next.join, both, NULL, out);
    tsr_tensor_destroy(&both);
    return status;
}

tsr_status tsr__stack_next_forward(tsr_stack *s, const tsr_tensor *ids, const tsr_tensor *hidden,
                                   bool normed, tsr_kv_cache *cache, tsr_tensor **features)
{
    tsr_tensor *embedded = NULL, *last = NULL, *x = NULL;
    tsr_status status = tsr__stack_embed(s, ids, &embedded);
    if (status == TSR_OK && !normed)
        status = tsr_layer_forward(s->norm, hidden, NULL, &last);
    if (status == TSR_OK)
        status = join(s, embedded, normed ? hidden : last, &x);
    if (status == TSR_OK)
        status = tsr_layer_forward_cached(s->next.block, x, cache, 0, features);
    tsr_tensor_destroy(&embedded);
    tsr_tensor_destroy(&last);
    tsr_tensor_destroy(&x);
    return status;
}

tsr_status tsr__stack_next_logits(tsr_stack *s, const tsr_tensor *features, tsr_tensor **hidden,
                                  tsr_tensor **logits)
{
    TSR__TRY(tsr_layer_forward(s->next.norm, features, NULL, hidden));
    const tsr_status status = tsr_stack_head_forward(s, *hidden, NULL, logits);
    if (status != TSR_OK)
        tsr_tensor_destroy(hidden);
    return status;
}
