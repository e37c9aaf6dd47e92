// Whether a number is none, in integers: drivers may leave out isnan(), presuming that there is no NaN.
#ifndef TSR_NAN_GLSL
#define TSR_NAN_GLSL

bool tsr_is_nan(float x)
{
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

#endif
