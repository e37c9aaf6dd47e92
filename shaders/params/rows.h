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
/* The same, and the elements of a row are contiguous, their number is a multiple of 4, and rows
 * start at multiples of 4 bytes. */
#define TSR_ROW_DENSE4 2u
/* The same, and rows start at multiples of four elements. GPU compilers load four elements at once
 * only if the shader promises this. CPU drivers load element by element in any case, so that there
 * TSR_ROW_DENSE4 is used instead, which makes fewer variants of kernels. */
#define TSR_ROW_ALIGNED4 3u

#endif
