/* Sends tensors to neighbouring stages, and receives them. In a group of two ranks, sending is a
 * broadcast from one to the other. */
#include "base/clock.h"
#include "parallel/pipeline/pipeline.h"

static tsr_status context(const tsr_pipeline *pipeline, tsr_status status, const char *what,
                          int micro_batch, int other)
{
    return status == TSR_OK
               ? TSR_OK
               : tsr__fail_context(status, "pipeline_run: stage %d %s stage %d, micro-batch %d",
                                   pipeline->stage, what, other, micro_batch);
}

static uint64_t bytes_of(const tsr_tensor *tensor)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    return (uint64_t)tsr_layout_count(layout) * tsr_dtype_size(layout->dtype);
}

static tsr_status wait_for(tsr_pipeline *pipeline, tsr_group_request **request)
{
    const uint64_t start = tsr__now_ns();
    tsr_status status = tsr_group_wait(request);
    pipeline->stats.wait_ns += tsr__now_ns() - start;
    return status;
}

/* Receiving ---------------------------------------------------------------------------------- */

tsr_status tsr__pipeline_post(tsr_pipeline *pipeline, tsr__pipeline_inbox *inbox)
{
    const tsr_pipeline_run_params *p = inbox->params;
    if (!inbox->link->group || inbox->posted == p->micro_batches)
        return TSR_OK;
    tsr_device *device = tsr_stream_device(pipeline->stream);
    tsr_status status = tsr_tensor_create(device, p->dtype, p->ndim, p->shape, &inbox->tensor);
    if (status == TSR_OK)
        status = tsr_group_broadcast_start(inbox->link->group, inbox->tensor, inbox->link->root,
                                           &inbox->request);
    TSR__TRY(context(pipeline, status, "receiving from", inbox->posted, inbox->link->other));
    inbox->posted++;
    return TSR_OK;
}

tsr_status tsr__pipeline_take(tsr_pipeline *pipeline, tsr__pipeline_inbox *inbox, int micro_batch,
                              tsr_tensor **out)
{
    *out = NULL;
    if (!inbox->link->group)
        return TSR_OK;
    /* The device computes the passes recorded so far while the host waits for the tensor. */
    TSR__TRY(tsr_stream_submit(pipeline->stream));
    tsr_status status = wait_for(pipeline, &inbox->request);
    TSR__TRY(context(pipeline, status, "receiving from", micro_batch, inbox->link->other));
    pipeline->stats.received_bytes += bytes_of(inbox->tensor);
    tsr_tensor *taken = inbox->tensor;
    inbox->tensor = NULL;
    status = tsr__pipeline_post(pipeline, inbox);
    if (status == TSR_OK)
        *out = taken;
    else
        tsr_tensor_destroy(&taken);
    return status;
}

void tsr__pipeline_inbox_drop(tsr__pipeline_inbox *inbox)
{
    tsr_group_cancel(&inbox->request);
    tsr_tensor_destroy(&inbox->tensor);
}

/* Sending ------------------------------------------------------------------------------------ */

static tsr_status end_oldest(tsr_pipeline *pipeline, tsr__pipeline_outbox *outbox, bool *done)
{
    tsr_group_request **oldest = &outbox->requests[outbox->done];
    tsr_status status = done ? tsr_group_test(oldest, done) : wait_for(pipeline, oldest);
    TSR__TRY(context(pipeline, status, "sending to", outbox->done, outbox->link->other));
    if (!done || *done)
        outbox->done++;
    return TSR_OK;
}

tsr_status tsr__pipeline_put(tsr_pipeline *pipeline, tsr__pipeline_outbox *outbox,
                             tsr_tensor *tensor)
{
    bool done = true;
    if (!outbox->link->group)
        return TSR_OK;
    tsr_status status = tsr_group_broadcast_start(outbox->link->group, tensor, outbox->link->root,
                                                  &outbox->requests[outbox->sent]);
    TSR__TRY(context(pipeline, status, "sending to", outbox->sent, outbox->link->other));
    outbox->sent++;
    pipeline->stats.sent_bytes += bytes_of(tensor);
    while (outbox->done < outbox->sent && done)
        TSR__TRY(end_oldest(pipeline, outbox, &done));
    return TSR_OK;
}

tsr_status tsr__pipeline_flush(tsr_pipeline *pipeline, tsr__pipeline_outbox *outbox)
{
    while (outbox->done < outbox->sent)
        TSR__TRY(end_oldest(pipeline, outbox, NULL));
    return TSR_OK;
}

void tsr__pipeline_outbox_drop(tsr__pipeline_outbox *outbox)
{
    for (int i = outbox->done; i < outbox->sent; i++)
        tsr_group_cancel(&outbox->requests[i]);
}
