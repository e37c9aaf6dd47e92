/* What the modules above gpu/ use of it, besides the public headers: src/parallel and src/model
 * include this header and no other of this folder. It contains no Vulkan types. */
#ifndef TSR_GPU_INTERNAL_H
#define TSR_GPU_INTERNAL_H

#include "gpu/host/threads.h"              /* work for several threads */
#include "gpu/ops/optimizer/step_params.h" /* steps of optimizers, with a scale of gradients */
#include "gpu/stream/require.h"            /* checks of arguments */
#include "tessera/kv_cache.h"
#include "tessera/matmul.h"
#include "tessera/ops.h"
#include "tessera/rope.h"

/* Memory of tensors ---------------------------------------------------------------------------- */

/* Returns how many bytes more tensors may take now, within the budget of their heap and the limit
 * that the caller has set. */
tsr_status tsr__memory_left(tsr_device *device, uint64_t *out) TSR_NODISCARD;

/* True if the device's tensors are in ordinary memory of the process, which networks and other
 * processes can access. Memory that a GPU's driver maps is not ordinary in this sense. */
bool tsr__device_shares_tensors(const tsr_device *device);

/* Blocks until the work that other streams than `stream` do on the tensor's memory is complete. */
tsr_status tsr__tensor_synchronise(const tsr_stream *stream,
                                   const tsr_tensor *tensor) TSR_NODISCARD;

/* True if the two tensors have elements in common, or if this check cannot exclude it. If `same` is
 * not NULL, *same is set to whether each index is the same element in both tensors. */
bool tsr__tensors_overlap(const tsr_tensor *a, const tsr_tensor *b, bool *same);

/* Returns the tensor's device, without a new reference to it. NULL for NULL. */
tsr_device *tsr__tensor_device(const tsr_tensor *tensor);

/* Returns at least `size`: the number of elements from one row of `size` elements to the next with
 * which rows start at multiples of 128 bytes, so that kernels load vectors whatever `size` is. It
 * is `size` on devices whose loads are as fast without. */
int64_t tsr__row_pitch(const tsr_device *device, tsr_dtype dtype, int64_t size);

/* True if `view` has the same memory as `whole` and the layout `layout`. */
bool tsr__tensor_is_view(const tsr_tensor *view, const tsr_tensor *whole, const tsr_layout *layout);

/* Host steps ----------------------------------------------------------------------------------- */

/* The work of a host step. Everything that was recorded before the step is complete. The work must
 * not use the stream. `waited_ns` is how long the host has waited for the device before it. If
 * `cancelled` is true, the device is lost or the step is not wanted any more; it then only releases
 * what it has. */
typedef void tsr__step_work(void *user, uint64_t waited_ns, bool cancelled);

/* Records a step of the host: it runs after everything that is recorded before, and what is
 * recorded later runs after it. So the host records on without waiting, and what it has recorded is
 * ready when the step ends. The step runs inside a later call of this thread: one that records a
 * command when the device has reached the step, or one that waits for the stream or for what is
 * recorded after the step. `used` are the `count` tensors, at most TSR__STEP_TENSORS, that the step
 * reads or writes: who waits for one of them waits for the step. On failure nothing is recorded,
 * and `run` will not be called. */
#define TSR__STEP_TENSORS 3
tsr_status tsr__stream_host_step(tsr_stream *stream, tsr_tensor *const *used, int count,
                                 tsr__step_work *run, void *user) TSR_NODISCARD;
/* Runs all host steps that have not run, for which it waits for the device. */
tsr_status tsr__stream_settle(tsr_stream *stream) TSR_NODISCARD;
/* Cancels all host steps that have not run. Commands that are recorded after them run without them.
 */
void tsr__stream_cancel_steps(tsr_stream *stream);

/* Counts of streams ---------------------------------------------------------------------------- */

