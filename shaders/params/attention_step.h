/* Push constants of attention_step.comp: one query of each sequence, and the pages of a cache. */
#ifndef TSR_PARAMS_ATTENTION_STEP_H
#define TSR_PARAMS_ATTENTION_STEP_H

#include "types.h"

struct tsr_attention_step_push {
    TSR_UINT identity[8];   /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    TSR_ADDRESS q, k, v;    /* k and v: the first head of the first page */
    TSR_ADDRESS to;         /* y or, if there are several pages, the results of each page as
                               attention_merge.comp reads them */
    TSR_ADDRESS pages;      /* i32, for each sequence the numbers of its pages */
    TSR_ADDRESS kv_lengths; /* i32 [batch] */
    /* Bytes from one sequence to the next, and from one head to the next. */
    TSR_UINT q_batch, q_head, y_batch, y_head;
    /* Bytes from one page of the cache to the next, from one head to the next, and from one key to
     * the next; and from the pages of one sequence to those of the next. */
    TSR_UINT page_stride, head_stride, row_stride, pages_stride;
    TSR_UINT page_count; /* the number of pages of the cache */
    TSR_UINT window;     /* the query sees at most this many keys */
    TSR_FLOAT scale;
};
TSR_PUSH_CHECK(tsr_attention_step_push);

#endif
