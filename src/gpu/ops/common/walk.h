/* From pieces to the push constants of shaders/include/walk.glsl. */
#ifndef TSR_GPU_OPS_COMMON_WALK_H
#define TSR_GPU_OPS_COMMON_WALK_H

#include "gpu/stream/stream.h"
#include "shaders/params/walk.h"
#include "tensor/pieces.h"

/* Invocations per workgroup of the kernels that walk. */
#define TSR__WALK_WORKGROUP 128

/* The walk over a piece, an invocation taking `group` (1 or 4) neighbours of the innermost
 * dimension. */
void tsr__walk_init(struct tsr_walk *walk, const tsr__piece *piece, uint32_t group);

/* Division without dividing: q = (high32(n · magic) + n) >> shift equals n / divisor for all n <
 * 2^31 (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994). */
void tsr__walk_divisor(uint32_t divisor, uint32_t *magic, uint32_t *shift);

/* An operand's strides, the innermost last, as kernels take them. */
void tsr__walk_strides(const tsr__piece *piece, int operand, uint32_t out[TSR_WALK_DIMS]);

/* Size and stride of a piece's innermost dimension; a single element counts as contiguous. */
uint32_t tsr__piece_inner(const tsr__piece *piece);
uint32_t tsr__piece_inner_stride(const tsr__piece *piece, int operand);

/* How long a piece's rows without gaps are, in operands 0 and 1; 1 where there are none. */
uint32_t tsr__piece_row_elements(const tsr__piece *piece);

/* Keeps columns begin … end − 1: of the innermost dimension, in all operands. */
void tsr__piece_columns(tsr__piece *piece, int operands, uint32_t begin, uint32_t end);

/* The device address of an operand's first element in a piece. */
uint64_t tsr__piece_address(const tsr__piece *piece, int operand, const tsr_tensor *tensor);

/* The dimension whose neighbours lie side by side in operand 1, where operand 0's are those of its
 * innermost dimension; -1: none. */
int tsr__piece_transposed(const tsr__piece *piece);

/* Where the plane of number `plane` starts, in elements from the piece's start: a plane is all of
 * dimensions `a` and `b` (-1: none). */
uint64_t tsr__piece_plane(const tsr__piece *piece, int operand, int a, int b, uint32_t plane);

/* Whether the operand's innermost stride is 1 and each row's address is a multiple of
 * `alignment_bytes`. */
bool tsr__piece_aligned(const tsr__piece *piece, int operand, const tsr_tensor *tensor,
                        uint64_t alignment_bytes);

/* Counts the piece in units of several elements, and returns the size of a unit in bytes. It is the
 * widest power of two, up to 16, that divides the length and the address of every row of every
 * operand, or the size of an element. All operands have elements of one size. */
uint32_t tsr__piece_widen(tsr__piece *piece, int operands, const tsr_tensor *const *tensors);

#endif
