/* Vocabulary-parallel embedding. Each rank looks up the indices that are in its shard of the table
 * and uses zeros for all others. The results are then summed over the ranks. For each element only
 * one rank has a value other than 0, so the sum is exact. */
#include "gpu/internal.h"

#include "base/alloc.h"
#include "base/struct_size.h"
#include "parallel/internal.h"
#include "parallel/layers/layer.h"

typedef struct embedding {
    tsr_layer base; /* parameter 0 is the table */
    int64_t vocabulary_size, width;
    tsr__division division; /* the shards of the vocabulary */
    tsr_layer_layout output;
    int sequence_dim;
} embedding;

static void embedding_finish(tsr_layer *layer)
{
    tsr__free(((embedding *)layer)->division.sizes);
}

/* Converts indices of any shape to a tensor of one dimension. */
static tsr_status flat_indices(tsr__temps *temps, const tsr_tensor *x, tsr_tensor **out)
{
    const int64_t count = tsr_layout_count(tsr_tensor_layout(x));
    return tsr__temp_reshape_any(temps, x, 1, &count, out);
}

static tsr_status check_indices(const embedding *e, const tsr_tensor *x)
{
    const tsr_layer *layer = &e->base;
    const tsr_layout *layout = tsr_tensor_layout(x);
    TSR__REQUIRE(tsr__tensor_device(x) == layer->device, "%s: x is on another device", layer->who);
    TSR__REQUIRE(layout->dtype == TSR_I32 || layout->dtype == TSR_I64 || layout->dtype == TSR_U32 ||
                     layout->dtype == TSR_U8,
                 "%s: x is %s; i32, i64, u32 or u8 is needed", layer->who,
                 tsr_dtype_name(layout->dtype));
    TSR__REQUIRE(layout->ndim < TSR_MAX_DIMS, "%s: x has %d dimensions; at most %d are possible",
                 layer->who, layout->ndim, TSR_MAX_DIMS - 1);
    return TSR_OK;
}

/* Gets the shape of the full y, the shape of this rank's shard, and the dimension along which y is
 * divided (-1: y is not divided). */
static tsr_status output_shape(const embedding *e, const tsr_tensor *x, tsr_layout *whole,
                               tsr_layout *shard, int *dim)
{
    const tsr_layer *layer = &e->base;
    *whole = *tsr_tensor_layout(x);
    whole->shape[whole->ndim++] = e->width;
    *shard = *whole;
    *dim = -1;
    if (e->output == TSR_LAYOUT_SEQUENCE)
        TSR__TRY(tsr__layer_has_sequence_dim(layer, e->sequence_dim, whole));
    if (layer->size == 1 || e->output == TSR_LAYOUT_FULL)
        return TSR_OK;
    *dim = e->sequence_dim;
    TSR__REQUIRE(whole->shape[*dim] % layer->size == 0,
                 "%s: dimension %d of %s is not divisible by %d ranks", layer->who, *dim,
                 TSR__SHAPE(whole->ndim, whole->shape), layer->size);
    shard->shape[*dim] /= layer->size;
    return TSR_OK;
}

/* `dtype` is that of y. With several ranks it must be the table's, because the ranks exchange y. */
static tsr_status embedding_forward_with(embedding *e, tsr__temps *temps, const tsr_tensor *x,
                                         tsr_dtype dtype, tsr_tensor **y)
{
    tsr_layer *layer = &e->base;
    tsr_layout whole, shard;
    int dim;
    tsr_tensor *indices, *sum, *sum2, *local;
    TSR__TRY(check_indices(e, x));
    TSR__TRY(output_shape(e, x, &whole, &shard, &dim));
    tsr_tensor *table = layer->parameter[0]->seen.tensor;
    TSR__TRY(flat_indices(temps, x, &indices));
    TSR__TRY(tsr__temp_new(temps, dtype, whole.ndim, whole.shape, &sum));
    TSR__TRY(tsr__temp_flatten(temps, sum, &sum2));
    TSR__TRY(tsr__embedding(layer->stream, sum2, table, indices, e->division.first));
    if (dim < 0) {
        TSR__TRY(tsr_group_all_reduce(layer->group, sum, TSR_OP_SUM,
                                      tsr_collective_params(.wire = tsr__group_wire(layer->group)),
                                      NULL));
        *y = tsr__temp_take(temps, sum);
        return TSR_OK;
    }
    TSR__TRY(tsr__temp_new(temps, dtype, shard.ndim, shard.shape, &local));
    TSR__TRY(tsr_group_reduce_scatter(layer->group, local, sum, dim, TSR_OP_SUM,
                                      tsr_collective_params(.wire = tsr__group_wire(layer->group)),
                                      NULL));
    *y = tsr__temp_take(temps, local);
    return TSR_OK;
}

static tsr_status embedding_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                                    tsr_tensor **y)
{
    (void)saved;
    tsr__temps temps = {.stream = layer->stream};
    tsr_status status =
        embedding_forward_with((embedding *)layer, &temps, x, layer->parameter[0]->seen.dtype, y);
    tsr__temps_finish(&temps);
    return status;
}

