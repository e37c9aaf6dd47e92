/* Transposition in host memory. */
#ifndef TSR_GPU_HOST_TRANSPOSE_H
#define TSR_GPU_HOST_TRANSPOSE_H

#include <stdint.h>

/* Sets element [row][column] of `to` to element [column][row] of `from`. Rows are `to_pitch` and
 * `from_pitch` bytes apart. The elements of a row, of 1, 2, 4 or 8 bytes, have no gaps between
 * them. */
void tsr__host_transpose(char *to, uint64_t to_pitch, const char *from, uint64_t from_pitch,
                         uint32_t rows, uint32_t columns, uint32_t element_bytes);

#endif
