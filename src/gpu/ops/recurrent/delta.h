/* The gated delta rule: its operands, and its computation in chunks.
 *
 *     delta_call.c      checks of the operands
 *     delta_rule.c      the recurrence token by token, or chunks
 *     delta_chunks.c    chunks: scratch memory, rows, and what the passes share
 *     delta_forward.c   the forward pass in chunks
 *     delta_matrices.c  the state from chunk to chunk by cooperative matrices
 *     delta_products.c  the state, and its gradient, from chunk to chunk by batched products
 *     delta_gradient.c  the backward pass, always in chunks */
#ifndef TSR_GPU_OPS_RECURRENT_DELTA_H
#define TSR_GPU_OPS_RECURRENT_DELTA_H

#include "gpu/ops/recurrent/tokens.h"
#include "tessera/recurrent.h"

/* A call's operands, checked. */
typedef struct tsr__delta {
    tsr__tokens tokens;
    tsr_delta_rule_params params;
    const tsr_tensor *q, *k, *v, *beta, *g;
    uint32_t q_stride, k_stride, v_stride, beta_stride, g_stride;
    int64_t key_heads, heads, key_dim, value_dim;
    float scale;
} tsr__delta;

/* The specialization constants 0 to 5, which all kernels have. */
enum { TSR__DELTA_SPEC = 6 };
tsr__dispatch tsr__delta_dispatch(const tsr__delta *call, tsr__shader shader, uint32_t workgroup);

/* Checks a state, or its gradient, of which there are `states`. NULL is allowed. */
tsr_status tsr__delta_check_state(const tsr__delta *call, const char *name, int64_t states,
                                  const tsr_tensor *state) TSR_NODISCARD;
/* `new_state`: that of the forward pass, for its slots. */
tsr_status tsr__delta_check_inputs(const char *op, tsr_stream *stream, const tsr_tensor *q,
                                   const tsr_tensor *k, const tsr_tensor *v, const tsr_tensor *beta,
                                   const tsr_tensor *g, const tsr_tensor *new_state,
                                   const tsr_delta_rule_params *params,
                                   tsr__delta *out) TSR_NODISCARD;
/* Checks that an output overlaps no input, except that `same` may be the same view. */
tsr_status tsr__delta_check_output(const tsr__delta *call, const char *name, const tsr_tensor *out,
                                   const tsr_tensor *same) TSR_NODISCARD;

/* Returns whether an invocation can make so many iterations of loops. If it cannot make those of a
 * recurrence, the call is computed in chunks, by products, which need no loop over the chunks. */
bool tsr__delta_may_iterate(const tsr__delta *call, int64_t iterations);

/* Chunks ------------------------------------------------------------------------------------- */

/* Arrays in scratch memory, whose rows shaders/params/delta.h describes. */
typedef enum tsr__delta_array {
    TSR__DELTA_DECAY,
    TSR__DELTA_QUERIES, /* of key heads: normalised q · scale */
    TSR__DELTA_KEYS,    /* of key heads: normalised k */
    TSR__DELTA_Q_INVERSE,
    TSR__DELTA_K_INVERSE, /* of key heads: what the rows were multiplied by to be normalised */
    TSR__DELTA_VALUES,    /* beta · v; with products, see delta_products.c */
    TSR__DELTA_KEY_KEY,
    TSR__DELTA_QUERY_KEY, /* of key heads: products of all pairs of tokens of a chunk */
    TSR__DELTA_INVERSE,
    TSR__DELTA_CARRIED,
    TSR__DELTA_WEIGHTS, /* see delta_triangle.comp */
    TSR__DELTA_U,
    TSR__DELTA_W, /* inverse · values, carried · keys; with products, deltas and −beta · carry ·
                     keys */
    /* for the backward pass; with products for the forward pass, too, but not of all chunks: the
     * state before each chunk, rows [chunks, heads, key_dim] */
    TSR__DELTA_STATES,
    /* for the backward pass only */
    TSR__DELTA_DELTAS,
    TSR__DELTA_DSTATES, /* the gradient of the state after each chunk */
    TSR__DELTA_DDELTAS,
    TSR__DELTA_DY, /* dy in rows of chunks */
    TSR__DELTA_DOTS,
    TSR__DELTA_DR, /* inverseᵀ · ddeltas */
    TSR__DELTA_X,
    TSR__DELTA_Z,
    TSR__DELTA_M, /* see delta_token_grad.comp */
    TSR__DELTA_DWEIGHTS,
    TSR__DELTA_DTRIANGLE, /* dy · deltasᵀ, dr · deltasᵀ */
    TSR__DELTA_DQUERY_KEY,
    TSR__DELTA_DKEY_KEY,
    TSR__DELTA_PARTS,
    TSR__DELTA_DQUERIES,
    TSR__DELTA_DKEYS, /* of value heads */
    TSR__DELTA_ARRAYS,
    TSR__DELTA_FORWARD_ARRAYS = TSR__DELTA_STATES
} tsr__delta_array;

/* How the forward pass uses cooperative matrices, for params.precision. `terms` is 0 if it uses
 * none. */
enum { TSR__DELTA_NARROWED = 4 };
typedef struct tsr__delta_matrices {
    const tsr_coopmat_shape *shape;
    uint32_t terms, threads, columns;           /* of f16; of a workgroup */
    tsr__buffer *narrowed[TSR__DELTA_NARROWED]; /* rows of queries, keys, weights and w */
} tsr__delta_matrices;

