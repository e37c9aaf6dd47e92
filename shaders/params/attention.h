/* Parameters of an attention call. They do not fit into the push constants, so they are in memory,
 * and the push constants contain their address. */
#ifndef TSR_PARAMS_ATTENTION_H
#define TSR_PARAMS_ATTENTION_H

#include "types.h"

/* A tensor [batch, heads, rows, columns]. Strides are in bytes; they are 0 along broadcast
 * dimensions. */
struct tsr_attention_operand {
    TSR_ADDRESS at;
    TSR_ADDRESS batch, head, row, column;
};

#ifdef __STDC_VERSION__
#define TSR_ATTENTION_OPERAND struct tsr_attention_operand
#else
#define TSR_ATTENTION_OPERAND tsr_attention_operand
#endif

struct tsr_attention_call {
    TSR_ATTENTION_OPERAND q, k, v, y, dy, dq, dk, dv, mask;
    TSR_ATTENTION_OPERAND lse;                 /* [batch, heads, q_len], f32 */
    TSR_ATTENTION_OPERAND delta;               /* the same, of the backward pass: Σ dy·y */
    TSR_ADDRESS q_lengths, q_lengths_step;     /* i32 [batch]; 0: none */
    TSR_ADDRESS kv_lengths, kv_lengths_step;   /* the same */
    TSR_ADDRESS pages, pages_batch, pages_row; /* i32 [batch, n]; 0: none */
    TSR_UINT batch, heads, kv_heads;
    TSR_UINT q_len, kv_len, head_dim;
    TSR_UINT page_len, page_count; /* of the cache */
    TSR_UINT causal;
    TSR_UINT window; /* at least kv_len + q_len if there is none */
    TSR_FLOAT scale;
    TSR_FLOAT softcap; /* 0: none */
    /* Followed by kv_head[heads], the kv head of each head; reader[heads], the heads in the order
     * of their kv heads; and first[kv_heads + 1], where each kv head's readers begin. */
};

struct tsr_attention_push {
    TSR_ADDRESS call;
    TSR_ADDRESS partial; /* attention_few.comp: results of the parts */
    TSR_UINT first;      /* the number of the first workgroup's block */
    TSR_UINT count;      /* blocks */
    TSR_UINT part_keys;  /* attention_few.comp: keys in a part, and parts of a row */
    TSR_UINT parts;
};
TSR_PUSH_CHECK(tsr_attention_push);

/* What attention.comp computes, a specialization constant. */
#define TSR_ATTENTION_FORWARD 0u
#define TSR_ATTENTION_DQ 1u
#define TSR_ATTENTION_DK 2u
#define TSR_ATTENTION_DV 3u
#define TSR_ATTENTION_DELTA 4u

/* How the elements of q, k, v and dy are loaded, a specialization constant. */
#define TSR_ATTENTION_LOAD_SCALAR 0u
#define TSR_ATTENTION_LOAD_VECTOR 1u /* columns in aligned groups of four neighbours */

#endif
