/* The inner loops of packing panels. */
#ifndef TSR_GPU_MATMUL_LAVAPIPE_PANEL_LOOPS_H
#define TSR_GPU_MATMUL_LAVAPIPE_PANEL_LOOPS_H

#include <stdint.h>

/* `lines` rows of steps · lanes elements, at most TSR__LAVAPIPE_PANEL_LINES of them and `pitch`
 * elements apart, to their places in a panel. lanes is 4, 8 or 16. */
void tsr__panel_interleave(float *to, const float *from, uint64_t pitch, uint32_t lines,
                           uint32_t steps, uint32_t lanes);

/* bf16 widened; of the elements of every two steps those of even index first. */
void tsr__panel_widen_words(float *to, const uint16_t *from, uint32_t steps, uint32_t lanes);

#endif
