/* Cuts a walk over equally shaped layouts into pieces that a shader can index with 32-bit
 * arithmetic.
 *
 * Dimensions that are adjacent in every operand are merged, sizes of 1 vanish, and what is left is
 * split until a piece has at most TSR__PIECE_DIMS dimensions, at most `max_count` elements, and
 * every operand's furthest byte lies less than 2^31 bytes from the piece's start. So kernels take a
 * 64-bit base address per operand and do the rest in 32 bits, and a tensor of any size costs only
 * more dispatches. */
#ifndef TSR_TENSOR_PIECES_H
#define TSR_TENSOR_PIECES_H

#include "tessera/layout.h"

#define TSR__PIECE_DIMS 4
#define TSR__PIECE_OPERANDS 5

typedef struct tsr__piece {
    int ndim;                        /* 1..TSR__PIECE_DIMS */
    uint32_t count;                  /* elements: the product of shape */
    uint32_t shape[TSR__PIECE_DIMS]; /* outermost first; entries past ndim are 1 */
    uint32_t strides[TSR__PIECE_OPERANDS][TSR__PIECE_DIMS]; /* elements; 0 past ndim */
    int64_t offset[TSR__PIECE_OPERANDS];                    /* elements from the buffer's start */
    int64_t index; /* row-major index, in the whole walk, of the piece's first element … */
    int64_t index_strides[TSR__PIECE_DIMS]; /* … and what a step in each dimension adds to it */
} tsr__piece;

/* The state of one walk; private to pieces.c but for its size. */
typedef struct tsr__pieces {
    int operands;
    int ndim;
    int64_t shape[TSR_MAX_DIMS];
    int64_t strides[TSR__PIECE_OPERANDS][TSR_MAX_DIMS];
    int64_t offset[TSR__PIECE_OPERANDS];
    int64_t index_strides[TSR_MAX_DIMS];
    int64_t step[TSR_MAX_DIMS];     /* how much of each dimension one piece takes */
    int64_t position[TSR_MAX_DIMS]; /* where the next piece starts */
    bool done;
} tsr__pieces;

/* All layouts have the same shape. `max_count` (≥ 1) bounds a piece's elements; 0 means 2^30. */
void tsr__pieces_init(tsr__pieces *walk, int operands, const tsr_layout *const *layouts,
                      uint64_t max_count);

/* False when the walk is over; a walk over no elements has no pieces. */
bool tsr__pieces_next(tsr__pieces *walk, tsr__piece *piece);

#endif
