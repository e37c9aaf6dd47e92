/* The interface of this folder in a build without its kernels (meson option cpu_kernels). Every
 * function that asks whether a kernel should be used returns false, so that the rest of gpu/ uses
 * the kernels for GPUs. */
#include "base/error.h"
#include "gpu/cpu_drivers/attention/products.h"
#include "gpu/cpu_drivers/attention/short.h"
#include "gpu/cpu_drivers/attention/step.h"
#include "gpu/cpu_drivers/copy/contiguous.h"
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/cpu_drivers/matmul/quant_rows.h"
#include "gpu/cpu_drivers/ops/cross_entropy_chunks.h"
#include "gpu/cpu_drivers/ops/embedding_vectors.h"
#include "gpu/cpu_drivers/ops/norm_chunks.h"
#include "gpu/cpu_drivers/ops/norm_short.h"
#include "gpu/cpu_drivers/ops/reduction.h"
#include "gpu/cpu_drivers/ops/softmax_short.h"
#include "gpu/cpu_drivers/ops/squares.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "gpu/ops/copy/copy.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Products ------------------------------------------------------------------------------------- */

const tsr__matmul_config *tsr__cpu_matmul_config_at(int index)
{
    return NULL;
}

const tsr__matmul_config *tsr__cpu_matmul_choose(const tsr__matmul_device *device,
                                                 const tsr__matmul_problem *problem)
{
    return NULL;
}

bool tsr__quant_rows_suit(const tsr__matmul_call *call)
{
    return false;
}

tsr_status tsr__quant_rows(const tsr__matmul_call *call)
{
    return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: built without kernels for CPU drivers");
}

bool tsr__dequantize_vectors_suit(const tsr_tensor *y, const tsr_tensor *x)
{
    return false;
}

tsr_status tsr__dequantize_vectors(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *x)
{
    return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: built without kernels for CPU drivers");
}

/* Which kernels to use ------------------------------------------------------------------------- */

bool tsr__vectors_suit(const tsr_device *device)
{
    return false;
}

bool tsr__vectors_cut(const tsr__vectors *work, const tsr__piece *piece, tsr__piece *vectors,
                      tsr__piece *rest)
{
    return false;
}

bool tsr__copy_transpose_cut(const tsr__piece *piece, const tsr_tensor *dst, const tsr_tensor *src,
                             tsr__piece *vectors, tsr__piece *rest)
{
    return false;
}

bool tsr__embedding_vectors_suit(const tsr_tensor *y, const tsr_tensor *table,
                                 const tsr_tensor *indices)
{
    return false;
}

bool tsr__squares_suit(const tsr_tensor *x, uint64_t address, int64_t count)
{
    return false;
}

bool tsr__reduction_rows_suit(const tsr__reduction *r)
{
    return false;
}

bool tsr__reduction_columns_suit(const tsr__reduction *r)
{
    return false;
}

uint64_t tsr__reduction_parts_bytes(const tsr_device *device, int64_t rows, int64_t count,
                                    int64_t chunk)
{
    return 0;
}

bool tsr__softmax_without_gaps(const tsr_tensor *tensor)
{
    return false;
}

bool tsr__softmax_short_suit(const tsr__softmax_rows *work)
{
    return false;
}

bool tsr__softmax_chunks_suit(const tsr__softmax_rows *work)
{
    return false;
}

bool tsr__cross_entropy_chunks_suit(const tsr__cross_entropy *call)
{
    return false;
}

bool tsr__norm_short_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output)
{
    return false;
}

bool tsr__norm_short_parts_suit(const tsr__norm *norm, const tsr__norm_plane *plane)
{
    return false;
}

uint32_t tsr__norm_short_parts(const tsr__norm *norm, const tsr__norm_plane *plane)
{
    return 0;
}

bool tsr__norm_chunks_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output)
{
    return false;
}

/* Makes no copies. */
tsr_status tsr__make_contiguous(tsr_stream *stream, const tsr_tensor *y, tsr__contiguous *out)
{
    return TSR_OK;
}

void tsr__contiguous_finish(tsr__contiguous *inputs)
{
}

/* Functions that are called only if one of the above returned true --------------------------- */