typedef struct tsr__stream_counts {
    uint64_t submissions; /* calls of the queue, each of which submits one or more batches */
    uint64_t waits;       /* waits of the host for work that was not known to be complete */
    uint64_t idle_waits;  /* those of `waits` after whose end no submitted work was left */
    uint64_t steps;       /* host steps (stream.h), which are not among `waits` */
    uint64_t pipelines;   /* pipelines built on the stream's device since it was opened */
} tsr__stream_counts;
/* Returns what the stream and its device have counted since they were created. */
tsr__stream_counts tsr__stream_get_counts(const tsr_stream *stream);

/* Fused products ------------------------------------------------------------------------------- */

/* Computes y[m,n] = act(z) and slope[m,n] = act'(z), where z = a[m,k] · b[n,k]ᵀ + bias. slope
 * has the layout of y; bias is [n] or NULL. The results have the bits of tsr_matmul() followed
 * by tsr_activate() and tsr_activate_grad().
 *
 * The bits are those in f32; with 16 bits, z is not rounded before the activation. Only some
 * products have a kernel for this: on CPU drivers some in f32, on GPUs those in tiles. If this one
 * has none, nothing is recorded, and *recorded is false. Errors: those of tsr_matmul(). */
tsr_status tsr__matmul_with_slope(tsr_stream *stream, tsr_tensor *y, tsr_tensor *slope,
                                  const tsr_tensor *a, const tsr_tensor *b, const tsr_tensor *bias,
                                  tsr_activation activation, bool *recorded) TSR_NODISCARD;
/* Computes y[m,n] = (a[m,k] · b[k,n]) · factor[m,n], where the second product is element by
 * element. With the slope of tsr__matmul_with_slope() as factor, it continues the backward pass.
 * The result has the bits of tsr_matmul() followed by a product of elements. *recorded and errors
 * are as above. */
tsr_status tsr__matmul_times(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr_tensor *factor,
                             bool *recorded) TSR_NODISCARD;

/* Computes y[m,n] = a[k,m]ᵀ · b[k,n] and sums[m] = Σ_k a[k,m], or adds both to what is there: the
 * gradients of a weight and its bias, from dy and x. The sums are those of tsr_reduce but for the
 * order of their additions: each has an error of at most k · 2^-23 of the sum of the absolute
 * values.
 *
 * Only GPUs have kernels for this: for products in f32 tiles whose a has contiguous rows of a
 * multiple of four elements, and for products of 16-bit operands by cooperative matrices of
 * subgroups. If this one has none, nothing is recorded, and *recorded is false.
 * Errors: those of tsr_matmul(). */
tsr_status tsr__matmul_with_row_sums(tsr_stream *stream, tsr_tensor *y, tsr_tensor *sums,
                                     const tsr_tensor *a, const tsr_tensor *b, bool accumulate,
                                     bool *recorded) TSR_NODISCARD;

/* True if the stream's device has kernels for the two functions before that, for tensors of this
 * dtype. */
bool tsr__matmul_may_fuse(const tsr_stream *stream, tsr_dtype dtype);

/* y[m,n] = act(a[m,k] · gate[n,k]ᵀ + bias of gate) · (a · up[n,k]ᵀ + bias of up) in one dispatch.
 * b [2n,k] has the rows of gate, then those of up, in any dtype of tsr_matmul. bias is [2n] or
 * NULL. In f32 the result has the bits of tsr_matmul and tsr_activate, unless tsr_matmul splits
 * k. allow_int8 is as in tsr_matmul_params.
 *
 * Only some products have a kernel for this: those of few rows on GPUs. If this one has none,
 * nothing is recorded, and *recorded is false. Errors: those of tsr_matmul. */
tsr_status tsr__matmul_gated(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr_tensor *bias, tsr_activation activation,
                             bool allow_int8, bool *recorded) TSR_NODISCARD;

/* An RMS norm of the rows of a product's first operand: x / √(mean of x² + epsilon) · weight. */
typedef struct tsr__matmul_norm {
    const tsr_tensor *weight; /* [k], f32, f16 or bf16 */
    float epsilon;
} tsr__matmul_norm;

/* Makes a product's first operand act(a) · up, element by element. */
typedef struct tsr__matmul_gate {
    const tsr_tensor *up; /* the shape, strides and dtype of a */
    tsr_activation activation;
} tsr__matmul_gate;

