/* What kernels that work row by row agree on with the host. A row is the elements along one
 * dimension. */
#ifndef TSR_PARAMS_ROWS_H
#define TSR_PARAMS_ROWS_H

#include "types.h"

/* A row's start in each operand is a number of so many digits: a piece of src/tensor/pieces.h. */
#define TSR_ROW_DIMS 4

/* How a row lies in memory, a specialization constant. */
#define TSR_ROW_WIDE 0u /* anyhow */
/* Its bytes, from the first to the last element, are counted by 31 bits. */
#define TSR_ROW_STRIDED 1u
/* Also whole groups of four neighbours, each at a multiple of 4 bytes. */
#define TSR_ROW_DENSE4 2u

#endif
