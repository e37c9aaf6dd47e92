/* Creates pipelines: a group for each direction between neighbours, and one of the first and the
 * last stage. */
#include "base/alloc.h"
#include "base/struct_size.h"
#include "parallel/pipeline/pipeline.h"

/* Splits `comm` into the pairs of stages 2i + first and 2i + first + 1, and creates the two groups
 * of this rank's pair. All ranks of `comm` must call it. */
static tsr_status link_pairs(tsr_pipeline *pipeline, const tsr_pipeline_params *params, int first)
{
    const int stage = pipeline->stage, pair = (stage + 2 - first) / 2;
    /* whether this rank's stage is the earlier one of its pair */
    const bool is_upper = (stage - first) % 2 == 0;
    const int neighbour = is_upper ? stage + 1 : stage - 1;
    const bool alone = neighbour < 0 || neighbour >= pipeline->stages;
    tsr_comm *comm = NULL;
    TSR__TRY(tsr_comm_split(params->comm, alone ? TSR_COLOUR_NONE : pair, stage, &comm));
    if (alone)
        return TSR_OK;
    tsr__pipeline_link *down = is_upper ? &pipeline->to_next : &pipeline->from_previous;
    tsr__pipeline_link *up = is_upper ? &pipeline->from_next : &pipeline->to_previous;
    *down = (tsr__pipeline_link){.neighbour = neighbour, .root = 0};
    *up = (tsr__pipeline_link){.neighbour = neighbour, .root = 1};
    tsr_status status = tsr_group_create(comm, params->stream, params->group, &down->group);
    if (status == TSR_OK)
        status = tsr_group_create(comm, params->stream, params->group, &up->group);
    tsr_comm_destroy(&comm);
    return status;
}

static tsr_status join_ends(tsr_pipeline *pipeline, const tsr_pipeline_params *params)
{
    const bool is_end = pipeline->stage == 0 || pipeline->stage == pipeline->stages - 1;
    tsr_comm *comm = NULL;
    TSR__TRY(tsr_comm_split(params->comm, is_end ? 0 : TSR_COLOUR_NONE, pipeline->stage, &comm));
    if (!is_end)
        return TSR_OK;
    tsr_status status = tsr_group_create(comm, params->stream, params->group, &pipeline->ends);
    tsr_comm_destroy(&comm);
    return status;
}

static tsr_status connect_stages(tsr_pipeline *pipeline, const tsr_pipeline_params *params)
{
    if (pipeline->stages == 1)
        return TSR_OK;
    TSR__TRY(link_pairs(pipeline, params, 0));
    TSR__TRY(link_pairs(pipeline, params, 1));
    return join_ends(pipeline, params);
}

tsr_status tsr_pipeline_create(const tsr_pipeline_params *params, tsr_pipeline **out)
{
    TSR__REQUIRE(params && out, "pipeline_create: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_pipeline_params, params);
    TSR__REQUIRE(params->stream, "pipeline_create: stream is NULL");
    tsr_pipeline *pipeline = tsr__calloc(1, sizeof *pipeline);
    if (!pipeline)
        return TSR_ERR_NO_MEMORY;
    pipeline->stream = params->stream;
    pipeline->stage = params->comm ? tsr_comm_rank(params->comm) : 0;
    pipeline->stages = params->comm ? tsr_comm_size(params->comm) : 1;
    tsr_status status = connect_stages(pipeline, params);
    if (status != TSR_OK) {
        tsr_pipeline_destroy(&pipeline);
        return status;
    }
    *out = pipeline;
    return TSR_OK;
}

void tsr_pipeline_destroy(tsr_pipeline **pipeline)
{
    if (!pipeline || !*pipeline)
        return;
    tsr_pipeline *closing = *pipeline;
    *pipeline = NULL;
    tsr_group_destroy(&closing->ends);
    tsr_group_destroy(&closing->to_previous.group);
    tsr_group_destroy(&closing->from_next.group);
    tsr_group_destroy(&closing->to_next.group);
    tsr_group_destroy(&closing->from_previous.group);
    tsr__free(closing);
}

tsr_status tsr_pipeline_get_stats(const tsr_pipeline *pipeline, tsr_pipeline_stats *out)
{
    TSR__REQUIRE(pipeline && out, "pipeline_get_stats: %s is NULL", pipeline ? "out" : "pipeline");
    TSR__GIVE(tsr_pipeline_stats, &pipeline->stats, out);
    return TSR_OK;
}
