/* Creates delta nets: divides the key heads among the ranks, each with its value heads. */
#include "parallel/layers/delta_net.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/struct_size.h"
#include "parallel/layers/context.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/norm_layer.h"
#include "tessera/recurrent.h"

enum { USUAL_TAPS = 4 };

/* The params, with defaults filled in, and the division of the key heads. */
typedef struct delta_plan {
    tsr_delta_net_params params;
    tsr_partition_params partition;
    tsr_init_params init, output_init;
    tsr_dtype grad_dtype;
    tsr__division key_heads, keys, values, heads; /* keys, values: features */
} delta_plan;

static void delta_plan_finish(delta_plan *p)
{
    tsr__free(p->key_heads.sizes);
}

/* Checks ------------------------------------------------------------------------------------- */

static tsr_status check_dim(const tsr_layer *layer, const char *what, int64_t dim)
{
    TSR__REQUIRE(dim >= 4 && dim % 4 == 0 && dim <= TSR_MAX_DELTA_DIM,
                 "%s: %s is %lld; multiples of 4 up to %d are possible", layer->who, what,
                 (long long)dim, TSR_MAX_DELTA_DIM);
    return TSR_OK;
}

static tsr_status check_delta_params(const tsr_layer *layer, delta_plan *p)
{
    tsr_delta_net_params *params = &p->params;
    TSR__REQUIRE(params->size >= 1, "%s: size is %lld; it must be at least 1", layer->who,
                 (long long)params->size);
    TSR__REQUIRE(params->key_heads >= 1 && params->heads >= 1 && params->heads <= TSR_MAX_HEADS &&
                     params->heads % params->key_heads == 0,
                 "%s: key_heads is %lld, heads %lld; the first must divide the second, which is at "
                 "most %d",
                 layer->who, (long long)params->key_heads, (long long)params->heads, TSR_MAX_HEADS);
    TSR__TRY(check_dim(layer, "key_dim", params->key_dim));
    TSR__TRY(check_dim(layer, "value_dim", params->value_dim));
    params->taps = params->taps == 0 ? USUAL_TAPS : params->taps;
    TSR__REQUIRE(params->taps >= 1 && params->taps <= TSR_MAX_CAUSAL_CONV_TAPS,
                 "%s: taps is %d; 1 to %d are possible", layer->who, params->taps,
                 TSR_MAX_CAUSAL_CONV_TAPS);
    TSR__REQUIRE(p->partition.align <= TSR_MAX_HEADS,
                 "%s: partition.align is %llu; at most %d key heads are possible", layer->who,
                 (unsigned long long)p->partition.align, TSR_MAX_HEADS);
    TSR__TRY(tsr__context_check(layer, params->context_group));
    TSR__TRY(tsr__layer_init(layer, "init", params->init, &p->init));
    TSR__TRY(tsr__layer_init(layer, "output_init", params->output_init, &p->output_init));
    TSR__TRY(tsr__layer_dtype(layer, "grad_dtype", params->grad_dtype, &p->grad_dtype));
    return tsr__linear_check(layer, tsr_linear_params(.overlap_parts = params->overlap_parts,
                                                      .init = params->init, .dtype = params->dtype,
                                                      .grad_dtype = params->grad_dtype));
}

/* Heads -------------------------------------------------------------------------------------- */

/* Gets a division with `factor` elements for each key head. *sizes belongs to the layer. */
static tsr_status scale_division(const tsr_layer *layer, const tsr__division *key_heads,
                                 int64_t factor, int64_t **sizes, tsr__division *out)
{
    *sizes = tsr__calloc((size_t)layer->size, sizeof **sizes);
    if (!*sizes)
        return TSR_ERR_NO_MEMORY;
    for (int r = 0; r < layer->size; r++)
        (*sizes)[r] = key_heads->sizes[r] * factor;
    *out = (tsr__division){*sizes, key_heads->first * factor, key_heads->length * factor};
    return TSR_OK;
}

