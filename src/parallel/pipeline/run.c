/* Runs the 1F1B schedule of a stage: calls the caller's forward and backward functions, and sends
 * and receives tensors. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/struct_size.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/schedule.h"
#include "tensor/check.h"

static const char who[] = "pipeline_run";

/* Links to neighbours --------------------------------------------------------------------------
 *
 * In a group of two ranks, sending is a broadcast from one to the other. If a link has no group,
 * because there is no neighbour, these functions do nothing, and take_received() gives NULL. */

/* The tensors that a run of the schedule receives over a link. The next tensor is prefetched. */
typedef struct inbox {
    const tsr__pipeline_link *link;
    const tsr_pipeline_run_params *params;
    int posted; /* number of receives that have been started */
    tsr_tensor *tensor;
    tsr_request *request; /* the request of the receive that was started last */
} inbox;

/* The tensors that a run of the schedule sends over a link. */
typedef struct outbox {
    const tsr__pipeline_link *link;
    int sent, done;         /* number of sends that have been started, and that have ended */
    tsr_request **requests; /* [micro_batches] */
} outbox;

static tsr_status add_context(const tsr_pipeline *pipeline, tsr_status status, const char *what,
                              int micro_batch, int neighbour)
{
    return status == TSR_OK
               ? TSR_OK
               : tsr__fail_context(status, "pipeline_run: stage %d %s stage %d, micro-batch %d",
                                   pipeline->stage, what, neighbour, micro_batch);
}

static uint64_t bytes_of(const tsr_tensor *tensor)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    return (uint64_t)tsr_layout_count(layout) * tsr_dtype_size(layout->dtype);
}

static tsr_status wait_for(tsr_pipeline *pipeline, tsr_request **request)
{
    const uint64_t start = tsr__now_ns();
    tsr_status status = tsr_request_wait(request);
    pipeline->stats.wait_ns += tsr__now_ns() - start;
    return status;
}

/* Receiving from a neighbour ----------------------------------------------------------------------
 */

/* Starts to receive the next tensor, unless all have been received. */
static tsr_status post_receive(tsr_pipeline *pipeline, inbox *receives)
{
    const tsr_pipeline_run_params *p = receives->params;
    if (!receives->link->group || receives->posted == p->micro_batches)
        return TSR_OK;
    tsr_device *device = tsr_stream_device(pipeline->stream);
    tsr_status status = tsr_tensor_create(device, p->dtype, p->ndim, p->shape, &receives->tensor);
    if (status == TSR_OK)
        status = tsr_group_broadcast(receives->link->group, receives->tensor, receives->link->root,
                                     &receives->request);
    TSR__TRY(add_context(pipeline, status, "receiving from", receives->posted,
                         receives->link->neighbour));
    receives->posted++;
    return TSR_OK;
}

/* Blocks until the tensor of `micro_batch` has arrived, and starts to receive the next one. The
 * caller must destroy the tensor. */
static tsr_status take_received(tsr_pipeline *pipeline, inbox *receives, int micro_batch,
                                tsr_tensor **out)
{
    *out = NULL;
    if (!receives->link->group)
        return TSR_OK;
    /* The device computes the passes recorded so far while the host waits for the tensor. */
    TSR__TRY(tsr_stream_submit(pipeline->stream));
    tsr_status status = wait_for(pipeline, &receives->request);
    TSR__TRY(
        add_context(pipeline, status, "receiving from", micro_batch, receives->link->neighbour));
    pipeline->stats.received_bytes += bytes_of(receives->tensor);
    tsr_tensor *taken = receives->tensor;
    receives->tensor = NULL;
    status = post_receive(pipeline, receives);
    if (status == TSR_OK)
        *out = taken;
    else
        tsr_tensor_destroy(&taken);
    return status;
}

/* Frees the tensor and the request that are left after a failure. The group of the link must have
 * failed. */
