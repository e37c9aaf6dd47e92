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
    int pending;       /* the products that should be pending */
    /* the points at which the last ones are complete, as a ring */
    uint64_t points[BENCH_BUSY_MOST];
    uint64_t count; /* of products recorded so far */
} bench_busy;

/* Creates the stream and the matrices. The caller calls bench_busy_finish in any case. */
bool bench_busy_init(bench_context *context, bench_busy *busy);
void bench_busy_finish(bench_busy *busy);

/* Sets the number of pending products so that they take at least `ns`, but at most the ring's. */
void bench_busy_for(bench_busy *busy, double ns);
/* Records and submits products until that many are pending. Does not wait. */
tsr_status bench_busy_fill(bench_busy *busy);

#endif
