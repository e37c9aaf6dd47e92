// Constants that the matmul kernels for lavapipe share, and the macro PIN.
//
// The way these kernels are written determines how long the driver takes to compile a pipeline,
// which it does again in every process. The driver makes passes over the complete shader until a
// pass changes nothing. Each pass unrolls only one of several consecutive loops, and only one level
// of nested loops. Therefore the loop over k is nested so deeply that all other loops are unrolled
// before it, and few loops come before or after it.
//
// After that, nothing may be left to simplify. Values that are computed from a loop's counter
// become constants, but the driver needs one more pass to remove the constants that they were
// computed from. Addresses are therefore not computed from a counter: each step increments an
// address by the same value that it started with.
#ifndef TSR_MATMUL_LAVAPIPE_GLSL
#define TSR_MATMUL_LAVAPIPE_GLSL

#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/matmul_cpu.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_matmul_cpu_push p;
};

// Volatile keeps the driver from comparing each load with all loads before it, which takes a
// quarter of a pipeline's compilation. Volatile loads are never merged, but no load occurs twice
// here.
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
layout(constant_id = 5) const uint SKIPS = 0;   // 1: the sums contain p.skip products already
layout(constant_id = 6) const uint CAREFUL = 0; // 1: k, or the columns, do not fill a vector
layout(constant_id = 7) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 8) const uint B_DTYPE = TSR_DT_F32;
// 1: each workgroup in z computes another matrix. 2: p.bias is the address of a table, from which a
// tile of rows gets the number of its matrix of b (only in matmul_lavapipe_nt.glsl).
layout(constant_id = 9) const uint BATCHED = 0;
// 0: all workgroups compute the same range of k. 1: k is split: each workgroup computes partial sums
// over a range of k of its own, and a has at most one tile of rows. 2: the same, but a has several
// tiles of rows, and the workgroup's index in z is the number of the tile (only in
// matmul_lavapipe_nt.glsl).
layout(constant_id = 10) const uint SPLIT = 0;
// 1: every even column of y starts at a multiple of 8 bytes. Each kernel declares the constant 11
// for itself.
layout(constant_id = 12) const uint PAIRS = 0;

// 1: a barrier divides the kernel into phases. The driver runs a workgroup's subgroups one after the
// other, each up to the next barrier, so that the code of a phase stays in the processor's first
// cache for instructions. It is 0 for newer versions of Mesa (tsr__mesa_takes_phases).
layout(constant_id = 16) const uint PHASES = 1;

const uint SUBGROUPS = WORKGROUP / LANES;
const uint A_BYTES = BYTES_OF(A_DTYPE);
const uint B_BYTES = BYTES_OF(B_DTYPE);
// The number of steps of an inner loop. The inner loop adds a level of nesting, so that the sums
// are no longer elements of an array but variables when it is unrolled.
const int GROUP = STEPS < 2 ? STEPS : 2;

// LLVM moves arithmetic to the only place that uses its result. Here that place is the block of
// each lane's store. This would make the kernel four times slower, and compiling it would take
// minutes (LLVM 19). PIN is a second use of the results, which keeps the arithmetic where it is. It
// never stores anything, because identity[0] is 0. Its address is a mix() with 0, because the
// driver adds a constant 0 to every address. If nothing used that constant, the driver would make
// one more pass to remove it.
//
// It is also a branch that separates all loads from the first store. LLVM 22 takes many seconds to
// compile a basic block in which a store follows thousands of loads. Mesa 26 removes branches of up
// to about twelve instructions, so that PIN computes a little more than that.
#define PIN(values, first, count)                                                                  \
    if (p.identity[0] != 0) {                                                                      \
        float pinned = 0.0;                                                                        \
        [[unroll]] for (int e = 0; e < (count); e++) pinned += values[(first) + e];                \
        [[unroll]] for (int e = 0; e < 16; e++) pinned = pinned * pinned + 1.0;                    \
        Float(mix(uint64_t(0), p.sums, p.accumulate != 0)).v = pinned;                             \
    }

#endif
