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
 * With --experts, a product is that of a mixture of experts of --inner features, with --columns
 * hidden ones, of which each token uses 8: a rank has whole experts and computes those that tokens
 * choose (unequal_experts.c). The sum of all ranks' parts is first compared with the product of one
 * rank. */
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

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

/* Runs a division once: sets *alone to the seconds of this rank, and *together to those of all. */
static tsr_status time_once(unequal_job *j,
                            tsr_status (*run)(unequal_job *j, int division, void *user), void *user,
                            int division, double *alone, double *together)
{
    tsr_status status = tsr_comm_barrier(j->comm, NULL);
    const double start = now();
    if (status == TSR_OK)
        status = run(j, division, user);
    if (status == TSR_OK)
        status = tsr_stream_wait(j->stream);
    *alone = now() - start;
    if (status == TSR_OK)
        status = tsr_comm_barrier(j->comm, NULL);
    *together = now() - start;
    return status;
}

tsr_status unequal_time(unequal_job *j, tsr_status (*run)(unequal_job *j, int division, void *user),
                        void *user, unequal_division *divisions, int count)
{
    const int repeats = j->given.repeats;
    const size_t all = (size_t)count * (size_t)repeats;
    double *alone = calloc(all, sizeof *alone), *together = calloc(all, sizeof *together);
    tsr_status status = alone && together ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int i = -2; i < repeats; i++) { /* two repetitions warm up */
        for (int d = 0; d < count && status == TSR_OK; d++) {
            const int sample = d * repeats + (i < 0 ? 0 : i);
            status = time_once(j, run, user, d, &alone[sample], &together[sample]);
        }
    }
    for (int d = 0; d < count && status == TSR_OK; d++) {
        const size_t first = (size_t)d * (size_t)repeats;
        divisions[d].alone = median(alone + first, repeats);
        divisions[d].together = median(together + first, repeats);
    }
    free(together);
    free(alone);
    return status;
}

/* x, w and y of a product of some columns. */
typedef struct product {
    tsr_tensor *x, *w, *y;
    int64_t columns;
} product;

static tsr_status multiply(unequal_job *j, int division, void *user)
{
    const product *p = (const product *)user + division;
    return p->columns > 0
               ? tsr_matmul(j->stream, p->y, p->x, p->w, tsr_matmul_params(.transpose_b = true))
               : TSR_OK;
}

static tsr_status create_product(unequal_job *j, product *p)
{
    tsr_status status =
        tsr_tensor_create(j->device, TSR_F32, 2, (int64_t[]){j->given.rows, j->given.inner}, &p->x);
    if (status == TSR_OK)
        status = tsr_tensor_create(j->device, TSR_F32, 2, (int64_t[]){p->columns, j->given.inner},
                                   &p->w);
    if (status == TSR_OK)
        status =
            tsr_tensor_create(j->device, TSR_F32, 2, (int64_t[]){j->given.rows, p->columns}, &p->y);
    if (status == TSR_OK)
        status = tsr_random_normal(j->stream, p->x, 0, 1, tsr_random_params(.seed = 1));
    if (status == TSR_OK)
        status = tsr_random_normal(j->stream, p->w, 0, 1, tsr_random_params(.seed = 2));
    return status;
}

static tsr_status time_columns(unequal_job *j, unequal_division *divisions, int count)
{
    product products[UNEQUAL_MOST] = {0};
    tsr_status status = TSR_OK;
    for (int d = 0; d < count && status == TSR_OK; d++) {
        products[d].columns = (int64_t)divisions[d].parts[j->rank].count;
        status = create_product(j, &products[d]);
    }
    if (status == TSR_OK)
        status = unequal_time(j, multiply, products, divisions, count);
    for (int d = 0; d < count; d++) {
        tsr_tensor_destroy(&products[d].y);
        tsr_tensor_destroy(&products[d].w);
        tsr_tensor_destroy(&products[d].x);
    }
    return status;
}

/* Measures experts alone, and sets rates[r] to the products per second of rank r. */
static tsr_status measure_expert_rates(unequal_job *j, const tsr_shard_range *everything,
                                       double *rates)
{
    unequal_division all = {.parts = everything};
    const tsr_status status = unequal_time_experts(j, &all, 1);
    return status == TSR_OK
               ? tsr_comm_all_gather(j->comm, &(double){1 / all.alone}, rates, 1, TSR_F64, NULL)
               : status;
}

