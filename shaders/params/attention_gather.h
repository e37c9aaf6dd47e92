/* Push constants of the kernel that collects the keys or values of a call of attention in one
 * place, on Mesa's CPU driver. The copy is f32 [batch][heads][kv_len][LINE]; LINE is a
 * specialization constant. */
#ifndef TSR_PARAMS_ATTENTION_GATHER_H
#define TSR_PARAMS_ATTENTION_GATHER_H

#include "types.h"

struct tsr_attention_gather_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    TSR_ADDRESS from;     /* the first head of the tensor or cache */
    TSR_ADDRESS to;
    /* i32 [batch][2], where the kernel writes how many queries and keys each sequence has; 0: it
     * does not write them */
    TSR_ADDRESS lengths;
    TSR_ADDRESS q_lengths, kv_lengths; /* i32 [batch], as the caller gave them */
    TSR_ADDRESS pages;                 /* i32, for each sequence the numbers of its pages */
    /* Bytes from one sequence of the tensor, or one page of the cache, to the next; from one head
     * to the next; and from one key to the next. */
    TSR_UINT outer_stride, head_stride, row_stride;
    TSR_UINT pages_stride; /* bytes from the pages of one sequence to those of the next */
    TSR_UINT heads, q_len, kv_len;
    /* keys in a page, and the numbers that replace a division by it (walk.h) */
    TSR_UINT page_len, page_magic, page_shift;
    TSR_UINT page_count;
};
TSR_PUSH_CHECK(tsr_attention_gather_push);

/* Which of the optional addresses are not 0, as a sum of these bits; a specialization constant. */
#define TSR_GATHER_PAGES 1u
#define TSR_GATHER_Q_LENGTHS 2u
#define TSR_GATHER_KV_LENGTHS 4u

#endif
