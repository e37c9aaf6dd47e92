/* Divides long rows among subgroups for the kernels of Mesa's CPU driver that include
 * shaders/cpu_drivers/row_spans.glsl. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_ROW_SPANS_H
#define TSR_GPU_CPU_DRIVERS_OPS_ROW_SPANS_H

#include "shaders/params/row_spans.h"

/* Subgroups per workgroup. The array identity[] of the push constants, in which shaders look up the
 * number of their subgroup (lavapipe.glsl), has this many elements. */
#define TSR__SPAN_SUBGROUPS 8u
/* the largest number of spans per dispatch */
#define TSR__MAX_SPANS (65535u * TSR__SPAN_SUBGROUPS)

/* How a row is divided: into `across` spans of `steps` steps. A step is one element or vector per
 * lane. */
typedef struct tsr__row_cut {
    uint32_t steps, across;
} tsr__row_cut;

/* Chooses the number of steps, a power of two up to `most`, that covers `count` elements or vectors
 * with the least work, including a cost for starting and ending a span. If a row is shorter than
 * one step, `steps` is 0. */
tsr__row_cut tsr__cut_row(uint32_t count, uint32_t lanes, uint32_t most);

/* Returns the push constants for rows of `extent` elements or vectors. The number of rows is not
 * set. */
struct tsr_row_spans tsr__row_spans_of(tsr__row_cut cut, uint32_t extent);

/* Sets spans->rows to the number of rows that one dispatch can cover, at most `rows_left`, and sets
 * `groups` to the dispatch's groups. */
void tsr__row_spans_take(struct tsr_row_spans *spans, uint64_t rows_left, uint32_t groups[3]);

#endif
