/* The inner loops that pack panels, one table for each instruction set of the build. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_PANEL_LOOPS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_PANEL_LOOPS_H

#include <stdint.h>

/* How the elements of the lines to pack are stored. */
typedef enum tsr__panel_source {
    TSR__PANEL_F32,
    TSR__PANEL_F16,
    TSR__PANEL_BF16,
    /* bf16; of the elements of every two steps, those of even index come first */
    TSR__PANEL_BF16_WORDS
} tsr__panel_source;

/* Writes steps · lanes elements of each of `lines` lines to their places in one panel, as f32. In
 * `from`, the lines are `pitch` bytes apart. `lines` is at most TSR__LAVAPIPE_PANEL_LINES. With
 * TSR__PANEL_BF16_WORDS, `steps` is even. */
typedef void tsr__panel_pack_fn(float *to, const char *from, uint64_t pitch, uint32_t lines,
                                uint32_t steps, uint32_t lanes, tsr__panel_source source);

typedef struct tsr__panel_loops {
    /* `lanes` must be a multiple of this number, and `to` must be aligned to this number of
     * elements */
    uint32_t width;
    tsr__panel_pack_fn *pack;
    void (*finish)(void); /* makes the packed elements visible to other threads */
} tsr__panel_loops;

extern const tsr__panel_loops tsr__panel_loops_base, tsr__panel_loops_avx2, tsr__panel_loops_avx512;

#endif
