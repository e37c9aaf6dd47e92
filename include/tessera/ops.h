/* Element-wise work, reductions, losses, optimizers and random numbers on device tensors.
 *
 * Rules for all functions here:
 * - They record work in the stream and return without waiting for it, except where a comment says
 *   that they block.
 * - Floats are f32, f16 or bf16 in any mixture. They are computed in f32 and rounded to nearest
 * even when stored. Some drivers treat f32 and bf16 below 2^-126 as 0.
 * - Tensors may be views of any strides, and may have sizes of 0.
 * - Inputs broadcast to the output's shape only where the comment says so.
 * - An output may be the same view as an input of the same dtype unless the comment forbids it. An
 *   output that overlaps an input in any other way, or that repeats an element, is TSR_ERR_INVALID.
 * - Errors: TSR_ERR_INVALID (shape, dtype or device, naming the values), TSR_ERR_NO_MEMORY,
 *   TSR_ERR_DEVICE_MEMORY, TSR_ERR_DRIVER, TSR_ERR_DEVICE_LOST. After a failure all tensors are
 *   unchanged, unless the device is lost, or fails in the middle of an operation that is too large
 *   for one batch (stream.h). */
#ifndef TESSERA_OPS_H
#define TESSERA_OPS_H

#include "tessera/matmul.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies --------------------------------------------------------------------------------------- */

/* dst = src, converted to dst's dtype. src broadcasts to dst's shape. Float to integer truncates
 * towards zero and saturates (NaN becomes 0); wider integers to narrower ones keep the low bits;
 * f32 to f16 and bf16 rounds to nearest even. Slicing, concatenating, transposing and making
 * contiguous are copies from or to a view. Between two devices the copy goes through the host, and
 * `stream` must belong to dst's device: the call blocks until all work on src is done and src has
 * been read. If that fails, part of dst may have been written, as with tsr_tensor_upload. */
TSR_API TSR_NODISCARD tsr_status tsr_copy(tsr_stream *stream, tsr_tensor *dst,
                                          const tsr_tensor *src);

/* Sets every element to `value`, converted from f64 by the rules of tsr_copy. */
TSR_API TSR_NODISCARD tsr_status tsr_fill(tsr_stream *stream, tsr_tensor *dst, double value);

/* Element-wise --------------------------------------------------------------------------------- */

/* y = a + b, a - b, a · b; a and b broadcast to y's shape. To add a bias
 * to [m,n], pass it as one of the inputs with shape [n]. */
TSR_API TSR_NODISCARD tsr_status tsr_add(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                         const tsr_tensor *b);
TSR_API TSR_NODISCARD tsr_status tsr_sub(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                         const tsr_tensor *b);
TSR_API TSR_NODISCARD tsr_status tsr_mul(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                         const tsr_tensor *b);
/* y = a / b, the smaller and the larger of a and b, as above. A NaN among a and b gives NaN. */
TSR_API TSR_NODISCARD tsr_status tsr_div(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                         const tsr_tensor *b);
TSR_API TSR_NODISCARD tsr_status tsr_minimum(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                             const tsr_tensor *b);
TSR_API TSR_NODISCARD tsr_status tsr_maximum(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                             const tsr_tensor *b);
/* Their gradients: da = dy · ∂y/∂a and db = dy · ∂y/∂b. One of da and db may be NULL. a, b and dy
 * broadcast to their shapes; where a or b has been broadcast to y, sum its gradient over those
 * dimensions (tsr_reduce). dy goes to the one that is smaller (larger), half of it to each if they
 * are equal, and all of it to both if one is NaN, as in PyTorch. db may be an input; da only if db
 * is NULL. The gradient of a + b is dy, and that of a · b is tsr_mul of dy and the other. */
TSR_API TSR_NODISCARD tsr_status tsr_div_grad(tsr_stream *stream, tsr_tensor *da, tsr_tensor *db,
                                              const tsr_tensor *a, const tsr_tensor *b,
                                              const tsr_tensor *dy);
TSR_API TSR_NODISCARD tsr_status tsr_minimum_grad(tsr_stream *stream, tsr_tensor *da,
                                                  tsr_tensor *db, const tsr_tensor *a,
                                                  const tsr_tensor *b, const tsr_tensor *dy);
