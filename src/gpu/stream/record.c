/* Records commands. For each command, this adds the necessary barriers and keeps references to the
 * buffers in the batch. */
#include "base/alloc.h"
#include "gpu/stream/state.h"

/* The number of operations after which a batch is submitted. It is large enough that the cost of
 * submitting does not matter; larger batches would only start later. */
#define BATCH_OPERATIONS 96
/* The number of operations of the first batch after the device has completed all others. It is
 * smaller, because the device has nothing to do until this batch arrives. Each following batch may
 * have twice as many operations as the one before it. */
#define FIRST_BATCH_OPERATIONS 12
/* The number of operations after which a batch is submitted in the middle of an atomic operation,
 * which should be in one batch if possible. There is a limit because the driver needs memory for
 * each recorded command. */
#define BATCH_OPERATIONS_ATOMIC (BATCH_OPERATIONS + 1024)
/* The largest number of batches in flight; it is enough to keep any device busy. The memory of
 * destroyed tensors becomes free only when batches complete, so without a limit, a program that
 * records faster than its device computes would run out of memory. */
#define MAX_IN_FLIGHT 32
/* The largest number of different buffers that one operation uses. */
#define OPERATION_BUFFERS 24

void tsr__groups_for(uint64_t count, uint32_t size, uint32_t groups[3])
{
    const uint64_t limit = 65535;
    uint64_t needed = count / size + (count % size != 0);
    uint64_t rows = needed <= limit ? 1 : (needed + limit - 1) / limit;
    groups[0] = (uint32_t)((needed + rows - 1) / rows);
    groups[1] = (uint32_t)rows;
    groups[2] = 1;
}

void tsr__stream_barrier(tsr_stream *stream)
{
    const tsr__queue *queue = stream->queue;
    VkMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = queue->writes,
        .dstAccessMask = queue->reads | queue->writes,
    };
    stream->device->vk.CmdPipelineBarrier(stream->open->commands, queue->stages, queue->stages, 0,
                                          1, &barrier, 0, NULL, 0, NULL);
    tsr__hazards_clear(&stream->hazards);
    stream->barriers++;
}

uint32_t tsr__stream_new_independent_group(tsr_stream *stream)
{
    if (++stream->last_independent_group == 0)
        stream->last_independent_group = 1;
    return stream->last_independent_group;
}

static tsr_status let_device_catch_up(tsr_stream *stream)
{
    int in_flight = 0;
    for (const tsr__batch *batch = stream->in_flight; batch; batch = batch->next)
        in_flight++;
    if (in_flight < MAX_IN_FLIGHT)
        return TSR_OK;
    return tsr__stream_wait_batches(stream, stream->in_flight->point, UINT64_MAX);
}

static tsr_status retire_complete(tsr_stream *stream)
{
    TSR__TRY(tsr__timeline_poll(stream->device, stream->timeline));
    tsr__stream_retire(stream);
    return TSR_OK;
}

/* Prepares stream->next, the batch that will replace the open one, so that replacing cannot fail.
 */
static tsr_status make_next(tsr_stream *stream)
{
    if (stream->next)
        return TSR_OK;
    TSR__TRY(retire_complete(stream));
    /* Also release the buffers that complete batches of the transfer stream hold: that stream does
     * so by itself only at its next transfer, which may be much later. */
    if (stream->transfers)
        TSR__TRY(retire_complete(stream->transfers));
    TSR__TRY(let_device_catch_up(stream));
    if (!stream->spare)
        TSR__TRY(tsr__batch_create(stream->device, stream->queue->family, &stream->spare));
    tsr__batch *batch = stream->spare;
    TSR__TRY(tsr__batch_reserve(batch, OPERATION_BUFFERS));
    TSR__TRY(tsr__batch_begin(stream->device, batch));
    stream->spare = batch->next;
    batch->next = NULL;
    stream->next = batch;
    return TSR_OK;
}

