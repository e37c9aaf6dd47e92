/* Matrix multiplication with the epilogue of a linear layer: factor, bias, activation. */
#ifndef TESSERA_MATMUL_H
#define TESSERA_MATMUL_H

#include "tessera/stream.h"
#include "tessera/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_matmul_params {
    size_t struct_size;
    bool transpose_a, transpose_b; /* transpose the last two dimensions */
    /* The factor of op(a) · op(b); 0: 1. With TSR_ZERO the product is left out, even if it has
     * NaN. */
    float alpha;
    const tsr_tensor *bias; /* NULL, or a vector [n] (or anything that broadcasts to y's shape),
                               f32, f16 or bf16 */
    tsr_activation activation;
    bool accumulate; /* add to y's contents: y = act(y + alpha·op(a)·op(b) + bias) */
    /* Where this is faster, a may be rounded to 8 bits and multiplied as integers: on GPUs with
     * integer dot products, if a has one or two rows of at least 1024 elements and b is q4_0, q5_0
     * or q8_0. Each 32 neighbours of a row of a then share a scale, so that the error of an element
     * is at most 1/254 of the largest absolute value among them, plus rounding; if all 32 are
     * smaller than 2^-120, they count as 0. */
    bool allow_int8;
    /* Whether f32 and quantised operands may be rounded to use matrix units (types.h). An infinity
     * or a NaN in a then gives what it gives in f32; an infinity in b may give a NaN instead. */
    tsr_precision precision;
} tsr_matmul_params;

#define tsr_matmul_params(...)                                                                     \
    (&(tsr_matmul_params){.struct_size = sizeof(tsr_matmul_params), __VA_ARGS__})

/* y[…,m,n] = act(alpha · op(a)[…,m,k] · op(b)[…,k,n] + bias), products and sums in f32.
 *
 * a, b and y have 2 to 8 dimensions; the leading ones are batch dimensions, and those of a and b
 * broadcast to y's. a, b, y and bias are each f32, f16 or bf16, any mixture. b may also be in a
 * block format (quant.h): it must then be [n,k], and transpose_b must be set. It is multiplied as
 * the floats that tsr_dequantize gives, rounded to f16 if a is f16 and has more than a few rows, or
 * as params->precision says.
 * Any strides: sliced and transposed views need no copy. Sizes may be 0; with k = 0 the product is
 * 0. The result's bits depend only on shapes, dtypes, strides, the device and its tuning
 * (tessera bench --tune), not on the run. y may not overlap a, b or bias. `params` may be NULL.
 * Records the product into the stream and does not wait for its result.
 *
 * Errors: TSR_ERR_INVALID (shapes, dtypes, devices, overlap, naming them), TSR_ERR_NO_MEMORY,
 * TSR_ERR_DEVICE_MEMORY, TSR_ERR_DRIVER, TSR_ERR_DEVICE_LOST. On failure y keeps its contents,
 * unless the device is lost, or fails in the middle of a product that is too long for one batch
 * (stream.h). */
TSR_API TSR_NODISCARD tsr_status tsr_matmul(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                            const tsr_tensor *b, const tsr_matmul_params *params);

#ifdef __cplusplus
}
#endif

#endif