TSR_API TSR_NODISCARD tsr_status tsr_maximum_grad(tsr_stream *stream, tsr_tensor *da,
                                                  tsr_tensor *db, const tsr_tensor *a,
                                                  const tsr_tensor *b, const tsr_tensor *dy);

typedef enum tsr_unary_function {
    TSR_UNARY_EXP = 1,
    TSR_UNARY_LOG = 2,   /* natural */
    TSR_UNARY_SQRT = 3,  /* of a negative number: NaN */
    TSR_UNARY_RSQRT = 4, /* 1/√x */
    TSR_UNARY_SIGMOID = 5,
    TSR_UNARY_TANH = 6,
    TSR_UNARY_ABS = 7,
    TSR_UNARY_NEG = 8
} tsr_unary_function;

/* y = f(x); x broadcasts. exp, log, sigmoid and tanh are precise to about 4e-7 relative to the
 * result (log: or to 1, near x = 1), by the same steps on every device. Roots and divisions are as
 * precise as the device's: Vulkan demands 2 to 3 units in the last place. */
TSR_API TSR_NODISCARD tsr_status tsr_unary(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                           tsr_unary_function function);
/* dx = dy · f'(x); x and dy broadcast. abs'(0) = 0. dx may be x or dy. */
TSR_API TSR_NODISCARD tsr_status tsr_unary_grad(tsr_stream *stream, tsr_tensor *dx,
                                                const tsr_tensor *x, const tsr_tensor *dy,
                                                tsr_unary_function function);

/* y = x, but low where x < low and high where x > high; NaN stays NaN; x broadcasts. low ≤ high;
 * both may be infinite. */
TSR_API TSR_NODISCARD tsr_status tsr_clamp(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                           float low, float high);
/* dx = dy where low ≤ x ≤ high, otherwise 0, also where x is NaN. dx may be x or dy. */
TSR_API TSR_NODISCARD tsr_status tsr_clamp_grad(tsr_stream *stream, tsr_tensor *dx,
                                                const tsr_tensor *x, const tsr_tensor *dy,
                                                float low, float high);

typedef enum tsr_comparison {
    TSR_EQUAL = 1,
    TSR_NOT_EQUAL = 2,
    TSR_LESS = 3,
    TSR_LESS_EQUAL = 4,
    TSR_GREATER = 5,
    TSR_GREATER_EQUAL = 6
} tsr_comparison;

/* y = 1 where `a comparison b` is true, otherwise 0. y is u8 or a float; a and b are floats and
 * broadcast. With a NaN only TSR_NOT_EQUAL is true. */
TSR_API TSR_NODISCARD tsr_status tsr_compare(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                             const tsr_tensor *b, tsr_comparison comparison);
/* y = a where the condition is not 0, otherwise b. The condition is u8 or a float (NaN is true);
 * all broadcast. a or b may be NULL, for 0. Its gradients are where(condition, dy, NULL) for a and
 * where(condition, NULL, dy) for b. */
