/* Measures how much time is saved on a slow wire if reductions overlap with computation.
 * All-reduces of the ranks under `tessera launch` take as long as they would on a wire of a chosen
 * speed, one after the other. The linker replaces the communicator's functions by those below
 * (--wrap).
 *
 *     tessera launch --no-prefix -n 2 -- parallel-overlap */
#include <time.h>

#include "parallel/spmd.h"

static double wire_bytes_per_second; /* 0: the real speed */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_until(double when)
{
    for (double left; (left = when - now()) > 0;)
        nanosleep(&(struct timespec){.tv_nsec = left < 0.9 ? (long)(left * 1e9) : 900000000}, NULL);
}

/* The slow network --------------------------------------------------------------------------- */

#define MAX_UNDER_WAY 64
static struct {
    tsr_request *request;
    double due;
} under_way[MAX_UNDER_WAY];
static double wire_free; /* the time at which the wire has sent everything */

tsr_status __real_tsr_comm_all_reduce(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                                      tsr_dtype dtype, tsr_op op, tsr_request **out);
tsr_status __wrap_tsr_comm_all_reduce(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                                      tsr_dtype dtype, tsr_op op, tsr_request **out);
tsr_status __real_tsr_request_test(tsr_request **request, bool *done);
tsr_status __wrap_tsr_request_test(tsr_request **request, bool *done);
tsr_status __real_tsr_request_wait(tsr_request **request);
tsr_status __wrap_tsr_request_wait(tsr_request **request);

tsr_status __wrap_tsr_comm_all_reduce(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                                      tsr_dtype dtype, tsr_op op, tsr_request **out)
{
    tsr_status status = __real_tsr_comm_all_reduce(comm, send, recv, count, dtype, op, out);
    for (int i = 0; out && status == TSR_OK && wire_bytes_per_second > 0 && i < MAX_UNDER_WAY; i++)
        if (!under_way[i].request) {
            wire_free = fmax(wire_free, now()) +
                        (double)(count * tsr_dtype_size(dtype)) / wire_bytes_per_second;
            under_way[i].request = *out;
            under_way[i].due = wire_free;
            break;
        }
    return status;
}

static int place_of(const tsr_request *request)
{
    for (int i = 0; request && i < MAX_UNDER_WAY; i++)
        if (under_way[i].request == request)
            return i;
    return -1;
}

tsr_status __wrap_tsr_request_test(tsr_request **request, bool *done)
{
    int at = place_of(*request);
    if (at >= 0 && now() < under_way[at].due) {
        *done = false;
        return TSR_OK;
    }
    tsr_status status = __real_tsr_request_test(request, done);
    if (at >= 0 && *done)
        under_way[at].request = NULL;
    return status;
}

tsr_status __wrap_tsr_request_wait(tsr_request **request)
{
    int at = place_of(*request);
    if (at >= 0) {
        sleep_until(under_way[at].due);
        under_way[at].request = NULL;
    }
    return __real_tsr_request_wait(request);
}

/* Measuring ---------------------------------------------------------------------------------- */

static const int64_t m = 256, k = 1024, n = 2048;

/* Returns the shortest time of some runs. The time of a run is that of its slowest rank. */
static double seconds(tsr_group *through, int parts)
{
    tsr_layer *layer = NULL;
    const int64_t own = k / ranks;
    OK(tsr_row_linear_create(
        tsr_linear_params(.group = through, .output_size = n, .overlap_parts = parts,
                          .input_size = tsr_group_size(through) == 1 ? own : k, .bias = true),
        &layer));
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){m, own}), *y = NULL;
    OK(tsr_fill(queue, x, 0.5));
    double best = INFINITY;
    for (int run = 0; run < 6; run++) {
        OK(tsr_stream_wait(queue));
        if (world)
            OK(tsr_comm_barrier(world, NULL));
        double start = now();
        OK(tsr_layer_forward(layer, x, NULL, &y));
        OK(tsr_stream_wait(queue));
        double taken = now() - start;
        if (world)
            OK(tsr_comm_all_reduce(world, &taken, &taken, 1, TSR_F64, TSR_OP_MAX, NULL));
        if (run > 0 && taken < best)
            best = taken;
        tsr_tensor_destroy(&y);
    }
    tsr_tensor_destroy(&x);
    tsr_layer_destroy(&layer);
    return best;
}

/* Returns the time of a product and its reduction in several pieces, relative to the time in one
 * piece, on a network on which the reduction takes as long as the product. */
static double measure(tsr_group *alone)
{
    double compute = seconds(alone, 1), fast_wire = seconds(group, 1);
    double fast_wire_parts = seconds(group, 0);
    wire_bytes_per_second = (double)(m * n * 4) / compute;
    double whole = seconds(group, 1), parts = seconds(group, 0);
    wire_bytes_per_second = 0;
    if (my_rank == 0) {
        printf("# [%lld,%lld] times [%lld,%lld] over %d ranks: computing takes %.1f ms\n",
               (long long)m, (long long)k, (long long)n, (long long)k, ranks, compute * 1e3);
        printf("# the wire as it is:       in one piece %.1f ms, in parts %.1f ms\n",
               fast_wire * 1e3, fast_wire_parts * 1e3);
        printf("# a wire as slow as that:  in one piece %.1f ms, in parts %.1f ms (%.0f %%)\n",
               whole * 1e3, parts * 1e3, 100 * parts / whole);
    }
    return parts / whole;
}

CASE(overlap_saves, "on a slow wire, a product in parts takes less time than in one piece")
{
    if (ranks == 1) {
        case_skip("needs two ranks");
        return;
    }
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    /* Other processes on the machine can disturb the measurement, so it is tried a few times. All
     * ranks get the same result. */
    double saved = 1;
    for (int attempt = 0; attempt < 4 && saved > 0.9; attempt++)
        saved = measure(alone);
    CHECK(saved <= 0.9, "parts take %.0f %% of the time of one piece", 100 * saved);
    tsr_group_destroy(&alone);
}
