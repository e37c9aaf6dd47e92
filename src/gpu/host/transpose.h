/* Transposition in host memory. */
#ifndef TSR_GPU_HOST_TRANSPOSE_H
#define TSR_GPU_HOST_TRANSPOSE_H

#include <stdint.h>

/* Sets element [row][column] of `to` to element [column][row] of `from`. The rows of `to` are
 * to_pitch bytes apart, and those of `from` are from_pitch bytes apart. Elements have 1, 2, 4 or 8
 * bytes, without gaps in a row. */
void tsr__host_transpose(char *to, uint64_t to_pitch, const char *from, uint64_t from_pitch,
                         uint32_t rows, uint32_t columns, uint32_t element_bytes);

#endif
