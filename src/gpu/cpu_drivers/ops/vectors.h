/* Rows without gaps on Mesa's CPU driver: shaders/cpu_drivers/vectors.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_VECTORS_H
#define TSR_GPU_CPU_DRIVERS_OPS_VECTORS_H

#include "gpu/ops/common/walk.h"

/* Elements: a pipeline takes 5 ms to make, 80 ms when no cache has it, too long for less. */
#define TSR__VECTORS_FEWEST 2048
/* Of a lane: more take longer to compile, fewer do not pay for a subgroup's start. */
#define TSR__VECTORS_LANE 8u
/* Of a workgroup, whose start costs more than a subgroup's; and those of a dispatch: as many
 * workgroups as uniform_index() can count, 65535. */
#define TSR__VECTORS_SUBGROUPS 16u
#define TSR__VECTORS_MAX_BLOCKS 1048560u
/* Dispatches for dimensions beyond rows and columns. */
#define TSR__VECTORS_MAX_PLANES 16

/* Whether the device is the one that such kernels are for. */
bool tsr__vectors_suit(const tsr_device *device);

/* The largest of 8, 4 and 2 that divides all the numbers or'ed together in `bits`, or 1. */
uint32_t tsr__vectors_common(uint64_t bits);

/* That of the addresses at which rows start; and the least that kernels can load. */
uint32_t tsr__vectors_alignment(const tsr__piece *piece, int operand, const tsr_tensor *tensor);
uint32_t tsr__vectors_least_alignment(const tsr_device *device);

typedef struct tsr__vectors {
    uint32_t function;   /* of params/vectors.h, or TSR_EW_… */
    uint32_t activation; /* a tsr_activation, where the function is one */
    float alpha, beta;
    int count;                   /* of operands: y, a and perhaps b */
    const tsr_tensor *tensor[3]; /* as broadcast */
} tsr__vectors;

/* Cuts a piece in two along its rows: `vectors` for tsr__vectors_run, and a few columns at the end
 * for the general kernel; rest->count is 0 where there are none. False where the kernel does not
 * suit the device or the piece. */
bool tsr__vectors_cut(const tsr__vectors *work, const tsr__piece *piece, tsr__piece *vectors,
                      tsr__piece *rest);

tsr_status tsr__vectors_run(tsr_stream *stream, const tsr__vectors *work,
                            const tsr__piece *piece) TSR_NODISCARD;

#endif
