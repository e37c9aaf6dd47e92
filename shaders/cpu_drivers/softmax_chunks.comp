// The first of three kernels for softmax on Mesa's CPU driver. A subgroup computes the statistics
// of a chunk of a row (params/softmax_chunks.h). The last chunk of a row is shifted back to end
// with the row, and ignores the elements that the chunk before it has. It is compiled with -O0,
// which leaves its loops for the driver to unroll (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "include/float16.glsl"
#include "include/exp_log.glsl"
#include "params/softmax_chunks.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_softmax_spans_push p;
};

#define TSR_IDENTITY_BITS 3
#include "cpu_drivers/lavapipe.glsl"
#include "cpu_drivers/row_spans.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint STEPS = 64; // a power of two
layout(constant_id = 3) const uint FUNCTION = TSR_SOFTMAX;
layout(constant_id = 4) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint B_DTYPE = TSR_DT_F32;

const uint CHUNK = STEPS * LANES;
const bool EXPONENTIALS = FUNCTION != TSR_SOFTMAX_GRAD && FUNCTION != TSR_SOFTMAX_LOG_GRAD;

#define MINUS_INFINITY uintBitsToFloat(0xff800000u)

void main()
{
    uint number = span_number(WORKGROUP / LANES);
    span at = find_span(number, CHUNK), next = find_span(number + 1, CHUNK);
    uint lane = gl_SubgroupInvocationID;
    uint64_t a = p.a + uint64_t(at.row) * p.a_row + at.first * BYTES_OF(A_DTYPE);
    uint64_t a_next = p.a + uint64_t(next.row) * p.a_row + next.first * BYTES_OF(A_DTYPE);
    uint64_t b = p.b + uint64_t(at.row) * p.b_row + at.first * BYTES_OF(B_DTYPE);

    // The driver unrolls only loops with constant bounds, and each loop makes it pass over the
    // shader once more.
    float values[STEPS];
    float largest = MINUS_INFINITY;
    precise float sum = 0.0;
    [[unroll]] for (uint step = 0; step < STEPS; step++) {
        uint before = step * LANES;
        precise float value = 0.0;
        if (FUNCTION != TSR_SOFTMAX_LOG_GRAD)
            value = load_lanes(a, before * BYTES_OF(A_DTYPE), A_DTYPE, LANES);
        if (FUNCTION == TSR_SOFTMAX_GRAD)
            value *= load_lanes(b, before * BYTES_OF(B_DTYPE), B_DTYPE, LANES);
        if (FUNCTION == TSR_SOFTMAX_LOG_GRAD)
            value = load_lanes(b, before * BYTES_OF(B_DTYPE), B_DTYPE, LANES);
        values[step] = mix(value, EXPONENTIALS ? MINUS_INFINITY : 0.0, before + lane < at.before);
        if (EXPONENTIALS)
            largest = max(largest, values[step]);
        else
            sum += values[step];
    }
    if (EXPONENTIALS) {
        [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2)
            largest = max(largest, subgroupShuffleXor(largest, distance));
        // If all elements are -inf, the shift is 0, because -inf − -inf would be NaN. Other chunks
        // may have larger elements.
        float shift = mix(largest, 0.0, largest == MINUS_INFINITY);
        uint touched = 0;
        [[unroll]] for (uint step = 0; step < STEPS; step++) {
            sum += tsr_exp_down(values[step] - shift);
            if (step % 2 == 0)
                touched ^= touch(a_next + step * LANES * BYTES_OF(A_DTYPE), 2 * LANES * BYTES_OF(A_DTYPE));
        }
        sum = after(sum, touched);
    }
    [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2)
        sum += subgroupShuffleXor(sum, distance);

    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0)
        Float(p.stats).v = sum + largest;
    uint64_t stats = p.stats + at.number * TSR_SOFTMAX_CHUNK_BYTES;
    if (at.own && lane == 0) {
        Float(stats).v = largest;
        Float(stats + 4).v = sum;
    }
}
