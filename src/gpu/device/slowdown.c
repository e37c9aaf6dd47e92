/* Slows devices down on purpose. With TESSERA_SLOWDOWN=3, streams take three times as long, so that
 * one machine can simulate several devices of different speeds. This is for tests and
 * demonstrations: the thread that submits to a slowed stream blocks until the work is complete. */
#include "base/environment.h"
#include "gpu/device/device.h"

#define MAX_SLOWDOWN 1000.0

/* Returns the value of a number that consists of digits and at most one point, or 0 for any other
 * text. strtod cannot be used: it expects the locale's decimal point and accepts spaces, signs,
 * hexadecimal numbers and "inf". */
static double plain_number(const char *text)
{
    double value = 0, unit = 1;
    bool after_point = false;
    for (; *text; text++) {
        if (*text == '.' && !after_point) {
            after_point = true;
            continue;
        }
        if (*text < '0' || *text > '9')
            return 0;
        unit = after_point ? unit / 10 : 1;
        value = after_point ? value + (*text - '0') * unit : 10 * value + (*text - '0');
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
    TSR__REQUIRE(factor >= 1 && factor <= MAX_SLOWDOWN,
                 "TESSERA_SLOWDOWN is '%.80s', not a number from 1 to %g", text, MAX_SLOWDOWN);
    *out = factor;
    return TSR_OK;
}