/* What tsr__matmul_fused computes in one dispatch, or in two if it narrows a. */
typedef struct tsr__matmul_fusion {
    const tsr__matmul_norm *norm; /* or NULL */
    const tsr__matmul_gate *gate; /* or NULL; not together with a norm, and not if `gated` */
    bool gated;             /* as tsr__matmul_gated; otherwise y = act(norm(a) · bᵀ + bias) */
    const tsr_tensor *bias; /* or NULL */
    /* NULL, or a tensor with y's shape that is added to y last; not together with `norm` or
     * `gated`. In f32, the bits are those of a separate addition. GPUs have kernels for this if the
     * product is computed in tiles and `added` has y's dtype and strides. */
    const tsr_tensor *added;
    tsr_activation activation;
    bool allow_int8;
    tsr_precision precision; /* as in tsr_matmul_params */
    bool only_ask;           /* set *recorded, but record nothing */
} tsr__matmul_fusion;

/* A product of norm(a)[m,k] and b[n,k], or of b[2n,k] if it is gated. The norm's weight is
 * multiplied into a when it is loaded, and 1 / √(…) into the sums, so that the rounding differs
 * from that of the norm followed by the product. Its error is that of a product in f32: at most k ·
 * 2^-23 of the sum of the absolute values of the products, in practice a hundredth of that.
 *
 * Only some products on GPUs have a kernel for this: those of up to four rows, if k is a multiple
 * of 4 and rows begin at multiples of four elements, and those whose rows are narrowed for matrix
 * units, if they are not gated. If this one has none, nothing is recorded, and *recorded is false.
 *
 * With a `gate` instead of a norm, the dispatch that narrows a computes act(a) · up, with the bits
 * of tsr_activate. Only products in f32 whose rows are narrowed can do that.
 *
 * Errors: those of tsr_matmul. */
tsr_status tsr__matmul_fused(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr__matmul_fusion *fusion,
                             bool *recorded) TSR_NODISCARD;

/* Gates ---------------------------------------------------------------------------------------- */

/* What the gates of a delta net are computed from: x and alpha are [batch, tokens, heads], of any
 * one float dtype, and may be views of wider tensors; a_log and dt_bias are f32 [heads]. */
typedef struct tsr__delta_gates {
    const tsr_tensor *x, *alpha, *a_log, *dt_bias;
} tsr__delta_gates;
/* beta = σ(x), g = −exp(a_log) · softplus(alpha + dt_bias), both f32 [batch, tokens, heads]. */
tsr_status tsr__delta_gates_forward(tsr_stream *stream, const tsr__delta_gates *in,
                                    tsr_tensor *beta, tsr_tensor *g) TSR_NODISCARD;
/* The gradients of x and alpha, and f32 [batch · tokens, 2 · heads], whose column sums are the
 * gradients of a_log and, after them, of dt_bias. */
tsr_status tsr__delta_gates_grad(tsr_stream *stream, const tsr__delta_gates *in,
                                 const tsr_tensor *dbeta, const tsr_tensor *dg, tsr_tensor *dx,
                                 tsr_tensor *dalpha, tsr_tensor *terms) TSR_NODISCARD;
/* y = x · σ(gate), or, if weight (f32 [dim]) is not NULL, y = x / √(mean of x² + epsilon) · weight
 * · silu(gate), where the mean is that of a head. x, gate and y are [batch, tokens, heads, dim] in
 * any float dtypes, and may be views whose heads of a token are contiguous; y may be x. */
tsr_status tsr__gated_heads(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                            const tsr_tensor *gate, const tsr_tensor *weight,
                            float epsilon) TSR_NODISCARD;

/* Experts -------------------------------------------------------------------------------------- */

struct tsr_matmul_grouped_params; /* tessera/moe.h */
struct tsr_route_params;

/* Checks what tsr_route needs to choose `chosen` of `experts` experts, except `bias`. */
tsr_status tsr__route_check(const char *op, const struct tsr_route_params *params, int64_t experts,
                            int64_t chosen) TSR_NODISCARD;

