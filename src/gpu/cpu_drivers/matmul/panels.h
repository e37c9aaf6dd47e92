/* Operands in panels. Panels contain f32 elements in the order in which lavapipe's kernels with
 * lanes along k load them, so that the kernels read memory sequentially. The host's CPUs write the
 * panels.
 *
 * A panel contains, of the lines of one tile, one stretch: the range of k that one dispatch
 * computes (plan.h). In each step there is one vector of every line: [stretch][line / 4][step][line
 * % 4][lane]. Elements that the dispatch skips, because an earlier one has added them, are zeros,
 * so that the kernels need no code for skipping. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_PANELS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_PANELS_H

#include "gpu/cpu_drivers/matmul/plan.h"

/* The lines of an operand: the rows of a, or the columns of b. Each line has k elements. */
typedef struct tsr__lavapipe_lines {
    const void *from;
    tsr_dtype dtype;
    uint32_t count;
    int64_t line, k; /* the strides between lines and along k, in elements; one of them is 1 */
    /* the elements are bf16, in the order in which kernels read words of two elements */
    bool words;
} tsr__lavapipe_lines;

/* Returns the number of lines in the panels for `count` lines, that is, `count` rounded up to
 * complete panels. */
uint32_t tsr__lavapipe_panel_lines(uint32_t count);

/* The number of elements of the panels for `lines` lines. */
uint64_t tsr__lavapipe_panels_size(const tsr__lavapipe_product *product, uint32_t lines);

/* Writes all panels of an operand. Lines that only pad the last panel are not written. */
void tsr__lavapipe_panels_pack(const tsr__lavapipe_product *product,
                               const tsr__lavapipe_lines *lines, float *to);

#endif
