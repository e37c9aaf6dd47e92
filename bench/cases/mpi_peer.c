/* Makes the measurements of collective_measure.c with MPI, for comparison. Usage: mpirun -n RANKS
 * mpi_peer KIND SECONDS BYTES…, with ascending sizes. It prints numbers for collective.c. */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cases/collective.h"
#include "bench/harness/clock.h"

static collective_kind kind;
static int rank, ranks;
static float *send, *recv;
#define MAX_RANKS 16 /* the largest value of the option --ranks of tessera bench */

static int counts[MAX_RANKS];
static uint64_t count;

static void call(void)
{
    const int each = (int)(count / (uint64_t)ranks);
    switch (kind) {
    case COLLECTIVE_ALL_GATHER:
        MPI_Allgather(send, each, MPI_FLOAT, recv, each, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        MPI_Reduce_scatter(send, recv, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    default:
        MPI_Allreduce(send, recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
}

static bool is_right(void)
{
    const uint64_t each = count / (uint64_t)ranks;
    const uint64_t elements = kind == COLLECTIVE_REDUCE_SCATTER ? each : count;
    bool right = true;
    for (uint64_t i = 0; i < elements; i++)
        right = right && recv[i] == (kind == COLLECTIVE_ALL_GATHER
                                         ? collective_value((int)(i / each), i % each)
                                         : collective_sum(ranks, kind == COLLECTIVE_REDUCE_SCATTER
                                                                     ? each * (uint64_t)rank + i
                                                                     : i));
    memset(recv, 0xff, elements * sizeof *recv);
    return right;
}

static double time_batch(uint64_t batch)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = bench_now_ns();
    for (uint64_t i = 0; i < batch; i++)
        call();
    return (bench_now_ns() - start) / (double)batch;
}

/* As in collective_measure.c, rank 0 chooses how many samples all ranks take, and how many calls a
 * sample has. */
static collective_effort decide(double seconds)
{
    collective_effort effort = {.batch = 1, .samples = 1};
    double least = 1e300;
    int more = 1;
    for (double spent = 0; more;) {
        const double call_ns = time_batch(effort.batch);
        spent += call_ns * (double)effort.batch;
        least = call_ns < least ? call_ns : least;
        effort = collective_plan(least, seconds);
        more = spent < seconds * 0.1 * 1e9;
        MPI_Bcast(&effort, (int)sizeof effort, MPI_BYTE, 0, MPI_COMM_WORLD);
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    return effort;
}

static bool measure_mpi(uint64_t bytes, double seconds)
{
    static double mine[COLLECTIVE_MAX_SAMPLES], slowest[COLLECTIVE_MAX_SAMPLES];
    const uint64_t sent = kind == COLLECTIVE_ALL_GATHER ? count / (uint64_t)ranks : count;
    for (uint64_t i = 0; i < sent; i++)
        send[i] = collective_value(rank, i);
    for (int i = 0; i < ranks; i++)
        counts[i] = (int)(count / (uint64_t)ranks);
    call();
    bool right = is_right();
    const collective_effort effort = decide(seconds);
    for (int i = 0; i < effort.samples; i++)
        mine[i] = time_batch(effort.batch);
    right = is_right() && right;
    MPI_Reduce(mine, slowest, effort.samples, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("size %llu %llu", (unsigned long long)bytes, (unsigned long long)effort.batch);
        for (int i = 0; i < effort.samples; i++)
            printf(" %.1f", slowest[i]);
        printf("\n");
    }
    return right;
}

int main(int argc, char **argv)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, right = 1, all_right = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < COLLECTIVE_KINDS && argc > 1; i++)
        kind = strcmp(argv[1], collective_names[i]) == 0 ? (collective_kind)i : kind;
    const double seconds = argc > 2 ? strtod(argv[2], NULL) : 1;
    const uint64_t most = argc > 3 ? strtoull(argv[argc - 1], NULL, 10) : 0;
    send = malloc(most);
    recv = malloc(most);
    if (!most || !send || !recv || ranks > MAX_RANKS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    if (rank == 0)
        printf("version %s\n", version);
    for (int i = 3; i < argc; i++) {
        const uint64_t bytes = strtoull(argv[i], NULL, 10);
        count = collective_elements(kind, ranks, bytes);
        if (count > 0)
            right = measure_mpi(bytes, seconds) && right;
    }
    MPI_Reduce(&right, &all_right, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf(all_right ? "done\n" : "its results are wrong\n");
    free(send);
    free(recv);
    MPI_Finalize();
    return 0;
}