/* Rows of pairs; moe.h explains pairs. Pairs whose id is not from 0 to experts − 1 are left out. */

/* y[token] = Σ over ranks of weights · x[token,rank]. weights may be NULL: 1. */
tsr_status tsr__pair_sum(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                         const tsr_tensor *ids, int64_t experts, const tsr_tensor *weights,
                         bool accumulate) TSR_NODISCARD;

/* The number, after those of a block format, of the specialization constant of
 * matmul_grouped_coopmat.glsl that says whether weights are in blocks. */
#define TSR__GROUPED_MATRICES_BLOCKS 12

/* tsr_matmul_grouped with `weights`: y[token] = the weighted sum + added[token]. `added` has y's
 * shape, strides and dtype, or is NULL. */
tsr_status tsr__matmul_grouped_added(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                     const tsr_tensor *w, const tsr_tensor *ids,
                                     const struct tsr_matmul_grouped_params *params,
                                     const tsr_tensor *added) TSR_NODISCARD;

/* tsr_route that also writes here[…] = local[ids[…]], unless both are NULL. local is [experts],
 * i32, and here has the layout of ids. */
tsr_status tsr__route_local(tsr_stream *stream, tsr_tensor *ids, tsr_tensor *weights,
                            const tsr_tensor *logits, const struct tsr_route_params *params,
                            const tsr_tensor *local, tsr_tensor *here) TSR_NODISCARD;

/* The activation between the products of an expert: y[pair,n] = activation(gate, up), where hidden
 * [pair,2n] has gate, then up. If dy, the gradient of y without the pair's weight, is given, y is
 * multiplied by the weight, and the gradients of `hidden` and of the weight are computed, too. dy,
 * y and dhidden then have the same dtype, and y may be dy. */
typedef struct tsr__pair_activation {
    const tsr_tensor *ids, *hidden;
    tsr_tensor *y;
    const tsr_tensor *dy, *weights;
    tsr_tensor *dhidden, *dweights;
    int64_t experts;
    tsr_expert_activation activation;
    float limit; /* 0: 7 */
} tsr__pair_activation;
tsr_status tsr__pair_activate(tsr_stream *stream, const tsr__pair_activation *call) TSR_NODISCARD;

/* Layers with a state -------------------------------------------------------------------------- */

/* recurrent_tokens of tsr_delta_rule_params if it is 0. */
enum { TSR__DELTA_RECURRENT_TOKENS = 16 };

/* Attention and its cache ---------------------------------------------------------------------- */

/* Returns the dtype in which a cache is best kept: f16 if the device has matrix units for it, so
 * that these compute the attention of prompts; otherwise f32. */
tsr_dtype tsr__kv_cache_usual_dtype(const tsr_device *device);

/* Returns the positions that tsr_kv_cache_begin gave for the step, or, if ranks divide its tokens,
 * those of this rank's; NULL before the first step. */
tsr_tensor *tsr__kv_cache_positions(const tsr_kv_cache *cache);

/* As tsr_kv_cache_create for a cache that several ranks divide, each of which has params->
 * page_tokens of the ranks · page_tokens tokens of a page. Sequences have the same tokens on all
 * ranks, which must make the same calls. Two functions then count this rank's tokens alone:
 * tsr_kv_cache_append gets the keys and values of all tokens of the step and stores those, and
 * tsr_kv_cache_attention sees only keys that were stored before the step; params must not be
 * causal. The functions that do both at once are not possible. Errors: also TSR_ERR_INVALID for
 * layers with states. */
tsr_status tsr__kv_cache_create_divided(const tsr_kv_cache_params *params, int ranks, int rank,
                                        tsr_kv_cache **out) TSR_NODISCARD;
