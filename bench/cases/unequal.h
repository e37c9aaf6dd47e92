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

/* A division of what is computed. All ranks have the same parts. */
typedef struct unequal_division {
    const char *name;
    const tsr_shard_range *parts; /* of each rank */
    /* Medians: the seconds until this rank has run its part, and until all ranks have. */
    double alone, together;
} unequal_division;

/* unequal.c: runs this rank's parts of the divisions in turns, so that other work on the machine
 * slows all of them down alike, and measures each. `run` gets the index of a division. */
tsr_status unequal_time(unequal_job *j, tsr_status (*run)(unequal_job *j, int division, void *user),
                        void *user, unequal_division *divisions, int count);

/* unequal_experts.c: the same for the products of some whole experts. First compares the sum of all
 * parts of each division but the first one, which gives everything to each rank, with the product
 * of all experts; TSR_ERR_INVALID if they differ. */
tsr_status unequal_time_experts(unequal_job *j, unequal_division *divisions, int count);

/* The largest number of divisions. */
#define UNEQUAL_MOST 3

#endif
