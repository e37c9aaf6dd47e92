/* Parameters of layers: a rank's shard of the values, and of the gradient. */
#include "parallel/layers/layer.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "gpu/internal.h"

/* Makes the full name of a parameter: for "mlp" and "up.weight", "mlp.up.weight". */
static tsr_status join_names(const char *layer, const char *name, char **out)
{
    size_t size = strlen(layer) + strlen(name) + 2;
    char *text = tsr__calloc(size, 1);
    if (!text)
        return TSR_ERR_NO_MEMORY;
    snprintf(text, size, "%s%s%s", layer, *layer ? "." : "", name);
    *out = text;
    return TSR_OK;
}

static tsr_status append_parameter(tsr_layer *layer, tsr__layer_parameter *parameter)
{
    void *array = layer->parameter;
    tsr_status status = tsr__grow(&array, &layer->parameter_capacity,
                                  (size_t)layer->parameter_count + 1, sizeof parameter);
    layer->parameter = array;
    if (status == TSR_OK)
        layer->parameter[layer->parameter_count++] = parameter;
    return status;
}

tsr_status tsr__parameter_add(tsr_layer *layer, const tsr__parameter_spec *spec)
{
    tsr__layer_parameter *parameter = tsr__calloc(1, sizeof *parameter);
    if (!parameter)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = join_names(layer->name, spec->name, &parameter->name);
    if (status == TSR_OK)
        status = append_parameter(layer, parameter);
    if (status != TSR_OK) {
        tsr__parameter_destroy(&parameter);
        return status;
    }
    const tsr__division whole = {.length = spec->shape[0]};
    const tsr__division *division = spec->shard_dim < 0 ? &whole : spec->division;
    parameter->sizes = division->sizes;
    parameter->grad_dtype = spec->grad_dtype;
    parameter->grad_empty = true;
    parameter->divisible = spec->divisible;
    parameter->seen = (tsr_parameter){
        .struct_size = sizeof parameter->seen,
        .name = parameter->name,
        .dtype = spec->dtype,
        .ndim = spec->ndim,
        .global_shape = {spec->shape[0], spec->shape[1], spec->shape[2]},
        .shard_dim = spec->shard_dim,
        .offset = division->first,
        .length = division->length,
    };
    tsr__initial_choose(parameter, spec);
    return TSR_OK;
}

tsr_status tsr__parameter_allocate(tsr_layer *layer, int index)
{
    tsr__layer_parameter *parameter = layer->parameter[index];
    int64_t shape[TSR__PARAMETER_DIMS];
    tsr__parameter_shape_here(parameter, shape);
    TSR__TRY(tsr_tensor_create(layer->device, parameter->seen.dtype, parameter->seen.ndim, shape,
                               &parameter->seen.tensor));
    return tsr__initial_fill(parameter, layer->stream, parameter->seen.tensor);
}

tsr_status tsr__parameter_require(const tsr_layer *layer, int index)
{
    TSR__REQUIRE(layer->parameter[index]->seen.tensor, "%s: %s has no memory", layer->who,
                 layer->parameter[index]->name);
    return TSR_OK;
}

tsr_status tsr__parameter_need_grad(tsr_layer *layer, int index)
{
    tsr__layer_parameter *parameter = layer->parameter[index];
    if (parameter->seen.grad)
        return TSR_OK;
    int64_t shape[TSR__PARAMETER_DIMS];
    tsr__parameter_shape_here(parameter, shape);
    return tsr_tensor_create(layer->device, parameter->grad_dtype, parameter->seen.ndim, shape,
                             &parameter->seen.grad);
}

tsr_status tsr__parameter_add_weight_grad(tsr_layer *layer, int index, const tsr_tensor *dy2,
                                          const tsr_tensor *x2)
{
    TSR__TRY(tsr__parameter_need_grad(layer, index));
    tsr__layer_parameter *parameter = layer->parameter[index];
    TSR__TRY(
        tsr_matmul(layer->stream, parameter->seen.grad, dy2, x2,
                   tsr_matmul_params(.transpose_a = true, .accumulate = !parameter->grad_empty)));
    parameter->grad_empty = false;
    return TSR_OK;
}

tsr_status tsr__parameter_add_bias_grad(tsr_layer *layer, int index, const tsr_tensor *dy2)
{
    TSR__TRY(tsr__parameter_need_grad(layer, index));
    tsr__layer_parameter *parameter = layer->parameter[index];
    TSR__TRY(tsr_reduce(layer->stream, parameter->seen.grad, dy2, 0, TSR_REDUCE_SUM,
                        !parameter->grad_empty));
    parameter->grad_empty = false;
    return TSR_OK;
}

tsr_status tsr__linear_grads(tsr_stream *stream, tsr_tensor *weight, tsr_tensor *bias,
                             const tsr_tensor *dy2, const tsr_tensor *x2, bool add_weight,
                             bool add_bias)
{
    bool recorded = false;
    if (bias && add_weight == add_bias)
        TSR__TRY(tsr__matmul_with_row_sums(stream, weight, bias, dy2, x2, add_weight, &recorded));
    if (recorded)
        return TSR_OK;
    TSR__TRY(tsr_matmul(stream, weight, dy2, x2,
                        tsr_matmul_params(.transpose_a = true, .accumulate = add_weight)));
    return bias ? tsr_reduce(stream, bias, dy2, 0, TSR_REDUCE_SUM, add_bias) : TSR_OK;
}

tsr_status tsr__parameter_add_linear_grads(tsr_layer *layer, int weight, int bias,
                                           const tsr_tensor *dy2, const tsr_tensor *x2)
{
    if (bias < 0)
        return tsr__parameter_add_weight_grad(layer, weight, dy2, x2);
    TSR__TRY(tsr__parameter_need_grad(layer, weight));
    TSR__TRY(tsr__parameter_need_grad(layer, bias));
    tsr__layer_parameter *w = layer->parameter[weight], *b = layer->parameter[bias];
    TSR__TRY(tsr__linear_grads(layer->stream, w->seen.grad, b->seen.grad, dy2, x2, !w->grad_empty,
                               !b->grad_empty));
    w->grad_empty = b->grad_empty = false;
    return TSR_OK;
}

void tsr__parameter_destroy(tsr__layer_parameter **parameter)
{
    tsr__layer_parameter *closing = *parameter;
    tsr_tensor_destroy(&closing->seen.tensor);
    tsr_tensor_destroy(&closing->seen.grad);
    tsr__free(closing->name);
    tsr__free(closing);
    *parameter = NULL;
}
