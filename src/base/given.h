/* Numbers in params for which zero can be wanted but is not the default: base.h states the rule. */
#ifndef TSR_BASE_GIVEN_H
#define TSR_BASE_GIVEN_H

#include <math.h>

/* Return the number that a caller means: `otherwise` for 0, which is a field that was not set, and
 * 0 for TSR_ZERO. */
static inline double tsr__given_double(double value, double otherwise)
{
    if (value != 0)
        return value;
    return signbit(value) ? 0 : otherwise;
}

static inline float tsr__given_float(float value, float otherwise)
{
    if (value != 0)
        return value;
    return signbit(value) ? 0 : otherwise;
}

#endif
