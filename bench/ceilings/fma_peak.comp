// Measures the rate of f32 multiply-adds: independent chains of c = c·a + b in registers. The a, b
// and start of each invocation come from memory, and the sum of its chains is written to memory, so
// that no compiler can compute the result or leave work out.
#version 450
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 128) in;

// The number of vectors, each of four chains. One vector fits into the registers of any CPU. With
// more vectors, a GPU can compute the next step of one chain while it waits for the result of
// another.
layout(constant_id = 0) const uint VECTORS = 2;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer floats {
    float v[];
};

layout(push_constant) uniform params {
    floats constants; // a[128], b[128], start[128]
    floats result;    // one sum per invocation
    uint rounds;      // number of rounds; each has 16 steps
} p;

// Drivers fuse the multiplication and the addition if that is faster. fma() would force a single
// rounding, which is slow on some devices.
#define STEP1 c0 = c0 * a + b;
#define STEP2 STEP1 c1 = c1 * a + b;
#define STEP3 STEP2 c2 = c2 * a + b;
#define STEP4 STEP3 c3 = c3 * a + b;
#define FOUR(STEP) STEP STEP STEP STEP
#define SIXTEEN(STEP) FOUR(STEP) FOUR(STEP) FOUR(STEP) FOUR(STEP)

// The loop contains no branch, which would cost more than the arithmetic with some drivers.
#define LOOP(STEPS)                                                                                \
    for (uint round = 0; round < p.rounds; round++) {                                              \
        STEPS                                                                                      \
    }

void main()
{
    uint i = gl_LocalInvocationID.x;
    vec4 a = vec4(p.constants.v[i]);
    vec4 b = vec4(p.constants.v[128 + i]);
    vec4 c0 = p.constants.v[256 + i] + vec4(0.0, 0.0625, 0.125, 0.1875);
    vec4 c1 = c0 + 0.25;
    vec4 c2 = c0 + 0.5;
    vec4 c3 = c0 + 0.75;
    if (VECTORS == 1) {
        LOOP(SIXTEEN(STEP1))
    } else if (VECTORS == 2) {
        LOOP(SIXTEEN(STEP2))
    } else if (VECTORS == 3) {
        LOOP(SIXTEEN(STEP3))
    } else {
        LOOP(SIXTEEN(STEP4))
    }
    vec4 sum = c0;
    if (VECTORS > 1)
        sum += c1;
    if (VECTORS > 2)
        sum += c2;
    if (VECTORS > 3)
        sum += c3;
    p.result.v[gl_WorkGroupID.x * 128 + i] = sum.x + sum.y + sum.z + sum.w;
}
