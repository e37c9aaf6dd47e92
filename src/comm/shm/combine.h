/* Combines the contributions of all ranks, in the order that algorithms/tree.h defines. */
#ifndef TSR_COMM_SHM_COMBINE_H
#define TSR_COMM_SHM_COMBINE_H

#include "comm/reduce/reduce.h"

typedef struct tsr__combination {
    tsr__combine_fn combine;
    tsr__divide_fn divide; /* NULL unless the op is AVG */
    tsr_dtype dtype;
    tsr_op op;
    size_t element_bytes;
    int size;   /* number of contributions, at least two */
    bool exact; /* combine as reduce/exact_combine.h does */
} tsr__combination;

/* `out` may be one of the inputs, or must not overlap any of them. */
void tsr__combine_all(const tsr__combination *combination, const void *const *inputs, void *out,
                      size_t count);

#endif
