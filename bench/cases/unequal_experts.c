/* The products of a mixture of experts whose experts are divided over ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/cases/unequal.h"

/* A quarter of the width and features of Qwen3-30B-A3B. */
#define WIDTH 512
#define HIDDEN 192
/* The largest error of an element, in relation to the largest element. */
#define TOLERANCE 1e-4

typedef struct experts {
    int64_t tokens, count; /* `count` experts, of which this rank computes some */
    tsr_shard_range part;
    tsr_tensor *x, *weights, *gate, *up, *down, *ids, *order, *offsets, *hidden, *y;
    tsr_tensor *my_gate, *my_up, *my_down; /* of the rank's experts */
} experts;

static tsr_status compute(unequal_job *j, void *user)
{
    const experts *e = user;
    if (e->part.count == 0)
        return TSR_OK;
    tsr_status status = tsr_route_sort(j->stream, e->order, e->offsets, e->ids);
    if (status == TSR_OK)
        status = tsr_matmul_grouped(j->stream, e->hidden, e->x, e->my_gate, e->ids,
                                    tsr_matmul_grouped_params(.up = e->my_up, .order = e->order,
                                                              .offsets = e->offsets,
                                                              .activation = TSR_EXPERT_SWIGLU));
    if (status == TSR_OK)
        status =
            tsr_matmul_grouped(j->stream, e->y, e->hidden, e->my_down, e->ids,
                               tsr_matmul_grouped_params(.weights = e->weights, .order = e->order,
                                                         .offsets = e->offsets));
    return status;
}

/* Each token uses experts at equal distances, from a first one that a linear congruence gives. The
 * numbers count from the rank's first expert; those outside its part are not computed. */
static tsr_status choose(unequal_job *j, const experts *e)
{
    const int64_t pairs = e->tokens * UNEQUAL_USED, step = e->count / UNEQUAL_USED;
    int32_t *ids = calloc((size_t)pairs, sizeof *ids);
    if (!ids)
        return TSR_ERR_NO_MEMORY;
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t first = i / UNEQUAL_USED * 2654435761 % e->count,
                      expert =
                          (first + i % UNEQUAL_USED * step) % e->count - (int64_t)e->part.start;
        ids[i] = expert >= 0 && expert < (int64_t)e->part.count ? (int32_t)expert : -1;
    }
    const tsr_status status =
        tsr_tensor_upload(j->stream, e->ids, ids, (uint64_t)pairs * sizeof *ids);
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

/* Takes the rank's part of the experts: views of the tensors with all of them. */
static tsr_status take_part(unequal_job *j, const tsr_shard_range *part, experts *e)
{
    const int64_t first = (int64_t)part->start, end = first + (int64_t)part->count,
                  offsets[] = {(int64_t)part->count + 1};
    tsr_tensor *const from[] = {e->gate, e->up, e->down};
    tsr_tensor **const to[] = {&e->my_gate, &e->my_up, &e->my_down};
    tsr_status status = TSR_OK;
    e->part = *part;
    tsr_tensor_destroy(&e->offsets);
    for (int i = 0; i < 3 && status == TSR_OK; i++) {
        tsr_tensor_destroy(to[i]);
        status = tsr_tensor_slice(from[i], 0, first, end, 1, to[i]);
    }
    if (status == TSR_OK)
        status = tsr_tensor_create(j->device, TSR_I32, 1, offsets, &e->offsets);
    return status == TSR_OK ? choose(j, e) : status;
}

static tsr_status create(unequal_job *j, experts *e)
{
    const int64_t n = e->tokens, rows[] = {n, WIDTH}, in[] = {e->count, HIDDEN, WIDTH},
                  out[] = {e->count, WIDTH, HIDDEN}, hidden[] = {n, UNEQUAL_USED, HIDDEN},
                  ids[] = {n, UNEQUAL_USED}, order[] = {n * UNEQUAL_USED};
    tsr_status status = create_random(j, 2, rows, 1, 1, &e->x);
    if (status == TSR_OK)
        status = create_random(j, 2, ids, 2, 1, &e->weights);
    if (status == TSR_OK)
        status = create_random(j, 3, in, 3, 1 / sqrtf(WIDTH), &e->gate);
    if (status == TSR_OK)
        status = create_random(j, 3, in, 4, 1 / sqrtf(WIDTH), &e->up);
    if (status == TSR_OK)
        status = create_random(j, 3, out, 5, 1 / sqrtf(HIDDEN), &e->down);
    if (status == TSR_OK)
        status = tsr_tensor_create(j->device, TSR_I32, 2, ids, &e->ids);
    if (status == TSR_OK)
        status = tsr_tensor_create(j->device, TSR_I32, 1, order, &e->order);
    if (status == TSR_OK)
        status = tsr_tensor_create(j->device, TSR_F32, 3, hidden, &e->hidden);
    return status == TSR_OK ? tsr_tensor_create(j->device, TSR_F32, 2, rows, &e->y) : status;
}

/* Computes y of the rank's experts, or zeros if it has none. */
static tsr_status compute_once(unequal_job *j, experts *e, float *y, uint64_t count)
{
    if (e->part.count == 0)
        return TSR_OK; /* `y` is 0 */
    const tsr_status status = compute(j, e);
    return status == TSR_OK ? tsr_tensor_download(j->stream, e->y, y, count * sizeof *y) : status;
}

/* Compares the sum of all ranks' parts with the product of all experts. */
static tsr_status check(unequal_job *j, experts *e, const tsr_shard_range *part)
{
    const tsr_shard_range everything = {.count = (uint64_t)e->count};
    const uint64_t count = (uint64_t)e->tokens * WIDTH;
    float *sum = calloc(count, sizeof *sum), *whole = calloc(count, sizeof *whole);
    double largest = 0, error = 0;
    tsr_status status = sum && whole ? take_part(j, &everything, e) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = compute_once(j, e, whole, count);
    if (status == TSR_OK)
        status = take_part(j, part, e);
    if (status == TSR_OK)
        status = compute_once(j, e, sum, count);
    if (status == TSR_OK)
        status = tsr_comm_all_reduce(j->comm, sum, sum, count, TSR_F32, TSR_OP_SUM, NULL);
    for (uint64_t i = 0; i < count && status == TSR_OK; i++) {
        largest = fmax(largest, fabs((double)whole[i]));
        error = fmax(error, fabs((double)sum[i] - (double)whole[i]));
    }
    free(sum);
    free(whole);
    if (status == TSR_OK && !(largest > 0 && error <= TOLERANCE * largest)) {
        fprintf(stderr,
                "bench-unequal: the ranks' parts add up to elements that differ by %g, "
                "where the largest is %g\n",
                error, largest);
        status = TSR_ERR_INVALID;
    }
    return status;
}

tsr_status unequal_time_experts(unequal_job *j, const tsr_shard_range *part, bool is_divided,
                                double *alone, double *together)
{
    experts e = {.tokens = j->given.rows, .count = j->given.experts};
    tsr_status status = create(j, &e);
    if (status == TSR_OK)
        status = is_divided ? check(j, &e, part) : take_part(j, part, &e);
    if (status == TSR_OK)
        status = unequal_time(j, compute, &e, alone, together);
    tsr_tensor **const all[] = {&e.x,       &e.weights, &e.gate,    &e.up,     &e.down,
                                &e.ids,     &e.order,   &e.offsets, &e.hidden, &e.y,
                                &e.my_gate, &e.my_up,   &e.my_down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(all[i]);
    return status;
}