static tsr_status open_batch(tsr_stream *stream)
{
    /* If the queue refused a batch earlier, submit that batch first. An operation that may not fail
     * any more goes on without it. */
    if (stream->queued && !stream->steps && stream->mode != TSR__STREAM_ATOMIC)
        TSR__TRY(tsr_stream_submit(stream));
    if (stream->open)
        return TSR_OK;
    TSR__TRY(make_next(stream));
    stream->open = stream->next;
    stream->next = NULL;
    stream->open->point = tsr__stream_closed_point(stream) + 1;
    stream->most_operations =
        stream->in_flight ? 2 * stream->most_operations : FIRST_BATCH_OPERATIONS;
    if (stream->most_operations > BATCH_OPERATIONS)
        stream->most_operations = BATCH_OPERATIONS;
    if (stream->owner)
        stream->open->owner_point = tsr__stream_last_point(stream->owner);
    /* Begin with a barrier, because Vulkan does not make the commands of a batch wait for earlier
     * batches of the queue. */
    tsr__stream_barrier(stream);
    return TSR_OK;
}

/* Submits the open batch in the middle of an operation, which continues in the next batch. */
static tsr_status submit_and_go_on(tsr_stream *stream)
{
    TSR__TRY(make_next(stream));
    return tsr_stream_submit(stream);
}

static bool noted(const tsr_stream *stream, const tsr__timeline *timeline, uint64_t point)
{
    for (int i = 0; i < stream->wait_count; i++)
        if (stream->waits[i].timeline == timeline && stream->waits[i].point >= point)
            return true;
    return false;
}

static void note_wait(tsr_stream *stream, tsr__timeline *timeline, uint64_t point)
{
    for (int i = 0; i < stream->wait_count; i++)
        if (stream->waits[i].timeline == timeline) {
            if (stream->waits[i].point < point)
                stream->waits[i].point = point;
            return;
        }
    tsr__timeline_retain(timeline);
    stream->waits[stream->wait_count++] = (tsr__stream_wait){timeline, point};
}

/* True if another stream has unfinished work on `buffer`. */
static bool used_elsewhere(const tsr_stream *stream, const tsr__buffer *buffer)
{
    const tsr__timeline *timeline = buffer->last_timeline;
    return timeline && timeline != stream->timeline && timeline->stream &&
           timeline->reached < buffer->last_point;
}

/* Makes the commands that are recorded next wait until stream `other->stream` has reached `point`.
 * Submits that stream's batch first if necessary. */
static tsr_status wait_for_other(tsr_stream *stream, tsr__timeline *other, uint64_t point)
{
    if (noted(stream, other, point))
        return TSR_OK;
    TSR__TRY(tsr__stream_run_steps(other->stream, point));
    if (point > other->submitted)
        TSR__TRY(tsr_stream_submit(other->stream));
    TSR__TRY(tsr__timeline_poll(stream->device, other));
    if (other->reached >= point || point > other->submitted)
        return TSR_OK;
    /* The command being recorded starts a new batch. The commands that are already recorded must
     * not wait for the other stream, because its work might wait for them. */
    if (stream->open && stream->open->operations > 0)
        TSR__TRY(submit_and_go_on(stream));
    if (stream->wait_count == TSR__STREAM_WAITS_MAX)
        return tsr__timeline_wait(stream->device, other, point, UINT64_MAX);
    note_wait(stream, other, point);
    return TSR_OK;
}

tsr_status tsr__stream_join_transfers(tsr_stream *stream)
{
    const tsr_stream *transfers = stream->transfers;
    if (!transfers)
        return TSR_OK;
    return wait_for_other(stream, transfers->timeline, tsr__stream_last_point(transfers));
}

/* Blocks if destroyed tensors to which only batches still have references occupy more memory than
 * stream->left_limit, until they occupy at most half of it. Without this, a program that creates
 * and destroys tensors and never waits would run out of memory, however little it uses at a time.
 */
static tsr_status bring_memory_back(tsr_stream *stream)
{
    const uint64_t limit = stream->left_limit;
    if (atomic_load(&stream->timeline->left_bytes) <= limit)
        return TSR_OK;
    TSR__TRY(submit_and_go_on(stream));
    TSR__TRY(tsr__stream_run_steps(stream, UINT64_MAX));
    while (stream->in_flight && atomic_load(&stream->timeline->left_bytes) > limit / 2)
        TSR__TRY(tsr__stream_wait_batches(stream, stream->in_flight->point, UINT64_MAX));
    return TSR_OK;
}

