/* Host steps: work of the host between two pieces of a stream's work, as a collective operation
 * between two layers. The host records the pieces after a step before it runs, and waits for
 * nothing while it does. A piece is submitted when all steps before it have run, so the device
 * never blocks other work of its queue while it waits for the host, and an error of a step cannot
 * leave it waiting. */
#include "base/alloc.h"
#include "base/clock.h"
#include "gpu/stream/state.h"

/* Runs the oldest step, which the device has reached, and submits the piece after it. If the queue
 * refuses that, the next call that submits or waits tries again and reports it. */
static void run_oldest(tsr_stream *stream, uint64_t waited_ns, bool cancelled)
{
    tsr__host_step *step = stream->steps;
    stream->steps = step->next;
    stream->in_step = true;
    step->run(step->user, waited_ns, cancelled);
    stream->in_step = false;
    stream->steps_run += !cancelled;
    tsr__free(step);
    if (tsr__stream_submit_queued(stream) != TSR_OK)
        tsr__log(TSR_LOG_WARNING, "submitting a batch: %s", tsr_last_error());
}

void tsr__stream_cancel_steps(tsr_stream *stream)
{
    while (stream->steps)
        run_oldest(stream, 0, true);
}

void tsr__stream_poll_steps(tsr_stream *stream)
{
    while (stream->steps && !stream->in_step &&
           stream->steps->point <= stream->timeline->submitted) {
        if (tsr__timeline_poll(stream->device, stream->timeline) != TSR_OK ||
            stream->timeline->reached < stream->steps->point)
            return;
        run_oldest(stream, 0, false);
    }
}

tsr_status tsr__stream_run_steps(tsr_stream *stream, uint64_t point)
{
    while (stream->steps && !stream->in_step && stream->steps->point < point) {
        const uint64_t began_ns = tsr__now_ns();
        const uint64_t reached = stream->steps->point;
        tsr_status status = tsr__stream_submit_queued(stream);
        if (status == TSR_OK)
            status = tsr__timeline_wait(stream->device, stream->timeline, reached, UINT64_MAX);
        if (status != TSR_OK) {
            if (atomic_load(&stream->device->lost))
                tsr__stream_cancel_steps(stream);
            return status;
        }
        run_oldest(stream, tsr__now_ns() - began_ns, false);
    }
    return TSR_OK;
}

tsr_status tsr__stream_settle(tsr_stream *stream)
{
    return tsr__stream_run_steps(stream, UINT64_MAX);
}
