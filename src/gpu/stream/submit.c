/* Submitting batches and waiting for them. */
#include "base/checked.h"
#include "base/clock.h"
#include "gpu/pipeline/pipeline.h"
#include "gpu/stream/state.h"

void tsr__stream_retire(tsr_stream *stream)
{
    while (stream->in_flight && stream->in_flight->point <= stream->timeline->reached) {
        tsr__batch *done = stream->in_flight;
        stream->in_flight = done->next;
        tsr__batch_retire(done);
        done->next = stream->spare;
        stream->spare = done;
    }
}

/* Submits what is recorded, up to the first host step. */
tsr_status tsr_stream_submit(tsr_stream *stream)
{
    TSR__REQUIRE(stream != NULL, "stream_submit: stream is NULL");
    TSR__TRY(tsr__device_check(stream->device));
    if (stream->transfers)
        TSR__TRY(tsr_stream_submit(stream->transfers));
    /* Only the first batch that is submitted waits for other streams. */
    if (stream->open && stream->wait_count > 0)
        TSR__TRY(tsr__stream_run_steps(stream, stream->open->point));
    if (stream->open)
        TSR__TRY(tsr__stream_close_open(stream));
    return tsr__stream_submit_queued(stream);
}

/* Waiting -------------------------------------------------------------------------------------- */

tsr_status tsr_stream_mark(tsr_stream *stream, uint64_t *out_point)
{
    TSR__REQUIRE(stream != NULL && out_point != NULL, "stream_mark: %s is NULL",
                 stream ? "out_point" : "stream");
    *out_point = tsr__stream_last_point(stream);
    return TSR_OK;
}

/* Some of the stream's uploads and downloads run on its transfer stream. Returns the point of the
 * transfer stream at which those are complete that were recorded before the stream's own `point`; 0
 * if they are complete already. */
static uint64_t transfers_until(const tsr_stream *stream, uint64_t point)
{
    const tsr_stream *transfers = stream->transfers;
    uint64_t last = 0;
    if (!transfers)
        return 0;
    if (transfers->open && transfers->open->owner_point <= point)
        return transfers->open->point;
    for (const tsr__batch *batch = transfers->in_flight; batch && batch->owner_point <= point;
         batch = batch->next)
        last = batch->point;
    for (const tsr__batch *batch = transfers->queued; batch && batch->owner_point <= point;
         batch = batch->next)
        last = batch->point;
    return last;
}

tsr__stream_counts tsr__stream_get_counts(const tsr_stream *stream)
{
    return (tsr__stream_counts){.submissions = stream->submissions,
                                .waits = stream->host_waits,
                                .idle_waits = stream->idle_waits,
                                .steps = stream->steps_run,
                                .pipelines = tsr__pipelines_built(stream->device)};
}

tsr_status tsr__stream_wait_batches(tsr_stream *stream, uint64_t point, uint64_t timeout_ns)
{
    TSR__TRY(tsr__device_check(stream->device));
    TSR__TRY(tsr__stream_run_steps(stream, point));
    if (point > stream->timeline->submitted)
        TSR__TRY(tsr_stream_submit(stream));
    /* If the batch of this point was dropped, which was reported at that time, wait for the last
     * submitted point instead. */
    if (point > stream->timeline->submitted)
        point = stream->timeline->submitted;
    if (stream->timeline->reached < point) {
        stream->host_waits++;
        stream->idle_waits += point == stream->timeline->submitted;
    }
    TSR__TRY(tsr__timeline_wait(stream->device, stream->timeline, point, timeout_ns));
    tsr__stream_retire(stream);
    return TSR_OK;
}

tsr_status tsr_stream_wait_point(tsr_stream *stream, uint64_t point, uint64_t timeout_ns)
{
    TSR__REQUIRE(stream != NULL, "stream_wait_point: stream is NULL");
    const uint64_t transferred = transfers_until(stream, point);
    if (transferred == 0)
        return tsr__stream_wait_batches(stream, point, timeout_ns);
    const uint64_t began_ns = tsr__now_ns();
    TSR__TRY(tsr__stream_wait_batches(stream, point, timeout_ns));
    const uint64_t waited_ns = tsr__now_ns() - began_ns;
    if (timeout_ns != UINT64_MAX)
        timeout_ns -= tsr__min_u64(timeout_ns, waited_ns);
    return tsr__stream_wait_batches(stream->transfers, transferred, timeout_ns);
}

tsr_status tsr_stream_wait(tsr_stream *stream)
{
    TSR__REQUIRE(stream != NULL, "stream_wait: stream is NULL");
    return tsr_stream_wait_point(stream, UINT64_MAX, UINT64_MAX);
}

tsr_status tsr_stream_reached(tsr_stream *stream, uint64_t point, bool *out)
{
    TSR__REQUIRE(stream != NULL && out != NULL, "stream_reached: %s is NULL",
                 stream ? "out" : "stream");
    TSR__TRY(tsr__device_check(stream->device));
    TSR__TRY(tsr__timeline_poll(stream->device, stream->timeline));
    tsr__stream_poll_steps(stream);
    tsr__stream_retire(stream);
    bool transferred = true;
    if (stream->transfers) {
        TSR__TRY(tsr__timeline_poll(stream->device, stream->transfers->timeline));
        tsr__stream_retire(stream->transfers);
        transferred = transfers_until(stream, point) == 0;
    }
    *out = transferred && stream->timeline->reached >= point;
    return TSR_OK;
}

bool tsr__buffer_idle(tsr__buffer *buffer)
{
    tsr__timeline *timeline = buffer->last_timeline;
    if (!timeline || !timeline->stream || timeline->reached >= buffer->last_point)
        return true;
    /* If the query fails, the buffer counts as in use; the next wait reports the error. */
    return tsr__timeline_poll(buffer->device, timeline) == TSR_OK &&
           timeline->reached >= buffer->last_point;
}

tsr_status tsr__buffer_wait(tsr__buffer *buffer)
{
    tsr__timeline *timeline = buffer->last_timeline;
    TSR__TRY(tsr__device_check(buffer->device));
    if (!timeline || !timeline->stream)
        return TSR_OK;
    return tsr__stream_wait_batches(timeline->stream, buffer->last_point, UINT64_MAX);
}
