/* Copies made by the host's CPUs, here and now. */
#ifndef TSR_GPU_HOST_COPY_H
#define TSR_GPU_HOST_COPY_H

#include "tensor/convert.h"
#include "tensor/pieces.h"

/* Whether it is the same dtype, or one float and another. */
bool tsr__copy_host_knows(tsr_dtype to, tsr_dtype from);

/* All elements of src to those of dst, of the same shape; offsets count from `from` and `to`. dst
 * names no element twice, and none that src names. */
void tsr__copy_host(const tsr_layout *dst, void *to, const tsr_layout *src, const void *from);

/* A part of that: one of several threads' work. */
typedef struct tsr__host_piece {
    const tsr__piece *piece; /* operand 0 is dst */
    char *to;
    const char *from;
    uint32_t to_bytes, from_bytes; /* of an element */
    tsr__convert_fn *convert;      /* NULL: of the same dtype */
} tsr__host_piece;

/* Whether both have rows without gaps. */
bool tsr__host_rows(const tsr__host_piece *work);
/* Elements first … end − 1 of such a piece, in row-major order. */
void tsr__host_copy_rows(const tsr__host_piece *work, uint64_t first, uint64_t end);

/* Bands of any piece, some rows and columns of it each. */
uint64_t tsr__host_bands(const tsr__host_piece *work);
void tsr__host_copy_bands(const tsr__host_piece *work, uint64_t first, uint64_t end);

#endif
