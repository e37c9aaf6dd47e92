// Functions of rotary position embedding: angles, and loads and stores of four components.
#ifndef TSR_ROPE_GLSL
#define TSR_ROPE_GLSL

#include "include/elements.glsl"

// The angle of a position, as a fraction of a full turn times 2^32. The overflow of 32 bits drops
// full turns, so that the result is as precise for large positions as for small ones.
uint rope_angle(int position, uvec2 frequency)
{
    uint distance = position < 0 ? 0u - uint(position) : uint(position);
    uint high, low;
    umulExtended(distance, frequency.x, high, low);
    uint angle = distance * frequency.y + high + (low >> 31);
    return position < 0 ? 0u - angle : angle;
}

// The cosine and sine of an angle. The argument of the polynomials is the angle's distance from the
// nearest quarter turn, which is at most an eighth of a turn. The polynomials are those of the
// Cephes library's sinf and cosf.
vec2 rope_turn(uint angle)
{
    uint quarter = (angle + 0x20000000u) >> 30;
    float a = float(int(angle - (quarter << 30))) * 1.46291807926715968e-9; // 2π / 2^32
    float z = a * a;
    float s = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * a + a;
    float c = ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1.0;
    vec2 turned = (quarter & 1u) == 0u ? vec2(c, s) : vec2(-s, c);
    return (quarter & 2u) == 0u ? turned : -turned;
}

// Loads four neighbouring components, which start at a multiple of their size.
vec4 rope_load4(uvec2 base, uint at, uint dtype)
{
    uvec2 bits[4];
    tsr_load_bits4(base, at, dtype == TSR_DT_F32 ? 4u : 2u, bits);
    vec4 values;
    [[unroll]] for (uint k = 0u; k < 4u; k++)
        values[k] = dtype == TSR_DT_F16    ? tsr_f32_from_f16(bits[k].x)
                    : dtype == TSR_DT_BF16 ? tsr_f32_from_bf16(bits[k].x)
                                           : uintBitsToFloat(bits[k].x);
    return values;
}

// Stores four neighbouring components, which start at a multiple of their size.
void rope_store4(uvec2 base, uint at, uint dtype, vec4 values)
{
    uvec2 bits[4];
    [[unroll]] for (uint k = 0u; k < 4u; k++)
        bits[k] = uvec2(tsr_bits_of(values[k], dtype), 0u);
    tsr_store_bits4(base, at, dtype == TSR_DT_F32 ? 4u : 2u, bits);
}

#endif
