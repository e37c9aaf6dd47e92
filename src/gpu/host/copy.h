/* Copies in memory by the host's CPUs. A copy is complete when the function returns. */
#ifndef TSR_GPU_HOST_COPY_H
#define TSR_GPU_HOST_COPY_H

#include "tensor/float_conversion.h"
#include "tensor/pieces.h"

/* True if the host can copy from one dtype to the other: if they are equal or both are floats. */
bool tsr__copy_host_knows(tsr_dtype to, tsr_dtype from);

/* Copies all elements of src to dst, which has the same shape. `from` and `to` are the addresses
 * from which the layouts' offsets count. No element of dst may occur twice in dst, or in src. */
void tsr__copy_host(const tsr_layout *dst, void *to, const tsr_layout *src, const void *from);

/* The copy of one piece: a range of a tensor whose sizes and strides fit 32 bits (tensor/pieces.h).
 * Several threads can share it. */
typedef struct tsr__host_piece {
    const tsr__piece *piece; /* operand 0 is dst */
    char *to;
    const char *from;
    uint32_t to_bytes, from_bytes; /* the size of an element */
    tsr__convert_fn *convert;      /* NULL if the dtypes are equal */
} tsr__host_piece;

/* True if the rows of dst and src have no gaps and are long enough for tsr__host_copy_rows. */
bool tsr__host_rows(const tsr__host_piece *work);
/* Copies elements `first` to end − 1 of the piece, counted in row-major order. */
void tsr__host_copy_rows(const tsr__host_piece *work, uint64_t first, uint64_t end);

/* Threads share pieces whose rows have gaps, or are short or transposed, by bands: blocks of
 * neighbouring rows and columns. tsr__host_bands returns the number of bands of the piece;
 * tsr__host_copy_bands copies bands `first` to end − 1. */
uint64_t tsr__host_bands(const tsr__host_piece *work);
void tsr__host_copy_bands(const tsr__host_piece *work, uint64_t first, uint64_t end);

#endif
