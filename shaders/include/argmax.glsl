// The comparisons of argmax. A pair is (key, index); a key is an integer that represents a float.
#ifndef TSR_ARGMAX_GLSL
#define TSR_ARGMAX_GLSL

// Returns the key of a float, an unsigned integer. Keys are in the same order as the floats. The
// key of NaN is the largest, both zeros have the same key, and every key is greater than 0.
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

// Returns the pair with the larger key. If the keys are equal, it returns the pair with the smaller
// index.
uvec2 argmax_better(uvec2 a, uvec2 b)
{
    return b.x > a.x || (b.x == a.x && b.y < a.y) ? b : a;
}

#endif
