// Converts four numbers to f16 or bf16, which kernels for lavapipe store at once. The including
// file includes float16.glsl and enables 64-bit integers.
#ifndef TSR_LAVAPIPE_FLOAT16_GLSL
#define TSR_LAVAPIPE_FLOAT16_GLSL

// Computes tsr_f16_from_f32 with half as many operations. lavapipe rounds additions to nearest
// even; if the f16 is subnormal, adding 0.5 rounds to multiples of 2^-24.
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

// encode_f16s() and encode_bf16s() have no loops, and a macro chooses between them by a constant dtype, for the reasons given in
// lavapipe.glsl.
uvec2 encode_f16s(vec4 values)
{
    uvec4 bits = uvec4(encode_f16(values.x), encode_f16(values.y), encode_f16(values.z), encode_f16(values.w));
    return bits.xz | bits.yw << 16;
}

uvec2 encode_bf16s(vec4 values)
{
    uvec4 bits = uvec4(tsr_bf16_from_f32(values.x), tsr_bf16_from_f32(values.y), tsr_bf16_from_f32(values.z), tsr_bf16_from_f32(values.w));
    return bits.xz | bits.yw << 16;
}

#define ENCODE_FLOAT16S(values, dtype) ((dtype) == TSR_DT_F16 ? encode_f16s(values) : encode_bf16s(values))

#endif
