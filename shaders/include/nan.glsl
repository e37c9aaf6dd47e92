// Tests for NaN by integer arithmetic, because drivers may presume that there is no NaN and remove
// isnan().
#ifndef TSR_NAN_GLSL
#define TSR_NAN_GLSL

bool tsr_is_nan(float x)
{
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

#endif
