/* All contributions to some elements at once, in the order of pattern/tree.h. */
#ifndef TSR_COMM_SHM_COMBINE_H
#define TSR_COMM_SHM_COMBINE_H

#include "comm/reduce/reduce.h"

typedef struct tsr__combination {
    tsr__combine_fn combine;
    tsr__divide_fn divide; /* NULL: the op is not AVG */
    tsr_dtype dtype;
    tsr_op op;
    size_t element_bytes;
    int size;
    bool exact; /* as reduce/exact.h */
} tsr__combination;

/* inputs[rank], at least two; `out` may be one of them, or overlap none. */
void tsr__combine_all(const tsr__combination *combination, const void *const *inputs, void *out,
                      size_t count);

#endif
