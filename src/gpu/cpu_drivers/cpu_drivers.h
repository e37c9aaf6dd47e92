/* The kernels that exist only for Vulkan drivers that run on the host's CPUs (Mesa's lavapipe and
 * SwiftShader), as a table of functions. This header is all that the rest of gpu/ knows of them.
 *
 * device->cpu is the table, or NULL on GPUs and in builds without these kernels (meson option
 * cpu_kernels). Code for GPUs first calls the function of the table; what that function does not
 * compute, it computes with its own kernels. docs/design/cpu_drivers.md explains why such drivers
 * need kernels of their own. */
#ifndef TSR_GPU_CPU_DRIVERS_CPU_DRIVERS_H
#define TSR_GPU_CPU_DRIVERS_CPU_DRIVERS_H

#include "gpu/device/device.h"
#include "gpu/stream/stream.h"
#include "shaders/params/cross_entropy_rows.h"
#include "tsr_config.h"

typedef struct tsr__attention tsr__attention;
typedef struct tsr__dispatches tsr__dispatches;
typedef struct tsr__elementwise tsr__elementwise;
typedef struct tsr__grouped tsr__grouped;
typedef struct tsr__matmul_call tsr__matmul_call;
typedef struct tsr__matmul_config tsr__matmul_config;
typedef struct tsr__matmul_device tsr__matmul_device;
typedef struct tsr__matmul_problem tsr__matmul_problem;
typedef struct tsr__norm tsr__norm;
typedef struct tsr__norm_plane tsr__norm_plane;
typedef struct tsr__optimizer_step tsr__optimizer_step;
typedef struct tsr__piece tsr__piece;
struct tsr_reduce_params;

/* One step of cross-entropy. */
typedef struct tsr__cross_entropy {
    uint32_t step;               /* TSR_ROWS_… */
    tsr_tensor *loss, *gradient; /* results; NULL if the caller or this step does not need one */
    const tsr_tensor *logits, *labels;
    /* [3,rows] or [ranks,3,rows]; NULL if the classes are not divided among ranks */
    const tsr_tensor *stats;
    /* the rank's first class and the number of classes of all ranks; unused with TSR_ROWS_ALONE */
    int64_t first, classes;
    float scale;
} tsr__cross_entropy;

/* One dispatch of the general kernels for reductions. The table's kernels give the same bits. */
typedef struct tsr__reduction {
    const tsr_device *device;
    uint32_t kind; /* TSR_REDUCE_KIND_… */
    tsr_dtype x_dtype, y_dtype;
    const struct tsr_reduce_params *params;
    tsr__access x, y;
} tsr__reduction;

/* The table's kernels for adjacent columns divide each column into this number of strided slices.
 * Element k of slice i is in row k · TSR__REDUCTION_SLICES + i. */
#define TSR__REDUCTION_SLICES 16u

/* Which kernels compute an output of a plane of rows in normalisation: the general ones, or those
 * of the table for short rows, or those of the table that divide rows into chunks. */
typedef enum tsr__norm_kernels {
    TSR__NORM_GENERAL,
    TSR__NORM_SHORT,
    TSR__NORM_CHUNKS,
} tsr__norm_kernels;

/* norm_short_sums needs room for this number of matrices of the size of each of its results. */
#define TSR__NORM_SHORT_PARTIALS_ROOM 8

/* Functions with a result `done` record or add all of an operation and set *done to true, or do
 * nothing and set it to false. Functions with a result `rest` record what they can of a piece;
 * `rest` is what is left of it, with a count of 0 if nothing is. Functions named …_suit or …_suits
 * return whether the kernel that follows should be used; it must not be used otherwise. */
