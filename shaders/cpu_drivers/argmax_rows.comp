// Finds the index of the largest element of each contiguous row on Mesa's CPU driver. A subgroup
// processes one row, and its lanes read neighbouring elements. The results are those of argmax.comp
// with TSR_ARGMAX_VALUES. It is compiled with -O0, which leaves its loops for the driver to unroll
// (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/reduction.glsl"
#include "include/argmax.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint STEPS = 128; // a step is LANES elements
layout(constant_id = 3) const uint CAREFUL = 0; // 1: a row ends within its last step
layout(constant_id = 4) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint TO = TSR_ARGMAX_INDICES;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Index {
    uint v;
};
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Pair {
    uint key, index;
};

float load(uint64_t line, uint step)
{
    if (CAREFUL != 0 && step + 1 == STEPS)
        return load_lanes_careful(line, X_DTYPE, step * LANES, p.count, LANES);
    return load_lanes(line, step * LANES * BYTES_OF(X_DTYPE), X_DTYPE, LANES);
}

void main()
{
    place at = find_block(WORKGROUP / LANES);
    uint lane = gl_SubgroupInvocationID;
    uint64_t line = p.x + uint64_t(at.plane) * p.x_plane + uint64_t(at.block) * p.x_row;

    float largest = load(line, 0);
    uint step = 0;
    [[unroll]] for (uint i = 1; i < STEPS; i++) {
        float value = load(line, i);
        bool takes = value > largest || tsr_is_nan(value) && !tsr_is_nan(largest);
        largest = mix(largest, value, takes);
        step = mix(step, i, takes);
    }
    // Lanes past the end of the row have loaded its last element.
    uvec2 best = uvec2(argmax_key(largest), min(step * LANES + lane, p.count - 1));
    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0)
        Float(p.y).v = largest;
    [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2)
        best = argmax_better(best, subgroupShuffleXor(best, distance));

    uint64_t y = p.y + uint64_t(at.plane) * p.y_plane + uint64_t(at.block) * p.y_row;
    if (at.number < p.blocks && lane == 0) {
        if (TO == TSR_ARGMAX_INDICES) {
            Index(y).v = best.y;
        } else {
            Pair(y).key = best.x;
            Pair(y).index = best.y;
        }
    }
}
