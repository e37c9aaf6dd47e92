/* Operands in panels. Panels are f32, in the order in which lavapipe's kernels with lanes along k
 * load them, so that these read memory sequentially. The host's CPUs write the panels.
 *
 * A panel has one stretch of k for the lines of one tile. Each step has one vector of every line:
 * [stretch][line / 4][step][line % 4][lane]. The elements that a stretch skips are zeros, so that
 * the kernels need no code for skipping. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_PANELS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_PANELS_H

#include "gpu/cpu_drivers/matmul/plan.h"

/* The lines of an operand, k elements each. */
typedef struct tsr__lavapipe_lines {
    const void *from;
    tsr_dtype dtype;
    uint32_t count;
    int64_t line, k; /* strides in elements; one of them is 1 */
    bool words;      /* bf16 in the order in which the kernels read words of two elements */
} tsr__lavapipe_lines;

/* Returns `count` rounded up to complete panels. */
uint32_t tsr__lavapipe_panel_lines(uint32_t count);

/* The number of elements of the panels for `lines` lines. */
uint64_t tsr__lavapipe_panels_size(const tsr__lavapipe_product *product, uint32_t lines);

/* Writes all panels. Padding lines of the last panel keep the contents of `to`. */
void tsr__lavapipe_panels_pack(const tsr__lavapipe_product *product,
                               const tsr__lavapipe_lines *lines, float *to);

#endif