static void drop_inbox(inbox *receives)
{
    tsr_request_cancel(&receives->request);
    tsr_tensor_destroy(&receives->tensor);
}

/* Sending to a neighbour --------------------------------------------------------------------------
 */

static tsr_status end_oldest(tsr_pipeline *pipeline, outbox *sends, bool *done)
{
    tsr_request **oldest = &sends->requests[sends->done];
    tsr_status status = done ? tsr_request_test(oldest, done) : wait_for(pipeline, oldest);
    TSR__TRY(add_context(pipeline, status, "sending to", sends->done, sends->link->neighbour));
    if (!done || *done)
        sends->done++;
    return TSR_OK;
}

/* Starts to send a tensor, and frees the requests of sends that have ended. */
static tsr_status send_tensor(tsr_pipeline *pipeline, outbox *sends, tsr_tensor *tensor)
{
    bool done = true;
    if (!sends->link->group)
        return TSR_OK;
    tsr_status status = tsr_group_broadcast(sends->link->group, tensor, sends->link->root,
                                            &sends->requests[sends->sent]);
    TSR__TRY(add_context(pipeline, status, "sending to", sends->sent, sends->link->neighbour));
    sends->sent++;
    pipeline->stats.sent_bytes += bytes_of(tensor);
    while (sends->done < sends->sent && done)
        TSR__TRY(end_oldest(pipeline, sends, &done));
    return TSR_OK;
}

/* Blocks until all sends have ended. */
static tsr_status flush_sends(tsr_pipeline *pipeline, outbox *sends)
{
    while (sends->done < sends->sent)
        TSR__TRY(end_oldest(pipeline, sends, NULL));
    return TSR_OK;
}

/* Frees the requests that are left after a failure. */
static void drop_outbox(outbox *sends)
{
    for (int i = sends->done; i < sends->sent; i++)
        tsr_request_cancel(&sends->requests[i]);
}

/* A run -------------------------------------------------------------------------------------------
 */

typedef struct run {
    tsr_pipeline *pipeline;
    const tsr_pipeline_run_params *params;
    tsr__pipeline_step *steps; /* [2 · micro_batches] */
    inbox activations_in, gradients_in;
    outbox activations_out, gradients_out;
} run;

/* Failure -----------------------------------------------------------------------------------------
 */

static tsr_status check_failed(const tsr_pipeline *pipeline)
{
    return pipeline->status == TSR_OK ? TSR_OK : tsr__fail(pipeline->status, "%s", pipeline->why);
}

/* Fails the pipeline with `status` and the recorded text, so that no neighbour waits for it. A
 * single stage has no neighbours and can go on. */
static tsr_status fail_pipeline(tsr_pipeline *pipeline, tsr_status status)
{
    if (pipeline->stages == 1)
        return status;
    tsr_group *const groups[] = {pipeline->from_previous.group, pipeline->to_next.group,
                                 pipeline->from_next.group, pipeline->to_previous.group,
                                 pipeline->ends};
    pipeline->status = status;
    snprintf(pipeline->why, sizeof pipeline->why, "%s", tsr_last_error());
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (groups[i])
            tsr__group_abort(groups[i], "failed in a run of a pipeline");
    return tsr__fail(status, "%s", pipeline->why);
}

/* Passes ------------------------------------------------------------------------------------------
 */

/* Checks the tensor that the caller's function has created in a pass. `is_sent` says whether a
 * neighbour waits for this tensor. */
