/* Push constants of the fill kernel. */
#ifndef TSR_PARAMS_FILL_H
#define TSR_PARAMS_FILL_H

#include "walk.h"

struct tsr_fill_params {
    TSR_ADDRESS destination;
    TSR_UINT value[2]; /* the bits of an element, or of half a unit of 16 bytes; low word first */
    TSR_WALK walk;
    TSR_UINT strides[TSR_WALK_DIMS];
};
TSR_PUSH_CHECK(tsr_fill_params);

#endif
