/* A checked call of tsr_attention or tsr_attention_grad. */
#ifndef TSR_GPU_ATTENTION_CALL_H
#define TSR_GPU_ATTENTION_CALL_H

#include "gpu/stream/stream.h"
#include "shaders/params/attention.h"
#include "tessera/attention.h"
#include "tessera/rope.h"

typedef struct tsr__attention {
    const char *op; /* the function's name, with which error texts begin */
    tsr_stream *stream;
    const tsr_tensor *y, *lse;      /* results of tsr_attention, where lse may be NULL */
    const tsr_tensor *dq, *dk, *dv; /* results of tsr_attention_grad; at most two are NULL */
    const tsr_tensor *dy;           /* NULL in tsr_attention */
    const tsr_tensor *q, *k, *v;
    /* The keys and values of the queries' tokens, [batch, kv_heads, q_len, head_dim], if the call
     * is to store them in the cache, k and v, first; otherwise NULL. */
    const tsr_tensor *new_k, *new_v;
    const tsr_rope *rope;        /* applied to q and new_k; NULL: none */
    tsr_attention_params params; /* the default of params.scale is filled in */
    /* the mask's layout, broadcast to [batch, heads, q_len, kv_len]; unused without a mask */
    tsr_layout mask;
    int64_t batch, heads, kv_heads, q_len, kv_len, head_dim;
    int64_t value_dim; /* the head_dim of v, y, dy and dv */
    /* tokens in a page and pages in the cache; unused without pages */
    int64_t page_len, page_count;
    /* Three arrays, one after the other: kv_head[heads], reader[heads] and first[kv_heads + 1].
     * shaders/params/attention.h explains them. */
    uint32_t *table;
} tsr__attention;

/* Checks all arguments and fills in the rest of `call`. The caller must have set the members
 * from `op` to `params`. On success the caller must pass `call` to tsr__attention_finish(). */
tsr_status tsr__attention_check(tsr__attention *call) TSR_NODISCARD;
/* Frees the table that tsr__attention_check() allocated. */
void tsr__attention_finish(tsr__attention *call);

static inline const uint32_t *tsr__attention_kv_head(const tsr__attention *call)
{
    return call->table;
}

static inline const uint32_t *tsr__attention_first_reader(const tsr__attention *call)
{
    return call->table + 2 * call->heads;
}

/* Computes the forward call, of which the caller must have set the members from `op` to `params`.
 * With new_k and new_v, the call also stores these in the cache; if no kernel does that, *done is
 * false and nothing has been recorded. */
tsr_status tsr__attention_forward(tsr__attention *call, bool *done) TSR_NODISCARD;

/* The parameters of a call as the shaders read them from device memory: a struct
 * tsr_attention_call, followed by the three arrays of call->table. */
typedef struct tsr__attention_description {
    tsr__access range; /* the bytes on the device that the shaders read */
    uint64_t address;  /* the device address of `range` */
    uint64_t counters; /* the device address of counters that are 0 */
    void *bytes; /* the bytes that must still be sent, in host memory; NULL if there are none */
} tsr__attention_description;

/* Writes the parameters to device memory if the host reaches it; otherwise tsr__attention_send()
 * must send them. `delta` may be NULL. `counters` is how many counters the kernel needs, of 32 bits
 * each; a dispatch that changes them must declare that it writes to the description. The caller
 * must pass the description to tsr__attention_description_finish(). */
tsr_status tsr__attention_describe(const tsr__attention *call, const tsr__buffer *delta,
                                   uint32_t counters,
                                   tsr__attention_description *out) TSR_NODISCARD;
/* Frees the bytes that are still to be sent. */
void tsr__attention_description_finish(tsr__attention_description *description);

/* Appends to `access` the reads that all kernels have in common, and returns the new count. */
int tsr__attention_reads(const tsr__attention *call, const tsr__attention_description *description,
                         tsr__access *access);

/* Records the copy of the description to the device if it is still to be sent. */
tsr_status tsr__attention_send(tsr_stream *stream,
                               const tsr__attention_description *description) TSR_NODISCARD;

/* Returns how many items, each of `work` multiply-adds, one dispatch may compute within the
 * device's limit on work; at least 1. */
uint64_t tsr__attention_within_work(const tsr__attention *c, double work);

/* One kind of computation, TSR_ATTENTION_…, for all rows of its result. */
typedef struct tsr__attention_pass {
    const tsr__attention *call;
    const tsr__attention_description *description;
    uint32_t kind;
    /* the result; for TSR_ATTENTION_DELTA it is y, which has the same rows */
    const tsr_tensor *out;
    const tsr_tensor *also; /* dv for TSR_ATTENTION_DKV, whose `out` is dk; otherwise NULL */
    tsr__buffer *delta;     /* NULL in the forward call */
    /* as in tsr__dispatch, common to passes with different results; 0: a number of its own */
    uint32_t independent_group;
} tsr__attention_pass;

