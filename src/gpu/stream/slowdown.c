/* A device slowed down on purpose: TESSERA_SLOWDOWN=3 makes streams take three times as long, so
 * that one machine can stand for several that are not alike. For tests and demonstrations: a slowed
 * stream works while the thread that submits to it waits. */
#include <time.h>

#include "base/clock.h"
#include "base/environment.h"
#include "gpu/stream/state.h"

#define SLOWDOWN_MOST 1000.0

/* Digits, with a point among them or not. strtod would want the locale's point, and also take
 * spaces, signs, hexadecimal digits, "inf". Of other text, 0. */
static double plain_number(const char *text)
{
    double value = 0, unit = 1;
    bool behind_point = false;
    for (; *text; text++) {
        if (*text == '.' && !behind_point) {
            behind_point = true;
            continue;
        }
        if (*text < '0' || *text > '9')
            return 0;
        unit = behind_point ? unit / 10 : 1;
        value = behind_point ? value + (*text - '0') * unit : 10 * value + (*text - '0');
    }
    return value;
}

tsr_status tsr__slowdown(double *out)
{
    const char *text = tsr__env_text("TESSERA_SLOWDOWN");
    *out = 1;
    if (!text)
        return TSR_OK;
    const double factor = plain_number(text);
    TSR__REQUIRE(factor >= 1 && factor <= SLOWDOWN_MOST,
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
