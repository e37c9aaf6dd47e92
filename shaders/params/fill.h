/* Push constants of the fill kernel. */
#ifndef TSR_PARAMS_FILL_H
#define TSR_PARAMS_FILL_H

#include "walk.h"

struct tsr_fill_params {
    TSR_ADDRESS destination;
    /* The bits of an element, low word first. If the kernel fills units of 16 bytes, these are the
     * 8 bytes that each unit contains twice. */
    TSR_UINT value[2];
    TSR_WALK walk;
    TSR_UINT strides[TSR_WALK_DIMS];
};
TSR_PUSH_CHECK(tsr_fill_params);

#endif
