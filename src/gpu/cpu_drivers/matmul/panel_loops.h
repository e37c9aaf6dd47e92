/* The inner loops of packing panels, one table for each instruction set that is built. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_PANEL_LOOPS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_PANEL_LOOPS_H

#include <stdint.h>

/* What lines hold. */
typedef enum tsr__panel_source {
    TSR__PANEL_F32,
    TSR__PANEL_F16,
    TSR__PANEL_BF16,
    TSR__PANEL_BF16_WORDS /* of the elements of every two steps those of even index come first */
} tsr__panel_source;

/* Puts `lines` lines, at most TSR__LAVAPIPE_PANEL_LINES of them and `pitch` bytes apart, to their
 * places in a panel, in f32: steps · lanes elements of each. Steps of words are even in number. */
typedef void tsr__panel_pack_fn(float *to, const char *from, uint64_t pitch, uint32_t lines,
                                uint32_t steps, uint32_t lanes, tsr__panel_source source);

typedef struct tsr__panel_loops {
    /* What divides `lanes`, and the elements by which `to` is aligned. */
    uint32_t width;
    tsr__panel_pack_fn *pack;
    /* Before others read what was packed. */
    void (*finish)(void);
} tsr__panel_loops;

extern const tsr__panel_loops tsr__panel_loops_base, tsr__panel_loops_avx2, tsr__panel_loops_avx512;

#endif
