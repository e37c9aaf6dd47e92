/* Divides layouts of the same shape into pieces, each so small that a shader can index it with
 * 32-bit arithmetic. A walk visits all pieces.
 *
 * The walk first removes dimensions of size 1 and merges dimensions that are adjacent in every
 * operand. It then divides the remaining dimensions until a piece has at most TSR__PIECE_DIMS
 * dimensions and `max_count` elements, and until, in each operand, the last byte of the piece is
 * less than 2^31 bytes from its first byte. (An operand is one of the tensors of an operation.) A
 * kernel therefore needs one 64-bit base address per operand and computes everything else in 32
 * bits. A larger tensor only needs more dispatches. */
#ifndef TSR_TENSOR_PIECES_H
#define TSR_TENSOR_PIECES_H

#include "tessera/layout.h"

#define TSR__PIECE_DIMS 4
#define TSR__PIECE_OPERANDS 5

typedef struct tsr__piece {
    int ndim;                        /* 1..TSR__PIECE_DIMS */
    uint32_t count;                  /* number of elements: the product of `shape` */
    uint32_t shape[TSR__PIECE_DIMS]; /* outermost first; entries past ndim are 1 */
    /* strides of each operand, in elements; entries past ndim are 0 */
    uint32_t strides[TSR__PIECE_OPERANDS][TSR__PIECE_DIMS];
    /* where the piece starts in each operand, in elements from the buffer's start */
    int64_t offset[TSR__PIECE_OPERANDS];
    int64_t index; /* row-major index of the piece's first element among all elements */
    /* how much one step along each dimension adds to that index */
    int64_t index_strides[TSR__PIECE_DIMS];
} tsr__piece;

/* The state of one walk. Only pieces.c uses its members. */
typedef struct tsr__pieces {
    int operands;
    int ndim;
    int64_t shape[TSR_MAX_DIMS];
    int64_t strides[TSR__PIECE_OPERANDS][TSR_MAX_DIMS];
    int64_t offset[TSR__PIECE_OPERANDS];
    int64_t index_strides[TSR_MAX_DIMS];
    int64_t step[TSR_MAX_DIMS];     /* the size of a piece in each dimension */
    int64_t position[TSR_MAX_DIMS]; /* the position at which the next piece starts */
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