typedef struct tsr__delta_chunks {
    const tsr__delta *call;
    int64_t chunks; /* of a row */
    uint32_t quads; /* a workgroup that goes from chunk to chunk has 4 · quads columns of a state */
    int64_t blocks; /* of columns */
    bool backward;
    bool products;       /* the state goes from chunk to chunk by batched products */
    int64_t kept_states; /* with products, the number of chunks whose states are kept at a time */
    tsr__delta_matrices matrices;
    /* A dispatch goes through at most so many chunks, within the device's limit on work. Between
     * dispatches, the states or their gradients are in `carry`, f32 [batch, heads, key_dim,
     * value_dim]; it is NULL if there is one dispatch. */
    int64_t part_chunks;
    tsr_tensor *carry;
    tsr_tensor *work;                     /* f32: all arrays */
    uint32_t place[TSR__DELTA_ARRAYS];    /* in units of TSR_DELTA_UNIT bytes */
    tsr_tensor *array[TSR__DELTA_ARRAYS]; /* views [batch · chunks, key heads, value heads of each
                                             (or these two in the other order), rows, columns];
                                             1 where all value heads of a key head share a row */
} tsr__delta_chunks;

/* Allocates the arrays. After an error there are none. */
tsr_status tsr__delta_chunks_create(const tsr__delta *call, bool backward,
                                    tsr__delta_chunks *out) TSR_NODISCARD;
void tsr__delta_chunks_finish(tsr__delta_chunks *c);

/* Records what is computed inside the chunks, and then the state from chunk to chunk. y and
 * new_state may be NULL. If `backward` is set, the states and deltas are kept. Call it inside
 * tsr__stream_atomic. */
tsr_status tsr__delta_chunks_forward(const tsr__delta_chunks *c, const tsr_tensor *y,
                                     uint32_t y_stride, const tsr_tensor *new_state) TSR_NODISCARD;
/* Returns the dispatch of a kernel that goes through `chunks` chunks, without push constants and
 * accesses. `dtype` is that of y or dy. */
tsr__dispatch tsr__delta_scan_dispatch(const tsr__delta_chunks *c, tsr__shader shader,
                                       tsr_dtype dtype, int64_t chunks);
/* The chunks of one dispatch, and where it finds states and leaves them; both may be NULL. */
typedef struct tsr__delta_part {
    int64_t first, end;
    const tsr_tensor *from, *to;
    uint32_t slots; /* TSR_SLOTS_…: which of them are in slots */
} tsr__delta_part;
/* The part of a forward pass that begins with chunk `first`, a multiple of part_chunks. */
tsr__delta_part tsr__delta_part_at(const tsr__delta_chunks *c, int64_t first,
                                   const tsr_tensor *new_state);
/* Copies q, k and v into rows of chunks. */
tsr_status tsr__delta_rows(const tsr__delta_chunks *c) TSR_NODISCARD;
/* Copies x, of value heads, into rows of chunks. Rows past the end of a sequence become 0. */
tsr_status tsr__delta_value_rows(const tsr__delta_chunks *c, const tsr_tensor *x, uint32_t stride,
                                 tsr__delta_array rows) TSR_NODISCARD;
/* Copies contiguous states, f32 [batch, heads, key_dim, value_dim], to the slots of new_state. */
tsr_status tsr__delta_store_state(const tsr__delta_chunks *c, const tsr_tensor *states,
                                  const tsr_tensor *new_state) TSR_NODISCARD;
/* The multiply-adds of the pass through `chunks` chunks. */
double tsr__delta_scan_work(const tsr__delta_chunks *c, int64_t chunks);
/* Records out = a · b, or out += a · b, for all chunks. */
tsr_status tsr__delta_product(const tsr__delta_chunks *c, tsr__delta_array out, tsr__delta_array a,
                              bool transpose_a, tsr__delta_array b, bool transpose_b,
                              bool accumulate) TSR_NODISCARD;
/* The accesses of a dispatch to an array. */
void tsr__delta_read(const tsr__delta_chunks *c, tsr__dispatch *dispatch, tsr__delta_array array);
void tsr__delta_write(const tsr__delta_chunks *c, tsr__dispatch *dispatch, tsr__delta_array array);

/* Cooperative matrices: chooses whether and how they are used; allocates and returns the memory for
 * narrowed rows; records their narrowing, and the state through the chunks of a part. */
void tsr__delta_choose_matrices(const tsr__delta *call, tsr__delta_matrices *out);
tsr_status tsr__delta_matrices_create(tsr__delta_chunks *c) TSR_NODISCARD;
void tsr__delta_matrices_finish(tsr__delta_chunks *c);
tsr_status tsr__delta_narrow(const tsr__delta_chunks *c) TSR_NODISCARD;
tsr_status tsr__delta_scan_matrices(const tsr__delta_chunks *c, const tsr_tensor *y,
                                    uint32_t y_stride, const tsr__delta_part *part) TSR_NODISCARD;

/* Batched products: whether they are used; what they need of the insides of the chunks, from the
 * blocks that delta_triangle.comp computes with BLOCK = TSR__DELTA_BLOCK; the state from chunk to
 * chunk; and its gradient. */
enum { TSR__DELTA_BLOCK = 16 };
bool tsr__delta_by_products(const tsr__delta *call);
tsr_status tsr__delta_join_blocks(const tsr__delta_chunks *c) TSR_NODISCARD;
tsr_status tsr__delta_scan_products(const tsr__delta_chunks *c, const tsr_tensor *y,
                                    uint32_t y_stride, const tsr_tensor *new_state) TSR_NODISCARD;
/* Also computes TSR__DELTA_DR. dnew_state and dstate may be NULL. */
tsr_status tsr__delta_scan_grad_products(const tsr__delta_chunks *c, const tsr_tensor *dy,
                                         uint32_t dy_stride, const tsr_tensor *dnew_state,
                                         const tsr_tensor *dstate) TSR_NODISCARD;

#endif
