/* Element-wise work, reductions, losses, optimizers and random numbers on device tensors.
 *
 * Rules for all functions here:
 * - They record work in the stream and return without waiting for it, except where a comment says
 *   that they block.
 * - Floats are f32, f16 or bf16 in any combination. They are computed in f32 and rounded to nearest
 *   even when stored. Some drivers treat f32 and bf16 below 2^-126 as 0.
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
 * contiguous are copies from or to a view. A copy between two devices goes through the host, and
 * `stream` must belong to dst's device. It blocks until all work on src is done and src has been
 * read; other copies do not block. If it fails, part of dst may have been written, as with
 * tsr_tensor_upload.
 *
 * Tensors in block formats (quant.h) are copied to f32, f16 and bf16, and to the same format. A
 * copy from floats to a block format is made by the host, with tsr_quantize: it blocks until all
 * work on src is done, and on failure dst is unchanged. */
TSR_API TSR_NODISCARD tsr_status tsr_copy(tsr_stream *stream, tsr_tensor *dst,
                                          const tsr_tensor *src);

/* Sets every element to `value`, converted from f64 by the rules of tsr_copy. */
TSR_API TSR_NODISCARD tsr_status tsr_fill(tsr_stream *stream, tsr_tensor *dst, double value);

/* Element-wise --------------------------------------------------------------------------------- */

typedef enum tsr_binary_function {
    TSR_BINARY_ADD = 1,
    TSR_BINARY_SUB = 2,
    TSR_BINARY_MUL = 3,
    TSR_BINARY_DIV = 4,
    TSR_BINARY_MINIMUM = 5, /* NaN if a or b is NaN */
    TSR_BINARY_MAXIMUM = 6, /* NaN if a or b is NaN */
    /* Comparisons: 1 if `a = b`, `a < b`, … is true, otherwise 0. Their y may also be u8. If a or b
     * is NaN, only TSR_BINARY_NOT_EQUAL is true. */
    TSR_BINARY_EQUAL = 7,
    TSR_BINARY_NOT_EQUAL = 8,
    TSR_BINARY_LESS = 9,
    TSR_BINARY_LESS_EQUAL = 10,
    TSR_BINARY_GREATER = 11,
    TSR_BINARY_GREATER_EQUAL = 12
} tsr_binary_function;

/* y = f(a, b). a and b broadcast to y's shape. To add a bias to [m,n], pass it as one of the inputs
 * with shape [n]. */
TSR_API TSR_NODISCARD tsr_status tsr_binary(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                            const tsr_tensor *b, tsr_binary_function function);
/* The gradients: da = dy · ∂y/∂a and db = dy · ∂y/∂b. One of da and db may be NULL. a, b and dy
 * broadcast to the shapes of da and db. If a or b was broadcast to y, sum its gradient over the
 * broadcast dimensions with tsr_reduce. For minimum (maximum), the smaller (larger) input gets dy.
 * If the inputs are equal, each gets half of it, and if one is NaN, both get all of it, as in
 * PyTorch. a and b may be NULL for sums and differences, which do not need them. Comparisons have
 * no gradients: TSR_ERR_INVALID. db may be the same view as an input; da
 * may be only if db is NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_binary_grad(tsr_stream *stream, tsr_tensor *da, tsr_tensor *db,
                                                 const tsr_tensor *a, const tsr_tensor *b,
                                                 const tsr_tensor *dy,
                                                 tsr_binary_function function);

typedef enum tsr_unary_function {
    TSR_UNARY_EXP = 1,
    TSR_UNARY_LOG = 2,   /* natural */
    TSR_UNARY_SQRT = 3,  /* NaN for negative numbers */
    TSR_UNARY_RSQRT = 4, /* 1/√x */
    TSR_UNARY_SIGMOID = 5,
    TSR_UNARY_TANH = 6,
    TSR_UNARY_ABS = 7,
    TSR_UNARY_NEG = 8
} tsr_unary_function;

/* y = f(x). x broadcasts to y's shape. exp, log, sigmoid and tanh have an error of about 4e-7
 * relative to the result (for log near x = 1, relative to 1), and are computed by the same steps on
 * every device. Roots and divisions have the precision of the device: Vulkan requires 2 to 3 units
 * in the last place. */
TSR_API TSR_NODISCARD tsr_status tsr_unary(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                           tsr_unary_function function);
/* dx = dy · f'(x). x and dy broadcast to dx's shape. abs'(0) is 0. dx may be x or dy. */
TSR_API TSR_NODISCARD tsr_status tsr_unary_grad(tsr_stream *stream, tsr_tensor *dx,
                                                const tsr_tensor *x, const tsr_tensor *dy,
                                                tsr_unary_function function);