/* How ranks divide a cache and the tokens of the step that has begun. */
typedef struct tsr__kv_division {
    int ranks, rank;
    int64_t tokens;            /* the most tokens of a sequence */
    int64_t first, own;        /* those that this rank computes; all if ranks do not divide them */
    int64_t before;            /* the tokens of the longest sequence before the step */
    const tsr_tensor *lengths; /* i32 [sequences]: the tokens of each; NULL: all have `tokens` */
    tsr_dtype dtype;           /* of the cache */
} tsr__kv_division;
tsr__kv_division tsr__kv_cache_division(const tsr_kv_cache *cache);
/* Divides the tokens of the step that has begun, which has one sequence and a multiple of the ranks
 * as tokens: each rank computes as many that follow each other. */
tsr_status tsr__kv_cache_divide_step(tsr_kv_cache *cache, tsr__kv_division *out) TSR_NODISCARD;

/* The states of one layer in the step that has begun: *conv [slots, floats] and *state [slots,
 * floats] of this layer, f32 and contiguous, which live as long as the cache; read_slots, i32
 * [sequences], and write_slots, i32 [sequences] or [sequences, tokens], as in tessera/recurrent.h,
 * until the next step. How many tokens count is q_lengths of tsr__kv_cache_lengths. A layer must
 * read and write its states in each step. Errors: TSR_ERR_INVALID if no step has begun, or if the
 * cache has no such layer or no states. */
tsr_status tsr__kv_cache_states(tsr_kv_cache *cache, int layer, tsr_tensor **conv,
                                tsr_tensor **state, tsr_tensor **read_slots,
                                tsr_tensor **write_slots) TSR_NODISCARD;
/* Returns how many tokens each sequence has in the step that has begun, i32 [sequences]; NULL
 * before the first step. */
tsr_tensor *tsr__kv_cache_lengths(const tsr_kv_cache *cache);
/* Returns the number of slots that a cache with these params has if it has states. */
int64_t tsr__kv_cache_slots(const tsr_kv_cache_params *params);
/* Returns how many of its sequences can keep states of earlier tokens. */
int tsr__kv_cache_kept_sequences(const tsr_kv_cache_params *params);
/* Drops the states of a sequence's last tokens, except its present one and snapshots, for which
 * other sequences then have slots. */
void tsr__kv_cache_drop_kept(tsr_kv_cache *cache, int sequence);
/* Returns the number of the snapshot of a sequence at its present length, which is taken if there
 * is none, and holds it: until it is released or leaves, it can be adopted. TSR__NO_SNAPSHOT: the
 * cache has no states or no snapshots, or the sequence is empty. */
#define TSR__NO_SNAPSHOT (-1)
int64_t tsr__kv_cache_hold_snapshot(tsr_kv_cache *cache, int sequence);
void tsr__kv_cache_release_snapshot(tsr_kv_cache *cache, int64_t snapshot);
/* Returns whether a snapshot that was held has not left. */
bool tsr__kv_cache_has_snapshot(const tsr_kv_cache *cache, int64_t snapshot);

/* Pages of a cache can be held, so that their tokens stay when their sequences have ended. A held
 * page is not free. The functions without a status require that the sequence and the page exist. */

/* Returns the page in which tokens index · page_tokens … of a sequence are. */
int32_t tsr__kv_cache_page(const tsr_kv_cache *cache, int sequence, int64_t index);
void tsr__kv_cache_hold(tsr_kv_cache *cache, int32_t page);
void tsr__kv_cache_release(tsr_kv_cache *cache, int32_t page);
/* Appends pages[count], which are held and full, to a sequence, whose own last page must be full,
 * too: the sequence gets their tokens without computing them. `snapshot` is that of its new length.
 * With states and TSR__NO_SNAPSHOT, the sequence has no state, and must adopt more before its next
 * step. Errors: TSR_ERR_INVALID, TSR_ERR_NO_MEMORY. */
tsr_status tsr__kv_cache_adopt(tsr_kv_cache *cache, int sequence, int64_t count,
                               const int32_t *pages, int64_t snapshot) TSR_NODISCARD;

/* Rotates the step's queries, and keys if `k` is not NULL, in place. Both are [sequences, heads,
 * tokens, head_dim], where the tokens are those of tsr__kv_cache_positions. */
