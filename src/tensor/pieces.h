/* Cuts a walk over layouts of equal shape into pieces that a shader can index with 32-bit
 * arithmetic.
 *
 * The walk merges dimensions that are adjacent in every operand and removes sizes of 1. It splits
 * the remaining dimensions until a piece has at most TSR__PIECE_DIMS dimensions and `max_count`
 * elements, and every operand's last byte is less than 2^31 bytes from the piece's start. Kernels
 * therefore take a 64-bit base address per operand and compute the rest in 32 bits, and a larger
 * tensor only needs more dispatches. */
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
    int64_t index; /* row-major index, among all elements, of the piece's first one */
    int64_t index_strides[TSR__PIECE_DIMS]; /* what a step in each dimension adds to the index */
} tsr__piece;

/* The state of one walk. Only pieces.c uses its members. */
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

/* Starts a walk over `operands` layouts, which must have the same shape. A piece has at most
 * `max_count` elements; 0 means 2^30. */
void tsr__pieces_init(tsr__pieces *walk, int operands, const tsr_layout *const *layouts,
                      uint64_t max_count);

/* Gives the next piece. Returns false at the end of the walk. A walk over no elements has no
 * pieces. */
bool tsr__pieces_next(tsr__pieces *walk, tsr__piece *piece);

#endif
