/* Push constants of the embedding kernel for Mesa's CPU driver. */
#ifndef TSR_PARAMS_EMBEDDING_VECTORS_H
#define TSR_PARAMS_EMBEDDING_VECTORS_H

#include "types.h"

struct tsr_embedding_vectors_push {
    TSR_UINT identity[16];                           /* TSR_IDENTITY_16 */
    TSR_ADDRESS table, indices, y;                   /* their first rows */
    TSR_UINT table_stride, indices_stride, y_stride; /* bytes from one row to the next */
    TSR_UINT rows, vectors;                          /* vectors of 8 bytes in a row */
    TSR_UINT across;       /* blocks in a row; a subgroup copies one block */
    TSR_UINT magic, shift; /* to divide by `across`; see walk.h */
    TSR_UINT first, here;  /* the rows of the complete table that `table` has: `here` rows from
                              number `first` on */
};
TSR_PUSH_CHECK(tsr_embedding_vectors_push);

#endif