static bool is_held(const tsr_stream *stream, const tsr__buffer *buffer)
{
    return buffer->last_timeline == stream->timeline && buffer->last_point == stream->open->point;
}

static size_t not_held(const tsr_stream *stream, const tsr__access *access, int count)
{
    size_t buffers = 0;
    for (int i = 0; i < count; i++)
        buffers += !is_held(stream, access[i].buffer);
    return buffers;
}

tsr_status tsr__stream_begin(tsr_stream *stream, const tsr__access *access, int count)
{
    TSR__TRY(tsr__device_check(stream->device));
    if (stream->mode != TSR__STREAM_ATOMIC)
        TSR__TRY(bring_memory_back(stream));
    for (int i = 0; i < count; i++)
        if (used_elsewhere(stream, access[i].buffer))
            TSR__TRY(wait_for_other(stream, access[i].buffer->last_timeline,
                                    access[i].buffer->last_point));
    TSR__TRY(open_batch(stream));
    if (stream->mode == TSR__STREAM_PREFLIGHT)
        stream->serial++;
    return tsr__batch_reserve(stream->open, stream->mode == TSR__STREAM_PREFLIGHT
                                                ? OPERATION_BUFFERS
                                                : not_held(stream, access, count));
}

/* Lets the open batch keep a reference to the buffer, unless it already has one. */
static void hold(tsr_stream *stream, tsr__buffer *buffer)
{
    if (is_held(stream, buffer))
        return;
    tsr__batch_hold(stream->open, buffer);
    if (buffer->last_timeline != stream->timeline) {
        tsr__timeline_retain(stream->timeline);
        tsr__timeline_release(stream->device, buffer->last_timeline);
        buffer->last_timeline = stream->timeline;
    }
    buffer->last_point = stream->open->point;
}

void tsr__stream_hold(tsr_stream *stream, const tsr__access *access, int count)
{
    for (int i = 0; i < count; i++)
        hold(stream, access[i].buffer);
}

void tsr__stream_order(tsr_stream *stream, const tsr__access *access, int count,
                       uint32_t independent_group)
{
    if (tsr__hazards_conflict(&stream->hazards, access, count, independent_group))
        tsr__stream_barrier(stream);
    tsr__hazards_add(&stream->hazards, access, count, independent_group);
    tsr__stream_hold(stream, access, count);
    for (int i = 0; i < count; i++)
        stream->open->work +=
            TSR__BYTE_WORK * (double)(access[i].end_bytes - access[i].begin_bytes);
    stream->serial++;
    stream->open->operations++;
}

/* Submits the open batch. Its commands have already been recorded, so this succeeds even if
 * submitting fails: the batch remains, and the next submit or wait reports the error. An error is
 * returned only if the batch was dropped. */
static tsr_status submit_recorded(tsr_stream *stream, tsr_status (*submit)(tsr_stream *stream))
{
    const uint64_t point = stream->open->point;
    const tsr_status status = submit(stream);
    if (status == TSR_OK)
        return TSR_OK;
    const bool dropped = !stream->open && tsr__stream_closed_point(stream) < point;
    if (dropped)
        return status;
    tsr__log(TSR_LOG_WARNING, "submitting a batch: %s", tsr_last_error());
    return TSR_OK;
}

tsr_status tsr__stream_recorded(tsr_stream *stream)
{
    const uint32_t most =
        stream->mode == TSR__STREAM_ATOMIC ? BATCH_OPERATIONS_ATOMIC : stream->most_operations;
    tsr__stream_poll_steps(stream);
    if (stream->open->operations < most && stream->open->work < stream->device->work_limit)
        return TSR_OK;
    return submit_recorded(stream, submit_and_go_on);
}

tsr_status tsr__stream_start(tsr_stream *stream)
{
    return stream->open ? submit_recorded(stream, tsr_stream_submit) : TSR_OK;
}

