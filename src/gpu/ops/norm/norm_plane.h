/* The operands of a normalisation or of its gradients, and their checks. Also divides the rows into
 * planes. A plane is a set of rows with one stride between neighbours; one dispatch computes it. */
#ifndef TSR_GPU_OPS_NORM_NORM_PLANE_H
#define TSR_GPU_OPS_NORM_NORM_PLANE_H

#include "gpu/ops/common/rows.h"
#include "shaders/params/norm.h"
#include "tessera/types.h"

#define TSR__NORM_OPERANDS 4

typedef struct tsr__norm {
    const char *op;
    bool centred; /* true for layer normalisation, false for RMS normalisation */
    float epsilon;
    const tsr_tensor *weight, *bias; /* NULL if there is none */
    int count;                       /* the number of operands */
    /* x is first; all operands have its shape. A gradient has x, dy, dx, and a fourth operand if
     * one is added to dx. */
    const tsr_tensor *operand[TSR__NORM_OPERANDS];
} tsr__norm;

/* Checks a public function's kind, and that RMS normalisation is given no bias, called `name`. */
tsr_status tsr__norm_check_kind(const char *op, tsr_norm_kind kind, const char *name,
                                const tsr_tensor *bias) TSR_NODISCARD;

/* Checks x, weight, bias and epsilon. */
tsr_status tsr__norm_check(const tsr__norm *norm, const tsr_stream *stream) TSR_NODISCARD;

/* Checks that `vector` has the same number of elements as a row of x. */
tsr_status tsr__norm_check_vector(const tsr__norm *norm, const tsr_stream *stream, const char *name,
                                  const tsr_tensor *vector) TSR_NODISCARD;

/* tsr__norm_rows returns the number of x's rows, tsr__norm_columns the number of elements of a row.
 */
int64_t tsr__norm_rows(const tsr__norm *norm);
uint32_t tsr__norm_columns(const tsr__norm *norm);

/* A plane. Its rows extend along at most two dimensions, because push constants have no room for
 * the strides of more. */
typedef struct tsr__norm_plane {
    struct tsr_norm_rows operand[TSR__NORM_OPERANDS];
    uint32_t rows, inner;
    uint64_t first; /* the number of rows in all earlier planes */
    uint32_t form;  /* TSR_ROW_…; usable for all operands and for weight and bias */
} tsr__norm_plane;

/* An iterator over the planes of all rows. Its fields are private to norm_plane.c. */
typedef struct tsr__norm_planes {
    const tsr__norm *norm;
    tsr__pieces pieces;
    tsr__piece piece;
    uint32_t plane, planes_of_piece;
    uint64_t rows;
} tsr__norm_planes;

/* Starts the iteration. A plane has at most `max_rows` rows. If `max_rows` is 0, the limit is the
 * number of rows that the kernels can count. */
void tsr__norm_planes_init(tsr__norm_planes *planes, const tsr__norm *norm, uint64_t max_rows);
bool tsr__norm_planes_next(tsr__norm_planes *planes, tsr__norm_plane *plane);

/* Returns where the statistics of a plane's first row are in `stats`, which contains those of all
 * rows. */
uint64_t tsr__norm_stats_address(const tsr__norm_plane *plane, const tsr__buffer *stats);

/* Returns a tensor's dtype for a specialization constant, or 0 if `tensor` is NULL. */
uint32_t tsr__norm_dtype(const tsr_tensor *tensor);

/* Sets the address of a weight or bias and the number of bytes between its elements, and adds the
 * access to `dispatch`. Does nothing if `vector` is NULL. */
void tsr__norm_vector(const tsr_tensor *vector, uint64_t *address, uint64_t *step,
                      tsr__dispatch *dispatch);

#endif
