/* Measures a job whose ranks have different speeds: how much faster a layer is if it is divided by
 * measured rates instead of evenly.
 *
 *     LP_NUM_THREADS=1 tessera launch -n 2 -- bench-unequal --slow 1 --factor 3
 *
 * The rank that --slow names is slowed down on purpose by --factor (TESSERA_SLOWDOWN). Each rank
 * computes its part of y = x · wᵀ. The columns are divided evenly, and then by the rates that a
 * calibration has measured. A product is complete when the last rank has its part. The output is
 * the number of products per second, also in per cent of the summed rate. The summed rate is the
 * sum of the rates of all ranks if each computes complete products and none waits for another.
 *
 *     LP_NUM_THREADS=1 tessera launch -n 2 -- bench-unequal --slow 1 --factor 3 --experts 32
 *
 * With --experts, a product is that of a mixture of experts, of which each token uses 8: a rank has
 * whole experts and computes those that tokens choose (unequal_experts.c). The sum of all ranks'
 * parts is first compared with the product of one rank. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/cases/unequal.h"

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

tsr_status unequal_time(unequal_job *j, tsr_status (*run)(unequal_job *j, void *user), void *user,
                        double *alone, double *together)
{
    double mine = INFINITY, all = INFINITY;
    tsr_status status = TSR_OK;
    for (int i = -2; i < j->given.repeats && status == TSR_OK; i++) { /* two repetitions warm up */
        status = tsr_comm_barrier(j->comm, NULL);
        const double start = now();
        if (status == TSR_OK)
            status = run(j, user);
        if (status == TSR_OK)
            status = tsr_stream_wait(j->stream);
        mine = i < 0 ? mine : fmin(mine, now() - start);
        if (status == TSR_OK)
            status = tsr_comm_barrier(j->comm, NULL);
        all = i < 0 ? all : fmin(all, now() - start);
    }
    *alone = mine;
    *together = all;
    return status;
}

/* x, w and y of a product of some columns. */
typedef struct product {
    tsr_tensor *x, *w, *y;
    int64_t columns;
} product;

static tsr_status multiply(unequal_job *j, void *user)
{
    const product *p = user;
    return p->columns > 0
               ? tsr_matmul(j->stream, p->y, p->x, p->w, tsr_matmul_params(.transpose_b = true))
               : TSR_OK;
}

/* Times this rank's part of the columns. */
static tsr_status time_columns(unequal_job *j, const tsr_shard_range *part, double *alone,
                               double *together)
{
    product p = {.columns = (int64_t)part->count};
    tsr_status status =
        tsr_tensor_create(j->device, TSR_F32, 2, (int64_t[]){j->given.rows, j->given.inner}, &p.x);
    if (status == TSR_OK)
        status =
            tsr_tensor_create(j->device, TSR_F32, 2, (int64_t[]){p.columns, j->given.inner}, &p.w);
    if (status == TSR_OK)
        status =
            tsr_tensor_create(j->device, TSR_F32, 2, (int64_t[]){j->given.rows, p.columns}, &p.y);
    if (status == TSR_OK)
        status = tsr_random_normal(j->stream, p.x, 0, 1, tsr_random_params(.seed = 1));
    if (status == TSR_OK)
        status = tsr_random_normal(j->stream, p.w, 0, 1, tsr_random_params(.seed = 2));
    if (status == TSR_OK)
        status = unequal_time(j, multiply, &p, alone, together);
    tsr_tensor_destroy(&p.y);
    tsr_tensor_destroy(&p.w);
    tsr_tensor_destroy(&p.x);
    return status;
}

/* Returns what is divided: experts or columns. */
static int64_t total_of(const unequal_job *j)
{
    return j->given.experts > 0 ? j->given.experts : j->given.columns;
}

/* `is_divided`: the ranks have different parts, of which one may be everything. */
static tsr_status time_part(unequal_job *j, const tsr_shard_range *part, bool is_divided,
                            double *alone, double *together)
{
    return j->given.experts > 0 ? unequal_time_experts(j, part, is_divided, alone, together)
                                : time_columns(j, part, alone, together);
}

static tsr_status measure_unequal_ranks(unequal_job *j, const char *name,
                                        const tsr_partition_params *partition, double summed,
                                        const double *rates)
{
    tsr_shard_range *ranges = calloc((size_t)j->size, sizeof *ranges);
    double alone, together;
    tsr_status status = ranges ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr_partition((uint64_t)total_of(j), j->size, partition, ranges);
    if (status == TSR_OK)
        status = time_part(j, &ranges[j->rank], true, &alone, &together);
    if (status == TSR_OK && j->rank == 0) {
        printf("%-9s %7.2f products/s, %5.1f %% of the summed rate (by arithmetic %5.1f %%); "
               "%s",
               name, 1 / together, 100 / together / summed,
               100 * tsr_partition_efficiency(j->size, ranges, rates),
               j->given.experts > 0 ? "experts" : "columns");
        for (int r = 0; r < j->size; r++)
            printf(" %llu", (unsigned long long)ranges[r].count);
        printf("\n");
    }
    free(ranges);
    return status;
}