static tsr_status begin_dispatch(tsr_stream *stream, const tsr__dispatch *dispatch)
{
    for (int i = 0; i < 3; i++)
        if (dispatch->groups[i] > stream->device->info.max_workgroup_count[i])
            return tsr__fail(TSR_ERR_INVALID, "%u workgroups in dimension %d; %s has at most %u",
                             (unsigned)dispatch->groups[i], i, stream->device->info.name,
                             (unsigned)stream->device->info.max_workgroup_count[i]);
    return tsr__stream_begin(stream, dispatch->access, dispatch->access_count);
}

/* Takes over the caller's reference to the pipeline, even on failure. `name` is for the label. */
static tsr_status record_dispatch(tsr_stream *stream, tsr__pipeline *pipeline, const char *name,
                                  const tsr__dispatch *dispatch)
{
    tsr_status status = begin_dispatch(stream, dispatch);
    if (status != TSR_OK) {
        tsr__pipeline_release(pipeline);
        return status;
    }
    /* The batch keeps a reference to the pipeline from the preflight on, so that the pipeline still
     * exists when the command is recorded after it. */
    TSR__TRY(tsr__batch_hold_pipeline(stream->open, pipeline));
    if (stream->mode == TSR__STREAM_PREFLIGHT)
        return TSR_OK;
    tsr__stream_order(stream, dispatch->access, dispatch->access_count,
                      dispatch->independent_group);
    stream->open->work += dispatch->work;
    tsr__stream_profile_command(stream, name, dispatch->access, dispatch->access_count, dispatch);
    tsr__stream_label(stream, name, dispatch->access, dispatch->access_count);

    const tsr__vk_device *vk = &stream->device->vk;
    VkCommandBuffer commands = stream->open->commands;
    vk->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, tsr__pipeline_handle(pipeline));
    if (dispatch->push_bytes > 0)
        vk->CmdPushConstants(commands, tsr__pipelines_layout(stream->device),
                             VK_SHADER_STAGE_COMPUTE_BIT, 0, dispatch->push_bytes, dispatch->push);
    const tsr__access *counted = &dispatch->counted;
    if (counted->buffer)
        vk->CmdDispatchIndirect(commands, counted->buffer->handle,
                                counted->buffer->slab_offset + counted->begin_bytes);
    else
        vk->CmdDispatch(commands, dispatch->groups[0], dispatch->groups[1], dispatch->groups[2]);
    tsr__stream_profile_recorded(stream);
    return tsr__stream_recorded(stream);
}

tsr_status tsr__stream_dispatch(tsr_stream *stream, const tsr__dispatch *dispatch)
{
    if (dispatch->groups[0] == 0 || dispatch->groups[1] == 0 || dispatch->groups[2] == 0)
        return TSR_OK;
    tsr__pipeline *pipeline;
    TSR__TRY(tsr__device_check(stream->device));
    TSR__TRY(tsr__pipeline_get(stream->device, dispatch->shader, dispatch->spec,
                               dispatch->spec_count, &pipeline));
    return record_dispatch(stream, pipeline, tsr__shader_binaries[dispatch->shader].name, dispatch);
}

tsr_status tsr__stream_run(tsr_stream *stream, tsr__pipeline *pipeline,
                           const tsr__dispatch *dispatch)
{
    tsr__pipeline_retain(pipeline);
    return record_dispatch(stream, pipeline, "kernel", dispatch);
}

/* The largest number of regions of one vkCmdCopyBuffer. The command needs offsets within the slab's
 * VkBuffer, so the regions are converted to these in an array of this size. */
#define REGIONS_AT_ONCE 128

tsr_status tsr__stream_copy(tsr_stream *stream, tsr__access source, tsr__access destination,
                            const tsr__copy_region *regions, uint32_t count)
{
    const tsr__access access[2] = {source, destination};
    TSR__TRY(tsr__stream_begin(stream, access, 2));
    if (stream->mode == TSR__STREAM_PREFLIGHT)
        return TSR_OK;
    tsr__stream_order(stream, access, 2, 0);
    tsr__stream_profile_command(stream, "copy", access, 2, NULL);
    for (uint32_t done = 0; done < count;) {
        VkBufferCopy copies[REGIONS_AT_ONCE];
        uint32_t some = 0;
        for (; some < REGIONS_AT_ONCE && done < count; some++, done++)
            copies[some] = (VkBufferCopy){
                .srcOffset = source.buffer->slab_offset + regions[done].source_bytes,
                .dstOffset = destination.buffer->slab_offset + regions[done].destination_bytes,
                .size = regions[done].size_bytes,
            };
        tsr__stream_label(stream, "regions", access, 2);
        stream->device->vk.CmdCopyBuffer(stream->open->commands, source.buffer->handle,
                                         destination.buffer->handle, some, copies);
    }
    tsr__stream_profile_recorded(stream);
    return tsr__stream_recorded(stream);
}

