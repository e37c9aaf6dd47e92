/* Creates short convolutions: divides the channels among the ranks. */
#include "parallel/layers/short_conv.h"

#include "base/alloc.h"
#include "base/struct_size.h"
#include "parallel/layers/context.h"
#include "parallel/layers/linear.h"
#include "tessera/recurrent.h"

enum { USUAL_TAPS = 3 };

static tsr_status check_params(const tsr_layer *layer, tsr_short_conv_params *p)
{
    TSR__REQUIRE(p->size >= 1, "%s: size is %lld; it must be at least 1", layer->who,
                 (long long)p->size);
    p->taps = p->taps == 0 ? USUAL_TAPS : p->taps;
    TSR__REQUIRE(p->taps >= 2 && p->taps <= TSR_MAX_CAUSAL_CONV_TAPS,
                 "%s: taps is %d; 2 to %d are possible", layer->who, p->taps,
                 TSR_MAX_CAUSAL_CONV_TAPS);
    TSR__TRY(tsr__context_check(layer, p->context_group));
    return tsr__linear_check(layer,
                             tsr_linear_params(.overlap_parts = p->overlap_parts, .init = p->init,
                                               .dtype = p->dtype, .grad_dtype = p->grad_dtype));
}

static tsr_status add_weight(tsr__short_conv *conv, const tsr_short_conv_params *p)
{
    tsr__parameter_spec spec = {.name = "conv.weight",
                                .dtype = TSR_F32,
                                .ndim = 2,
                                .shape = {p->size, p->taps},
                                .division = &conv->division,
                                .fan_in = p->taps,
                                .fan_out = p->taps};
    TSR__TRY(tsr__layer_init(&conv->base, "init", p->init, &spec.init));
    TSR__TRY(tsr__layer_dtype(&conv->base, "grad_dtype", p->grad_dtype, &spec.grad_dtype));
    if (spec.init.kind != TSR_INIT_NONE)
        spec.init.kind = TSR_INIT_TORCH;
    TSR__TRY(tsr__parameter_add(&conv->base, &spec));
    return p->deferred ? TSR_OK : tsr__parameter_allocate(&conv->base, TSR__SHORT_CONV_WEIGHT);
}

static tsr_status create_children(tsr__short_conv *conv, const tsr_short_conv_params *p)
{
    tsr_linear_params linear = {
        .struct_size = sizeof linear,
        .group = conv->base.group,
        .name = p->name,
        .input_size = p->size,
        .output_size = p->size,
        .dtype = p->dtype,
        .partition = p->partition,
        .init = p->init,
        .grad_dtype = p->grad_dtype,
        .reduce_f32 = p->reduce_f32,
        .overlap_parts = p->overlap_parts,
        .deferred = p->deferred,
    };
    static const tsr__column_block blocks[] = {{.name = "b"}, {.name = "c"}, {.name = "x"}};
    tsr_init_params output_init;
    tsr_layer *child;
    TSR__TRY(tsr__layer_init(&conv->base, "output_init", p->output_init, &output_init));
    TSR__TRY(tsr__column_create(&linear, (int)(sizeof blocks / sizeof *blocks), blocks, &child));
    TSR__TRY(tsr__layer_add_child(&conv->base, child));
    linear.input = TSR_LAYOUT_SHARDED;
    linear.output = TSR_LAYOUT_FULL;
    if (output_init.kind != TSR_INIT_DEFAULT)
        linear.init = &output_init;
    TSR__TRY(tsr__row_create(&linear, "o", &child));
    return tsr__layer_add_child(&conv->base, child);
}

static tsr_status init_short_conv(tsr__short_conv *conv, tsr_short_conv_params *p)
{
    TSR__TRY(check_params(&conv->base, p));
    TSR__TRY(tsr__layer_partition(&conv->base, "size", p->size, "partition", p->partition,
                                  &conv->division));
    conv->channels = conv->division.length;
    conv->taps = p->taps;
    if (tsr_group_size(p->context_group) > 1)
        conv->context_group = p->context_group;
    TSR__TRY(add_weight(conv, p));
    return create_children(conv, p);
}

tsr_status tsr_short_conv_create(const tsr_short_conv_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params && out, "short_conv: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_short_conv_params, params);
    tsr_short_conv_params own = *params;
    tsr_layer *layer;
    TSR__TRY(tsr__layer_new(&tsr__short_conv_type, sizeof(tsr__short_conv), params->group,
                            params->name, &layer));
    const tsr_status status = init_short_conv((tsr__short_conv *)layer, &own);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return TSR_OK;
}
