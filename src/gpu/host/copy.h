/* Copies by the host's CPUs, complete when the call returns. */
#ifndef TSR_GPU_HOST_COPY_H
#define TSR_GPU_HOST_COPY_H

#include "tensor/convert.h"
#include "tensor/pieces.h"

/* True if the host can copy between these dtypes: they are equal, or both are floats. */
bool tsr__copy_host_knows(tsr_dtype to, tsr_dtype from);

/* Copies all elements of src to those of dst, which has the same shape. Offsets count from `from`
 * and `to`. dst must not name an element twice, or any element that src names. */
void tsr__copy_host(const tsr_layout *dst, void *to, const tsr_layout *src, const void *from);

/* A piece of such a copy, which several threads share. */
typedef struct tsr__host_piece {
    const tsr__piece *piece; /* operand 0 is dst */
    char *to;
    const char *from;
    uint32_t to_bytes, from_bytes; /* of an element */
    tsr__convert_fn *convert;      /* NULL: the dtypes are equal */
} tsr__host_piece;

/* True if both have rows without gaps. */
bool tsr__host_rows(const tsr__host_piece *work);
/* Copies the elements first … end − 1 of such a piece, in row-major order. */
void tsr__host_copy_rows(const tsr__host_piece *work, uint64_t first, uint64_t end);

/* Any piece is divided into bands of some rows and columns. The first function gives the number of
 * bands, the second copies the bands first … end − 1. */
uint64_t tsr__host_bands(const tsr__host_piece *work);
void tsr__host_copy_bands(const tsr__host_piece *work, uint64_t first, uint64_t end);

#endif