tsr_status tsr__stream_fill(tsr_stream *stream, tsr__access destination, uint32_t pattern)
{
    if (destination.begin_bytes == destination.end_bytes)
        return TSR_OK;
    TSR__TRY(tsr__stream_begin(stream, &destination, 1));
    if (stream->mode == TSR__STREAM_PREFLIGHT)
        return TSR_OK;
    tsr__stream_order(stream, &destination, 1, 0);
    tsr__stream_profile_command(stream, "fill", &destination, 1, NULL);
    tsr__stream_label(stream, "fill", &destination, 1);
    stream->device->vk.CmdFillBuffer(stream->open->commands, destination.buffer->handle,
                                     destination.buffer->slab_offset + destination.begin_bytes,
                                     destination.end_bytes - destination.begin_bytes, pattern);
    tsr__stream_profile_recorded(stream);
    return tsr__stream_recorded(stream);
}

tsr_status tsr__stream_update(tsr_stream *stream, tsr__access destination, const void *data)
{
    TSR__TRY(tsr__stream_begin(stream, &destination, 1));
    if (stream->mode == TSR__STREAM_PREFLIGHT)
        return TSR_OK;
    tsr__stream_order(stream, &destination, 1, 0);
    tsr__stream_profile_command(stream, "update", &destination, 1, NULL);
    tsr__stream_label(stream, "update", &destination, 1);
    stream->device->vk.CmdUpdateBuffer(stream->open->commands, destination.buffer->handle,
                                       destination.buffer->slab_offset + destination.begin_bytes,
                                       destination.end_bytes - destination.begin_bytes, data);
    tsr__stream_profile_recorded(stream);
    return tsr__stream_recorded(stream);
}

/* Host steps ----------------------------------------------------------------------------------- */

tsr_status tsr__stream_host_step(tsr_stream *stream, tsr_tensor *const *used, int count,
                                 tsr__step_work *run, void *user)
{
    tsr__access access[TSR__STEP_TENSORS];
    tsr__host_step *step = tsr__calloc(1, sizeof *step), **last = &stream->steps;
    if (!step)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < count; i++)
        access[i] = tsr__write_of(used[i]);
    tsr_status status = tsr_stream_submit(stream);
    if (status == TSR_OK)
        status = tsr__stream_begin(stream, access, count);
    if (status != TSR_OK) {
        tsr__free(step);
        return status;
    }
    *step = (tsr__host_step){.point = tsr__stream_closed_point(stream), .run = run, .user = user};
    while (*last)
        last = &(*last)->next;
    *last = step;
    tsr__stream_hold(stream, access, count);
    return TSR_OK;
}

/* Atomic operations of several commands ------------------------------------------------------ */

static tsr_status run_as(tsr_stream *stream, tsr__stream_mode mode, tsr__steps *steps, void *work)
{
    stream->mode = mode;
    tsr_status status = steps(stream, work);
    stream->mode = TSR__STREAM_SINGLE;
    return status;
}

tsr_status tsr__stream_atomic(tsr_stream *stream, tsr__steps *steps, void *work)
{
    /* another atomic operation calls this as one of its steps */
    if (stream->mode != TSR__STREAM_SINGLE)
        return steps(stream, work);
    tsr__stream_begin_preflight(stream);
    TSR__TRY(run_as(stream, TSR__STREAM_PREFLIGHT, steps, work));
    tsr__stream_scratch_after_preflight(stream);
    TSR__TRY(run_as(stream, TSR__STREAM_ATOMIC, steps, work));
    return stream->open ? tsr__stream_recorded(stream) : TSR_OK;
}