static tsr_status unsupported(void)
{
    return tsr__fail(TSR_ERR_UNSUPPORTED, "this build has no kernels for CPU drivers");
}

uint32_t tsr__vectors_alignment(const tsr__piece *piece, int operand, const tsr_tensor *tensor)
{
    return 1;
}

tsr_status tsr__vectors_run(tsr_stream *stream, const tsr__vectors *work, const tsr__piece *piece)
{
    return unsupported();
}

tsr_status tsr__squares_add(tsr__dispatches *list, const struct tsr_sum_squares_params *params,
                            int entries, tsr_dtype dtype, tsr__access parts,
                            const tsr__access *read)
{
    return unsupported();
}

tsr_status tsr__copy_transpose(tsr_stream *stream, const tsr__piece *piece, const tsr_tensor *dst,
                               const tsr_tensor *src)
{
    return unsupported();
}

tsr_status tsr__embedding_vectors(tsr__dispatches *list, const tsr_tensor *y,
                                  const tsr_tensor *table, const tsr_tensor *indices, int64_t first)
{
    return unsupported();
}

tsr_status tsr__reduction_rows_add(tsr__dispatches *list, const tsr__reduction *r)
{
    return unsupported();
}

tsr_status tsr__reduction_columns_add(tsr__dispatches *list, const tsr__reduction *r,
                                      uint64_t parts, tsr__access access)
{
    return unsupported();
}

uint64_t tsr__softmax_scratch_bytes(const tsr__softmax_rows *work)
{
    return 0;
}

tsr_status tsr__softmax_short_add(tsr__dispatches *list, const tsr__softmax_rows *work)
{
    return unsupported();
}

tsr_status tsr__softmax_chunks_add(tsr__dispatches *list, const tsr__softmax_rows *work)
{
    return unsupported();
}

tsr_status tsr__softmax_rows_add(tsr__dispatches *list, const tsr__softmax_rows *work)
{
    return unsupported();
}

tsr_status tsr__softmax_apply_add(tsr__dispatches *list, const tsr__softmax_rows *work)
{
    return unsupported();
}

tsr_status tsr__cross_entropy_chunks_add(tsr__dispatches *list, tsr_stream *stream,
                                         const tsr__cross_entropy *call)
{
    return unsupported();
}

tsr_status tsr__norm_short_add(tsr__dispatches *list, const tsr__norm *norm,
                               const tsr__norm_plane *plane, uint32_t output, tsr__buffer *scratch)
{
    return unsupported();
}

tsr_status tsr__norm_short_parts_add(tsr__dispatches *list, const tsr__norm *norm,
                                     const tsr__norm_plane *plane, bool dx,
                                     const tsr_tensor *dweight, const tsr_tensor *dbias)
{
    return unsupported();
}

uint64_t tsr__norm_chunks_scratch_bytes(const tsr__norm *norm, const tsr__norm_plane *plane)
{
    return 0;
}

tsr_status tsr__norm_chunks_add_stats(tsr__dispatches *list, const tsr__norm *norm,
                                      const tsr__norm_plane *plane, uint32_t output,
                                      tsr__buffer *scratch, tsr__buffer *stats)
{
    return unsupported();
}

tsr_status tsr__norm_chunks_add(tsr__dispatches *list, const tsr__norm *norm,
                                const tsr__norm_plane *plane, uint32_t output, tsr__buffer *scratch,
                                tsr__buffer *stats, tsr__buffer *products)
{
    return unsupported();
}

/* Attention ------------------------------------------------------------------------------------ */

bool tsr__attention_short_suits(const tsr__attention *call)
{
    return false;
}

tsr_status tsr__attention_short(const tsr__attention *call)
{
    return unsupported();
}

tsr_status tsr__attention_short_grad(const tsr__attention *call)
{
    return unsupported();
}

bool tsr__attention_step_suits(const tsr__attention *call)
{
    return false;
}

tsr_status tsr__attention_step(const tsr__attention *call)
{
    return unsupported();
}

bool tsr__attention_products_suit(const tsr__attention *call)
{
    return false;
}

tsr_status tsr__attention_products(const tsr__attention *call)
{
    return unsupported();
}

tsr_status tsr__attention_products_grad(const tsr__attention *call)
{
    return unsupported();
}
