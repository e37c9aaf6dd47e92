/* Constants shared by the host and the kernels that work row by row. A row is the elements along
 * one dimension. */
#ifndef TSR_PARAMS_ROWS_H
#define TSR_PARAMS_ROWS_H

#include "types.h"

/* The largest number of dimensions besides the one along the rows. It is the number of dimensions
 * of a piece (src/tensor/pieces.h). */
#define TSR_ROW_DIMS 4

/* The layout of a row in memory, a specialization constant. */
#define TSR_ROW_WIDE 0u /* any stride */
/* The distance from the first to the last element is less than 2^31 bytes. */
#define TSR_ROW_STRIDED 1u
/* As TSR_ROW_STRIDED. The elements of a row are also contiguous, their number is a multiple of 4,
 * and rows start at multiples of 4 bytes. */
#define TSR_ROW_DENSE4 2u
/* As TSR_ROW_DENSE4, but rows start at multiples of four elements. GPU compilers load four elements
 * at once only if the shader promises this. CPU drivers load element by element in any case, so
 * they use TSR_ROW_DENSE4 instead, which makes fewer variants of kernels. */
#define TSR_ROW_ALIGNED4 3u
/* As TSR_ROW_ALIGNED4, with any number of elements. The last load of a row reads up to three more.
 */
#define TSR_ROW_ENDS4 4u

/* If a thread group has more than TSR_UNDIVIDED_THREADS invocations, its row is divided into
 * segments. The sum of a row consists of the sums of its segments, which one workgroup computes one
 * after the other or several workgroups at the same time. The order of additions, and so every bit,
 * is the same in both cases. The length of a segment is a multiple of 2048 elements, because a
 * thread group reads up to that many in one iteration. A row has at most TSR_SEGMENTS_MAX
 * segments. */
#define TSR_UNDIVIDED_THREADS 128u
#define TSR_SEGMENTS_MAX 32u
#define TSR_SEGMENT_UNIT 2048u
#define TSR_SEGMENT_LEAST 8192u
#define TSR_SEGMENT_ROUNDED(count)                                                                 \
    (((count) / TSR_SEGMENTS_MAX / TSR_SEGMENT_UNIT + 1u) * TSR_SEGMENT_UNIT)
#define TSR_SEGMENT_LENGTH(count)                                                                  \
    (TSR_SEGMENT_ROUNDED(count) < TSR_SEGMENT_LEAST ? TSR_SEGMENT_LEAST                            \
                                                    : TSR_SEGMENT_ROUNDED(count))

/* What a dispatch computes, a specialization constant: complete rows, or one of up to three phases
 * in which each workgroup has one segment. The first two phases leave partial results in scratch
 * memory; the last one merges them and writes the outputs. */
#define TSR_PHASE_WHOLE 0u
#define TSR_PHASE_FIRST 1u
#define TSR_PHASE_SECOND 2u
#define TSR_PHASE_LAST 3u

/* The partial results of a row: f32 [TSR_SEGMENTS_MAX], one for each segment; one f32 for the row;
 * and for each of up to TSR_SEGMENT_SUMS sums f32 [segments, threads]. */
#define TSR_SEGMENT_SUMS 3u
#define TSR_SEGMENT_ROW_VALUE TSR_SEGMENTS_MAX
#define TSR_SEGMENT_SUMS_AT (TSR_SEGMENTS_MAX + 1u)

#endif
