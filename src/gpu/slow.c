/* A device slowed down on purpose: TESSERA_SLOWDOWN=3 makes streams take three times as long, so
 * that one machine can stand for several that are not alike. For tests and demonstrations: a slowed
 * stream works while the thread that submits to it waits. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/environment.h"
#include "gpu/stream_state.h"

#define SLOWDOWN_MOST 1000.0

tsr_status tsr__slowdown(double *out)
{
    const char *text = tsr__env_text("TESSERA_SLOWDOWN");
    char *end = NULL;
    *out = 1;
    if (!text)
        return TSR_OK;
    /* strtod would also take spaces, signs, hexadecimal digits, "inf". */
    const bool plain = strspn(text, "0123456789.") == strlen(text);
    const double factor = plain ? strtod(text, &end) : 0;
    TSR__REQUIRE(plain && !*end && factor >= 1 && factor <= SLOWDOWN_MOST,
                 "TESSERA_SLOWDOWN is '%.80s', not a number from 1 to %g", text, SLOWDOWN_MOST);
    *out = factor;
    return TSR_OK;
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