tsr_status tsr__embedding_forward_as(tsr_layer *layer, const tsr_tensor *x, tsr_dtype dtype,
                                     tsr_tensor **y)
{
    tsr__temps temps = {.stream = layer->stream};
    tsr_tensor *out = NULL;
    TSR__TRY(tsr__layer_check_forward(layer));
    tsr_status status =
        embedding_forward_with((embedding *)layer, &temps, x,
                               layer->size == 1 ? dtype : layer->parameter[0]->seen.dtype, &out);
    tsr__temps_finish(&temps);
    if (status == TSR_OK)
        *y = out;
    return status;
}

static tsr_status embedding_backward_with(embedding *e, tsr__temps *temps, const tsr_tensor *x,
                                          const tsr_tensor *dy)
{
    tsr_layer *layer = &e->base;
    tsr_layout whole, shard;
    int dim;
    const tsr_tensor *full_dy = dy;
    tsr_tensor *indices, *dy2, *gathered;
    TSR__TRY(output_shape(e, x, &whole, &shard, &dim));
    TSR__REQUIRE(tsr__layout_same_shape(&shard, tsr_tensor_layout(dy)), "%s: dy is %s; y was %s",
                 layer->who, TSR__SHAPE_OF(dy), TSR__SHAPE(shard.ndim, shard.shape));
    if (dim >= 0) {
        TSR__TRY(
            tsr__temp_new(temps, tsr_tensor_layout(dy)->dtype, whole.ndim, whole.shape, &gathered));
        TSR__TRY(tsr_group_all_gather(layer->group, gathered, dy, dim,
                                      tsr_collective_params(.wire = tsr__group_wire(layer->group)),
                                      NULL));
        full_dy = gathered;
    }
    TSR__TRY(flat_indices(temps, x, &indices));
    TSR__TRY(tsr__temp_flatten(temps, full_dy, &dy2));
    TSR__TRY(tsr__parameter_need_grad(layer, 0));
    tsr__layer_parameter *table = layer->parameter[0];
    TSR__TRY(tsr__embedding_grad(layer->stream, table->seen.grad, dy2, indices, e->division.first,
                                 !table->grad_empty));
    table->grad_empty = false;
    return TSR_OK;
}

static tsr_status embedding_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                     const tsr_tensor *dy, tsr_tensor **dx)
{
    TSR__REQUIRE(!dx, "%s: indices have no gradient; dx must be NULL", layer->who);
    tsr__temps temps = {.stream = layer->stream};
    tsr_status status = embedding_backward_with((embedding *)layer, &temps, saved->x, dy);
    tsr__temps_finish(&temps);
    return status;
}

static const tsr__layer_type embedding_type = {.name = "embedding",
                                               .forward = embedding_forward,
                                               .backward = embedding_backward,
                                               .finish = embedding_finish};

static tsr_status init_embedding(embedding *e, const tsr_embedding_params *params)
{
    tsr_layer *layer = &e->base;
    TSR__REQUIRE(params->vocabulary_size >= 1 && params->vocabulary_size <= INT32_MAX &&
                     params->width >= 1,
                 "%s: vocabulary_size is %lld, width %lld; both must be at least 1, and "
                 "vocabulary_size at most 2^31 - 1",
                 layer->who, (long long)params->vocabulary_size, (long long)params->width);
    TSR__REQUIRE(params->output == TSR_LAYOUT_DEFAULT || params->output == TSR_LAYOUT_FULL ||
                     params->output == TSR_LAYOUT_SEQUENCE,
                 "%s: output %d is neither FULL nor SEQUENCE", layer->who, (int)params->output);
    tsr_init_params init;
    TSR__TRY(tsr__layer_init(layer, "init", params->init, &init));
    if (init.kind == TSR_INIT_DEFAULT) {
        init.kind = TSR_INIT_NORMAL;
        init.deviation = 0;
    }
    e->vocabulary_size = params->vocabulary_size;
    e->width = params->width;
    e->output = params->output == TSR_LAYOUT_SEQUENCE ? TSR_LAYOUT_SEQUENCE : TSR_LAYOUT_FULL;
    e->sequence_dim = params->sequence_dim;
    if (e->output == TSR_LAYOUT_SEQUENCE)
        TSR__TRY(tsr__layer_check_sequence_dim(layer, e->sequence_dim));
    TSR__TRY(tsr__layer_partition(layer, "vocabulary_size", e->vocabulary_size, "partition",
                                  params->partition, &e->division));
    tsr__parameter_spec spec = {
        .name = "weight",
        .ndim = 2,
        .shape = {e->vocabulary_size, e->width},
        .shard_dim = 0,
        .division = &e->division,
        .init = init,
        .fan_in = e->vocabulary_size,
        .fan_out = e->width,
    };
    TSR__TRY(tsr__layer_dtype(layer, "dtype", params->dtype, &spec.dtype));
    TSR__TRY(tsr__layer_dtype(layer, "grad_dtype", params->grad_dtype, &spec.grad_dtype));
    TSR__TRY(tsr__parameter_add(layer, &spec));
    return params->deferred ? TSR_OK : tsr__parameter_allocate(layer, 0);
}

tsr_status tsr_embedding_create(const tsr_embedding_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params && out, "embedding: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_embedding_params, params);
    tsr_layer *layer;
    TSR__TRY(
        tsr__layer_new(&embedding_type, sizeof(embedding), params->group, params->name, &layer));
    tsr_status status = init_embedding((embedding *)layer, params);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return TSR_OK;
}
