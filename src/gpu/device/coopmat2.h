/* The cooperative matrices of VK_NV_cooperative_matrix2, which all invocations of a workgroup
 * share. */
#ifndef TSR_GPU_DEVICE_COOPMAT2_H
#define TSR_GPU_DEVICE_COOPMAT2_H

#include <stdint.h>

/* The numbers of which a matrix's rows, columns and products must be multiples; 0: there are no
 * such matrices. */
typedef struct tsr__coopmat2_units {
    uint32_t m, n, k;
} tsr__coopmat2_units;

/* Workgroups of 32, 64, 128 and 256 invocations share matrices. */
#define TSR__COOPMAT2_GROUPS 4

typedef struct tsr__coopmat2 {
    uint32_t max_dimension; /* the largest number of rows, columns or products */
    /* the units for operands of each dtype with sums in f32; element i is for 32 << i
     * invocations */
    tsr__coopmat2_units f16[TSR__COOPMAT2_GROUPS], bf16[TSR__COOPMAT2_GROUPS];
} tsr__coopmat2;

#endif
