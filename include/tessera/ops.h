/* Element-wise work, reductions, losses, optimizers and random numbers on device tensors.
 *
 * Everywhere: floats are f32, f16 or bf16 in any mixture, computed in f32 and rounded to nearest
 * even on store; some drivers take f32 below 2^-126, and bf16 with it, for 0. Views of any strides
 * and zero sizes are fine. Inputs broadcast to the output's shape where the comment says so. An
 * output may be the very same view as an input of the same dtype unless the comment forbids it; an
 * output that overlaps an input in any other way, or that repeats an element, is TSR_ERR_INVALID.
 * Other errors: TSR_ERR_INVALID (shape, dtype, device, naming the values), TSR_ERR_NO_MEMORY,
 * TSR_ERR_DEVICE_MEMORY, TSR_ERR_DRIVER, TSR_ERR_DEVICE_LOST. On failure every tensor is as it was,
 * but when the device is lost, or fails in the middle of an operation that is too much for one
 * batch (stream.h). */
#ifndef TESSERA_OPS_H
#define TESSERA_OPS_H

#include "tessera/matmul.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies --------------------------------------------------------------------------------------- */

/* dst = src, converted to dst's dtype. src broadcasts to dst's shape. Float to integer truncates
 * towards zero and saturates (NaN becomes 0); wider integers to narrower ones keep the low bits;
 * f32 to f16 and bf16 rounds to nearest even. This is slicing, concatenation, transposition and
 * making contiguous in one. On two devices the copy goes through the host: `stream` belongs to
 * dst's device, the call waits for all work on src, and returns when src has been read; where that
 * fails, some of dst may have been written, as with tsr_tensor_upload. */
TSR_API TSR_NODISCARD tsr_status tsr_copy(tsr_stream *stream, tsr_tensor *dst,
                                          const tsr_tensor *src);

/* Every element = value, converted to the dtype as tsr_copy does from f64. */
TSR_API TSR_NODISCARD tsr_status tsr_fill(tsr_stream *stream, tsr_tensor *dst, double value);

/* Element-wise --------------------------------------------------------------------------------- */

/* y = a + b, a - b, a · b; a and b broadcast to y's shape. A bias is an `a` of shape [n] added to
 * [m,n]. */
TSR_API TSR_NODISCARD tsr_status tsr_add(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                         const tsr_tensor *b);
TSR_API TSR_NODISCARD tsr_status tsr_sub(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                         const tsr_tensor *b);
TSR_API TSR_NODISCARD tsr_status tsr_mul(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                         const tsr_tensor *b);
/* y = scale · x + shift; x broadcasts. */
TSR_API TSR_NODISCARD tsr_status tsr_scale(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                           float scale, float shift);
/* y = alpha · x + y; x broadcasts. */
TSR_API TSR_NODISCARD tsr_status tsr_axpy(tsr_stream *stream, tsr_tensor *y, float alpha,
                                          const tsr_tensor *x);
/* y = act(x). */
TSR_API TSR_NODISCARD tsr_status tsr_activate(tsr_stream *stream, tsr_tensor *y,
                                              const tsr_tensor *x, tsr_activation activation);
/* dx = dy · act'(x). For ReLU act'(0) = 0. dx may be x or dy. */
TSR_API TSR_NODISCARD tsr_status tsr_activate_grad(tsr_stream *stream, tsr_tensor *dx,
                                                   const tsr_tensor *x, const tsr_tensor *dy,
                                                   tsr_activation activation);

/* Reductions ----------------------------------------------------------------------------------- */

typedef enum tsr_reduction {
    TSR_REDUCE_SUM = 1,
    TSR_REDUCE_MEAN = 2,
    TSR_REDUCE_MAX = 3,
    TSR_REDUCE_MIN = 4
} tsr_reduction;

/* Reduces dimension `dim` (negative: from the end) of x: y has x's shape without it, or with it at
 * size 1. The row sum of [m,n] is dim 1, the column sum dim 0. `accumulate` adds the result to y
 * (SUM and MEAN only). Accumulation is in f32 by a fixed tree that depends on the shape only, so
 * that the bits are the same on every run. A sum over nothing is 0; a mean, max or min over nothing
 * is an error. NaN anywhere gives NaN. y may not overlap x. */
TSR_API TSR_NODISCARD tsr_status tsr_reduce(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                            int dim, tsr_reduction reduction, bool accumulate);

