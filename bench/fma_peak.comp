// How many multiply-adds a second the device does when nothing else is in the way: independent chains of
// c = c·a + b in registers. Every invocation's a, b and start come from memory and its sum goes back there, so that no
// compiler can work the result out or leave the work out.
#version 450
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 128) in;

// Chains of four: two fit the registers of any CPU, more hide a GPU's latency.
layout(constant_id = 0) const uint VECTORS = 2;
// 0: a multiplication and an addition, which drivers may fuse. Some are slow with fma(), as it may round only once.
layout(constant_id = 1) const uint FUSED = 1;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer floats {
    float v[];
};

layout(push_constant) uniform params {
    floats constants; // a[128], b[128], start[128]
    floats result;    // one sum per invocation
    uint rounds;      // of 16 steps each
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

void main()
{
    uint i = gl_LocalInvocationID.x;
    vec4 a = vec4(p.constants.v[i]);
    vec4 b = vec4(p.constants.v[128 + i]);
    vec4 c0 = p.constants.v[256 + i] + vec4(0.0, 0.0625, 0.125, 0.1875);
    vec4 c1 = c0 + 0.25;
    vec4 c2 = c0 + 0.5;
    vec4 c3 = c0 + 0.75;
    for (uint round = 0; round < p.rounds; round++) {
        if (FUSED != 0) {
            STEPS4(ONE) STEPS4(ONE) STEPS4(ONE) STEPS4(ONE)
        } else {
            STEPS4(TWO) STEPS4(TWO) STEPS4(TWO) STEPS4(TWO)
        }
    }
    vec4 sum = c0 + c1;
    if (VECTORS > 2)
        sum += c2;
    if (VECTORS > 3)
        sum += c3;
    p.result.v[gl_WorkGroupID.x * 128 + i] = sum.x + sum.y + sum.z + sum.w;
}