/* The multiply-adds of a pass for `rows` rows of its result, as if every query saw all keys. */
double tsr__attention_pass_work(const tsr__attention_pass *pass, uint32_t rows);
/* Returns the bytes of queries, keys, values and mask. If the keys are in pages, k and v are
 * larger.
 */
double tsr__attention_read_bytes(const tsr__attention *call);

/* Sets which memory the dispatches of a pass access. */
void tsr__attention_pass_access(const tsr__attention_pass *pass, tsr__dispatch *dispatch);

/* True if eight columns of a row, from a multiple of eight on, are 16 aligned bytes, or if x has
 * blocks, which the kernels load in one way only. */
bool tsr__attention_eights(const tsr_tensor *x);

/* True if cooperative matrices can compute a pass and are faster. */
bool tsr__attention_coopmat_suits(const tsr__attention_pass *pass);
/* Records a pass that is computed with cooperative matrices. */
tsr_status tsr__attention_coopmat(const tsr__attention_pass *pass) TSR_NODISCARD;
/* The same for a pass of the backward call by cooperative matrices that a workgroup shares. */
bool tsr__attention_coopmat2_suits(const tsr__attention_pass *pass);
tsr_status tsr__attention_coopmat2(const tsr__attention_pass *pass) TSR_NODISCARD;

/* Records the dispatches of `count` items, at most `at_once` items in each. An item is what the
 * kernel numbers, for example a block of rows; it takes `invocations` invocations in workgroups
 * of `workgroup`, and `work` multiply-adds (0: see tsr__dispatch). The function sets first and
 * count of `push` for each dispatch. The dispatches are independent of each other, and of those
 * with the same independent_group, if it is not 0. */
tsr_status tsr__attention_dispatch(tsr_stream *stream, tsr__dispatch *dispatch,
                                   struct tsr_attention_push push, uint64_t count, uint64_t at_once,
                                   uint32_t invocations, uint32_t workgroup,
                                   double work) TSR_NODISCARD;

/* Records the dispatches of a pass whose workgroups each compute `rows` rows of its result. The
 * caller must have set the shader and its specialization; the function sets the rest. */
tsr_status tsr__attention_pass_dispatch(const tsr__attention_pass *pass, tsr__dispatch *dispatch,
                                        uint32_t rows) TSR_NODISCARD;

/* How the kernels for GPUs compute scores: the sum of TSR_ATTENTION_CAPPED, …_TEMPERED and
 * …_STARTS. */
uint32_t tsr__attention_scores_kind(const tsr__attention *call);
/* How the kernels for GPUs load q, k, v and dy: TSR_ATTENTION_LOAD_…. */
uint32_t tsr__attention_load(const tsr__attention *call);

/* The floats of a result for a range of keys, which tsr__attention_merge() reads. */
uint32_t tsr__attention_part_floats(const tsr__attention *call);
/* True if tsr__attention_few() should record the forward call, for example because few queries
 * read each key. The kernel knows no `starts`. */
bool tsr__attention_few_suit(const tsr__attention *call);
/* The same for a call with new keys and values. The kernel takes few tokens of a sequence, whole
 * rows of whole vectors that are rotated completely or not at all, and no lse. CPU drivers need
 * more time for it than for separate kernels. */
bool tsr__attention_few_append_suits(const tsr__attention *call);
/* Records the forward call with a kernel that divides the keys into ranges. Each workgroup
 * computes one range. On GPUs the last one to finish merges the results of all ranges. */
tsr_status tsr__attention_few(const tsr__attention *call) TSR_NODISCARD;

/* Merges the results of `ranges` ranges of the keys into y, in the order of the ranges, and into
 * lse if the call has it. `partial` has for each row of queries and each range: the largest
 * score, the sum of the exponentials, and value_dim sums, in f32. The description must have been
 * sent. */
tsr_status tsr__attention_merge(const tsr__attention *call,
                                const tsr__attention_description *description, tsr__buffer *partial,
                                uint32_t ranges) TSR_NODISCARD;

/* Records the forward call with the kernels for GPUs. */
tsr_status tsr__attention_tiled(const tsr__attention *call) TSR_NODISCARD;
/* Records the backward call with the kernels for GPUs. */
tsr_status tsr__attention_tiled_grad(const tsr__attention *call) TSR_NODISCARD;
/* Records only the gradients of the sinks, for calls of which other kernels compute the rest. */
tsr_status tsr__attention_sinks_grad(const tsr__attention *call) TSR_NODISCARD;

#endif
