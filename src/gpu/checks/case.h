/* A small problem for the self-test of a kernel: tensors with known values, and a comparison with
 * what the host computes from them. */
#ifndef TSR_GPU_CHECKS_CASE_H
#define TSR_GPU_CHECKS_CASE_H

#include "gpu/stream/stream.h"

enum { TSR__CASE_TENSORS = 11, TSR__CASE_ELEMENTS = 16400 };

typedef struct tsr__case {
    tsr_stream *stream;
    int count;
    tsr_tensor *tensor[TSR__CASE_TENSORS];
    /* the exact values of the tensors; for outputs, the case sets what the host computes */
    double value[TSR__CASE_TENSORS][TSR__CASE_ELEMENTS];
} tsr__case;

/* Computes the results of a case on the device and, in `value`, on the host. */
typedef tsr_status tsr__case_fn(tsr__case *c, tsr_dtype dtype);

/* Runs a case, and sets *out to whether all outputs agree with what the host computed. */
tsr_status tsr__case_run(tsr_device *device, tsr__case_fn *run, tsr_dtype dtype, bool *out);

/* Adds a contiguous tensor with at most TSR__CASE_ELEMENTS elements. Tensors are numbered from 0 in
 * the order in which they are added. Elements of inputs are multiples of 1/8 from -2 to 2, which
 * all float dtypes represent; those of outputs are NaN until the kernel writes them. */
tsr_status tsr__case_input(tsr__case *c, tsr_dtype dtype, int ndim, const int64_t *shape);
tsr_status tsr__case_output(tsr__case *c, tsr_dtype dtype, int ndim, const int64_t *shape);
/* Adds an input with the values that the caller has set in `value`, rounded to the dtype. */
tsr_status tsr__case_given(tsr__case *c, tsr_dtype dtype, int ndim, const int64_t *shape);
/* Adds an input of i32 with these elements. */
tsr_status tsr__case_indices(tsr__case *c, int64_t count, const int32_t *indices);
/* Adds an input in a block format, with at most 6400 elements of at most 1/8. The host's values are
 * read back from the blocks, so that both sides use the same rounded values. */
tsr_status tsr__case_blocks(tsr__case *c, tsr_dtype format, int ndim, const int64_t *shape);
/* Fails if the device has no cooperative matrices for the dtype, because it would compute the case
 * with another kernel. */
tsr_status tsr__case_require_matrices(const tsr__case *c, tsr_dtype dtype);
/* Adds a tensor that the caller has created. The case then owns it. */
void tsr__case_adopt(tsr__case *c, tsr_tensor *tensor);

#define TSR__SHAPE_1(a)                                                                            \
    1, (int64_t[])                                                                                 \
    {                                                                                              \
        a                                                                                          \
    }
#define TSR__SHAPE_2(a, b)                                                                         \
    2, (int64_t[])                                                                                 \
    {                                                                                              \
        a, b                                                                                       \
    }
#define TSR__SHAPE_3(a, b, c)                                                                      \
    3, (int64_t[])                                                                                 \
    {                                                                                              \
        a, b, c                                                                                    \
    }
#define TSR__SHAPE_4(a, b, c, d)                                                                   \
    4, (int64_t[])                                                                                 \
    {                                                                                              \
        a, b, c, d                                                                                 \
    }

#endif
