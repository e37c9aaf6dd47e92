// How many f16 multiply-adds a second the device does: chains of c = c·a + b in registers, as in fma_peak.comp. Eleven bits are too
// few for chains that never repeat. With a = 1 they climb for a round and come down again in the next, exactly; what they
// reach after each round is added up, so that a round left out shows. a, b and start come from memory: the compiler does not know.
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

layout(local_size_x = 128) in;

layout(constant_id = 0) const uint VECTORS = 2;
// 0: a multiplication and an addition, which drivers may fuse. Some are slow with fma(), as it may round only once.
layout(constant_id = 1) const uint FUSED = 1;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer floats {
    float v[];
};

layout(push_constant) uniform params {
    floats constants; // a[128], b[128], start[128]
    floats result;    // one sum per invocation
    uint rounds;      // of 64 steps each
} p;

#define CHAINS(MULTIPLY_ADD)                                                                       \
    MULTIPLY_ADD(c0);                                                                              \
    MULTIPLY_ADD(c1);                                                                              \
    if (VECTORS > 2)                                                                               \
        MULTIPLY_ADD(c2);                                                                          \
    if (VECTORS > 3)                                                                               \
        MULTIPLY_ADD(c3);
#define ONE(c) c = fma(c, a, b)
#define TWO(c) c = c * a + b
#define STEPS4(KIND) CHAINS(KIND) CHAINS(KIND) CHAINS(KIND) CHAINS(KIND)
#define STEPS16(KIND) STEPS4(KIND) STEPS4(KIND) STEPS4(KIND) STEPS4(KIND)

void main()
{
    uint i = gl_LocalInvocationID.x;
    f16vec4 a = f16vec4(p.constants.v[i]);
    f16vec4 b = f16vec4(p.constants.v[128 + i]);
    f16vec4 c0 = f16vec4(p.constants.v[256 + i] + vec4(0.0, 0.0625, 0.125, 0.1875));
    f16vec4 c1 = c0 + float16_t(0.25);
    f16vec4 c2 = c0 + float16_t(0.5);
    f16vec4 c3 = c0 + float16_t(0.75);
    float reached = 0.0;
    for (uint round = 0; round < p.rounds; round++) {
        if (FUSED != 0) {
            STEPS16(ONE) STEPS16(ONE) STEPS16(ONE) STEPS16(ONE)
        } else {
            STEPS16(TWO) STEPS16(TWO) STEPS16(TWO) STEPS16(TWO)
        }
        reached += float(c0.x);
        b = -b;
    }
    vec4 sum = vec4(c0) + vec4(c1);
    if (VECTORS > 2)
        sum += vec4(c2);
    if (VECTORS > 3)
        sum += vec4(c3);
    p.result.v[gl_WorkGroupID.x * 128 + i] = reached + sum.x + sum.y + sum.z + sum.w;
}
