// Four numbers as f16 or bf16, for the kernels of Mesa's CPU driver, to be stored at once. Includes nothing: float16.glsl and 64-bit
// integers are there.
#ifndef TSR_LAVAPIPE_HALVES_GLSL
#define TSR_LAVAPIPE_HALVES_GLSL

// As tsr_f16_from_f32, in half as many operations: this driver rounds additions to nearest even, and so to multiples of 2^-24
// where a half becomes subnormal.
uint encode_f16(float value)
{
    uint bits = floatBitsToUint(value), magnitude = bits & 0x7fffffffu;
    precise float stepped = uintBitsToFloat(magnitude) + 0.5;
    uint normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    uint result = mix(normal, floatBitsToUint(stepped) - 0x3f000000u, magnitude < 0x38800000u);
    result = mix(result, 0x7c00u, magnitude >= 0x477ff000u);
    result = mix(result, 0x7e00u, magnitude > 0x7f800000u);
    return (bits >> 16 & 0x8000u) | result;
}

uvec2 encode_halves(vec4 values, uint dtype)
{
    uvec4 bits;
    [[unroll]] for (int i = 0; i < 4; i++)
        bits[i] = dtype == TSR_DT_F16 ? encode_f16(values[i]) : tsr_bf16_from_f32(values[i]);
    return bits.xz | bits.yw << 16;
}

#endif