tsr_status tsr__kv_cache_rotate(const tsr_kv_cache *cache, const tsr_rope *rope, tsr_tensor *q,
                                tsr_tensor *k) TSR_NODISCARD;

/* Rotates the step's queries, and stores its rotated keys and its values for one layer. This takes
 * one dispatch if all are neighbouring heads of one tensor. The shapes are those of
 * tsr_kv_cache_append and tsr_kv_cache_attention. Queries are rotated in place if own_q is NULL;
 * otherwise own_q, a contiguous tensor of q's shape and any dtype of floats, gets them. q and k may
 * be rotated in place, too. */
tsr_status tsr__kv_cache_append_rotated(tsr_kv_cache *cache, int layer, const tsr_rope *rope,
                                        tsr_tensor *q, tsr_tensor *k, const tsr_tensor *v,
                                        tsr_tensor *own_q) TSR_NODISCARD;

/* Returns the dtype that y of tsr__kv_cache_append_and_attend may have instead of q's: the cache's
 * if matrix units compute the attention of narrowed queries, as described there. Otherwise returns
 * q's. v is the step's, of q's dtype. */
tsr_dtype tsr__kv_cache_result_dtype(const tsr_kv_cache *cache, int layer, const tsr_tensor *q,
                                     const tsr_attention_params *params);

/* Rotates the step's queries and keys, stores keys and values for one layer, and then computes
 * tsr_kv_cache_attention. `rope` may be NULL: nothing is rotated. q and k may be rotated in place
 * or stay as they are. The shapes are those of tsr_kv_cache_append and tsr_kv_cache_attention; the
 * members of `params` that the cache sets must be NULL.
 *
 * On GPUs, one dispatch does all of this if a step has at most 4 tokens of each sequence, and at
 * most 16 queries that read the same kv head, or 128 of a single token; q, k and v have the same
 * dtype and rows of vectors, with a head_dim that is a multiple of 8; `rope` rotates whole rows;
 * and each kv head has a reader. Otherwise, and on CPU drivers, tsr__kv_cache_append_rotated or
 * tsr_kv_cache_append and tsr_attention do it.
 *
 * If q is f32, the cache has 16 bits, and the device has matrix units that can compute the
 * attention of so many tokens, q is first rounded to the cache's dtype. Probabilities and results
 * are rounded to it, too: each rounding has a relative error of at most 2^-11 with f16, 2^-8 with
 * bf16. A query beyond the range of f16 becomes infinite. y is then f32 or has the cache's dtype
 * (tsr__kv_cache_result_dtype); the latter takes a dispatch less. */
tsr_status tsr__kv_cache_append_and_attend(tsr_kv_cache *cache, int layer, const tsr_rope *rope,
                                           tsr_tensor *y, tsr_tensor *q, tsr_tensor *k,
                                           const tsr_tensor *v,
                                           const tsr_attention_params *params) TSR_NODISCARD;

/* The same without keys and values of the step, which the layer has already: rotates q in place
 * unless `rope` is NULL, and computes the step's attention. `lse` is that of tsr_attention, f32 in
 * any case, or NULL. */
tsr_status tsr__kv_cache_attend(tsr_kv_cache *cache, int layer, const tsr_rope *rope, tsr_tensor *y,
                                tsr_tensor *lse, tsr_tensor *q,
                                const tsr_attention_params *params) TSR_NODISCARD;

/* Returns the dtype to which f32 queries and their results are rounded so that matrix units compute
 * tsr_attention, as above: that of k and v if it has 16 bits, f16 for blocks. TSR_F32: q has
 * another dtype than f32, or matrix units cannot compute this call. */
tsr_dtype tsr__attention_narrow_dtype(tsr_stream *stream, const tsr_tensor *q, const tsr_tensor *k,
                                      const tsr_tensor *v, const tsr_attention_params *params);
/* As tsr_attention. If `dtype`, which tsr__attention_narrow_dtype has returned, is not f32, q is
 * first rounded to it, and so is the result before it is written to y. q and y may have that dtype
 * already. */
