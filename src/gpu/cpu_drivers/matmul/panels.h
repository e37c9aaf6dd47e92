/* Operands in panels: f32, in the order in which products with lanes along k load them on Mesa's
 * CPU driver, so that memory is read on and on. Made by the host's CPUs.
 *
 * A panel has the elements of one stretch of k and of as many lines as a tile, step by step, a
 * vector of each line in turn: [stretch][line / 4][step][line % 4][lane]. It has zeros for what the
 * stretch skips, which therefore costs the kernels nothing. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_PANELS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_PANELS_H

#include "gpu/cpu_drivers/matmul/plan.h"

/* Lines of an operand, k elements each. */
typedef struct tsr__lavapipe_lines {
    const void *from;
    tsr_dtype dtype;
    uint32_t count;
    int64_t line, k; /* strides in elements, of which one is 1 */
    bool words;      /* bf16 in the order in which the kernels read two operands of that dtype */
} tsr__lavapipe_lines;

/* So many lines fill whole panels. */
uint32_t tsr__lavapipe_panel_lines(uint32_t count);

/* Elements of that many lines, a multiple of a panel's. */
uint64_t tsr__lavapipe_panels_size(const tsr__lavapipe_product *product, uint32_t lines);

/* What `to` has for lines that are there to fill the last panels is left as it is. */
void tsr__lavapipe_panels_pack(const tsr__lavapipe_product *product,
                               const tsr__lavapipe_lines *lines, float *to);

#endif
