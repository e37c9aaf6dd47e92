#include "parallel/fsdp/fsdp.h"
#include "parallel/layers/layer.h"

#include "tensor/check.h"
#include "tensor/dtype.h"
#include "tessera/ops.h"

/* Copies this rank's range of the bytes of a matrix in a block format. A resident one stays where
 * it is. */
static tsr_status copy_blocks(tsr_fsdp *model, tsr__fsdp_param *p, const tsr_tensor *from)
{
    const tsr_layout *layout = tsr_tensor_layout(from);
    tsr_tensor *range = NULL;
    tsr_layout bytes;
    if (p->resident)
        return tsr__keep(from, &p->whole);
    TSR__TRY(tsr_layout_init(TSR_U8, 1, (int64_t[]){(int64_t)p->range.count}, &bytes));
    bytes.offset =
        (int64_t)(tsr__dtype_bytes(layout->dtype, (uint64_t)layout->offset) + p->range.start);
    TSR__TRY(tsr_tensor_view(from, &bytes, &range));
    const tsr_status status = tsr_copy(model->stream, p->value, range);
    tsr_tensor_destroy(&range);
    return status;
}

/* Copies this rank's range out of a tensor that has all elements of the parameter. */
static tsr_status copy_range(tsr_fsdp *model, tsr__fsdp_param *p, const tsr_tensor *from)
{
    const tsr_layout *layout = tsr_tensor_layout(from);
    bool fits = layout->ndim == p->seen.ndim && layout->dtype == p->seen.dtype;
    for (int d = 0; d < p->seen.ndim && fits; d++)
        fits = layout->shape[d] == p->shape[d];
    TSR__REQUIRE(fits, "fsdp_create: '%s' is %s %s, its tensor %s %s", p->name,
                 tsr_dtype_name(p->seen.dtype), TSR__SHAPE(p->seen.ndim, p->shape),
                 tsr_dtype_name(layout->dtype), TSR__SHAPE(layout->ndim, layout->shape));
    tsr_tensor *dense = NULL, *flat = NULL, *range = NULL;
    tsr_status status = TSR_OK;
    if (!tsr_layout_is_contiguous(layout)) {
        status =
            tsr_tensor_create(model->device, layout->dtype, layout->ndim, layout->shape, &dense);
        if (status == TSR_OK)
            status = tsr_copy(model->stream, dense, from);
    }
    if (status == TSR_OK)
        status = tsr_tensor_reshape(dense ? dense : from, 1, (int64_t[]){(int64_t)p->count}, &flat);
    if (status == TSR_OK)
        status = tsr_tensor_slice(flat, 0, (int64_t)p->range.start,
                                  (int64_t)(p->range.start + p->range.count), 1, &range);
    if (status == TSR_OK)
        status = tsr_copy(model->stream, p->value, range);
    tsr_tensor_destroy(&range);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&dense);
    return status;
}

static tsr_status unit_values(tsr_fsdp *model, const tsr__fsdp_unit *unit,
                              const tsr_fsdp_unit *given)
{
    for (int i = 0; i < unit->count; i++) {
        tsr__fsdp_param *p = &model->params[unit->first + i];
        const tsr_tensor *from = tsr__fsdp_given(given, i)->tensor;
        if (p->blocks != 0)
            TSR__TRY(copy_blocks(model, p, from));
        else if (from)
            TSR__TRY(copy_range(model, p, from));
        else if (unit->layer)
            TSR__TRY(tsr__layer_initial(unit->layer, i, model->stream, (int64_t)p->range.start,
                                        p->value));
        else
            TSR__TRY(tsr_fill(model->stream, p->value, 0));
    }
    /* The memory of the unit may be used again only when the device has read it. */
    return model->source ? tsr_stream_wait(model->stream) : TSR_OK;
}

tsr_status tsr__fsdp_first_values(tsr_fsdp *model, const tsr_fsdp_params *params)
{
    for (int u = 0; u < model->unit_count; u++) {
        const tsr__fsdp_unit *unit = &model->units[u];
        TSR__TRY(tsr__fsdp_open_layer(model, unit->layer, true));
        const tsr_status status = unit_values(model, unit, &params->units[u]);
        tsr__fsdp_close_layer(model, unit->layer);
        TSR__TRY(status);
    }
    return tsr__fsdp_fresh_state(model);
}

tsr_status tsr__fsdp_fresh_masters(tsr_fsdp *model)
{
    for (int i = 0; i < model->param_count; i++)
        if (model->params[i].master)
            TSR__TRY(tsr_copy(model->stream, model->params[i].master, model->params[i].value));
    return TSR_OK;
}

tsr_status tsr__fsdp_fresh_state(tsr_fsdp *model)
{
    model->steps = 0;
    for (size_t i = 0; i < model->pools.state.count; i++)
        TSR__TRY(tsr_fill(model->stream, model->pools.state.chunks[i].memory, 0));
    return tsr__fsdp_fresh_masters(model);
}