/* y = x, except that y = low where x < low and y = high where x > high. NaN stays NaN. x broadcasts
 * to y's shape. low must not be above high; both may be infinite. */
TSR_API TSR_NODISCARD tsr_status tsr_clamp(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                           float low, float high);
/* dx = dy where low ≤ x ≤ high, otherwise 0. It is also 0 where x is NaN. dx may be x or dy. */
TSR_API TSR_NODISCARD tsr_status tsr_clamp_grad(tsr_stream *stream, tsr_tensor *dx,
                                                const tsr_tensor *x, const tsr_tensor *dy,
                                                float low, float high);

/* y = a where the condition is not 0, otherwise b. The condition is u8 or a float, and NaN counts
 * as not 0. All inputs broadcast to y's shape. If a or b is NULL, its value is 0; at least one must
 * be given. The gradients come from this function, too: with dy as a and NULL as b for a, and with
 * NULL as a and dy as b for b. */
TSR_API TSR_NODISCARD tsr_status tsr_where(tsr_stream *stream, tsr_tensor *y,
                                           const tsr_tensor *condition, const tsr_tensor *a,
                                           const tsr_tensor *b);

/* y = scale · x + shift. x broadcasts to y's shape. */
TSR_API TSR_NODISCARD tsr_status tsr_scale(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                           float scale, float shift);
/* y = alpha · x + y. x broadcasts to y's shape. */
TSR_API TSR_NODISCARD tsr_status tsr_axpy(tsr_stream *stream, tsr_tensor *y, float alpha,
                                          const tsr_tensor *x);
/* y = act(x), the activation function of each element, or y = act(x) · b, as gated MLPs need it.
 * x and b broadcast to y's shape. b may be NULL, and y may be x or b. The gradient of b is
 * act(x) · dy, which this function computes with dy instead of b; that of x is tsr_activate_grad of
 * dy · b. */
TSR_API TSR_NODISCARD tsr_status tsr_activate(tsr_stream *stream, tsr_tensor *y,
                                              const tsr_tensor *x, const tsr_tensor *b,
                                              tsr_activation activation);
/* dx = dy · act'(x). For ReLU, act'(0) is 0. dx may be x or dy. */
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

/* Reduces dimension `dim` of x; a negative number counts from the end. y has x's shape without that
 * dimension, or with size 1 there. For x [m,n], the sums of rows are dim 1 and the sums of columns
 * are dim 0. `accumulate` adds the result to y; it is possible for SUM and MEAN only. Sums are
 * computed in f32 in the order of a fixed tree that depends on the shape only, so that the bits are
 * the same on every run. A sum of no elements is 0; a mean, max or min of no elements is
 * TSR_ERR_INVALID. If an element is NaN, the result is NaN. y must not overlap x. */
TSR_API TSR_NODISCARD tsr_status tsr_reduce(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                            int dim, tsr_reduction reduction, bool accumulate);

/* y = the index along `dim` of the largest element, or of the first of them if several are equal.
 * NaN counts as the largest. y is i32 and has x's shape without dimension `dim`, or with size 1
 * there. The dimension must have at least one element. */
TSR_API TSR_NODISCARD tsr_status tsr_argmax(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                            int dim);

/* y = Σ (scale · x)² over all elements of the tensors x[0 … count − 1], for example for the norm of
 * gradients. y is one element of f32. Sums are computed in f32 in a fixed order, which depends on
 * the numbers of elements only. There is one dispatch for every five tensors of one dtype. Squares
 * of numbers above about 1.8e19 overflow to inf, and squares of numbers below about 1e-19 become 0;
 * a power of two as `scale` avoids both. y must not overlap x. */
TSR_API TSR_NODISCARD tsr_status tsr_sum_squares(tsr_stream *stream, tsr_tensor *y,
                                                 const tsr_tensor *const *x, int count,
                                                 float scale);

/* values = the largest elements along `dim` in descending order, and indices = their indices along
 * `dim`. A negative `dim` counts from the end. Both outputs have x's shape, except that their size
 * along `dim` is the number of elements that are wanted, at most x's size. values has x's dtype,
 * and indices is i32. Of equal elements, the one with the lower index comes first; +0 and −0 are
 * equal, and NaN counts as the largest, as in tsr_argmax. The time grows with the number of
 * elements that are wanted, so it should be small. Neither output may overlap x. */
TSR_API TSR_NODISCARD tsr_status tsr_topk(tsr_stream *stream, tsr_tensor *values,
                                          tsr_tensor *indices, const tsr_tensor *x, int dim);

