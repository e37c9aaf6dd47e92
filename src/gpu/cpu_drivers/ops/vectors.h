/* Element-wise operations and copies of rows without gaps on Mesa's CPU driver, with
 * shaders/cpu_drivers/vectors.comp. A vector is the 8 bytes that a SIMD lane stores at once. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_VECTORS_H
#define TSR_GPU_CPU_DRIVERS_OPS_VECTORS_H

#include "gpu/ops/common/walk.h"

/* The smallest number of elements for which these kernels are used. With fewer, creating a pipeline
 * (80 ms, or 5 ms from a cache) takes more time than the kernels save. */
#define TSR__MIN_VECTORS 2048
/* The number of vectors per lane. More take longer to compile; fewer save less time than starting a
 * subgroup takes. */
#define TSR__VECTORS_LANE 8u
/* The number of subgroups per workgroup. There are several, because starting a workgroup costs
 * more than starting a subgroup. */
#define TSR__VECTORS_SUBGROUPS 16u
/* The largest number of blocks per dispatch: one for each subgroup of the 65535 workgroups that
 * uniform_index() supports. */
#define TSR__VECTORS_MAX_BLOCKS 1048560u
/* The largest number of dispatches for dimensions other than rows and columns. */
#define TSR__VECTORS_MAX_PLANES 16
#define TSR__VECTORS_OPERANDS 4

/* True if the device is Mesa's CPU driver with the features that these kernels need. */
bool tsr__vectors_suit(const tsr_device *device);

/* Returns the largest of 8, 4, 2 and 1 that divides `bits`. If `bits` is the bitwise or of several
 * numbers, the result divides all of them. */
uint32_t tsr__vectors_common(uint64_t bits);

/* Returns the number of bits that `last` has, rounded up to complete digits of `digit_bits` bits,
 * but at least one digit and at most about 32 bits. Shaders look up the digits of an index one by
 * one (lavapipe.glsl). */
uint32_t tsr__vectors_digits(uint32_t last, uint32_t digit_bits);

/* Returns the alignment of an operand's rows, 1 to 8 bytes. */
uint32_t tsr__vectors_alignment(const tsr__piece *piece, int operand, const tsr_tensor *tensor);
/* Returns the smallest alignment that the kernels support. */
uint32_t tsr__vectors_least_alignment(const tsr_device *device);

typedef struct tsr__vectors {
    uint32_t function;   /* TSR_VECTORS_… or TSR_EW_… */
    uint32_t activation; /* a tsr_activation, if `function` is an activation */
    float alpha, beta;
    /* the number of operands: y, a, and perhaps b and c */
    int count;
    const tsr_tensor *tensor[TSR__VECTORS_OPERANDS]; /* broadcast to y's shape */
} tsr__vectors;

/* Divides each row of a piece in two. `vectors` gets the complete vectors, for tsr__vectors_run.
 * `rest` gets the last columns, which do not fill a vector, for the general kernel; rest->count is
 * 0 if there are none. Returns false if the kernel should not be used for the device or the
 * piece. */
bool tsr__vectors_cut(const tsr__vectors *work, const tsr__piece *piece, tsr__piece *vectors,
                      tsr__piece *rest);

tsr_status tsr__vectors_run(tsr_stream *stream, const tsr__vectors *work,
                            const tsr__piece *piece) TSR_NODISCARD;

#endif