static void print_division(const unequal_job *j, const unequal_division *d, double summed,
                           const double *rates)
{
    printf("%-9s %7.2f products/s, %5.1f %% of the summed rate (by arithmetic %5.1f %%); %s",
           d->name, 1 / d->together, 100 / d->together / summed,
           100 * tsr_partition_efficiency(j->size, d->parts, rates),
           j->given.experts > 0 ? "experts" : "columns");
    for (int r = 0; r < j->size; r++)
        printf(" %llu", (unsigned long long)d->parts[r].count);
    printf("\n");
}

/* `parts` has [3][size] elements, `rates` and `each` have [size]. */
static tsr_status run_unequal_ranks(unequal_job *j, tsr_shard_range *parts, double *rates,
                                    double *each)
{
    const bool has_experts = j->given.experts > 0;
    /* What is divided: experts or columns. */
    const uint64_t total = (uint64_t)(has_experts ? j->given.experts : j->given.columns);
    tsr_shard_range *even = parts + j->size, *weighted = even + j->size;
    for (int r = 0; r < j->size; r++)
        parts[r] = (tsr_shard_range){.count = total};
    /* A calibration multiplies dense matrices. Experts are divided by the rates of their own
     * products, as those that `tessera bench rates --experts` measures. */
    tsr_status status =
        has_experts
            ? measure_expert_rates(j, parts, rates)
            : tsr_calibrate(j->group,
                            tsr_calibrate_params(.rows = j->given.rows, .inner = j->given.inner,
                                                 .columns = j->given.columns / j->size,
                                                 .duration_ns = 1000000000),
                            rates);
    if (status == TSR_OK)
        status =
            tsr_partition(total, j->size, tsr_partition_params(.kind = TSR_PARTITION_UNEVEN), even);
    if (status == TSR_OK)
        status = tsr_partition(total, j->size,
                               tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates,
                                                    .align = has_experts ? 0 : 16),
                               weighted);
    unequal_division divisions[UNEQUAL_MOST] = {
        {.parts = parts}, {"even", even, 0, 0}, {"weighted", weighted, 0, 0}};
    if (status == TSR_OK)
        status = has_experts ? unequal_time_experts(j, divisions, UNEQUAL_MOST)
                             : time_columns(j, divisions, UNEQUAL_MOST);
    if (status == TSR_OK)
        status =
            tsr_comm_all_gather(j->comm, &(double){1 / divisions[0].alone}, each, 1, TSR_F64, NULL);
    if (status != TSR_OK || j->rank != 0)
        return status;
    double summed = 0;
    for (int r = 0; r < j->size; r++) {
        summed += each[r];
        printf("rank %d    %7.2f products/s by itself; rate %.3g %s\n", r, each[r],
               has_experts ? rates[r] : rates[r] * 1e-9, has_experts ? "products/s" : "GFLOP/s");
    }
    print_division(j, &divisions[1], summed, rates);
    print_division(j, &divisions[2], summed, rates);
    return TSR_OK;
}

static tsr_status run(unequal_job *j)
{
    const size_t size = (size_t)j->size;
    tsr_shard_range *parts = calloc(UNEQUAL_MOST * size, sizeof *parts);
    double *rates = calloc(size, sizeof *rates), *each = calloc(size, sizeof *each);
    const tsr_status status =
        parts && rates && each ? run_unequal_ranks(j, parts, rates, each) : TSR_ERR_NO_MEMORY;
    free(each);
    free(rates);
    free(parts);
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
    unequal_job j = {.given = {.slow = 1, .factor = "3", .rows = 64}};
    if (parse(argc, argv, &j.given) != 0)
        return 2;
    /* The sizes of the experts are those of Qwen3-30B-A3B. */
    const bool has_experts = j.given.experts > 0;
    const unequal_options sizes = {.inner = has_experts ? 2048 : 1024,
                                   .columns = has_experts ? 768 : 4096,
                                   .repeats = has_experts ? 15 : 100};
    j.given.inner = j.given.inner > 0 ? j.given.inner : sizes.inner;
    j.given.columns = j.given.columns > 0 ? j.given.columns : sizes.columns;
    j.given.repeats = j.given.repeats > 0 ? j.given.repeats : sizes.repeats;
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
        status = run(&j);
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