static tsr_status divide_key_heads(tsr__delta_net *net, delta_plan *p)
{
    const tsr_layer *layer = &net->base;
    const tsr_delta_net_params *params = &p->params;
    const int64_t each = params->heads / params->key_heads;
    TSR__TRY(tsr__layer_partition(layer, "key_heads", params->key_heads, "partition", &p->partition,
                                  &p->key_heads));
    TSR__TRY(scale_division(layer, &p->key_heads, params->key_dim, &net->key_sizes, &p->keys));
    TSR__TRY(scale_division(layer, &p->key_heads, each * params->value_dim, &net->value_sizes,
                            &p->values));
    TSR__TRY(scale_division(layer, &p->key_heads, each, &net->head_sizes, &p->heads));
    net->key_heads = p->key_heads.length;
    net->heads = p->heads.length;
    return TSR_OK;
}

/* Parameters --------------------------------------------------------------------------------- */

static tsr_status add_conv(tsr__delta_net *net, const delta_plan *p, const char *name,
                           int64_t channels, const tsr__division *division)
{
    tsr__parameter_spec spec = {
        .name = name,
        .dtype = TSR_F32,
        .ndim = 2,
        .shape = {channels, net->taps},
        .division = division,
        .init = p->init,
        .fan_in = net->taps,
        .fan_out = net->taps,
    };
    if (spec.init.kind != TSR_INIT_NONE)
        spec.init.kind = TSR_INIT_TORCH;
    spec.grad_dtype = p->grad_dtype;
    return tsr__parameter_add(&net->base, &spec);
}

static tsr_status add_number(tsr__delta_net *net, const delta_plan *p, const char *name, bool log)
{
    tsr__parameter_spec spec = {
        .name = name,
        .dtype = TSR_F32,
        .ndim = 1,
        .shape = {p->params.heads, 0},
        .division = &p->heads,
        .init = p->init,
        .fan_in = 1,
        .fan_out = 1,
        .ones = !log,
        .log = log,
    };
    spec.grad_dtype = p->grad_dtype;
    return tsr__parameter_add(&net->base, &spec);
}

/* Allocates one tensor for the weights of the convolution. Each of them is a view of it. */
static tsr_status allocate_conv(tsr__delta_net *net)
{
    tsr_layer *layer = &net->base;
    int64_t shape[2] = {0, net->taps}, start = 0;
    for (int i = 0; i < TSR__DELTA_NET_CONV_COUNT; i++)
        shape[0] += layer->parameter[TSR__DELTA_NET_CONV + i]->seen.length;
    tsr_tensor *joint = NULL;
    tsr_status status = tsr_tensor_create(layer->device, TSR_F32, 2, shape, &joint);
    for (int i = 0; status == TSR_OK && i < TSR__DELTA_NET_CONV_COUNT; i++) {
        tsr__layer_parameter *parameter = layer->parameter[TSR__DELTA_NET_CONV + i];
        const int64_t end = start + parameter->seen.length;
        status = tsr_tensor_slice(joint, 0, start, end, 1, &parameter->seen.tensor);
        if (status == TSR_OK)
            status = tsr__initial_fill(parameter, layer->stream, parameter->seen.tensor);
        start = end;
    }
    tsr_tensor_destroy(&joint);
    return status;
}

static tsr_status add_parameters(tsr__delta_net *net, const delta_plan *p)
{
    const tsr_delta_net_params *params = &p->params;
    const int64_t keys = params->key_heads * params->key_dim;
    TSR__TRY(add_conv(net, p, "q_conv.weight", keys, &p->keys));
    TSR__TRY(add_conv(net, p, "k_conv.weight", keys, &p->keys));
    TSR__TRY(add_conv(net, p, "v_conv.weight", params->heads * params->value_dim, &p->values));
    TSR__TRY(add_number(net, p, "a_log", true));
    TSR__TRY(add_number(net, p, "dt_bias", false));
    TSR__TRY(tsr__norm_parameter_add(&net->base, "norm.weight", params->value_dim, TSR_F32,
                                     p->grad_dtype, false));
    if (params->deferred)
        return TSR_OK;
    TSR__TRY(allocate_conv(net));
    for (int i = TSR__DELTA_NET_A_LOG; i <= TSR__DELTA_NET_NORM; i++)
        TSR__TRY(tsr__parameter_allocate(&net->base, i));
    return TSR_OK;
}

