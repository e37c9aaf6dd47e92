/* Operations of several commands that are atomic: all commands are recorded, or none is. */
#include "gpu/stream/state.h"

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
    stream->preflight_serial = stream->serial;
    TSR__TRY(run_as(stream, TSR__STREAM_PREFLIGHT, steps, work));
    tsr__stream_scratch_after_preflight(stream);
    TSR__TRY(run_as(stream, TSR__STREAM_ATOMIC, steps, work));
    return stream->open ? tsr__stream_recorded(stream) : TSR_OK;
}