tsr_status tsr__attention_narrowed(tsr_stream *stream, tsr_dtype dtype, tsr_tensor *y,
                                   tsr_tensor *lse, const tsr_tensor *q, const tsr_tensor *k,
                                   const tsr_tensor *v,
                                   const tsr_attention_params *params) TSR_NODISCARD;

/* For attention whose keys and values are computed from those in the cache. Returns the number of
 * tokens for which the pages of a sequence of the step have room, the most of all sequences. Sets
 * q_lengths and kv_lengths of *params, unless it is NULL. */
int64_t tsr__kv_cache_step_keys(const tsr_kv_cache *cache, tsr_attention_params *params);
/* Returns the number of pairs of a token of the step and a token that causal attention lets it see,
 * of all sequences together. */
double tsr__kv_cache_step_pairs(const tsr_kv_cache *cache);
/* Copies the keys of the step's sequences, of a layer with one kv head, to y, a contiguous tensor
 * [sequences, as many as tsr__kv_cache_step_keys says, head_dim]. Those behind a sequence's end may
 * have any value. */
tsr_status tsr__kv_cache_read_keys(const tsr_kv_cache *cache, int layer,
                                   const tsr_tensor *y) TSR_NODISCARD;

/* Normalisation -------------------------------------------------------------------------------- */

/* Creates the tensor in which tsr__norm_with_stats writes the statistics of x's rows for a later
 * gradient. *out is NULL if x is not contiguous, and on CPU drivers, whose kernels save none. */
tsr_status tsr__norm_new_stats(const tsr_tensor *x, tsr_tensor **out) TSR_NODISCARD;
/* tsr_norm that also writes the statistics of all rows to `stats`, unless that is NULL. y is
 * contiguous if x is. */
tsr_status tsr__norm_with_stats(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                const tsr_tensor *weight, const tsr_tensor *bias,
                                tsr_norm_kind kind, float epsilon, tsr_tensor *stats) TSR_NODISCARD;

/* The gradients of normalisation in a residual branch: dx is the gradient of x plus `added`, the
 * gradient that reaches x past the branch. `added` may be NULL, and is not used if dx is NULL. dx
 * has the bits of a separate addition. `stats` is NULL, or what tsr__norm_with_stats wrote
 * for this x, kind and epsilon; the gradients are the same with it. */
tsr_status tsr__norm_grad_added(tsr_stream *stream, tsr_tensor *dx, tsr_tensor *dweight,
                                tsr_tensor *dbias, const tsr_tensor *x, const tsr_tensor *dy,
                                const tsr_tensor *weight, const tsr_tensor *added,
                                const tsr_tensor *stats, tsr_norm_kind kind, float epsilon,
                                bool accumulate) TSR_NODISCARD;

/* Random numbers ------------------------------------------------------------------------------- */

/* y = the random 32-bit words that tsr_random_params describes. y is u32. */
tsr_status tsr__random_bits(tsr_stream *stream, tsr_tensor *y,
                            const tsr_random_params *params) TSR_NODISCARD;

/* Vocabulary shards ---------------------------------------------------------------------------- */

/* Embedding and cross-entropy for one rank's shard of a vocabulary. The shard is the indices first
 * … first + n − 1 of the vocabulary: these rows of the embedding's table, or these classes
 * (columns) of the logits. Indices are i32, i64, u32 or u8 and refer to the complete vocabulary; a
 * rank ignores those that are not in its shard. */

/* y[r] = table[indices[r] − first], or zeros if that row is not in the table. y is [rows,width]. */
tsr_status tsr__embedding(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *table,
                          const tsr_tensor *indices, int64_t first) TSR_NODISCARD;

/* gradient[indices[r] − first] += dy[r]. Rows are added in the order of r, so that every run gives
 * the same bits. If `accumulate` is not set, the gradient is first set to 0. It must not overlap
 * dy. */
tsr_status tsr__embedding_grad(tsr_stream *stream, tsr_tensor *gradient, const tsr_tensor *dy,
                               const tsr_tensor *indices, int64_t first,
                               bool accumulate) TSR_NODISCARD;

