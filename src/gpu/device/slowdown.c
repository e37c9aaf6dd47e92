/* Slows devices down on purpose: TESSERA_SLOWDOWN=3 makes streams take three times as long, so that
 * one machine can simulate several devices of different speed. It is for tests and demonstrations:
 * the thread that submits to a slowed stream waits for its work. */
#include "base/environment.h"
#include "gpu/device/device.h"

#define MAX_SLOWDOWN 1000.0

/* The value of a number that consists of digits and at most one point; 0 for other text. strtod
 * would expect the locale's decimal point, and accept spaces, signs, hexadecimal and "inf". */
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
