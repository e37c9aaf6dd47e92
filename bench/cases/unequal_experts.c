/* The products of a mixture of experts whose experts are divided over ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cases/unequal.h"

/* The largest error of an element, in relation to the largest element. */
#define TOLERANCE 1e-4

/* The tensors of this rank's part of the experts in a division. */
typedef struct part {
    tsr_shard_range range;
    tsr_tensor *gate, *up, *down, *ids, *offsets;
} part;

typedef struct experts {
    int64_t tokens, width, features, count;
    tsr_tensor *x, *weights, *gate, *up, *down, *order, *hidden, *y;
    part parts[UNEQUAL_MOST];
} experts;

static tsr_status compute(unequal_job *j, int division, void *user)
{
    const experts *e = user;
    const part *p = &e->parts[division];
    if (p->range.count == 0)
        return TSR_OK;
    tsr_status status = tsr_route_sort(j->stream, e->order, p->offsets, p->ids);
    if (status == TSR_OK)
        status = tsr_matmul_grouped(
            j->stream, e->hidden, e->x, p->gate, p->ids,
            tsr_matmul_grouped_params(.up = p->up, .order = e->order, .offsets = p->offsets,
                                      .all_experts = e->count, .activation = TSR_EXPERT_SWIGLU));
    if (status == TSR_OK)
        status = tsr_matmul_grouped(
            j->stream, e->y, e->hidden, p->down, p->ids,
            tsr_matmul_grouped_params(.weights = e->weights, .order = e->order,
                                      .offsets = p->offsets, .all_experts = e->count));
    return status;
}

/* Each token uses experts at equal distances, from a first one that a linear congruence gives. The
 * numbers count from the part's first expert; those outside it are not computed. */
static tsr_status choose(unequal_job *j, const experts *e, const part *p)
{
    const int64_t pairs = e->tokens * UNEQUAL_USED, step = e->count / UNEQUAL_USED;
    int32_t *ids = calloc((size_t)pairs, sizeof *ids);
    if (!ids)
        return TSR_ERR_NO_MEMORY;
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t first = i / UNEQUAL_USED * 2654435761 % e->count,
                      expert =
                          (first + i % UNEQUAL_USED * step) % e->count - (int64_t)p->range.start;
        ids[i] = expert >= 0 && expert < (int64_t)p->range.count ? (int32_t)expert : -1;
    }
    const tsr_status status =
        tsr_tensor_upload(j->stream, p->ids, ids, (uint64_t)pairs * sizeof *ids);
    free(ids);
    return status;
}

static tsr_status create_random(unequal_job *j, int ndim, const int64_t *shape, uint64_t seed,
                                float deviation, tsr_tensor **out)
{
    const tsr_status status = tsr_tensor_create(j->device, TSR_F32, ndim, shape, out);
    return status == TSR_OK
               ? tsr_random_normal(j->stream, *out, 0, deviation, tsr_random_params(.seed = seed))
               : status;
}

/* Takes a part of the experts: views of the tensors with all of them. */
static tsr_status take_part(unequal_job *j, const experts *e, const tsr_shard_range *range, part *p)
{
    const int64_t first = (int64_t)range->start, end = first + (int64_t)range->count;
    p->range = *range;
    tsr_status status = tsr_tensor_slice(e->gate, 0, first, end, 1, &p->gate);
    if (status == TSR_OK)
        status = tsr_tensor_slice(e->up, 0, first, end, 1, &p->up);
    if (status == TSR_OK)
        status = tsr_tensor_slice(e->down, 0, first, end, 1, &p->down);
    if (status == TSR_OK)
        status = tsr_tensor_create(j->device, TSR_I32, 1, (int64_t[]){(int64_t)range->count + 1},
                                   &p->offsets);
    if (status == TSR_OK)
        status =
            tsr_tensor_create(j->device, TSR_I32, 2, (int64_t[]){e->tokens, UNEQUAL_USED}, &p->ids);
    return status == TSR_OK ? choose(j, e, p) : status;
}

