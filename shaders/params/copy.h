/* Push constants of the copy kernels. */
#ifndef TSR_PARAMS_COPY_H
#define TSR_PARAMS_COPY_H

#include "walk.h"

/* The kind of an element. A kernel that converts elements takes a dtype (TSR_DT_…). A kernel that
 * only moves elements takes one of these, which give the number of bits. */
#define TSR_COPY_BITS8 TSR_DT_U8
#define TSR_COPY_BITS16 TSR_DT_F16
#define TSR_COPY_BITS32 TSR_DT_U32
#define TSR_COPY_BITS64 TSR_DT_I64
#define TSR_COPY_BITS128 8u

/* The layout of an operand's innermost dimension. */
#define TSR_COPY_STRIDED 0u /* any stride */
#define TSR_COPY_RUN 1u     /* stride 1 */
/* Stride 1, and each group of four elements starts at a multiple of the group's size, or of 16
 * bytes if the group is larger. */
#define TSR_COPY_ALIGNED 2u

struct tsr_copy_params {
    TSR_ADDRESS destination, source;
    TSR_WALK walk;
    TSR_UINT destination_strides[TSR_WALK_DIMS];
    TSR_UINT source_strides[TSR_WALK_DIMS];
};
TSR_PUSH_CHECK(tsr_copy_params);

#endif