TSR_API TSR_NODISCARD tsr_status tsr_where(tsr_stream *stream, tsr_tensor *y,
                                           const tsr_tensor *condition, const tsr_tensor *a,
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
/* dx = dy · act'(x). For ReLU, act'(0) = 0. dx may be x or dy. */
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
 * that the bits are the same on every run. A sum of no elements is 0; a mean, max or min of no
 * elements is an error. A NaN among the elements gives NaN. y must not overlap x. */
TSR_API TSR_NODISCARD tsr_status tsr_reduce(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                            int dim, tsr_reduction reduction, bool accumulate);

/* y (i32) = the index along `dim` of the largest element, and of the first if several are equal.
 * NaN counts as the largest. y's shape is as for tsr_reduce. The dimension must have at least one
 * element. */
TSR_API TSR_NODISCARD tsr_status tsr_argmax(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                            int dim);

/* y = Σ (scale · x)² over all elements of the tensors x[0 … count − 1], as for the norm of
 * gradients. y is one element of f32. Sums are in f32 in a fixed order, which depends on the
 * numbers of elements only; there is one dispatch for five tensors of one dtype. Above
 * about 1.8e19 the squares overflow to inf, and below 1e-19 they vanish; a power of two as `scale`
 * avoids either. y must not overlap x.
 */
TSR_API TSR_NODISCARD tsr_status tsr_sum_squares(tsr_stream *stream, tsr_tensor *y,
                                                 const tsr_tensor *const *x, int count,
                                                 float scale);

/* values = the largest elements along `dim` (negative: from the end) in descending order, and
 * indices (i32) = their indices along it. Both have x's shape but for the size of `dim`, which is
 * how many are wanted, at most x's; values have x's dtype. Of equal elements the one with the lower
 * index comes first; +0 and −0 are equal, and NaN counts as the largest, as in tsr_argmax. Meant
 * for few of many: the time grows with their number. Neither output may overlap x. */
TSR_API TSR_NODISCARD tsr_status tsr_topk(tsr_stream *stream, tsr_tensor *values,
                                          tsr_tensor *indices, const tsr_tensor *x, int dim);

/* Selection by index --------------------------------------------------------------------------- */

/* y = x at the given indices along `dim` (negative: from the end): for a matrix and dim 0,
 * y[r,c] = x[indices[r],c]. indices are [n], i32, i64, u32 or u8; y has x's shape with n in place
 * of the size of `dim`. An index outside x gives 0. x and y have the same dtype, which may be any,
 * or are floats in any mixture. y must not overlap x. */
TSR_API TSR_NODISCARD tsr_status tsr_index_select(tsr_stream *stream, tsr_tensor *y,
                                                  const tsr_tensor *x, int dim,
                                                  const tsr_tensor *indices);
/* Its gradient: dx at indices[r] += dy at r, for r = 0, 1, … in this order, so that every run gives
 * the same bits; each sum is rounded to dx's dtype. Indices outside dx are ignored. Without
 * `accumulate`, dx is set to 0 first. Both are floats; dx must not overlap dy. */
TSR_API TSR_NODISCARD tsr_status tsr_index_select_grad(tsr_stream *stream, tsr_tensor *dx,
                                                       const tsr_tensor *dy, int dim,
                                                       const tsr_tensor *indices, bool accumulate);

/* Normalisation -------------------------------------------------------------------------------- */

/* Normalise the rows along the last dimension of x, as torch.nn.functional.layer_norm and rms_norm
 * do over one dimension: layer_norm: y = (x − mean) / √(variance + epsilon) · weight + bias, with
 * the biased variance (Σ/n); rms_norm: y = x / √(mean of x² + epsilon) · weight. weight and bias
 * are [n] for rows of n elements; NULL stands for 1 and 0. epsilon must be at least 2^-126. Sums
 * are in f32, in an order that is the same on every run. The variance is computed about the mean,
 * so that it is precise even if the mean is much larger. y may be x. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_norm(tsr_stream *stream, tsr_tensor *y,
                                                const tsr_tensor *x, const tsr_tensor *weight,
                                                const tsr_tensor *bias, float epsilon);
TSR_API TSR_NODISCARD tsr_status tsr_rms_norm(tsr_stream *stream, tsr_tensor *y,
                                              const tsr_tensor *x, const tsr_tensor *weight,
                                              float epsilon);
/* Their gradients, from x, dy, weight and epsilon; nothing has to be kept from the forward call.
 * With z the normalised x, dweight = Σ dy·z and dbias = Σ dy over all rows; they are 0 if there are
 * no rows. `accumulate` adds them to the contents of dweight and dbias. dx, dweight and dbias may
 * be NULL, but not all of them. dx may be x or dy. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_norm_grad(tsr_stream *stream, tsr_tensor *dx,
                                                     tsr_tensor *dweight, tsr_tensor *dbias,
                                                     const tsr_tensor *x, const tsr_tensor *dy,
                                                     const tsr_tensor *weight, float epsilon,
                                                     bool accumulate);
TSR_API TSR_NODISCARD tsr_status tsr_rms_norm_grad(tsr_stream *stream, tsr_tensor *dx,
                                                   tsr_tensor *dweight, const tsr_tensor *x,
                                                   const tsr_tensor *dy, const tsr_tensor *weight,
                                                   float epsilon, bool accumulate);

/* Softmax and losses --------------------------------------------------------------------------- */

/* y = softmax(x), or log(softmax(x)), over the last dimension. Exponentials are computed relative
 * to the largest element of the row, so that they do not overflow. y may be x. A row of nothing but
 * -inf gives NaN, as in PyTorch. */
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

/* Cross-entropy of logits [rows, classes], with at least one class, against labels [rows] (i32,
 * i64, u32 or u8): loss[r] = log Σ exp(logits[r]) − logits[r][labels[r]]. loss is [rows]. A row
 * whose label is outside 0 … classes − 1, such as PyTorch's ignore_index −100, is ignored: its loss
 * and gradient are 0. dlogits receives (softmax(logits[r]) − onehot(labels[r])) · grad_scale; with
 * grad_scale = 1/rows that is the gradient of the mean loss. dlogits may be the same view as
 * logits. loss or dlogits may be NULL, but not both. */
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
    bool first_step;    /* velocity = grad, as in PyTorch's first step; its contents are not read */
} tsr_sgd_params;

