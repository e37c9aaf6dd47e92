/* A device slowed down on purpose: TESSERA_SLOWDOWN=3 makes streams take three times as long, so
 * that one machine can stand for several that are not alike. For tests and demonstrations: a slowed
 * stream works while the thread that submits to it waits. */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "gpu/stream_state.h"

#define SLOWDOWN_MOST 1000.0

double tsr__stream_slowdown(void)
{
    const char *text = getenv("TESSERA_SLOWDOWN");
    const double factor = text ? strtod(text, NULL) : 1;
    return factor > 1 && factor <= SLOWDOWN_MOST ? factor : 1;
}

tsr_status tsr__stream_slow(tsr_stream *stream, uint64_t point, uint64_t submitted_ns)
{
    if (stream->slowdown <= 1)
        return TSR_OK;
    TSR__TRY(tsr__timeline_wait(stream->device, stream->timeline, point, UINT64_MAX));
    const double rest = (double)(tsr__now_ns() - submitted_ns) * (stream->slowdown - 1);
    struct timespec left = {.tv_sec = (time_t)(rest / 1e9)};
    left.tv_nsec = (long)(rest - (double)left.tv_sec * 1e9);
    while (nanosleep(&left, &left) != 0)
        continue;
    return TSR_OK;
}
