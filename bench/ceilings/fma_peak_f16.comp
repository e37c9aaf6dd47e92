// Measures the rate of f16 multiply-adds: chains of c = c·a + b in registers, as in fma_peak.comp.
// f16 has only eleven bits of significand, too few for chains as in f32, whose values change in
// every step. With a = 1 and a positive b the values increase in one round, and with the opposite b
// they decrease in the next, always exactly. The values after each round are summed, so that a
// round that was left out is detected. a, b and start come from memory, so that the compiler cannot
// compute with their values.
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

layout(local_size_x = 128) in;

layout(constant_id = 0) const uint VECTORS = 2;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer floats {
    float v[];
};

layout(push_constant) uniform params {
    floats constants; // a[128], b[128], start[128]
    floats result;    // one sum per invocation
    uint rounds;      // number of rounds; each has 64 steps
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
        reached += float(c0.x);                                                                    \
        b = -b;                                                                                    \
    }

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
    if (VECTORS == 1) {
        LOOP(FOUR(SIXTEEN(STEP1)))
    } else if (VECTORS == 2) {
        LOOP(FOUR(SIXTEEN(STEP2)))
    } else if (VECTORS == 3) {
        LOOP(FOUR(SIXTEEN(STEP3)))
    } else {
        LOOP(FOUR(SIXTEEN(STEP4)))
    }
    vec4 sum = vec4(c0);
    if (VECTORS > 1)
        sum += vec4(c1);
    if (VECTORS > 2)
        sum += vec4(c2);
    if (VECTORS > 3)
        sum += vec4(c3);
    p.result.v[gl_WorkGroupID.x * 128 + i] = reached + sum.x + sum.y + sum.z + sum.w;
}
