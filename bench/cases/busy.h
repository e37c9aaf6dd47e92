/* Products of matrices that keep a device busy on a stream of their own while something else is
 * measured. Their results are not used. */
#ifndef TSR_BENCH_CASES_BUSY_H
#define TSR_BENCH_CASES_BUSY_H

#include "bench/harness/bench.h"

#define BENCH_BUSY_MOST 16

typedef struct bench_busy {
    tsr_stream *stream;
    tsr_tensor *x, *y;
    double product_ns; /* the time of one product alone */
    int pending;       /* how many products bench_busy_fill keeps in the queue */
    /* a ring: product number i has ended when the stream reaches points[i % BENCH_BUSY_MOST] */
    uint64_t points[BENCH_BUSY_MOST];
    uint64_t count; /* products recorded so far */
} bench_busy;

/* Creates the stream and the matrices. The caller calls bench_busy_finish in any case. */
bool bench_busy_init(bench_context *context, bench_busy *busy);
void bench_busy_finish(bench_busy *busy);

/* Sets `pending`, the number of products to keep in the queue, so that they take at least `ns`
 * together, but to at most BENCH_BUSY_MOST. */
void bench_busy_for(bench_busy *busy, double ns);
/* Records and submits products until `pending` of them have not ended. Does not wait. */
tsr_status bench_busy_fill(bench_busy *busy);

#endif
