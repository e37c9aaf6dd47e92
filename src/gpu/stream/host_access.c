#include "gpu/internal.h"

#include "gpu/memory/slabs.h"
#include "gpu/stream/state.h"
#include "tensor/overlap.h"

bool tsr__device_shares_tensors(const tsr_device *device)
{
    return tsr__memory_is_mapped(device) && device->info.type == TSR_DEVICE_CPU;
}

tsr_status tsr__tensor_synchronise(const tsr_stream *stream, const tsr_tensor *tensor)
{
    if (tensor->buffer->last_timeline == stream->timeline)
        return TSR_OK;
    return tsr__buffer_wait(tensor->buffer);
}

bool tsr__tensors_overlap(const tsr_tensor *a, const tsr_tensor *b, bool *same)
{
    tsr__overlap overlap =
        a->buffer == b->buffer ? tsr__layout_overlap(&a->layout, &b->layout) : TSR__OVERLAP_NONE;
    if (same)
        *same = overlap == TSR__OVERLAP_SAME;
    return overlap != TSR__OVERLAP_NONE;
}

bool tsr__tensor_is_view(const tsr_tensor *view, const tsr_tensor *whole, const tsr_layout *layout)
{
    return view->buffer == whole->buffer &&
           tsr__layout_overlap(&view->layout, layout) == TSR__OVERLAP_SAME;
}
