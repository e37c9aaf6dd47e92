// How argmax compares elements. A pair is (key, index).
#ifndef TSR_ARGMAX_GLSL
#define TSR_ARGMAX_GLSL

// Unsigned integers in the order of the floats: NaN above all, the two zeros equal. 0 is below all of them.
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

// The larger key; of equal ones the smaller index.
uvec2 argmax_better(uvec2 a, uvec2 b)
{
    return b.x > a.x || (b.x == a.x && b.y < a.y) ? b : a;
}

#endif
