/* A checked call of tsr_attention or tsr_attention_grad. */
#ifndef TSR_GPU_ATTENTION_CALL_H
#define TSR_GPU_ATTENTION_CALL_H

#include "gpu/stream/stream.h"
#include "shaders/params/attention.h"
#include "tessera/attention.h"

typedef struct tsr__attention {
    const char *op; /* begins error texts */
    tsr_stream *stream;
    const tsr_tensor *y, *lse;      /* results of the forward call; lse may be NULL there */
    const tsr_tensor *dq, *dk, *dv; /* of the backward call; any two may be NULL */
    const tsr_tensor *dy;           /* NULL in the forward call */
    const tsr_tensor *q, *k, *v;
    tsr_attention_params params; /* scale is set */
    tsr_layout mask;             /* broadcast to [batch, heads, q_len, kv_len], if there is one */
    int64_t batch, heads, kv_heads, q_len, kv_len, head_dim;
    int64_t page_len, page_count; /* of the cache, if there are pages */
    /* kv_head[heads], reader[heads], first[kv_heads + 1]; see shaders/params/attention.h. */
    uint32_t *table;
} tsr__attention;

/* Checks everything and completes `call`, whose first members down to params the caller has set. On
 * success the caller must pass it to tsr__attention_finish. */
tsr_status tsr__attention_check(tsr__attention *call) TSR_NODISCARD;
void tsr__attention_finish(tsr__attention *call);

static inline const uint32_t *tsr__attention_kv_head(const tsr__attention *call)
{
    return call->table;
}

static inline const uint32_t *tsr__attention_first_reader(const tsr__attention *call)
{
    return call->table + 2 * call->heads;
}

/* The call's description in device memory, for the kernels of this folder. */
typedef struct tsr__attention_description {
    tsr__buffer *buffer;
    uint64_t size_bytes;
    void *bytes; /* of the host */
} tsr__attention_description;

/* Builds the description; `delta` may be NULL. The caller must pass it to
 * tsr__attention_description_finish. */
tsr_status tsr__attention_describe(const tsr__attention *call, const tsr__buffer *delta,
                                   tsr__attention_description *out) TSR_NODISCARD;
void tsr__attention_description_finish(tsr__attention_description *description);

/* Appends to `access` what every kernel reads, and returns the new count. */
int tsr__attention_reads(const tsr__attention *call, const tsr__attention_description *description,
                         tsr__access *access);

/* The forward and the backward call by the kernels for GPUs. */
tsr_status tsr__attention_tiled(const tsr__attention *call) TSR_NODISCARD;
tsr_status tsr__attention_tiled_grad(const tsr__attention *call) TSR_NODISCARD;

#endif