static tsr_status check_created(const run *r, const char *name, int micro_batch, bool is_sent,
                                const tsr_tensor *created)
{
    const tsr_pipeline_run_params *p = r->params;
    if (!is_sent)
        return TSR_OK;
    TSR__REQUIRE(created, "%s: stage %d, micro-batch %d: %s is NULL; %s %s is sent", who,
                 r->pipeline->stage, micro_batch, name, tsr_dtype_name(p->dtype),
                 TSR__SHAPE(p->ndim, p->shape));
    const tsr_layout *layout = tsr_tensor_layout(created);
    bool fits = layout->dtype == p->dtype && layout->ndim == p->ndim;
    for (int d = 0; fits && d < p->ndim; d++)
        fits = layout->shape[d] == p->shape[d];
    TSR__REQUIRE(fits, "%s: stage %d, micro-batch %d: %s is %s %s; %s %s is sent", who,
                 r->pipeline->stage, micro_batch, name, tsr_dtype_name(layout->dtype),
                 TSR__SHAPE(layout->ndim, layout->shape), tsr_dtype_name(p->dtype),
                 TSR__SHAPE(p->ndim, p->shape));
    return TSR_OK;
}

/* Returns the status of one of the caller's functions, and says which pass has failed if there are
 * several stages. */
static tsr_status add_pass_context(const run *r, const char *pass, int micro_batch,
                                   tsr_status status)
{
    if (status == TSR_OK || r->pipeline->stages == 1)
        return status;
    return tsr__fail_context(status, "%s: stage %d, %s pass of micro-batch %d", who,
                             r->pipeline->stage, pass, micro_batch);
}

static tsr_status run_forward(run *r, int micro_batch)
{
    tsr_tensor *x, *y = NULL;
    TSR__TRY(take_received(r->pipeline, &r->activations_in, micro_batch, &x));
    tsr_status status = add_pass_context(r, "forward", micro_batch,
                                         r->params->forward(r->params->user, micro_batch, x, &y));
    tsr_tensor_destroy(&x);
    if (status == TSR_OK)
        status = check_created(r, "y", micro_batch, r->pipeline->to_next.group != NULL, y);
    if (status == TSR_OK)
        status = send_tensor(r->pipeline, &r->activations_out, y);
    tsr_tensor_destroy(&y);
    return status;
}

static tsr_status run_backward(run *r, int micro_batch)
{
    tsr_tensor *dy, *dx = NULL;
    TSR__TRY(take_received(r->pipeline, &r->gradients_in, micro_batch, &dy));
    tsr_status status = add_pass_context(
        r, "backward", micro_batch, r->params->backward(r->params->user, micro_batch, dy, &dx));
    tsr_tensor_destroy(&dy);
    if (status == TSR_OK)
        status = check_created(r, "dx", micro_batch, r->pipeline->to_previous.group != NULL, dx);
    if (status == TSR_OK)
        status = send_tensor(r->pipeline, &r->gradients_out, dx);
    tsr_tensor_destroy(&dx);
    return status;
}

/* Runs --------------------------------------------------------------------------------------------
 */

static tsr_status check_params(const tsr_pipeline *pipeline, const tsr_pipeline_run_params *p)
{
    TSR__REQUIRE(p->micro_batches >= 1 && p->micro_batches <= TSR_MAX_PIPELINE_BATCHES,
                 "%s: %d micro-batches; 1 to %d are allowed", who, p->micro_batches,
                 TSR_MAX_PIPELINE_BATCHES);
    TSR__REQUIRE(p->forward, "%s: forward is NULL", who);
    if (pipeline->stages == 1)
        return TSR_OK;
    TSR__REQUIRE(p->dtype == TSR_F32 || p->dtype == TSR_F16 || p->dtype == TSR_BF16,
                 "%s: dtype is %s; f32, f16 or bf16 is needed", who, tsr_dtype_name(p->dtype));
    TSR__REQUIRE(p->ndim >= 0 && p->ndim <= TSR_MAX_DIMS, "%s: %d dimensions; 0 to %d are allowed",
                 who, p->ndim, TSR_MAX_DIMS);
    for (int d = 0; d < p->ndim; d++)
        TSR__REQUIRE(p->shape[d] >= 0, "%s: dimension %d has size %lld", who, d,
                     (long long)p->shape[d]);
    return TSR_OK;
}

