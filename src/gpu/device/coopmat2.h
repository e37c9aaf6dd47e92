/* The cooperative matrices of VK_NV_cooperative_matrix2, which all invocations of a workgroup
 * share. */
#ifndef TSR_GPU_DEVICE_COOPMAT2_H
#define TSR_GPU_DEVICE_COOPMAT2_H

#include <stdbool.h>
#include <stdint.h>

/* For a product of matrices m × k and k × n: the numbers of which m, n and k must be multiples. All
 * are 0 if workgroups cannot share matrices. */
typedef struct tsr__coopmat2_units {
    uint32_t m, n, k;
} tsr__coopmat2_units;

/* The number of workgroup sizes that can share matrices: 32, 64, 128 and 256 invocations. */
#define TSR__COOPMAT2_GROUPS 4

typedef struct tsr__coopmat2 {
    uint32_t max_dimension;         /* the largest m, n or k of a product */
    uint32_t reserved_shared_bytes; /* what the driver needs of a workgroup's shared memory */
    bool converts;                  /* sums can become an operand of the next product */
    /* the units for operands of each dtype with sums in f32; element i is for workgroups of 32 << i
     * invocations */
    tsr__coopmat2_units f16[TSR__COOPMAT2_GROUPS], bf16[TSR__COOPMAT2_GROUPS];
} tsr__coopmat2;

#endif
