/* Measures how fast each rank multiplies matrices. */
#include "tessera/calibrate.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "parallel/group/group.h"
#include "tessera/matmul.h"
#include "tessera/ops.h"

#define DURATION_NS UINT64_C(200000000)

static const char who[] = "calibrate";

typedef struct bench {
    tsr_calibrate_params params;
    tsr_stream *stream;
    tsr_tensor *x, *w, *y;
} bench;

static tsr_status fill_params(const tsr_calibrate_params *given, bench *b)
{
    b->params = *given;
    tsr_calibrate_params *p = &b->params;
    p->rows = p->rows ? p->rows : 256;
    p->inner = p->inner ? p->inner : 1024;
    p->columns = p->columns ? p->columns : 1024;
    p->dtype = p->dtype ? p->dtype : TSR_F32;
    p->duration_ns = p->duration_ns ? p->duration_ns : DURATION_NS;
    TSR__REQUIRE(p->rows > 0 && p->inner > 0 && p->columns > 0,
                 "%s: the product is %lld × %lld × %lld; all sizes must be positive", who,
                 (long long)p->rows, (long long)p->inner, (long long)p->columns);
    TSR__REQUIRE(p->dtype == TSR_F32 || p->dtype == TSR_F16 || p->dtype == TSR_BF16,
                 "%s: dtype is %s; f32, f16 or bf16 is needed", who, tsr_dtype_name(p->dtype));
    return TSR_OK;
}

static tsr_status create_operands(bench *b)
{
    tsr_device *device = tsr_stream_device(b->stream);
    const tsr_calibrate_params *p = &b->params;
    TSR__TRY(tsr_tensor_create(device, p->dtype, 2, (int64_t[]){p->rows, p->inner}, &b->x));
    TSR__TRY(tsr_tensor_create(device, p->dtype, 2, (int64_t[]){p->columns, p->inner}, &b->w));
    TSR__TRY(tsr_tensor_create(device, p->dtype, 2, (int64_t[]){p->rows, p->columns}, &b->y));
    TSR__TRY(tsr_random_uniform(b->stream, b->x, -1, 1, tsr_random_params(.seed = 1)));
    return tsr_random_uniform(b->stream, b->w, -1, 1, tsr_random_params(.seed = 2));
}

static tsr_status time_product(bench *b, double *seconds)
{
    const uint64_t start = tsr__now_ns();
    TSR__TRY(tsr_matmul(b->stream, b->y, b->x, b->w, tsr_matmul_params(.transpose_b = true)));
    TSR__TRY(tsr_stream_wait(b->stream));
    *seconds = (double)(tsr__now_ns() - start) * 1e-9;
    return TSR_OK;
}

/* Measures products until the duration has passed, at least three of them, and returns the shortest
 * time. Other load on the machine can only make a product slower, so the shortest time is the best
 * estimate. */
static tsr_status time_shortest_product(bench *b, double *seconds)
{
    double best = INFINITY, once;
    const uint64_t start = tsr__now_ns();
    for (int i = 0; i < 3 || tsr__now_ns() - start < b->params.duration_ns; i++) {
        TSR__TRY(time_product(b, &once));
        best = once < best ? once : best;
    }
    *seconds = best;
    return TSR_OK;
}

/* Multiplies a few times before the measurement. This builds the pipelines and lets the clocks of
 * the device rise. */
static tsr_status warm_up(bench *b)
{
    double unused;
    TSR__TRY(create_operands(b));
    for (int i = 0; i < 3; i++)
        TSR__TRY(time_product(b, &unused));
    return TSR_OK;
}

static tsr_status calibrate_ranks(tsr_group *group, bench *b, double *all, double *rates)
{
    tsr_comm *comm = tsr_group_comm(group);
    double seconds = 1;
    tsr_status status = warm_up(b);
    /* All ranks measure at the same time, because later they will also use shared hardware at the
     * same time. */
    if (comm)
        TSR__TRY(tsr_comm_barrier(comm, NULL));
    if (status == TSR_OK)
        status = time_shortest_product(b, &seconds);
    /* A rank that has failed takes part in the exchange too, because the others would wait for it
     * otherwise. */
    const double work =
        2.0 * (double)b->params.rows * (double)b->params.inner * (double)b->params.columns;
    const double rate = status == TSR_OK ? work / seconds : -1;
    if (comm)
        TSR__TRY(tsr_comm_all_gather(comm, &rate, all, 1, TSR_F64, NULL));
    else
        all[0] = rate;
    TSR__TRY(status);
    for (int r = 0; r < tsr_group_size(group); r++)
        if (all[r] < 0)
            return tsr__fail(TSR_ERR_DRIVER, "%s: the measurement failed on rank %d", who, r);
    memcpy(rates, all, (size_t)tsr_group_size(group) * sizeof *rates);
    return TSR_OK;
}

tsr_status tsr_calibrate(tsr_group *group, const tsr_calibrate_params *params, double *rates)
{
    bench b = {0};
    TSR__REQUIRE(group && rates, "%s: %s is NULL", who, group ? "rates" : "group");
    TSR__TAKE(tsr_calibrate_params, params);
    TSR__TRY(tsr__group_check(group));
    TSR__TRY(fill_params(params, &b));
    b.stream = tsr_group_stream(group);
    double *all = tsr__calloc((size_t)tsr_group_size(group), sizeof *all);
    if (!all)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = calibrate_ranks(group, &b, all, rates);
    tsr_tensor_destroy(&b.x);
    tsr_tensor_destroy(&b.w);
    tsr_tensor_destroy(&b.y);
    tsr__free(all);
    return status;
}
