/* Long rows divided among subgroups, in kernels for Mesa's CPU driver: shaders/row_parts.glsl. */
#ifndef TSR_GPU_OPS_ROW_PARTS_H
#define TSR_GPU_OPS_ROW_PARTS_H

#include <stdint.h>

#define TSR__PARTS_SUBGROUPS 8u /* of a workgroup: as many as the identity table counts */
#define TSR__MOST_PARTS (65535u * TSR__PARTS_SUBGROUPS) /* of a dispatch */

/* How many parts make up a row, and how long they are: in steps of all lanes. */
typedef struct tsr__row_cut {
    uint32_t steps, across;
} tsr__row_cut;

/* The power of two up to `most` whose parts cover `count` elements or packets with the least work,
 * a part's start and end being some. No steps where a row is shorter than one. */
tsr__row_cut tsr__cut_row(uint32_t count, uint32_t lanes, uint32_t most);

#endif