/* One step of SGD as torch.optim.SGD defines it. All tensors have the parameter's shape; velocity
 * is f32. If `parameter` is f16 or bf16, `master` may be an f32 copy of it: the step is then
 * computed on the copy, and both are written. Otherwise it is NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_sgd_step(tsr_stream *stream, tsr_tensor *parameter,
                                              const tsr_tensor *gradient, tsr_tensor *velocity,
                                              tsr_tensor *master, const tsr_sgd_params *params);

typedef struct tsr_adamw_params {
    float learning_rate;
    float beta1, beta2; /* both 0: 0.9 and 0.999 */
    float epsilon;      /* 0: 1e-8 */
    float
        weight_decay; /* decoupled: first, parameter -= learning_rate · weight_decay · parameter */
    int64_t step;     /* from 1; the bias corrections 1 − beta^step are computed in double */
} tsr_adamw_params;

/* One step of AdamW as torch.optim.AdamW defines it. The moments are f32, have the parameter's
 * shape and must be zero before step 1. `master` is as for tsr_sgd_step. */
TSR_API TSR_NODISCARD tsr_status tsr_adamw_step(tsr_stream *stream, tsr_tensor *parameter,
                                                const tsr_tensor *gradient, tsr_tensor *moment1,
                                                tsr_tensor *moment2, tsr_tensor *master,
                                                const tsr_adamw_params *params);

/* Random numbers ------------------------------------------------------------------------------- */

/* The source of an element's random bits: word index % 4 of the output of Philox4x32-10 with key
 * `seed` and the 128-bit counter (index / 4, subsequence). The index of an element is offset + Σ
 * i_d · index_strides[d], so that a shard that passes its place in the complete tensor draws the
 * same numbers as the complete tensor. The bits are the same on every device. TSR_ERR_OVERFLOW if
 * the last element's index does not fit 64 bits, or its distance from the first one's does not
 * fit 63. */
typedef struct tsr_random_params {
    uint64_t seed;
    uint64_t subsequence;         /* selects one of the streams of a seed: an operation or a step */
    uint64_t offset;              /* index of the first element */
    const int64_t *index_strides; /* NULL: row-major over this tensor; otherwise one non-negative
                                     entry per dimension */
} tsr_random_params;

/* y = uniform in [low, high): (bits >> 8) · 2^-24 · (high − low) + low, in f32 with each step
 * rounded once. A result that rounding, including that to f16 or bf16, moves to high or above
 * becomes the largest value of y's dtype below high. If f16 or bf16 cannot represent low, it is
 * rounded to nearest. low and high must be in the range of y's dtype, low below high, and high −
 * low in the range of f32. */
TSR_API TSR_NODISCARD tsr_status tsr_random_uniform(tsr_stream *stream, tsr_tensor *y, float low,
                                                    float high, const tsr_random_params *params);

/* y = mean + deviation · z. z is standard normal, by inversion of one 32-bit word; only
 * multiplications and additions are used, so that the bits are the same on every device. |z| is at
 * most 6.3. */
TSR_API TSR_NODISCARD tsr_status tsr_random_normal(tsr_stream *stream, tsr_tensor *y, float mean,
                                                   float deviation,
                                                   const tsr_random_params *params);

/* y = the raw 32-bit words (y is u32). */
TSR_API TSR_NODISCARD tsr_status tsr_random_bits(tsr_stream *stream, tsr_tensor *y,
                                                 const tsr_random_params *params);

/* y = x/(1−p) for elements whose random word is at least p·2^32 (rounded to nearest), otherwise 0.
 * The same params give the same mask, so that the backward pass is this function applied to dy. p
 * must be at least 0 and below 1. y may be x. */
TSR_API TSR_NODISCARD tsr_status tsr_dropout(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                             float p, const tsr_random_params *params);

#ifdef __cplusplus
}
#endif

#endif
