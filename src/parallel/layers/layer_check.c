/* Checks of sizes, tensors and memory that several layers need. */
#include "parallel/layers/layer.h"

#include "base/struct_size.h"
#include "gpu/internal.h"
#include "tensor/dtype.h"
#include "tensor/overlap.h"

tsr_status tsr__layer_check_input(const tsr_layer *layer, const char *name, const tsr_tensor *x)
{
    TSR__REQUIRE(tsr__tensor_device(x) == layer->device, "%s: %s is on another device", layer->who,
                 name);
    const tsr_layout *layout = tsr_tensor_layout(x);
    TSR__REQUIRE(tsr__dtype_is_float(layout->dtype), "%s: %s is %s; f32, f16 or bf16 is needed",
                 layer->who, name, tsr_dtype_name(layout->dtype));
    TSR__REQUIRE(layout->ndim >= 1, "%s: %s is a scalar; at least one dimension is needed",
                 layer->who, name);
    return TSR_OK;
}

tsr_status tsr__layer_check_sequence_dim(const tsr_layer *layer, int dim)
{
    TSR__REQUIRE(dim >= 0, "%s: sequence_dim is %d; dimensions count from 0", layer->who, dim);
    return TSR_OK;
}

tsr_status tsr__layer_has_sequence_dim(const tsr_layer *layer, int dim, const tsr_layout *layout)
{
    TSR__REQUIRE(dim < layout->ndim - 1,
                 "%s: sequence_dim %d of %s is not before its last dimension", layer->who, dim,
                 TSR__SHAPE(layout->ndim, layout->shape));
    return TSR_OK;
}

tsr_status tsr__layer_dtype(const tsr_layer *layer, const char *what, tsr_dtype given,
                            tsr_dtype *out)
{
    tsr_dtype dtype = given == (tsr_dtype)0 ? TSR_F32 : given;
    TSR__REQUIRE(tsr__dtype_is_float(dtype), "%s: %s is %s; f32, f16 or bf16 is needed", layer->who,
                 what, tsr_dtype_name(dtype));
    *out = dtype;
    return TSR_OK;
}

tsr_status tsr__parameter_check_memory(const tsr_layer *layer,
                                       const tsr__layer_parameter *parameter, const char *what,
                                       const tsr_tensor *tensor, tsr_dtype dtype)
{
    if (!tensor)
        return TSR_OK;
    const bool values = dtype != (tsr_dtype)0;
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    tsr_layout shard = {.ndim = parameter->seen.ndim};
    tsr__parameter_shape_here(parameter, shard.shape);
    TSR__REQUIRE(tsr__tensor_device(tensor) == layer->device,
                 "%s: the %s of %s is on another device", layer->who, what, parameter->name);
    const bool is_float = tsr__dtype_is_float(layout->dtype),
               any_dtype = shard.ndim >= 2 && (is_float || tsr__dtype_is_block(layout->dtype));
    const bool right_dtype = values ? layout->dtype == dtype || any_dtype : is_float;
    TSR__REQUIRE(right_dtype && tsr__layout_same_shape(&shard, layout),
                 "%s: the %s of %s must be %s %s, but is %s %s", layer->who, what, parameter->name,
                 values ? tsr_dtype_name(dtype) : "a float", TSR__SHAPE(shard.ndim, shard.shape),
                 tsr_dtype_name(layout->dtype), TSR__SHAPE_OF(tensor));
    /* Neither values nor gradients may repeat elements, because training writes to both. */
    TSR__REQUIRE(!tsr__layout_repeats(layout),
                 "%s: the %s of %s is a view %s that names an element more than once", layer->who,
                 what, parameter->name, TSR__SHAPE_OF(tensor));
    return TSR_OK;
}

static tsr_status check_memory(const tsr_layer *layer, bool biases)
{
    for (int i = 0; i < layer->parameter_count; i++)
        if (biases || layer->parameter[i]->seen.ndim > 1)
            TSR__TRY(tsr__parameter_require(layer, i));
    return TSR_OK;
}

tsr_status tsr__layer_init(const tsr_layer *layer, const char *what, const tsr_init_params *given,
                           tsr_init_params *out)
{
    const tsr_status status = TSR__TAKE_PART(tsr_init_params, given, out);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s: %s", layer->who, what);
    TSR__REQUIRE((unsigned)out->kind <= TSR_INIT_NONE, "%s: %s %d is not a tsr_init", layer->who,
                 what, (int)out->kind);
    return TSR_OK;
}

tsr_status tsr__layer_check_forward(const tsr_layer *layer)
{
    TSR__TRY(check_memory(layer, true));
    for (int i = 0; i < layer->child_count; i++)
        TSR__TRY(tsr__layer_check_forward(layer->child[i]));
    return TSR_OK;
}

static tsr_status check_apart(const tsr_layer *layer, const tsr_parameter *parameter,
                              const char *name, const tsr_tensor *tensor)
{
    TSR__REQUIRE(!parameter->grad || !tsr__tensors_overlap(parameter->grad, tensor, NULL),
                 "%s: the gradient of %s overlaps %s", layer->who, parameter->name, name);
    return TSR_OK;
}

static tsr_status check_trains(const tsr_layer *layer, const tsr_parameter *parameter)
{
    const tsr_layout *layout = parameter->tensor ? tsr_tensor_layout(parameter->tensor) : NULL;
    TSR__REQUIRE(!layout || !tsr__dtype_is_block(layout->dtype),
                 "%s: %s is %s; weights in a block format have no gradient, so the layer must be "
                 "frozen (tsr_layer_set_frozen)",
                 layer->who, parameter->name, tsr_dtype_name(layout->dtype));
    TSR__REQUIRE(!layout || layout->dtype == parameter->dtype,
                 "%s: %s is %s, but its parameter is %s; such weights cannot be trained, so the "
                 "layer must be frozen (tsr_layer_set_frozen)",
                 layer->who, parameter->name, tsr_dtype_name(layout->dtype),
                 tsr_dtype_name(parameter->dtype));
    return TSR_OK;
}

tsr_status tsr__layer_check_backward(const tsr_layer *layer, bool weights, const tsr_tensor *x,
                                     const tsr_tensor *dy)
{
    if (weights)
        TSR__TRY(check_memory(layer, false));
    for (int i = 0; i < layer->parameter_count && !layer->frozen; i++) {
        TSR__TRY(check_trains(layer, &layer->parameter[i]->seen));
        TSR__TRY(check_apart(layer, &layer->parameter[i]->seen, "x", x));
        TSR__TRY(check_apart(layer, &layer->parameter[i]->seen, "dy", dy));
    }
    /* The backward pass of the first child needs the second child's input gradient. Computing that
     * gradient needs the second child's weights. */
    for (int i = 0; i < layer->child_count; i++)
        TSR__TRY(tsr__layer_check_backward(layer->child[i], weights || i > 0, x, dy));
    return TSR_OK;
}

tsr_status tsr__layer_check_step(const tsr_layer *layer, const tsr_layout *x,
                                 const tsr_tensor *positions)
{
    TSR__REQUIRE(positions, "%s: the cache has no step; tsr_kv_cache_begin starts one", layer->who);
    const tsr_layout *step = tsr_tensor_layout(positions);
    TSR__REQUIRE(x->ndim == 3 && x->shape[0] == step->shape[0] && x->shape[1] == step->shape[1],
                 "%s: x is %s; the cache's step has %lld sequences of up to %lld tokens",
                 layer->who, TSR__SHAPE(x->ndim, x->shape), (long long)step->shape[0],
                 (long long)step->shape[1]);
    return TSR_OK;
}
