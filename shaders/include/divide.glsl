// Division of floats that are not negative, rounded to the nearest float, and to even if two are
// equally near, as the host rounds it. Vulkan lets a device's own division be off by 2.5 units in
// the last place, and lets it treat subnormal numbers as 0. All numbers are passed as the bits of
// an f32.
#ifndef TSR_DIVIDE_GLSL
#define TSR_DIVIDE_GLSL

#extension GL_EXT_control_flow_attributes : require

// The largest error of the quotient, in units of its last place, that can be corrected. The
// device's division and the conversion to a whole number have an error of up to 3; 1 is in reserve.
const int TSR_DIVIDE_STEPS = 4;

// Splits a number into m · 2^(exponent − 150), where m is at least 2^23 and below 2^24. Returns m.
// The number must be finite and not 0.
uint tsr_divide_significand(uint bits, out int exponent)
{
    uint fraction = bits & 0x7fffffu;
    int shift = 23 - findMSB(fraction); // the shift that normalises a subnormal number
    bool normal = bits >= 0x800000u;
    exponent = normal ? int(bits >> 23) : 1 - shift;
    return normal ? fraction | 0x800000u : fraction << shift;
}

// Returns a / b. `wrong` is added to the quotient before it is corrected: tests pass the errors
// that a device's division may have.
uint tsr_divide_wrong(uint a, uint b, int wrong)
{
    const uint infinite = 0x7f800000u;
    if (a == 0u || b == 0u || a >= infinite || b >= infinite) {
        if (a == b || a > infinite || b > infinite)
            return 0x7fc00000u;
        return a == infinite || b == 0u ? infinite : 0u;
    }
    int a_exponent, b_exponent;
    uint x = tsr_divide_significand(a, a_exponent), y = tsr_divide_significand(b, b_exponent);
    // The whole part of x · 2^shift / y has 24 bits.
    uint shift = x < y ? 24u : 23u;
    uint quotient = uint(int(float(x) / float(y) * float(1u << shift)) + wrong);
    // The remainder is at most a few times y, so its lowest 32 bits contain all of it.
    int rest = int((x << shift) - quotient * y);
    [[unroll]] for (int i = 0; i < TSR_DIVIDE_STEPS; i++) {
        int below = rest >> 31; // all bits are set if the remainder is negative
        quotient += uint(below);
        rest += int(y) & below;
    }
    [[unroll]] for (int i = 0; i < TSR_DIVIDE_STEPS; i++) {
        int above = (int(y) - 1 - rest) >> 31;
        quotient -= uint(above);
        rest -= int(y) & above;
    }

    // `more` is positive if what is cut off behind the last bit of the result is more than half of
    // that bit, and 0 if it is exactly half. If the result is subnormal, the exponent says how many
    // bits of the quotient are cut off.
    int exponent = a_exponent - b_exponent + 150 - int(shift);
    if (exponent >= 255)
        return infinite;
    uint dropped = uint(clamp(1 - exponent, 0, 25));
    uint kept = quotient >> dropped, lowest = quotient - (kept << dropped);
    int half_of_it = int((1u << dropped) >> 1);
    int more = dropped == 0u                ? 2 * rest - int(y)
               : int(lowest) != half_of_it ? int(lowest) - half_of_it
                                           : rest;
    kept += more > 0 || (more == 0 && (kept & 1u) != 0u) ? 1u : 0u;
    // The quotient's first bit adds 1 to the exponent of a normal number, and so does a carry.
    return kept + (dropped == 0u ? uint(exponent - 1) << 23 : 0u);
}

uint tsr_divide(uint a, uint b)
{
    return tsr_divide_wrong(a, b, 0);
}

#endif