/* y (i32) = the index along `dim` of the largest element, the first among equals; NaN counts as the
 * largest. y's shape as for tsr_reduce. The dimension has at least one element. */
TSR_API TSR_NODISCARD tsr_status tsr_argmax(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                            int dim);

/* Normalisation -------------------------------------------------------------------------------- */

/* Over the last dimension of x, as torch.nn.functional.layer_norm and rms_norm over one:
 * layer_norm: y = (x − mean) / √(variance + epsilon) · weight + bias, the variance biased (over n);
 * rms_norm: y = x / √(mean of x² + epsilon) · weight.
 * weight and bias are [n] for rows of n elements, or NULL: 1 and 0. epsilon is at least 2^-126.
 * Sums are in f32, in an order that is the same on every run; the variance is taken about the mean,
 * which may be large next to it. y may be x. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_norm(tsr_stream *stream, tsr_tensor *y,
                                                const tsr_tensor *x, const tsr_tensor *weight,
                                                const tsr_tensor *bias, float epsilon);
TSR_API TSR_NODISCARD tsr_status tsr_rms_norm(tsr_stream *stream, tsr_tensor *y,
                                              const tsr_tensor *x, const tsr_tensor *weight,
                                              float epsilon);
/* The gradients of those from x, dy, weight and epsilon: nothing of the forward call is kept. With
 * z what x is normalised to, dweight = Σ dy·z and dbias = Σ dy over all rows, which are 0 over
 * none; `accumulate` adds them to what is there. dx, dweight and dbias may be NULL where they are
 * not wanted, not all of them. dx may be x or dy. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_norm_grad(tsr_stream *stream, tsr_tensor *dx,
                                                     tsr_tensor *dweight, tsr_tensor *dbias,
                                                     const tsr_tensor *x, const tsr_tensor *dy,
                                                     const tsr_tensor *weight, float epsilon,
                                                     bool accumulate);
TSR_API TSR_NODISCARD tsr_status tsr_rms_norm_grad(tsr_stream *stream, tsr_tensor *dx,
                                                   tsr_tensor *dweight, const tsr_tensor *x,
                                                   const tsr_tensor *dy, const tsr_tensor *weight,
                                                   float epsilon, bool accumulate);

/* Softmax and losses
 * -------------------------------------------------------------------------------------------- */

/* y = softmax(x), or log(softmax(x)), over the last dimension, computed relative to its largest
 * element. y may be x. A row whose elements are all -inf gives NaN, as in PyTorch. */
TSR_API TSR_NODISCARD tsr_status tsr_softmax(tsr_stream *stream, tsr_tensor *y,
                                             const tsr_tensor *x);
TSR_API TSR_NODISCARD tsr_status tsr_log_softmax(tsr_stream *stream, tsr_tensor *y,
                                                 const tsr_tensor *x);
/* dx from y = softmax(x) (or log_softmax(x)) and dy: y·(dy − Σ y·dy), or dy − exp(y)·Σ dy. dx may
 * be dy. */
TSR_API TSR_NODISCARD tsr_status tsr_softmax_grad(tsr_stream *stream, tsr_tensor *dx,
                                                  const tsr_tensor *y, const tsr_tensor *dy);
TSR_API TSR_NODISCARD tsr_status tsr_log_softmax_grad(tsr_stream *stream, tsr_tensor *dx,
                                                      const tsr_tensor *y, const tsr_tensor *dy);

/* Cross-entropy of logits [rows, classes] against labels [rows] (i32, i64, u32 or u8), of at least
 * one class: loss[r] =
 * log Σ exp(logits[r]) − logits[r][labels[r]], one value per row. A label outside 0..classes−1
 * means "ignore this row": its loss and gradient are 0 (PyTorch's ignore_index −100 among them).
 * dlogits, where not NULL, receives (softmax(logits[r]) − onehot(labels[r])) · grad_scale; pass
 * 1/rows for the gradient of the mean. It may be the same view as logits. `loss` may be NULL when
 * only the gradient is wanted; not both. */
TSR_API TSR_NODISCARD tsr_status tsr_cross_entropy(tsr_stream *stream, tsr_tensor *loss,
                                                   tsr_tensor *dlogits, const tsr_tensor *logits,
                                                   const tsr_tensor *labels, float grad_scale);