/* Selection by index --------------------------------------------------------------------------- */

/* y = x at the given indices along `dim`. For a matrix and dim 0, y[r,c] = x[indices[r],c]. A
 * negative `dim` counts from the end. indices is [n] and i32, i64, u32 or u8. y has x's shape,
 * except that its size along `dim` is n. If an index is outside x, the elements are 0. x and y have
 * the same dtype (any dtype), or both are floats; or x is a matrix in a block format (quant.h),
 * such as a table of embeddings, dim is 0, and y is a float. y must not overlap x. */
TSR_API TSR_NODISCARD tsr_status tsr_index_select(tsr_stream *stream, tsr_tensor *y,
                                                  const tsr_tensor *x, int dim,
                                                  const tsr_tensor *indices);
/* The gradient of tsr_index_select: dx at indices[r] += dy at r, for r = 0, 1, … in this order, so
 * that every run gives the same bits. Each sum is rounded to dx's dtype. Indices outside dx are
 * ignored. Without `accumulate`, dx is set to 0 first. dx and dy are floats and must not
 * overlap. */
TSR_API TSR_NODISCARD tsr_status tsr_index_select_grad(tsr_stream *stream, tsr_tensor *dx,
                                                       const tsr_tensor *dy, int dim,
                                                       const tsr_tensor *indices, bool accumulate);

/* Normalisation -------------------------------------------------------------------------------- */

/* Normalises the rows along the last dimension of x, as torch.nn.functional.layer_norm and rms_norm
 * do over one dimension. TSR_NORM_LAYER computes y = (x − mean) / √(variance + epsilon) · weight +
 * bias, where the variance is biased (divided by n). TSR_NORM_RMS computes y = x / √(mean of x² +
 * epsilon) · weight; its bias must be NULL. weight and bias are [n] for rows of n elements; if
 * weight is NULL it is 1, and if bias is NULL it is 0. epsilon must be at least 2^-126. Sums are
 * computed in f32 in an order that is the same on every run. The variance is computed about the
 * mean, so that it is precise even if the mean is much larger. y may be x. */
TSR_API TSR_NODISCARD tsr_status tsr_norm(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                          const tsr_tensor *weight, const tsr_tensor *bias,
                                          tsr_norm_kind kind, float epsilon);
/* The gradients of tsr_norm, from x, dy, weight and epsilon. Nothing has to be kept from the
 * forward call. dweight = Σ dy·z and dbias = Σ dy over all rows, where z is the normalised x; they
 * are 0 if there are no rows. `accumulate` adds them to the contents of dweight and dbias. dx,
 * dweight and dbias may be NULL, but not all of them; dbias must be NULL for TSR_NORM_RMS. dx may
 * be x or dy. */
TSR_API TSR_NODISCARD tsr_status tsr_norm_grad(tsr_stream *stream, tsr_tensor *dx,
                                               tsr_tensor *dweight, tsr_tensor *dbias,
                                               const tsr_tensor *x, const tsr_tensor *dy,
                                               const tsr_tensor *weight, tsr_norm_kind kind,
                                               float epsilon, bool accumulate);

/* Softmax and losses --------------------------------------------------------------------------- */

/* y = softmax(x), or y = log(softmax(x)) if `logarithm` is true, over the last dimension.
 * Exponentials are computed relative to the largest element of the row, so that they do not
 * overflow. If all elements of a row are -inf, the result is NaN, as in PyTorch. y may be x. */
TSR_API TSR_NODISCARD tsr_status tsr_softmax(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                             bool logarithm);
/* The gradient, from the result y of tsr_softmax: dx = y·(dy − Σ y·dy), or, with `logarithm`, dx =
 * dy − exp(y)·Σ dy. dx may be dy. */
TSR_API TSR_NODISCARD tsr_status tsr_softmax_grad(tsr_stream *stream, tsr_tensor *dx,
                                                  const tsr_tensor *y, const tsr_tensor *dy,
                                                  bool logarithm);

/* Cross-entropy: loss[r] = log Σ exp(logits[r]) − logits[r][labels[r]]. logits is [rows, classes]
 * with at least one class, labels is [rows] and i32, i64, u32 or u8, and loss is [rows]. A row
 * whose label is outside 0 … classes − 1, such as PyTorch's ignore_index −100, is ignored: its loss
 * and gradient are 0. dlogits[r] = (softmax(logits[r]) − onehot(labels[r])) · grad_scale; with
 * grad_scale = 1/rows this is the gradient of the mean loss. dlogits may be the same view as
 * logits. loss or dlogits may be NULL, but not both. */
