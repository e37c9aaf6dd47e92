// The matmul kernels for Mesa's CPU driver: their constants, and what keeps their arithmetic together.
//
// How they are written decides how long the driver takes over a pipeline, in every process again: it passes over the whole shader round
// after round, until a round finds nothing more to do. Each round unrolls but one of the loops that follow one another, and but one
// level of those in one another. So the loop over k is nested deeply enough that all other loops are gone when it is unrolled, and few
// come after it or before. And nothing is left to do then: what is computed from the loop's counter comes to constants, but leaves the
// constants behind of which it was computed, for which there is one round more. Addresses are counted up instead, in steps of what they
// start with.
#ifndef TSR_MATMUL_LAVAPIPE_GLSL
#define TSR_MATMUL_LAVAPIPE_GLSL

#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/matmul_cpu.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_matmul_cpu_push p;
};

// So that the driver does not look for each load among all loads before it, time after time: a quarter of what it spends on a pipeline.
// Volatile loads are never merged, but none is made twice here.
#define TSR_MEMORY volatile
#define TSR_IDENTITY_BITS 3
#define TSR_INDEX_BITS TSR_MATMUL_CPU_INDEX_BITS
#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const int WORKGROUP = 8; // LANES · SUBGROUPS
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const int LANES = 8; // the subgroup size, a power of two
layout(constant_id = 2) const int TM = 8;
layout(constant_id = 3) const int TN = 4;
layout(constant_id = 4) const int STEPS = 8;
layout(constant_id = 5) const uint SKIPS = 0;   // 1: the first products are in the sums already
layout(constant_id = 6) const uint CAREFUL = 0; // 1: less than a vector of k, or along n
layout(constant_id = 7) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 8) const uint B_DTYPE = TSR_DT_F32;
layout(constant_id = 9) const uint BATCHED = 0; // 1: workgroups in z are of a matrix each
layout(constant_id = 10) const uint PARTS = 0;  // 1: a is not longer than one tile, and workgroups take a stretch of k each, with sums
                                                // of its own; 2: a is, and its tiles are in z, with lanes along k
// 11 is the kernels' own.
layout(constant_id = 12) const uint PAIRS = 0;  // 1: y's columns of even numbers start at multiples of 8 bytes

const uint SUBGROUPS = WORKGROUP / LANES;
const uint A_BYTES = BYTES_OF(A_DTYPE);
const uint B_BYTES = BYTES_OF(B_DTYPE);
// Steps that are a loop in the loop: a level more, and the sums are variables when that is unrolled, not elements of an array any more.
const int GROUP = STEPS < 2 ? STEPS : 2;

// LLVM moves arithmetic whose result is used in one place into that place, here into the block of each lane's store: the kernel
// becomes four times slower and its compilation takes minutes (LLVM 19). A second use elsewhere keeps it where it is. Nothing is ever
// stored here, at 0 or elsewhere: the driver adds a 0 to every address and takes it away again, and would go over the shader once more
// for that constant if nothing used it.
#define PIN(values, first, count)                                                                  \
    if (p.identity[0] != 0) {                                                                      \
        float pinned = 0.0;                                                                        \
        [[unroll]] for (int e = 0; e < (count); e++) pinned += values[(first) + e];                \
        Float(mix(uint64_t(0), p.sums, p.accumulate != 0)).v = pinned;                             \
    }

#endif
