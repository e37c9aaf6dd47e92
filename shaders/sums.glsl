// What the sums of Mesa's CPU driver share. They add in the tree of reduce.glsl: element j belongs to its lane j % 32.
#ifndef TSR_SUMS_GLSL
#define TSR_SUMS_GLSL

#include "lavapipe_extensions.glsl"
#include "float16.glsl"
#include "params/sums.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_sums_push p;
};

#define TSR_IDENTITY_BITS 3
#include "lavapipe.glsl"

const uint TREE = 32; // lanes of the tree

// Which block a subgroup takes, in planes one after another; those past the last repeat it and must not store.
struct place {
    uint number, plane, block;
};

place find_block(uint subgroups)
{
    place at;
    at.number = uniform_index(gl_WorkGroupID.x) * subgroups + p.identity[p.identity[gl_SubgroupID]];
    uint high, low, number = min(at.number, p.blocks - 1);
    umulExtended(number, p.magic, high, low);
    at.plane = high + number >> p.shift;
    at.block = number - at.plane * p.across;
    return at;
}

// 0, but the compiler cannot know: it would leave the addition out, and so keep -0.
float empty_sum()
{
    return uintBitsToFloat(p.identity[0]);
}

// A second use of the sums, for LLVM 19: as PIN() in matmul_lavapipe.glsl.
#define PIN(sums, count)                                                                           \
    if (p.identity[0] != 0) {                                                                      \
        float pinned = 0.0;                                                                        \
        [[unroll]] for (uint e = 0; e < count; e++) pinned += sums[e];                             \
        Float(p.y).v = pinned;                                                                     \
    }

#endif
