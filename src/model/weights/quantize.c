#include "model/weights/quantize.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#define MAX_THREADS 64
#define LEAST_ELEMENTS 65536 /* per thread: fewer are not worth starting a thread */

typedef struct part {
    tsr_dtype dtype;
    const float *values;
    int64_t count;
    uint8_t *blocks;
    uint64_t size_bytes;
    pthread_t thread;
    bool runs;
    tsr_status status;
} part;

static void *quantize(void *user)
{
    part *p = user;
    p->status = tsr_quantize(p->dtype, p->values, p->count, p->blocks, p->size_bytes);
    return NULL;
}

static int count_threads(int64_t rows, int64_t columns)
{
    const long there = sysconf(_SC_NPROCESSORS_ONLN);
    const int64_t worth = rows * columns / LEAST_ELEMENTS, most = worth < rows ? worth : rows;
    const int64_t threads = there < most ? there : most;
    return threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : (int)threads;
}

tsr_status tsr__quantize_rows(tsr_dtype dtype, const float *values, int64_t rows, int64_t columns,
                              void *blocks, uint64_t size_bytes)
{
    part parts[MAX_THREADS];
    const int threads = count_threads(rows, columns);
    const uint64_t row_bytes = rows > 0 ? size_bytes / (uint64_t)rows : 0;
    bool failed = false;
    for (int t = 0; t < threads; t++) {
        const int64_t from = rows * t / threads, to = rows * (t + 1) / threads;
        part *p = &parts[t];
        *p = (part){.dtype = dtype,
                    .values = values + from * columns,
                    .count = (to - from) * columns,
                    .blocks = (uint8_t *)blocks + (uint64_t)from * row_bytes,
                    .size_bytes = (uint64_t)(to - from) * row_bytes};
        p->runs = t + 1 < threads && pthread_create(&p->thread, NULL, quantize, p) == 0;
        if (!p->runs)
            quantize(p);
    }
    for (int t = 0; t < threads; t++) {
        if (parts[t].runs)
            pthread_join(parts[t].thread, NULL);
        failed = failed || parts[t].status != TSR_OK;
    }
    /* After a failure, this thread quantises everything again, so that the error text does not
     * depend on the number of threads.
     */
    return failed ? tsr_quantize(dtype, values, rows * columns, blocks, size_bytes) : TSR_OK;
}