typedef struct tsr__cpu_kernels {
    /* Products ------------------------------------------------------------------------------- */

    /* Returns the configuration that is usually fastest, or NULL if a kernel for GPUs is as fast.
     * The returned configuration may be unable to compute the problem. */
    const tsr__matmul_config *(*matmul_choose)(const tsr__matmul_device *device,
                                               const tsr__matmul_problem *problem);

    /* A product of a few rows and a matrix in a block format, call->b. The problem has k > 0. */
    bool (*quant_rows_suit)(const tsr__matmul_call *call);
    tsr_status (*quant_rows)(const tsr__matmul_call *call);
    /* y = x, converted to floats. x is a matrix in a block format, y a contiguous matrix. */
    tsr_status (*dequantize)(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *x,
                             bool *done);
    /* The product of rows and the matrices of their experts. There are pairs, and n > 0. */
    tsr_status (*matmul_grouped)(tsr_stream *stream, const tsr__grouped *call, bool *done);

    /* Attention ------------------------------------------------------------------------------ */

    tsr_status (*attention)(const tsr__attention *call, bool *done);
    tsr_status (*attention_grad)(const tsr__attention *call, bool *done);

    /* Elements ------------------------------------------------------------------------------- */

    /* `operands` are y and the inputs, broadcast to y's shape. */
    tsr_status (*elementwise)(tsr_stream *stream, const tsr__elementwise *work,
                              const tsr_tensor *operands, int count, const tsr__piece *piece,
                              tsr__piece *rest);
    tsr_status (*copy)(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src,
                       const tsr__piece *piece, tsr__piece *rest);
    tsr_status (*optimizer)(const tsr__optimizer_step *step, int operands, const tsr__piece *piece,
                            tsr__piece *rest);

    /* Rows ----------------------------------------------------------------------------------- */

    tsr_status (*embedding)(tsr__dispatches *list, const tsr_tensor *y, const tsr_tensor *table,
                            const tsr_tensor *indices, int64_t first, bool *done);
    /* `function` is TSR_SOFTMAX_…. `tensors` are the two inputs and the result; the second input is
     * NULL unless `function` is a gradient. An element of `piece` stands for a row. */
    tsr_status (*softmax)(tsr__dispatches *list, tsr_stream *stream, uint32_t function,
                          const tsr_tensor *const tensors[3], const tsr__piece *piece, bool *done);
    tsr_status (*cross_entropy)(tsr__dispatches *list, tsr_stream *stream,
                                const tsr__cross_entropy *call, bool *done);

    /* Reduces contiguous rows. */
    bool (*reduce_rows_suit)(const tsr__reduction *r);
    tsr_status (*reduce_rows)(tsr__dispatches *list, const tsr__reduction *r);
    /* Reduces slices of adjacent columns to f32, row-major [TSR__REDUCTION_SLICES, params->jobs] at
     * `slices`. The caller must then reduce the first dimension of `slices`. */
    bool (*reduce_columns_suit)(const tsr__reduction *r);
    tsr_status (*reduce_columns)(tsr__dispatches *list, const tsr__reduction *r, uint64_t slices,
                                 tsr__access access);
    /* The size in bytes of the scratch memory for the slices of all columns. There are `rows`
     * columns of `count` elements, which are divided into chunks of `chunk` elements. The size is 0
     * if reduce_columns cannot be used for any column. */
    uint64_t (*reduce_columns_bytes)(const tsr_device *device, int64_t rows, int64_t count,
                                     int64_t chunk);

    /* Normalisation. `output` is TSR_NORM_…, and a plane is a set of rows (ops/norm/norm_plane.h).
     */
    tsr__norm_kernels (*norm_kernels)(const tsr__norm *norm, const tsr__norm_plane *plane,
                                      uint32_t output);
    /* Short rows: adds the dispatch that computes `output`. A result of the forward pass is written
     * to operand 1. For gradients, operand 1 is dy, and dx is written to operand 2. Statistics of
     * the rows, or the products dy · normalised x of which dweight is the sum, as f32 [rows,
     * columns], are written to `scratch`. */
    tsr_status (*norm_short)(tsr__dispatches *list, const tsr__norm *norm,
                             const tsr__norm_plane *plane, uint32_t output, tsr__buffer *scratch);
    /* True if norm_short_sums should compute partial sums of dweight and dbias. The plane must
     * contain all rows. Neither the answer nor the bits of the partial sums depend on whether dx is
     * computed, too. */
    bool (*norm_short_sums_suit)(const tsr__norm *norm, const tsr__norm_plane *plane);
    /* The number of partial sums of each of the two, one for each workgroup. */
    uint32_t (*norm_short_partials)(const tsr__norm *norm, const tsr__norm_plane *plane);
    /* Adds the dispatch. If `dx` is true, it also computes dx, which must be f32, and adds operand
     * 3 to it, if there is one. The partial sums are written as f32 [partials, columns] to
     * `dweight` and `dbias`, which are in one buffer, `dbias` second. One of them may be NULL. Each
     * must be followed by room for TSR__NORM_SHORT_PARTIALS_ROOM more matrices of its size. */
    tsr_status (*norm_short_sums)(tsr__dispatches *list, const tsr__norm *norm,
                                  const tsr__norm_plane *plane, bool dx, const tsr_tensor *dweight,
                                  const tsr_tensor *dbias);
    /* Rows in chunks: the size of the scratch memory for a plane, without the rows' statistics. */
    uint64_t (*norm_chunks_bytes)(const tsr__norm *norm, const tsr__norm_plane *plane);
    /* Adds the dispatches that compute statistics: those of the rows (TSR_NORM_STATS), or also
     * those that the gradient needs (TSR_NORM_GRADIENT), which are then in `scratch`, too. */
    tsr_status (*norm_chunks_stats)(tsr__dispatches *list, const tsr__norm *norm,
                                    const tsr__norm_plane *plane, uint32_t output,
                                    tsr__buffer *scratch, tsr__buffer *stats);
    /* Adds the dispatches that compute `output` from the statistics. `scratch` is used with
     * TSR_NORM_GRADIENT only, and `products`, f32 [rows, columns], with TSR_NORM_PRODUCTS only. */
    tsr_status (*norm_chunks)(tsr__dispatches *list, const tsr__norm *norm,
                              const tsr__norm_plane *plane, uint32_t output, tsr__buffer *scratch,
                              tsr__buffer *stats, tsr__buffer *products);
} tsr__cpu_kernels;

/* Returns configuration number `index` of those that the table adds to all configurations of matrix
 * products, or NULL past the last. */
#if TSR__HAVE_CPU_KERNELS
const tsr__matmul_config *tsr__cpu_matmul_config_at(int index);
#else
static inline const tsr__matmul_config *tsr__cpu_matmul_config_at(int index)
{
    (void)index;
    return NULL;
}
#endif

#endif
