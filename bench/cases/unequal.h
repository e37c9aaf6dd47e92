/* What the files of bench-unequal share. */
#ifndef TSR_BENCH_CASES_UNEQUAL_H
#define TSR_BENCH_CASES_UNEQUAL_H

#include "tessera/tessera.h"

/* The experts that each token uses. */
#define UNEQUAL_USED 8

typedef struct unequal_options {
    int slow;
    const char *factor;
    int64_t rows, inner, columns;
    int64_t experts; /* 0: columns of a product are divided */
    int repeats;
} unequal_options;

typedef struct unequal_job {
    unequal_options given;
    tsr_comm *comm;
    tsr_device *device;
    tsr_stream *stream;
    tsr_group *group;
    int rank, size;
} unequal_job;

/* unequal.c: measures the seconds until this rank has run its part (*alone), and until all ranks
 * have (*together). The fastest repetition counts, because other work on the machine can only
 * increase the time. */
tsr_status unequal_time(unequal_job *j, tsr_status (*run)(unequal_job *j, void *user), void *user,
                        double *alone, double *together);

/* unequal_experts.c: the same for the products of some whole experts. If the experts are divided
 * over the ranks, first compares the sum of all parts with the product of all experts;
 * TSR_ERR_INVALID if they differ. */
tsr_status unequal_time_experts(unequal_job *j, const tsr_shard_range *part, bool is_divided,
                                double *alone, double *together);

#endif
