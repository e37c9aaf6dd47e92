/* Parameters of an attention call. They do not fit into the push constants, so they are in memory,
 * and the push constants contain their address. */
#ifndef TSR_PARAMS_ATTENTION_H
#define TSR_PARAMS_ATTENTION_H

#include "types.h"

/* The address of a tensor [batch, heads, rows, columns] and its strides in bytes. A stride is 0 in
 * a dimension along which the tensor is broadcast. */
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
    /* f32 [batch, heads, q_len]: the logarithm of the sum of the exponentials of each query's
     * scores. */
    TSR_ATTENTION_OPERAND lse;
    /* f32 [batch, heads, q_len]: Σ dy·y of each query, for the backward pass. */
    TSR_ATTENTION_OPERAND delta;
    /* i32 [batch]: the number of queries and of keys of each sequence, with the bytes from one
     * sequence's number to the next. If an address is 0, all sequences have q_len queries, or
     * kv_len keys. */
    TSR_ADDRESS q_lengths, q_lengths_step;
    TSR_ADDRESS kv_lengths, kv_lengths_step;
    /* i32 [batch, q_len]: the first key that each query sees, with TSR_ATTENTION_STARTS only. */
    TSR_ADDRESS starts, starts_batch, starts_row;
    /* f32 [heads]: the sink of each head, with the bytes from one to the next. The address is 0 if
     * there are none. */
    TSR_ADDRESS sinks, sinks_step;
    /* i32 [batch, n]: the pages of the cache in which each sequence's keys are. The address is 0 if
     * k and v are not in a cache. */
    TSR_ADDRESS pages, pages_batch, pages_row;
    /* The keys and values of the step's tokens, [batch, kv_heads, q_len, columns], which
     * attention_few.comp with NEW stores in the cache. */
    TSR_ATTENTION_OPERAND new_k, new_v;
    TSR_ADDRESS rope_table; /* for queries and new keys, as in params/rope.h; 0: none */
    TSR_UINT batch, heads, kv_heads;
    TSR_UINT q_len, kv_len;
    TSR_UINT head_dim, value_dim;  /* the columns of q and k; those of v and y */
    TSR_UINT page_len, page_count; /* keys per page, and pages in the cache */
    TSR_UINT causal;
    TSR_UINT window; /* with `causal`, a query sees at most this many keys; 2^31: no limit */
    TSR_FLOAT scale;
    TSR_FLOAT softcap;     /* 0: none */
    TSR_FLOAT rope_scale;  /* what rotated rows are multiplied by */
    TSR_FLOAT temperature; /* 0: none */
    TSR_UINT temperature_length;
    /* In memory, three arrays of integers follow this struct: kv_head[heads], the kv head that each
     * head reads; reader[heads], all heads, sorted by the kv head that they read; and
     * first[kv_heads + 1], the index in `reader` of the first head that reads each kv head. */
};

struct tsr_attention_push {
    TSR_ADDRESS call;
    /* attention_few.comp and attention_merge.comp: f32 [rows, parts, TSR_ATTENTION_PART_FLOATS] */
    TSR_ADDRESS partial;
    /* attention_few.comp with JOIN: for each block of queries, how many workgroups have written
     * their results of a part; 0 at first */
    TSR_ADDRESS counters;
    TSR_ADDRESS dsinks, dsinks_step; /* attention_sinks_grad.comp: f32 [heads] */
    TSR_UINT first; /* the number of this dispatch's first block of rows, or of its first row */
    TSR_UINT count; /* blocks of rows of this dispatch; rows in attention_delta.comp; invocations in
                       attention_merge.comp */
    TSR_UINT part_keys;  /* attention_few.comp: keys in a part */
    TSR_UINT parts;      /* attention_few.comp: the number of parts of the keys */
    TSR_UINT row_blocks; /* attention_few.comp: the number of blocks of the queries that read one kv
                            head */
    TSR_UINT first_chunk; /* attention.comp: the number of the result's first chunk of columns */
    TSR_UINT quads;       /* attention.comp with ROLLED: TSR_ATTENTION_QUADS, as a number that the
                             compiler does not know; attention_few.comp: the threads of a workgroup */
};
TSR_PUSH_CHECK(tsr_attention_push);

/* The floats of a result for a part of the keys, in `partial`: the largest score, the sum of
 * exponentials and, after these TSR_ATTENTION_PART_HEAD, the columns, in whole vectors. */
#define TSR_ATTENTION_PART_HEAD 4u
#define TSR_ATTENTION_PART_FLOATS(dim) (TSR_ATTENTION_PART_HEAD + ((dim) + 3u) / 4u * 4u)

/* The width of attention.comp's tiles, in groups of four columns. */
#define TSR_ATTENTION_QUADS 16u

/* What attention.comp computes, a specialization constant. */
#define TSR_ATTENTION_FORWARD 0u
#define TSR_ATTENTION_DQ 1u
#define TSR_ATTENTION_DK 2u
#define TSR_ATTENTION_DV 3u
#define TSR_ATTENTION_DELTA 4u
#define TSR_ATTENTION_DKV 5u /* dk and dv; attention_coopmat.glsl only */

/* The rotary embedding that attention_few.comp applies, a specialization constant. */
#define TSR_ATTENTION_ROPE_NONE 0u
#define TSR_ATTENTION_ROPE_HALVES 1u   /* a pair's components are half a row apart */
#define TSR_ATTENTION_ROPE_ADJACENT 2u /* a pair's components are neighbours */

/* How scores are computed from scale · q·k: the sum of these, a specialization constant. */
#define TSR_ATTENTION_CAPPED 1u
#define TSR_ATTENTION_TEMPERED 2u
/* The call has `starts`. They do not change how scores are computed, but which exist. */
#define TSR_ATTENTION_STARTS 4u

/* How the elements of q, k, v and dy are loaded, a specialization constant. */
#define TSR_ATTENTION_LOAD_SCALAR 0u
#define TSR_ATTENTION_LOAD_VECTOR                                                                  \
    1u /* four neighbouring columns at once, at multiples of 4 bytes */
/* four neighbouring columns at once, at multiples of 16 bytes, or 8 if the elements have 16 bits;
 * rows are at multiples of 16 bytes */
#define TSR_ATTENTION_LOAD_ALIGNED 2u

#endif