/* Writes the statistics that the other ranks need of this shard's logits, [rows, the shard's
 * classes]. `stats` is f32 [3,rows] and contiguous. It gets three numbers for each row: the largest
 * logit, the sum of exponentials relative to it, and the label's logit, or 0 if the label is not in
 * this shard. */
tsr_status tsr__cross_entropy_shard_stats(tsr_stream *stream, tsr_tensor *stats,
                                          const tsr_tensor *logits, const tsr_tensor *labels,
                                          int64_t first) TSR_NODISCARD;

/* Computes the results of tsr_cross_entropy for this shard from the statistics of all shards,
 * [ranks,3,rows]. */
tsr_status tsr__cross_entropy_shard(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
                                    const tsr_tensor *logits, const tsr_tensor *labels,
                                    const tsr_tensor *stats, int64_t first, int64_t classes,
                                    float grad_scale) TSR_NODISCARD;
/* Makes the checks of tsr__cross_entropy_shard without reading the statistics. */
tsr_status tsr__cross_entropy_shard_check(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
                                          const tsr_tensor *logits, const tsr_tensor *labels,
                                          const tsr_tensor *stats, int64_t first,
                                          int64_t classes) TSR_NODISCARD;

/* Choosing tokens ------------------------------------------------------------------------------ */

struct tsr_choice_words; /* shaders/params/choose.h */

/* Chooses a token from each row of logits, f32 [rows,count] with contiguous rows, with the draws of
 * choices[rows], which are copied: the same token as tsr_sampling_draw. Writes the tokens to `ids`
 * and to `results`, both contiguous i32 with `rows` elements. If a row has a NaN or +inf, or only
 * −inf, ids gets 0, and results TSR_CHOICE_NOT_FINITE or TSR_CHOICE_NOTHING.
 *
 * `seen` is contiguous u32 [any, (count + 31) / 32]. Row choices[i].seen_row belongs to row i of
 * the logits; bit t % 32 of its word t / 32 is set if the sequence has token t. The bit of the
 * chosen token gets set, so no two rows may have the same seen_row. NULL: no row has a repetition
 * penalty.
 *
 * One dispatch. Errors: TSR_ERR_UNSUPPORTED for more tokens than the device's loops can count, and
 * if the kernel has failed its self-test; TSR_ERR_INVALID naming the values; those of ops.h. */
tsr_status tsr__choose(tsr_stream *stream, tsr_tensor *ids, tsr_tensor *results, tsr_tensor *seen,
                       const tsr_tensor *logits,
                       const struct tsr_choice_words *choices) TSR_NODISCARD;

/* Numbers in 8 bits, for slow connections ------------------------------------------------------ */

/* `count` elements are packed in whole blocks of TSR_Q8_0, as tsr_quantize makes them. The last
 * four bytes of the last block are not elements but a factor, an f32 that is a power of two: the
 * elements are the values of the blocks times the factor. It is chosen so that the largest element
 * of the tensor is near the largest value that a block can hold. Without it, small gradients would
 * become 0, because scales of blocks are f16. If an element is NaN or infinite, the factor is NaN,
 * and so are all values.
 *
 * Two blocks are 17 words of 32 bits. The number of blocks is even, and the number of words is
 * tsr__packed_words. */

/* The number of 32-bit words for `count` packed elements; 0 if there are none. */
int64_t tsr__packed_words(int64_t count);

/* Records packing x, a contiguous tensor of f32, f16 or bf16, to y, contiguous and u32
 * [tsr__packed_words]. On every device, the bytes are those that the host would write, with one
 * exception: if a block's scale is subnormal in f32, so that it is 0 in f16, all elements of the
 * block are 0. */
tsr_status tsr__pack(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x) TSR_NODISCARD;

/* Records y = the sum of `contributions` packed tensors that follow each other in x, contiguous and
 * u32. y is contiguous, and f32, f16 or bf16. The sum is computed in f32, in this order, and
 * rounded once to y's dtype. */
tsr_status tsr__unpack_sum(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                           int contributions) TSR_NODISCARD;

#endif