TSR_API TSR_NODISCARD tsr_status tsr_cross_entropy(tsr_stream *stream, tsr_tensor *loss,
                                                   tsr_tensor *dlogits, const tsr_tensor *logits,
                                                   const tsr_tensor *labels, float grad_scale);

/* Optimizers ----------------------------------------------------------------------------------- */

typedef struct tsr_sgd_params {
    size_t struct_size;
    float learning_rate;
    float momentum; /* 0: none, and `velocity` may be NULL */
    float dampening;
    float weight_decay; /* L2: grad += weight_decay · parameter */
    bool nesterov;      /* needs momentum > 0 and dampening 0 */
    bool first_step;    /* set velocity = grad, as PyTorch's first step does; its old contents are
                           ignored */
} tsr_sgd_params;
#define tsr_sgd_params(...) (&(tsr_sgd_params){.struct_size = sizeof(tsr_sgd_params), __VA_ARGS__})

/* One step of SGD as torch.optim.SGD defines it. All tensors have the parameter's shape; velocity
 * is f32. If `parameter` is f16 or bf16, `master` may be an f32 copy of it: the step is then
 * computed on the copy, and both are written. Otherwise it is NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_sgd_step(tsr_stream *stream, tsr_tensor *parameter,
                                              const tsr_tensor *gradient, tsr_tensor *velocity,
                                              tsr_tensor *master, const tsr_sgd_params *params);

typedef struct tsr_adamw_params {
    size_t struct_size;
    float learning_rate;
    float beta1, beta2; /* 0: 0.9 and 0.999; TSR_ZERO is possible */
    float epsilon;      /* 0: 1e-8; TSR_ZERO is possible */
    /* Decoupled weight decay: the step first computes
     * parameter -= learning_rate · weight_decay · parameter. */
    float weight_decay;
    int64_t step; /* from 1; the bias corrections 1 − beta^step are computed in double */
} tsr_adamw_params;
#define tsr_adamw_params(...)                                                                      \
    (&(tsr_adamw_params){.struct_size = sizeof(tsr_adamw_params), __VA_ARGS__})

/* One step of AdamW as torch.optim.AdamW defines it. The moments are f32, have the parameter's
 * shape and must be zero before step 1. `master` is as for tsr_sgd_step. */
TSR_API TSR_NODISCARD tsr_status tsr_adamw_step(tsr_stream *stream, tsr_tensor *parameter,
                                                const tsr_tensor *gradient, tsr_tensor *moment1,
                                                tsr_tensor *moment2, tsr_tensor *master,
                                                const tsr_adamw_params *params);

/* Random numbers ------------------------------------------------------------------------------- */

/* The source of an element's random bits. They are word index % 4 of the output of Philox4x32-10
 * with key `seed` and the 128-bit counter (index / 4, subsequence). The index of an element is
 * offset + Σ i_d · index_strides[d]. A shard that passes its position in the complete tensor
 * therefore gets the same numbers as the complete tensor. The bits are the same on every device.
 * Functions return TSR_ERR_OVERFLOW if the last element's index does not fit in 64 bits, or if its
 * distance from the first element's index does not fit in 63 bits. */
typedef struct tsr_random_params {
    size_t struct_size;
    uint64_t seed;
    uint64_t subsequence;         /* selects one of the streams of a seed: an operation or a step */
    uint64_t offset;              /* index of the first element */
    const int64_t *index_strides; /* NULL: row-major over this tensor; otherwise one non-negative
                                     entry per dimension */
} tsr_random_params;
#define tsr_random_params(...)                                                                     \
    (&(tsr_random_params){.struct_size = sizeof(tsr_random_params), __VA_ARGS__})

/* y = uniform in [low, high): (bits >> 8) · 2^-24 · (high − low) + low, in f32 with each step
 * rounded once. If rounding, including the rounding to f16 or bf16, gives high or more, the result
 * is the largest value of y's dtype below high. If f16 or bf16 cannot represent low, it is rounded
 * to nearest. low must be below high, both must be in the range of y's dtype, and high − low in the
 * range of f32. */
TSR_API TSR_NODISCARD tsr_status tsr_random_uniform(tsr_stream *stream, tsr_tensor *y, float low,
                                                    float high, const tsr_random_params *params);

/* y = mean + deviation · z, where z is standard normal. z is computed from one 32-bit word by
 * inversion, with multiplications and additions only, so that the bits are the same on every
 * device. |z| is at most 6.3. */
TSR_API TSR_NODISCARD tsr_status tsr_random_normal(tsr_stream *stream, tsr_tensor *y, float mean,
                                                   float deviation,
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
