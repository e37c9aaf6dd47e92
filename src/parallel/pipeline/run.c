/* Runs the 1F1B schedule of a stage: calls the caller's forward and backward functions, and sends
 * and receives tensors. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/struct_size.h"
#include "parallel/pipeline/pipeline.h"
#include "tensor/check.h"

static const char who[] = "pipeline_run";

typedef struct run {
    tsr_pipeline *pipeline;
    const tsr_pipeline_run_params *params;
    tsr_pipeline_step *steps; /* [2 · micro_batches] */
    tsr__pipeline_inbox activations_in, gradients_in;
    tsr__pipeline_outbox activations_out, gradients_out;
} run;

/* Failure ------------------------------------------------------------------------------------ */

static tsr_status check_failed(const tsr_pipeline *pipeline)
{
    return pipeline->status == TSR_OK ? TSR_OK : tsr__fail(pipeline->status, "%s", pipeline->why);
}

/* Fails the pipeline with `status` and the recorded text, so that no neighbour waits for it. A
 * single stage has no neighbours and can go on. */
static tsr_status fail(tsr_pipeline *pipeline, tsr_status status)
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

/* Passes ------------------------------------------------------------------------------------- */

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
static tsr_status from_caller(const run *r, const char *pass, int micro_batch, tsr_status status)
{
    if (status == TSR_OK || r->pipeline->stages == 1)
        return status;
    return tsr__fail_context(status, "%s: stage %d, %s pass of micro-batch %d", who,
                             r->pipeline->stage, pass, micro_batch);
}

static tsr_status forward(run *r, int micro_batch)
{
    tsr_tensor *x, *y = NULL;
    TSR__TRY(tsr__pipeline_take(r->pipeline, &r->activations_in, micro_batch, &x));
    tsr_status status = from_caller(r, "forward", micro_batch,
                                    r->params->forward(r->params->user, micro_batch, x, &y));
    tsr_tensor_destroy(&x);
    if (status == TSR_OK)
        status = check_created(r, "y", micro_batch, r->pipeline->to_next.group != NULL, y);
    if (status == TSR_OK)
        status = tsr__pipeline_put(r->pipeline, &r->activations_out, y);
    tsr_tensor_destroy(&y);
    return status;
}

static tsr_status backward(run *r, int micro_batch)
{
    tsr_tensor *dy, *dx = NULL;
    TSR__TRY(tsr__pipeline_take(r->pipeline, &r->gradients_in, micro_batch, &dy));
    tsr_status status = from_caller(r, "backward", micro_batch,
                                    r->params->backward(r->params->user, micro_batch, dy, &dx));
    tsr_tensor_destroy(&dy);
    if (status == TSR_OK)
        status = check_created(r, "dx", micro_batch, r->pipeline->to_previous.group != NULL, dx);
    if (status == TSR_OK)
        status = tsr__pipeline_put(r->pipeline, &r->gradients_out, dx);
    tsr_tensor_destroy(&dx);
    return status;
}

/* Runs --------------------------------------------------------------------------------------- */

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

static tsr_status prepare(run *r)
{
    const tsr_pipeline *pipeline = r->pipeline;
    const size_t count = (size_t)r->params->micro_batches;
    r->activations_in = (tsr__pipeline_inbox){&pipeline->from_previous, r->params, 0, NULL, NULL};
    r->gradients_in = (tsr__pipeline_inbox){&pipeline->from_next, r->params, 0, NULL, NULL};
    r->activations_out = (tsr__pipeline_outbox){.link = &pipeline->to_next};
    r->gradients_out = (tsr__pipeline_outbox){.link = &pipeline->to_previous};
    r->steps = tsr__calloc(2 * count, sizeof *r->steps);
    r->activations_out.requests = tsr__calloc(count, sizeof *r->activations_out.requests);
    r->gradients_out.requests = tsr__calloc(count, sizeof *r->gradients_out.requests);
    if (!r->steps || !r->activations_out.requests || !r->gradients_out.requests)
        return TSR_ERR_NO_MEMORY;
    return tsr_pipeline_schedule(pipeline->stage, pipeline->stages, r->params->micro_batches,
                                 r->steps);
}

static tsr_status run_forward_only(run *r)
{
    for (int i = 0; i < r->params->micro_batches; i++)
        TSR__TRY(forward(r, i));
    return TSR_OK;
}

static tsr_status run_steps(run *r)
{
    TSR__TRY(tsr__pipeline_post(r->pipeline, &r->gradients_in));
    for (int i = 0; i < 2 * r->params->micro_batches; i++) {
        const tsr_pipeline_step *step = &r->steps[i];
        TSR__TRY(step->pass == TSR_PASS_FORWARD ? forward(r, step->micro_batch)
                                                : backward(r, step->micro_batch));
    }
    return TSR_OK;
}

static tsr_status run_all(run *r)
{
    TSR__TRY(tsr__pipeline_post(r->pipeline, &r->activations_in));
    TSR__TRY(r->params->backward ? run_steps(r) : run_forward_only(r));
    TSR__TRY(tsr__pipeline_flush(r->pipeline, &r->activations_out));
    return tsr__pipeline_flush(r->pipeline, &r->gradients_out);
}

static void finish(run *r)
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
    tsr_status status = prepare(&r);
    if (status == TSR_OK)
        status = run_all(&r);
    if (status != TSR_OK)
        status = fail(pipeline, status);
    tsr__pipeline_inbox_drop(&r.activations_in);
    tsr__pipeline_inbox_drop(&r.gradients_in);
    tsr__pipeline_outbox_drop(&r.activations_out);
    tsr__pipeline_outbox_drop(&r.gradients_out);
    finish(&r);
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
    tsr_status status = tsr_group_all_reduce(pipeline->ends, tensor, TSR_OP_SUM);
    return status == TSR_OK ? TSR_OK
                            : tsr__fail_context(status, "pipeline_reduce_ends: stages 0 and %d",
                                                pipeline->stages - 1);
}