static tsr_status create(unequal_job *j, experts *e)
{
    const int64_t n = e->tokens, rows[] = {n, e->width}, in[] = {e->count, e->features, e->width},
                  out[] = {e->count, e->width, e->features},
                  hidden[] = {n, UNEQUAL_USED, e->features}, pairs[] = {n, UNEQUAL_USED},
                  order[] = {n * UNEQUAL_USED};
    const float deviation = 1 / sqrtf((float)e->width);
    tsr_status status = create_random(j, 2, rows, 1, 1, &e->x);
    if (status == TSR_OK)
        status = create_random(j, 2, pairs, 2, 1, &e->weights);
    if (status == TSR_OK)
        status = create_random(j, 3, in, 3, deviation, &e->gate);
    if (status == TSR_OK)
        status = create_random(j, 3, in, 4, deviation, &e->up);
    if (status == TSR_OK)
        status = create_random(j, 3, out, 5, 1 / sqrtf((float)e->features), &e->down);
    if (status == TSR_OK)
        status = tsr_tensor_create(j->device, TSR_I32, 1, order, &e->order);
    if (status == TSR_OK)
        status = tsr_tensor_create(j->device, TSR_F32, 3, hidden, &e->hidden);
    return status == TSR_OK ? tsr_tensor_create(j->device, TSR_F32, 2, rows, &e->y) : status;
}

static void destroy(experts *e)
{
    for (int d = 0; d < UNEQUAL_MOST; d++) {
        part *p = &e->parts[d];
        tsr_tensor **const all[] = {&p->gate, &p->up, &p->down, &p->ids, &p->offsets};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            tsr_tensor_destroy(all[i]);
    }
    tsr_tensor **const all[] = {&e->x,    &e->weights, &e->gate,   &e->up,
                                &e->down, &e->order,   &e->hidden, &e->y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(all[i]);
}

/* Computes y of the part of a division, or zeros if it has no experts. */
static tsr_status compute_once(unequal_job *j, experts *e, int division, float *y, uint64_t count)
{
    memset(y, 0, count * sizeof *y);
    if (e->parts[division].range.count == 0)
        return TSR_OK;
    const tsr_status status = compute(j, division, e);
    return status == TSR_OK ? tsr_tensor_download(j->stream, e->y, y, count * sizeof *y) : status;
}

/* Compares the sum of all ranks' parts with the product of all experts, `whole`. */
static tsr_status check(unequal_job *j, experts *e, int division, const float *whole, float *sum,
                        uint64_t count)
{
    double largest = 0, error = 0;
    tsr_status status = compute_once(j, e, division, sum, count);
    if (status == TSR_OK)
        status = tsr_comm_all_reduce(j->comm, sum, sum, count, TSR_F32, TSR_OP_SUM, NULL);
    for (uint64_t i = 0; i < count && status == TSR_OK; i++) {
        largest = fmax(largest, fabs((double)whole[i]));
        error = fmax(error, fabs((double)sum[i] - (double)whole[i]));
    }
    if (status == TSR_OK && !(largest > 0 && error <= TOLERANCE * largest)) {
        fprintf(stderr,
                "bench-unequal: the ranks' parts add up to elements that differ by %g, "
                "where the largest is %g\n",
                error, largest);
        status = TSR_ERR_INVALID;
    }
    return status;
}

tsr_status unequal_time_experts(unequal_job *j, unequal_division *divisions, int count)
{
    experts e = {.tokens = j->given.rows,
                 .width = j->given.inner,
                 .features = j->given.columns,
                 .count = j->given.experts};
    const uint64_t elements = (uint64_t)e.tokens * (uint64_t)e.width;
    float *whole = calloc(elements, sizeof *whole), *sum = calloc(elements, sizeof *sum);
    tsr_status status = whole && sum ? create(j, &e) : TSR_ERR_NO_MEMORY;
    for (int d = 0; d < count && status == TSR_OK; d++)
        status = take_part(j, &e, &divisions[d].parts[j->rank], &e.parts[d]);
    if (status == TSR_OK)
        status = compute_once(j, &e, 0, whole, elements);
    for (int d = 1; d < count && status == TSR_OK; d++)
        status = check(j, &e, d, whole, sum, elements);
    if (status == TSR_OK)
        status = unequal_time(j, compute, &e, divisions, count);
    destroy(&e);
    free(sum);
    free(whole);
    return status;
}