static tsr_status prepare_run(run *r)
{
    const tsr_pipeline *pipeline = r->pipeline;
    const size_t count = (size_t)r->params->micro_batches;
    r->activations_in = (inbox){&pipeline->from_previous, r->params, 0, NULL, NULL};
    r->gradients_in = (inbox){&pipeline->from_next, r->params, 0, NULL, NULL};
    r->activations_out = (outbox){.link = &pipeline->to_next};
    r->gradients_out = (outbox){.link = &pipeline->to_previous};
    r->steps = tsr__calloc(2 * count, sizeof *r->steps);
    r->activations_out.requests = tsr__calloc(count, sizeof *r->activations_out.requests);
    r->gradients_out.requests = tsr__calloc(count, sizeof *r->gradients_out.requests);
    if (!r->steps || !r->activations_out.requests || !r->gradients_out.requests)
        return TSR_ERR_NO_MEMORY;
    return tsr__pipeline_schedule(pipeline->stage, pipeline->stages, r->params->micro_batches,
                                  r->steps);
}

static tsr_status run_forward_only(run *r)
{
    for (int i = 0; i < r->params->micro_batches; i++)
        TSR__TRY(run_forward(r, i));
    return TSR_OK;
}

static tsr_status run_steps(run *r)
{
    TSR__TRY(post_receive(r->pipeline, &r->gradients_in));
    for (int i = 0; i < 2 * r->params->micro_batches; i++) {
        const tsr__pipeline_step *step = &r->steps[i];
        TSR__TRY(step->pass == TSR_PASS_FORWARD ? run_forward(r, step->micro_batch)
                                                : run_backward(r, step->micro_batch));
    }
    return TSR_OK;
}

static tsr_status run_all(run *r)
{
    TSR__TRY(post_receive(r->pipeline, &r->activations_in));
    TSR__TRY(r->params->backward ? run_steps(r) : run_forward_only(r));
    TSR__TRY(flush_sends(r->pipeline, &r->activations_out));
    return flush_sends(r->pipeline, &r->gradients_out);
}

static void free_run(run *r)
{
    tsr__free(r->steps);
    tsr__free((void *)r->activations_out.requests);
    tsr__free((void *)r->gradients_out.requests);
}

tsr_status tsr_pipeline_run(tsr_pipeline *pipeline, const tsr_pipeline_run_params *params)
{
    TSR__REQUIRE(pipeline && params, "%s: %s is NULL", who, pipeline ? "params" : "pipeline");
    TSR__TAKE(tsr_pipeline_run_params, params);
    run r = {.pipeline = pipeline, .params = params};
    TSR__TRY(check_failed(pipeline));
    TSR__TRY(check_params(pipeline, params));
    const uint64_t start = tsr__now_ns();
    tsr_status status = prepare_run(&r);
    if (status == TSR_OK)
        status = run_all(&r);
    if (status != TSR_OK)
        status = fail_pipeline(pipeline, status);
    drop_inbox(&r.activations_in);
    drop_inbox(&r.gradients_in);
    drop_outbox(&r.activations_out);
    drop_outbox(&r.gradients_out);
    free_run(&r);
    pipeline->stats.runs++;
    pipeline->stats.run_ns += tsr__now_ns() - start;
    return status;
}

tsr_status tsr_pipeline_reduce_ends(tsr_pipeline *pipeline, tsr_tensor *tensor)
{
    TSR__REQUIRE(pipeline, "pipeline_reduce_ends: pipeline is NULL");
    TSR__TRY(check_failed(pipeline));
    if (!pipeline->ends)
        return TSR_OK;
    TSR__REQUIRE(tensor, "pipeline_reduce_ends: tensor is NULL");
    tsr_status status = tsr_group_all_reduce(pipeline->ends, tensor, TSR_OP_SUM, NULL, NULL);
    return status == TSR_OK ? TSR_OK
                            : tsr__fail_context(status, "pipeline_reduce_ends: stages 0 and %d",
                                                pipeline->stages - 1);
}
