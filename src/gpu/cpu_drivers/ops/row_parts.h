/* Long rows divided among subgroups, in kernels for Mesa's CPU driver:
 * shaders/cpu_drivers/row_parts.glsl. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_ROW_PARTS_H
#define TSR_GPU_CPU_DRIVERS_OPS_ROW_PARTS_H

#include "shaders/params/row_parts.h"

#define TSR__PARTS_SUBGROUPS 8u /* of a workgroup: as many as the identity table counts */
#define TSR__MAX_PARTS (65535u * TSR__PARTS_SUBGROUPS) /* of a dispatch */

/* How many parts make up a row, and how long they are: in steps of all lanes. */
typedef struct tsr__row_cut {
    uint32_t steps, across;
} tsr__row_cut;

/* The power of two up to `most` whose parts cover `count` elements or vectors with the least work,
 * a part's start and end being some. No steps where a row is shorter than one. */
tsr__row_cut tsr__cut_row(uint32_t count, uint32_t lanes, uint32_t most);

/* What the kernels are told of rows of `extent` elements or vectors, but for how many rows. */
struct tsr_row_parts tsr__row_parts_of(tsr__row_cut cut, uint32_t extent);

/* Takes as many of the rows that are left as one dispatch can count, and sets its groups. */
void tsr__row_parts_take(struct tsr_row_parts *parts, uint64_t rows_left, uint32_t groups[3]);

#endif