static tsr_status run_unequal_ranks(unequal_job *j)
{
    double *rates = calloc((size_t)j->size, sizeof *rates), *each = calloc((size_t)j->size, 8);
    double alone = 1, together, summed = 0;
    tsr_status status = rates && each ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr_calibrate(j->group,
                               tsr_calibrate_params(.rows = j->given.rows, .inner = j->given.inner,
                                                    .columns = j->given.columns / j->size,
                                                    .duration_ns = 1000000000),
                               rates);
    /* Measure the rate of each rank when all ranks compute complete products at the same time. */
    const tsr_shard_range everything = {.count = (uint64_t)total_of(j)};
    if (status == TSR_OK)
        status = time_part(j, &everything, false, &alone, &together);
    const double rate = 1 / alone;
    if (status == TSR_OK)
        status = tsr_comm_all_gather(j->comm, &rate, each, 1, TSR_F64, NULL);
    for (int r = 0; r < j->size && status == TSR_OK; r++) {
        summed += each[r];
        if (j->rank == 0)
            printf("rank %d    %7.2f products/s by itself; calibrated %.2f GFLOP/s\n", r, each[r],
                   rates[r] * 1e-9);
    }
    /* Calibration multiplies dense matrices. Experts are divided by the rates of their own
     * products, as those that `tessera bench rates --experts` measures. */
    for (int r = 0; r < j->size && status == TSR_OK && j->given.experts > 0; r++)
        rates[r] = each[r];
    if (status == TSR_OK)
        status = measure_unequal_ranks(
            j, "even", tsr_partition_params(.kind = TSR_PARTITION_UNEVEN), summed, rates);
    if (status == TSR_OK)
        status = measure_unequal_ranks(j, "weighted",
                                       tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED,
                                                            .rates = rates,
                                                            .align = j->given.experts > 0 ? 0 : 16),
                                       summed, rates);
    free(each);
    free(rates);
    return status;
}

static int usage(void)
{
    fprintf(stderr, "usage: bench-unequal [--slow RANK] [--factor N] [--rows N] [--inner N] "
                    "[--columns N] [--experts N] [--repeats N]\n");
    return 2;
}

/* Parses all of `text` as a number within the limits. */
static bool read_number(const char *text, long low, long high, long *out)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < low || number > high)
        return false;
    *out = number;
    return true;
}

static int parse(int argc, char **argv, unequal_options *out)
{
    const long largest = 1L << 24;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        char *end;
        long number;
        if (strcmp(argv[i], "--factor") == 0 && strtod(value, &end) >= 1 && *end == '\0')
            out->factor = value;
        else if (strcmp(argv[i], "--slow") == 0 && read_number(value, 0, INT_MAX, &number))
            out->slow = (int)number;
        else if (strcmp(argv[i], "--rows") == 0 && read_number(value, 1, largest, &number))
            out->rows = number;
        else if (strcmp(argv[i], "--inner") == 0 && read_number(value, 1, largest, &number))
            out->inner = number;
        else if (strcmp(argv[i], "--columns") == 0 && read_number(value, 1, largest, &number))
            out->columns = number;
        else if (strcmp(argv[i], "--experts") == 0 &&
                 read_number(value, UNEQUAL_USED, TSR_MAX_EXPERTS, &number))
            out->experts = number;
        else if (strcmp(argv[i], "--repeats") == 0 && read_number(value, 1, 100000, &number))
            out->repeats = (int)number;
        else
            return usage();
    }
    return 0;
}

int main(int argc, char **argv)
{
    unequal_job j = {
        .given = {
            .slow = 1, .factor = "3", .rows = 64, .inner = 1024, .columns = 4096, .repeats = 100}};
    if (parse(argc, argv, &j.given) != 0)
        return 2;
    tsr_status status = tsr_comm_create(NULL, &j.comm);
    if (status == TSR_OK) {
        j.rank = tsr_comm_rank(j.comm);
        j.size = tsr_comm_size(j.comm);
        if (j.given.slow >= j.size) {
            fprintf(stderr, "bench-unequal: --slow %d: there are ranks 0 to %d\n", j.given.slow,
                    j.size - 1);
            tsr_comm_destroy(&j.comm);
            return 2;
        }
        if (j.rank == j.given.slow)
            setenv("TESSERA_SLOWDOWN", j.given.factor, 1);
        status = tsr_device_open(NULL, &j.device);
    }
    if (status == TSR_OK)
        status = tsr_stream_create(j.device, &j.stream);
    if (status == TSR_OK)
        status = tsr_group_create(j.comm, j.stream, NULL, &j.group);
    if (status == TSR_OK)
        status = run_unequal_ranks(&j);
    if (status != TSR_OK)
        fprintf(stderr, "bench-unequal: %s\n", tsr_last_error());
    tsr_group_destroy(&j.group);
    tsr_stream_destroy(&j.stream);
    tsr_device_close(&j.device);
    tsr_comm_destroy(&j.comm);
    const bool told = fflush(stdout) == 0 && !ferror(stdout);
    if (!told)
        fprintf(stderr, "bench-unequal: cannot write to standard output: %s\n", strerror(errno));
    return status == TSR_OK && told ? EXIT_SUCCESS : EXIT_FAILURE;
}
