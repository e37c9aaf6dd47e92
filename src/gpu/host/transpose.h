/* Columns made to rows, in host memory. */
#ifndef TSR_GPU_HOST_TRANSPOSE_H
#define TSR_GPU_HOST_TRANSPOSE_H

#include <stdint.h>

/* Element [row][column] of `to`, whose rows are to_pitch bytes apart, is element [column][row] of
 * `from`. Neither has gaps between the elements of a row, which are 1, 2, 4 or 8 bytes. */
void tsr__host_transpose(char *to, uint64_t to_pitch, const char *from, uint64_t from_pitch,
                         uint32_t rows, uint32_t columns, uint32_t element_bytes);

#endif
