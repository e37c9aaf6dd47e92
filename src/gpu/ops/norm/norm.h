/* What normalisation and its gradients share. Rows are walked by planes of two dimensions, which is
 * what push constants have room for. */
#ifndef TSR_GPU_OPS_NORM_NORM_H
#define TSR_GPU_OPS_NORM_NORM_H

#include "gpu/ops/common/rows.h"
#include "shaders/params/norm.h"

#define TSR__NORM_OPERANDS 3

typedef struct tsr__norm {
    const char *op;
    bool centred; /* layer normalisation; else RMS */
    float epsilon;
    const tsr_tensor *weight, *bias; /* NULL: none */
    int count;
    const tsr_tensor *operand[TSR__NORM_OPERANDS]; /* x first; all of its shape */
} tsr__norm;

/* Checks x, weight, bias and epsilon. */
tsr_status tsr__norm_check(const tsr__norm *norm, const tsr_stream *stream) TSR_NODISCARD;

/* Whether `vector` has an element for each of x's rows'. */
tsr_status tsr__norm_check_vector(const tsr__norm *norm, const tsr_stream *stream, const char *name,
                                  const tsr_tensor *vector) TSR_NODISCARD;

/* Rows of x, and elements of a row. */
int64_t tsr__norm_rows(const tsr__norm *norm);
uint32_t tsr__norm_columns(const tsr__norm *norm);

/* A plane of rows: those of each operand, and what all kernels are told of them. */
typedef struct tsr__norm_plane {
    struct tsr_norm_rows operand[TSR__NORM_OPERANDS];
    uint32_t rows, inner;
    uint64_t first; /* how many rows the planes before have */
    uint32_t form;  /* that suits all operands, weight and bias */
} tsr__norm_plane;

/* The state of a walk; private to norm.c. */
typedef struct tsr__norm_walk {
    const tsr__norm *norm;
    tsr__pieces pieces;
    tsr__piece piece;
    uint32_t plane, planes; /* of the piece */
    uint64_t rows;
} tsr__norm_walk;

/* A plane has at most `most_rows`; 0: as many as the kernels can count. */
void tsr__norm_walk_init(tsr__norm_walk *walk, const tsr__norm *norm, uint64_t most_rows);
bool tsr__norm_next(tsr__norm_walk *walk, tsr__norm_plane *plane);

/* Of the statistics of a plane's first row, in a buffer with those of all rows. */
uint64_t tsr__norm_stats_address(const tsr__norm_plane *plane, const tsr__buffer *stats);

/* A dtype as specialization constant: 0 where there is no tensor. */
uint32_t tsr__norm_dtype(const tsr_tensor *tensor);

/* The address of a weight or bias, the bytes from element to element, and the access to it; nothing
 * where there is none. */
void tsr__norm_vector(const tsr_tensor *vector, uint64_t *address, uint64_t *step,
                      tsr__dispatch *dispatch);

/* The kernels that make `output`, one of TSR_NORM_…, of a plane: those of norm_short.h, of
 * norm_chunks.h, or the general ones. */
typedef enum tsr__norm_way {
    TSR__NORM_GENERAL,
    TSR__NORM_SHORT,
    TSR__NORM_CHUNKS,
} tsr__norm_way;
tsr__norm_way tsr__norm_way_of(const tsr__norm *norm, const tsr__norm_plane *plane,
                               uint32_t output);

/* Adds what writes the statistics of the plane's rows, unless those are made from chunks. */
tsr_status tsr__norm_stats_add(tsr__dispatches *list, const tsr__norm *norm,
                               const tsr__norm_plane *plane, tsr__buffer *stats) TSR_NODISCARD;

#endif
