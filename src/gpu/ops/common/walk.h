/* Properties of pieces, the ranges of tensors that one dispatch computes (tensor/pieces.h), and the
 * push constants from which invocations compute where in a piece their elements are
 * (shaders/include/walk.glsl). */
#ifndef TSR_GPU_OPS_COMMON_WALK_H
#define TSR_GPU_OPS_COMMON_WALK_H

#include "gpu/stream/stream.h"
#include "shaders/params/walk.h"
#include "tensor/pieces.h"

/* The number of invocations per workgroup of the kernels that use walk.glsl. */
#define TSR__WALK_WORKGROUP 128

/* Initialises the push constants for a piece. Each invocation gets `group` (1 or 4) elements that
 * are neighbours along the innermost dimension. */
void tsr__walk_init(struct tsr_walk *walk, const tsr__piece *piece, uint32_t group);

/* Computes constants that replace a division by a multiplication: (high32(n · magic) + n) >> shift
 * equals n / divisor for all n < 2^31 (Granlund and Montgomery, "Division by Invariant Integers
 * using Multiplication", 1994). */
void tsr__walk_divisor(uint32_t divisor, uint32_t *magic, uint32_t *shift);

/* Returns an operand's strides in the order of the push constants: the innermost is last, and outer
 * dimensions that the piece lacks have stride 0. */
void tsr__walk_strides(const tsr__piece *piece, int operand, uint32_t out[TSR_WALK_DIMS]);

/* tsr__piece_inner returns the size of a piece's innermost dimension; tsr__piece_inner_stride
 * returns an operand's stride along that dimension, or 1 if its size is 1. */
uint32_t tsr__piece_inner(const tsr__piece *piece);
uint32_t tsr__piece_inner_stride(const tsr__piece *piece, int operand);

/* Returns the number of elements in a row of the piece (along the innermost dimension), or 1 if the
 * rows of operand 0 or 1 have gaps. */
uint32_t tsr__piece_row_elements(const tsr__piece *piece);

/* Restricts the innermost dimension to the elements begin … end − 1, in all operands. */
void tsr__piece_columns(tsr__piece *piece, int operands, uint32_t begin, uint32_t end);

/* The device address of a piece's first element in an operand. */
uint64_t tsr__piece_address(const tsr__piece *piece, int operand, const tsr_tensor *tensor);

/* For transpositions: if operand 0 is contiguous along the innermost dimension and operand 1 along
 * another one, returns that other dimension. Otherwise returns -1. */
int tsr__piece_transposed(const tsr__piece *piece);

/* A plane of a piece consists of the elements along dimensions `a` and `b` (-1: there is no such
 * dimension); there is one for each index of the other dimensions. Returns the offset in elements
 * of plane number `plane` from the piece's start. */
uint64_t tsr__piece_plane(const tsr__piece *piece, int operand, int a, int b, uint32_t plane);

/* True if the operand's innermost stride is 1 and the address of each row is a multiple of
 * `alignment_bytes`. `unit_bytes` is the size of what the piece's strides count: of an element, or
 * what tsr__piece_widen returned. */
bool tsr__piece_aligned(const tsr__piece *piece, int operand, const tsr_tensor *tensor,
                        uint64_t unit_bytes, uint64_t alignment_bytes);

/* Changes the piece so that its sizes and strides count units of several elements, and returns the
 * size of a unit in bytes. It is the largest power of two up to 16 that divides the length and the
 * address of every row in every operand, but at least the size of an element. Elements must have
 * the same size in all operands. */
uint32_t tsr__piece_widen(tsr__piece *piece, int operands, const tsr_tensor *const *tensors);

#endif