/* Optimizers ----------------------------------------------------------------------------------- */

typedef struct tsr_sgd_params {
    float learning_rate;
    float momentum; /* 0: none, and `velocity` may be NULL */
    float dampening;
    float weight_decay; /* L2: grad += weight_decay · parameter */
    bool nesterov;      /* needs momentum > 0 and dampening 0 */
    bool first_step;    /* velocity = grad, as PyTorch starts it; its old contents are not read */
} tsr_sgd_params;

/* One step of SGD as torch.optim.SGD defines it. parameter, gradient and velocity have one shape;
 * velocity is f32. `master`, where not NULL, is the f32 copy the step is computed on when
 * `parameter` is f16 or bf16; both are written. */
TSR_API TSR_NODISCARD tsr_status tsr_sgd_step(tsr_stream *stream, tsr_tensor *parameter,
                                              const tsr_tensor *gradient, tsr_tensor *velocity,
                                              tsr_tensor *master, const tsr_sgd_params *params);

typedef struct tsr_adamw_params {
    float learning_rate;
    float beta1, beta2; /* both 0: 0.9 and 0.999 */
    float epsilon;      /* 0: 1e-8 */
    float
        weight_decay; /* decoupled: parameter -= learning_rate · weight_decay · parameter, first */
    int64_t
        step; /* from 1: the bias corrections are 1 − beta^step, computed in double on the host */
} tsr_adamw_params;

/* One step of AdamW as torch.optim.AdamW defines it. The moments are f32 with the parameter's
 * shape, zero before step 1; `master` as above. */
TSR_API TSR_NODISCARD tsr_status tsr_adamw_step(tsr_stream *stream, tsr_tensor *parameter,
                                                const tsr_tensor *gradient, tsr_tensor *moment1,
                                                tsr_tensor *moment2, tsr_tensor *master,
                                                const tsr_adamw_params *params);

/* Random numbers ------------------------------------------------------------------------------- */

/* Where an element's random bits come from: Philox4x32-10 with key `seed` and the 128-bit counter
 * (element index / 4, subsequence), word index % 4 of its output. The element index is offset + Σ
 * i_d · index_strides[d]: a shard that passes its place in the whole tensor draws the numbers the
 * whole tensor would. The bits are the same on every device. TSR_ERR_OVERFLOW where the last
 * element's index does not fit 64 bits, or how far it is from the first one's 63. */
typedef struct tsr_random_params {
    uint64_t seed;
    uint64_t subsequence;         /* independent streams under one seed: an operation or a step */
    uint64_t offset;              /* index of the first element */
    const int64_t *index_strides; /* NULL: row-major over the tensor itself; else one non-negative
                                     entry per dimension */
} tsr_random_params;

/* y = uniform in [low, high): (bits >> 8) · 2^-24 · (high − low) + low, in f32 with each step
 * rounded once; when rounding, also that to f16 or bf16, gives high or more, the largest value of
 * y's dtype below it. A low that f16 or bf16 does not hold is rounded to nearest, up or down. Both
 * are in the range of y's dtype, low is below high and high − low is in the range of f32, or the
 * call is TSR_ERR_INVALID. */
TSR_API TSR_NODISCARD tsr_status tsr_random_uniform(tsr_stream *stream, tsr_tensor *y, float low,
                                                    float high, const tsr_random_params *params);

/* y = mean + deviation · z, z standard normal by inversion of one 32-bit word with multiplications
 * and additions only, so that the bits agree on every device. |z| reaches 6.3. */
TSR_API TSR_NODISCARD tsr_status tsr_random_normal(tsr_stream *stream, tsr_tensor *y, float mean,
                                                   float deviation,
                                                   const tsr_random_params *params);

/* y = the raw 32-bit words (y is u32). */
TSR_API TSR_NODISCARD tsr_status tsr_random_bits(tsr_stream *stream, tsr_tensor *y,
                                                 const tsr_random_params *params);

/* y = x/(1−p) where the element's random word says keep, else 0; kept when word ≥ p·2^32 (rounded
 * to nearest). The same params give the same mask, so the backward pass is this function on dy. 0 ≤
 * p < 1. y may be x. */
TSR_API TSR_NODISCARD tsr_status tsr_dropout(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                             float p, const tsr_random_params *params);

#ifdef __cplusplus
}
#endif

#endif
