/* Converts the elements of one tensor from the source's file to the destination's. */
#ifndef TSR_MODEL_CONVERT_TENSOR_H
#define TSR_MODEL_CONVERT_TENSOR_H

#include "model/convert/addition.h"
#include "model/convert/output.h"
#include "model/weights/source.h"
#include "model/weights/weights.h"

/* Matrices of experts that become one tensor of the destination. Row r of matrix e of that tensor
 * is a row of sources[e · parts + …]: with two parts, gate and up, either those of gate come first,
 * or the rows of both alternate. */
typedef struct tsr__converted_experts {
    tsr__weight *sources;       /* [count · parts] */
    int64_t count, parts, rows; /* rows: of each part */
    bool alternates;
    /* The matrices are k_b and v_b of heads of latent attention, and the tensor has them in one:
     * of each head, `rows` rows are the columns of k_b, and the other ones, up to `both`, the rows
     * of v_b. */
    bool latents;
    int64_t both;
} tsr__converted_experts;

/* A tensor of the destination that is made of several weights, or whose rows or columns are in
 * another order than in the source. */
typedef struct tsr__converted_weight {
    tsr__weight from, to; /* `to` says which rows of the destination's tensor they are */
} tsr__converted_weight;

typedef struct tsr__converted_weights {
    tsr__converted_weight *items;
    size_t count; /* 0: the tensor is not such a one */
} tsr__converted_weights;

/* What a tensor of bytes is, of the two that hold a matrix in MXFP4 (weights/mxfp4.h). The blocks
 * come just before the scales, and are converted together with them. */
typedef enum tsr__converted_form {
    TSR__CONVERTED_ELEMENTS,
    TSR__CONVERTED_MXFP4_BLOCKS,
    TSR__CONVERTED_MXFP4_SCALES
} tsr__converted_form;

/* A tensor of the destination. */
typedef struct tsr__converted {
    char name[TSR__WEIGHT_NAME];
    tsr__converted_experts experts; /* count is 0: the tensor is not of experts */
    tsr__converted_weights weights;
    tsr__converted_form form;
    const tsr_shard_param *from;
    tsr_dtype from_dtype, dtype;
    bool is_matrix;        /* it may have a block format */
    int layer;             /* −1: outside layers */
    int64_t rows, columns; /* the destination's sizes; a tensor of one dimension has one column, and
                              of experts, `rows` counts those of all experts */
    int ndim;
    int64_t shape[TSR_MAX_DIMS]; /* the destination's */
    bool transposed; /* the source has the matrix as [columns, rows]; of experts, the destination
                        has each matrix so */
    /* The rows of a head, if they are in the order of adjacent pairs (see tsr__weight) in the
     * source only (split_head) or in the destination only (join_head); otherwise 0. */
    int64_t split_head, join_head;
    tsr__addition *addition; /* what is added to rows; NULL: nothing */
    float shift; /* added to each element: 1 or −1 for weights of norms of which one file has them
              less 1 */
    uint64_t at; /* where the tensor starts in the destination's file */
    uint64_t size_bytes;
} tsr__converted;

typedef struct tsr__tensor_copier {
    tsr__weight_source source;
    tsr__output *output;
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
    uint64_t done_bytes, total_bytes;
    /* the rows that are being converted: `raw` as in the source, `values` as f32, `made` as in the
     * destination */
    uint8_t *raw, *made;
    float *values, *scratch;
    size_t raw_bytes, made_bytes, value_count, scratch_count;
} tsr__tensor_copier;

void tsr__tensor_copier_init(const tsr__model_files *files, tsr__output *output,
                             tsr__tensor_copier *out);
void tsr__tensor_copier_finish(tsr__tensor_copier *copier);

/* Converts a tensor that is not of experts. */
tsr_status tsr__tensor_convert(tsr__tensor_copier *copier,
                               const tsr__converted *tensor) TSR_NODISCARD;

/* experts.c: the same for a tensor of experts. */
tsr_status tsr__experts_convert(tsr__tensor_copier *copier,
                                const tsr__converted *tensor) TSR_NODISCARD;
/* assembled.c: the same for a tensor that is made of weights. */
tsr_status tsr__weights_convert(tsr__tensor_copier *copier,
                                const tsr__converted *tensor) TSR_NODISCARD;
/* Encode rows of the destination from copier->values, and write rows that are encoded. */
tsr_status tsr__tensor_encode(tsr__tensor_copier *copier, const tsr__converted *tensor,
                              int64_t first_row, int64_t rows, uint64_t bytes,
                              const void **out) TSR_NODISCARD;
tsr_status tsr__tensor_write_rows(tsr__tensor_copier *copier, const tsr__converted *tensor,
                                  int64_t first_row, int64_t rows, const void *bytes) TSR_NODISCARD;

#endif
