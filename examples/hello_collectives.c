/* Sorts numbers that are divided among the processes of a job, with the operations of comm.h that
 * move blocks: each rank gets the numbers of one range, and sorts them. */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

enum { NUMBERS = 1000, RANGE = 1 << 20 };

typedef struct job {
    tsr_comm *comm;
    int rank, size;
    uint64_t *counts;                    /* [size]: how many numbers each rank has */
    uint64_t *send_counts, *recv_counts; /* [size]: how many this rank exchanges with each */
    int64_t numbers[NUMBERS], other[NUMBERS];
} job;

/* Rank 0 draws the numbers, and gives rank r a part in proportion to r + 1. */
static tsr_status distribute(job *j)
{
    int64_t mine = 0;
    tsr_rng rng;
    tsr_status status = tsr_rng_init(TSR_RNG_PHILOX, 42, 0, &rng);
    for (int i = 0; i < NUMBERS && status == TSR_OK; i++)
        j->other[i] = (int64_t)tsr_rng_below(&rng, RANGE);
    const uint64_t parts = (uint64_t)j->size * ((uint64_t)j->size + 1) / 2;
    uint64_t given = 0;
    for (int r = 0; r < j->size; r++) {
        j->counts[r] = r + 1 < j->size ? NUMBERS * ((uint64_t)r + 1) / parts : NUMBERS - given;
        given += j->counts[r];
    }
    /* All ranks can compute the counts here; a rank that cannot is told its own. */
    if (status == TSR_OK)
        status = tsr_comm_scatter(j->comm, j->counts, &mine, 1, TSR_I64, 0, NULL);
    if (status == TSR_OK)
        status = tsr_comm_scatter_v(j->comm, j->other, j->numbers, j->counts, TSR_I64, 0, NULL);
    if (status == TSR_OK)
        printf("rank %d of %d has %d numbers\n", j->rank, j->size, (int)mine);
    return status;
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sends each number to the rank that has its range. */
static tsr_status exchange(job *j)
{
    const uint64_t before = j->counts[j->rank];
    qsort(j->numbers, before, sizeof *j->numbers, compare);
    for (uint64_t i = 0; i < before; i++)
        j->send_counts[j->numbers[i] * j->size / RANGE]++;
    tsr_status status =
        tsr_comm_all_to_all(j->comm, j->send_counts, j->recv_counts, 1, TSR_I64, NULL);
    if (status == TSR_OK)
        status = tsr_comm_all_to_all_v(j->comm, j->numbers, j->send_counts, j->other,
                                       j->recv_counts, TSR_I64, NULL);
    /* The sums of the send_counts are what each rank has now. */
    uint64_t *ones = j->recv_counts, now = 0;
    for (int r = 0; r < j->size; r++)
        ones[r] = 1;
    if (status == TSR_OK)
        status = tsr_comm_reduce_scatter_v(j->comm, j->send_counts, &now, ones, TSR_I64, TSR_OP_SUM,
                                           NULL);
    if (status == TSR_OK)
        status = tsr_comm_all_gather(j->comm, &now, j->counts, 1, TSR_I64, NULL);
    if (status == TSR_OK)
        qsort(j->other, now, sizeof *j->other, compare);
    return status;
}

/* Collects the sorted numbers on rank 0 and on all ranks, and checks them. */
static tsr_status collect(job *j, bool *right)
{
    static int64_t sorted[NUMBERS];
    int64_t sum = 0, total = 0;
    for (uint64_t i = 0; i < j->counts[j->rank]; i++)
        sum += j->other[i];
    tsr_status status = tsr_comm_reduce(j->comm, &sum, &total, 1, TSR_I64, TSR_OP_SUM, 0, NULL);
    if (status == TSR_OK)
        status = tsr_comm_gather_v(j->comm, j->other, sorted, j->counts, TSR_I64, 0, NULL);
    for (int i = 0; i < NUMBERS && j->rank == 0; i++)
        total -= sorted[i];
    *right = total == 0;
    if (status == TSR_OK)
        status = tsr_comm_all_gather_v(j->comm, j->other, sorted, j->counts, TSR_I64, NULL);
    for (int i = 1; i < NUMBERS; i++)
        *right = *right && sorted[i - 1] <= sorted[i];
    if (status == TSR_OK && j->rank == 0)
        printf("%s: %d … %d\n", *right ? "sorted" : "NOT SORTED", (int)sorted[0],
               (int)sorted[NUMBERS - 1]);
    return status;
}

int main(void)
{
    static job j;
    bool right = false;
    tsr_status status = tsr_comm_create(NULL, &j.comm);
    if (status == TSR_OK) {
        j.rank = tsr_comm_rank(j.comm);
        j.size = tsr_comm_size(j.comm);
        j.counts = calloc(3 * (size_t)j.size, sizeof *j.counts);
        status = j.counts ? TSR_OK : TSR_ERR_NO_MEMORY;
    }
    if (status == TSR_OK) {
        j.send_counts = j.counts + j.size;
        j.recv_counts = j.send_counts + j.size;
        status = distribute(&j);
    }
    if (status == TSR_OK)
        status = exchange(&j);
    if (status == TSR_OK)
        status = collect(&j, &right);
    if (status != TSR_OK)
        fprintf(stderr, "hello_collectives: %s\n", tsr_last_error());
    tsr_comm_destroy(&j.comm);
    free(j.counts);
    if (fflush(stdout) != 0) {
        perror("standard output");
        return EXIT_FAILURE;
    }
    return status == TSR_OK && right ? EXIT_SUCCESS : EXIT_FAILURE;
}
