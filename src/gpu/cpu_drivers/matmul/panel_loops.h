/* The inner loops that pack panels, one table for each instruction set of the build. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_PANEL_LOOPS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_PANEL_LOOPS_H

#include <stdint.h>

/* The elements of the lines to pack. */
typedef enum tsr__panel_source {
    TSR__PANEL_F32,
    TSR__PANEL_F16,
    TSR__PANEL_BF16,
    TSR__PANEL_BF16_WORDS /* bf16; of every two steps, elements of even index come first */
} tsr__panel_source;

/* Writes steps · lanes elements of each of `lines` lines to their places in one panel, as f32. The
 * lines are `pitch` bytes apart. `lines` is at most TSR__LAVAPIPE_PANEL_LINES; with
 * TSR__PANEL_BF16_WORDS, `steps` is even. */
typedef void tsr__panel_pack_fn(float *to, const char *from, uint64_t pitch, uint32_t lines,
                                uint32_t steps, uint32_t lanes, tsr__panel_source source);

typedef struct tsr__panel_loops {
    uint32_t width; /* must divide `lanes`; `to` must be aligned to this number of elements */
    tsr__panel_pack_fn *pack;
    void (*finish)(void); /* makes the packed elements visible to other threads */
} tsr__panel_loops;

extern const tsr__panel_loops tsr__panel_loops_base, tsr__panel_loops_avx2, tsr__panel_loops_avx512;

#endif
