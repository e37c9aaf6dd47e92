// The comparisons of argmax. A pair is (key, index).
#ifndef TSR_ARGMAX_GLSL
#define TSR_ARGMAX_GLSL

// Maps floats to unsigned integers with the same order. NaN is above all numbers, the two zeros are
// equal, and 0 is below all keys.
uint argmax_key(float value)
{
    uint bits = floatBitsToUint(value);
    uint magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return 0xffffffffu;
    if (magnitude == 0u)
        return 0x80000000u;
    return bits != magnitude ? ~bits : bits | 0x80000000u;
}

// The pair with the larger key; if keys are equal, the one with the smaller index.
uvec2 argmax_better(uvec2 a, uvec2 b)
{
    return b.x > a.x || (b.x == a.x && b.y < a.y) ? b : a;
}

#endif
