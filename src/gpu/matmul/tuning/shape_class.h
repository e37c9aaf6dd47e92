/* Products that one kernel is likely to be best for: the classes of a tuning. Pure arithmetic.
 *
 * A class is the dtypes; which direction of each operand has stride 1 and whether vectors can be
 * loaded along it; whether there is an epilogue; and m, n, k and the batch count up to the next
 * power of two. Powers of two because tiles are powers of two: from one to the next, the number of
 * tiles and what they waste at the edges change by a factor of two at the most, and a measurement
 * at both ends bounds it. */
#ifndef TSR_GPU_MATMUL_TUNING_SHAPE_CLASS_H
#define TSR_GPU_MATMUL_TUNING_SHAPE_CLASS_H

#include "gpu/matmul/common/problem.h"

/* How an operand lies in memory. The first three are TSR_MM_LOAD_…. */
typedef enum tsr__matmul_form {
    TSR__FORM_ANY,      /* no stride is 1 */
    TSR__FORM_VEC_K,    /* vectors of four along k */
    TSR__FORM_VEC_LINE, /* … along a's rows or b's columns */
    TSR__FORM_K,        /* stride 1 along k, but vectors do not always fit */
    TSR__FORM_LINE,
    TSR__FORM_COUNT
} tsr__matmul_form;

typedef struct tsr__shape_class {
    tsr_dtype a_dtype, b_dtype, y_dtype;
    tsr__matmul_form a_form, b_form;
    bool y_rows;             /* y's columns are neighbours in memory */
    bool epilogue;           /* anything but y = a·b */
    uint32_t m, n, k, batch; /* log2 of the largest size in the class */
} tsr__shape_class;

/* False for products that no tuning is for: of nothing. */
bool tsr__shape_class_of(const tsr__matmul_problem *problem, tsr__shape_class *out);

/* To and from a number that orders classes. Unpacking is false for what is no class's. */
uint64_t tsr__shape_class_pack(const tsr__shape_class *shape_class);
bool tsr__shape_class_unpack(uint64_t packed, tsr__shape_class *out);

#endif
