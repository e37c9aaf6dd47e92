/* The classes of a tuning. A class is a set of products for which the same kernel is likely to be
 * the fastest. These functions are pure arithmetic.
 *
 * A class is given by the dtypes; for each operand the dimension of stride 1 and whether vectors
 * can be loaded along it; whether there is an epilogue; and m, n, k and the batch count, rounded up
 * to powers of two. Tiles are powers of two, too. Within a class, the number of tiles and the work
 * that is wasted at the edges of tiles therefore differ by at most a factor of two. */
#ifndef TSR_GPU_MATMUL_TUNING_SHAPE_CLASS_H
#define TSR_GPU_MATMUL_TUNING_SHAPE_CLASS_H

#include "gpu/matmul/common/problem.h"

/* The layout of an operand in memory. The first three values are TSR_MM_LOAD_…. */
typedef enum tsr__matmul_form {
    TSR__FORM_ANY,      /* no stride is 1 */
    TSR__FORM_VEC_K,    /* vectors of four elements along k */
    TSR__FORM_VEC_LINE, /* vectors of four elements along a's rows or b's columns */
    TSR__FORM_K,        /* stride 1 along k, but vectors are not always aligned */
    TSR__FORM_LINE,
    TSR__FORM_COUNT
} tsr__matmul_form;

typedef struct tsr__shape_class {
    tsr_dtype a_dtype, b_dtype, y_dtype;
    tsr__matmul_form a_form, b_form;
    bool y_rows;             /* y's rows are contiguous */
    bool epilogue;           /* whether there is more to compute than y = a·b */
    uint32_t m, n, k, batch; /* log2 of the largest size in the class */
} tsr__shape_class;

/* Computes the class of a problem. Returns false for empty products, which have no class. */
bool tsr__shape_class_of(const tsr__matmul_problem *problem, tsr__shape_class *out);

/* Converts a class to a number, which also defines the order of classes. */
uint64_t tsr__shape_class_pack(const tsr__shape_class *shape_class);
/* Converts a number to a class. Returns false if no class has this number. */
bool tsr__shape_class_unpack(uint64_t packed, tsr__shape_class *out);

#endif