/* Products ----------------------------------------------------------------------------------- */

static tsr_linear_params linear_params(const tsr__delta_net *net, const delta_plan *p)
{
    const tsr_delta_net_params *params = &p->params;
    return (tsr_linear_params){
        .struct_size = sizeof(tsr_linear_params),
        .group = net->base.group,
        .name = params->name,
        .input_size = params->size,
        .output_size = params->heads * params->value_dim,
        .dtype = params->dtype,
        .init = params->init,
        .grad_dtype = params->grad_dtype,
        .reduce_f32 = params->reduce_f32,
        .overlap_parts = params->overlap_parts,
        .deferred = params->deferred,
    };
}

static tsr_status create_input(tsr__delta_net *net, const delta_plan *p)
{
    const tsr_linear_params linear = linear_params(net, p);
    const tsr_delta_net_params *params = &p->params;
    const int64_t keys = params->key_heads * params->key_dim,
                  values = params->heads * params->value_dim;
    const tsr__column_block blocks[] = {
        {.name = "q", .output_size = keys, .division = p->keys},
        {.name = "k", .output_size = keys, .division = p->keys},
        {.name = "v", .output_size = values, .division = p->values},
        {.name = "z", .output_size = values, .division = p->values},
        {.name = "beta", .output_size = params->heads, .division = p->heads},
        {.name = "alpha", .output_size = params->heads, .division = p->heads},
    };
    tsr_layer *child;
    TSR__TRY(tsr__column_create(&linear, (int)(sizeof blocks / sizeof *blocks), blocks, &child));
    return tsr__layer_add_child(&net->base, child);
}

static tsr_status create_output(tsr__delta_net *net, const delta_plan *p)
{
    const tsr_delta_net_params *params = &p->params;
    tsr_linear_params linear = linear_params(net, p);
    const int64_t unit = params->heads / params->key_heads * params->value_dim;
    linear.input_size = params->heads * params->value_dim;
    linear.output_size = params->size;
    linear.input = TSR_LAYOUT_SHARDED;
    linear.output = TSR_LAYOUT_FULL;
    tsr_partition_params partition = p->partition;
    partition.align = tsr__max_u64(partition.align, 1) * (uint64_t)unit;
    linear.partition = &partition;
    if (p->output_init.kind != TSR_INIT_DEFAULT)
        linear.init = &p->output_init;
    tsr_layer *child;
    TSR__TRY(tsr__row_create(&linear, "o", &child));
    return tsr__layer_add_child(&net->base, child);
}

/* Layers ------------------------------------------------------------------------------------- */

static tsr_status init_delta_net(tsr__delta_net *net, delta_plan *p)
{
    TSR__TRY(check_delta_params(&net->base, p));
    TSR__TRY(
        tsr__norm_epsilon(&net->base, "norm_epsilon", p->params.norm_epsilon, &net->norm_epsilon));
    TSR__TRY(divide_key_heads(net, p));
    net->key_dim = p->params.key_dim;
    net->value_dim = p->params.value_dim;
    net->taps = p->params.taps;
    net->tiled_heads = p->params.tiled_heads;
    if (tsr_group_size(p->params.context_group) > 1)
        net->context_group = p->params.context_group;
    TSR__TRY(add_parameters(net, p));
    TSR__TRY(create_input(net, p));
    return create_output(net, p);
}

tsr_status tsr_delta_net_create(const tsr_delta_net_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params && out, "delta_net: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_delta_net_params, params);
    tsr_layer *layer;
    delta_plan p = {.params = *params};
    const tsr_status taken = TSR__TAKE_PART(tsr_partition_params, params->partition, &p.partition);
    if (taken != TSR_OK)
        return tsr__fail_context(taken, "delta_net: partition");
    TSR__TRY(tsr__layer_new(&tsr__delta_net_type, sizeof(tsr__delta_net), params->group,
                            params->name, &layer));
    const tsr_status status = init_delta_net((tsr__delta_net *)layer, &p);
    delta_plan_finish(&p);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return TSR_OK;
}
