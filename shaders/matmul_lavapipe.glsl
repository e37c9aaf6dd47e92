// The matmul kernels for Mesa's CPU driver: their push constants, and what keeps their arithmetic together.
#ifndef TSR_MATMUL_LAVAPIPE_GLSL
#define TSR_MATMUL_LAVAPIPE_GLSL

#include "lavapipe_extensions.glsl"
#include "params/matmul_cpu.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_matmul_cpu_push p;
};

#define TSR_IDENTITY_BITS 3
#include "lavapipe.glsl"

// Which matrix of a batch, where workgroups in z are of one each.
uint64_t batch_index(uint batched)
{
    return batched != 0 ? uniform_index(gl_WorkGroupID.z) : 0;
}

// LLVM moves arithmetic whose result is used in one place into that place, here into the block of each lane's store: the kernel
// becomes four times slower and its compilation takes minutes (LLVM 19). A second use elsewhere keeps it where it is.
#define PIN(sums, count)                                                                           \
    if (p.never != 0) {                                                                            \
        float pinned = 0.0;                                                                        \
        [[unroll]] for (int e = 0; e < count; e++) pinned += sums[e];                              \
        Float(p.y).v = pinned;                                                                     \
    }

#endif
