// Functions that the reductions for Mesa's CPU driver share. The reductions use the tree of
// reduce.glsl, in which element j belongs to lane j % 32. The lanes of the tree are not the SIMD
// lanes of a subgroup.
#ifndef TSR_REDUCTION_GLSL
#define TSR_REDUCTION_GLSL

#include "cpu_drivers/lavapipe_extensions.glsl"
#include "include/float16.glsl"
#include "include/nan.glsl"
#include "params/reduction.h"
#include "params/reduce.h"

layout(constant_id = 7) const uint KIND = TSR_REDUCE_KIND_SUM;

layout(push_constant, std430) uniform tsr_push
{
    tsr_reduction_push p;
};

#define TSR_IDENTITY_BITS 3
#include "cpu_drivers/lavapipe.glsl"

const uint TREE = 32; // lanes of the tree

// A block is the rows or columns that one subgroup reduces. Blocks are numbered plane by plane: `number` counts the blocks of all planes,
// and `block` those of `plane`. If `number` is past the last block, the subgroup computes the last block again and must not store.
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

// The identity of the operation. For sums it is a 0 that is hidden from the compiler, which would
// otherwise remove the addition of 0 and thus keep the sign of -0.
float identity()
{
    if (KIND == TSR_REDUCE_KIND_SUM)
        return uintBitsToFloat(p.identity[0]);
    return uintBitsToFloat(KIND == TSR_REDUCE_KIND_MAX ? 0xff800000u : 0x7f800000u);
}

// Combines two values as in reduce.glsl: the result is NaN if either is NaN, and a if they are
// equal.
float combine(float a, float b)
{
    if (KIND == TSR_REDUCE_KIND_SUM) {
        precise float sum = a + b;
        return sum;
    }
    return mix(a, b, tsr_is_nan(b) || (KIND == TSR_REDUCE_KIND_MAX ? b > a : b < a));
}

// This is a second use of the results, which is never executed. It keeps LLVM from moving the
// arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
#define PIN(partial, count)                                                                           \
    if (p.identity[0] != 0) {                                                                      \
        float pinned = 0.0;                                                                        \
        [[unroll]] for (uint e = 0; e < count; e++) pinned += partial[e];                             \
        Float(p.y).v = pinned;                                                                     \
    }

#endif
