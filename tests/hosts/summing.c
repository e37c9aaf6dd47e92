/* One rank of a job that sums many times, checks every number, and prints the outcome. Used by the
 * tests of launchers, of Slurm, and of several hosts.
 *
 *     summing ROUNDS COUNT
 *
 * TEST_TIMEOUT_MS is the deadline of each operation after "ready", and TEST_CREATE_MS that of
 * creating the communicator. Operations before "ready" have the library's default timeout.
 * TEST_LOG=1 prints the library's log. Prints "ready" after a few rounds, and "rank R of N, local L
 * of M: well" at the end. If an operation fails, prints "failed after T ms: what and why", where T
 * is the time since the operation began, and then "destroyed in T ms". With TEST_SHRINK_MS, the
 * timeout of shrinking, it then continues for a few rounds with the ranks that are left, or prints
 * "cannot go on: what and why". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tessera/tessera.h>

#define READY_ROUND 5

static void print_log(void *user, tsr_log_level level, const char *message)
{
    (void)user, (void)level;
    fprintf(stderr, "log: %s\n", message);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns the time in a variable in nanoseconds; 0: the variable is not set. */
static uint64_t read_ns(const char *variable)
{
    const char *ms = getenv(variable);
    return ms != NULL ? (uint64_t)atol(ms) * 1000000 : 0;
}

/* Returns a small integer. Sums of such numbers are the same in every order of addition. */
static float contribution(int rank, long round, uint64_t i)
{
    return (float)((rank + 1) * (int)(1 + ((uint64_t)round + i) % 7));
}

/* Returns the index of the first wrong element, or −1. */
static int64_t find_wrong(tsr_comm *comm, const float *sum, uint64_t count, long round)
{
    int size = tsr_comm_size(comm);
    for (uint64_t i = 0; i < count; i++) {
        float expected = contribution(0, round, i) * (float)(size * (size + 1) / 2);
        if (sum[i] != expected)
            return (int64_t)i;
    }
    return -1;
}

static int sum_often(tsr_comm *comm, uint64_t timeout_ns, long rounds, uint64_t count, float *data)
{
    for (long round = 0; round < rounds; round++) {
        for (uint64_t i = 0; i < count; i++)
            data[i] = contribution(tsr_comm_rank(comm), round, i);
        int64_t start = now_ms();
        if (tsr_comm_all_reduce(comm, data, data, count, TSR_F32, TSR_OP_SUM, NULL) != TSR_OK) {
            fprintf(stderr, "failed after %" PRId64 " ms: %s: %s\n", now_ms() - start,
                    tsr_status_name(tsr_comm_status(comm)), tsr_last_error());
            return 1;
        }
        int64_t wrong = find_wrong(comm, data, count, round);
        if (wrong >= 0) {
            fprintf(stderr, "round %ld: element %" PRId64 " is wrong: %g\n", round, wrong,
                    (double)data[wrong]);
            return 1;
        }
        if (round == READY_ROUND) {
            tsr_comm_set_timeout(comm, timeout_ns);
            puts("ready");
            fflush(stdout);
        }
    }
    return 0;
}

#define ROUNDS_AFTER_SHRINKING 50

/* Replaces the communicator by one of the ranks that are left, and sums with it. */
static int go_on(tsr_comm **comm, uint64_t timeout_ns, uint64_t shrink_ns, uint64_t count,
                 float *data)
{
    tsr_comm *smaller = NULL;
    int64_t start = now_ms();
    tsr_status status =
        tsr_comm_shrink(*comm, tsr_comm_shrink_params(.timeout_ns = shrink_ns), &smaller);
    if (status != TSR_OK) {
        fprintf(stderr, "cannot go on: %s: %s\n", tsr_status_name(status), tsr_last_error());
        return 1;
    }
    printf("goes on after %" PRId64 " ms\n", now_ms() - start);
    tsr_comm_destroy(comm);
    *comm = smaller;
    return sum_often(*comm, timeout_ns, ROUNDS_AFTER_SHRINKING, count, data);
}

int main(int argc, char **argv)
{
    const char *shrinks = getenv("TEST_SHRINK_MS");
    tsr_comm *comm = NULL;
    if (argc != 3)
        return 2;
    if (getenv("TEST_LOG") != NULL)
        tsr_log_set(print_log, NULL, TSR_LOG_DEBUG);
    long rounds = atol(argv[1]);
    uint64_t count = (uint64_t)atol(argv[2]);
    uint64_t timeout_ns = read_ns("TEST_TIMEOUT_MS"), create_ns = read_ns("TEST_CREATE_MS");
    float *data = calloc((size_t)count + 1, sizeof *data);
    int code = data == NULL ? 2 : 0;
    if (code == 0 && tsr_comm_create(tsr_comm_params(.timeout_ns = create_ns), &comm) != TSR_OK) {
        fprintf(stderr, "no communicator: %s\n", tsr_last_error());
        code = 1;
    }
    if (code == 0) {
        tsr_comm_set_timeout(comm, 0); /* the library's default */
        code = sum_often(comm, timeout_ns, rounds, count, data);
        if (code != 0 && shrinks != NULL && tsr_comm_status(comm) != TSR_OK)
            code = go_on(&comm, timeout_ns, read_ns("TEST_SHRINK_MS"), count, data);
        int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
        int local = tsr_comm_local_rank(comm), local_size = tsr_comm_local_size(comm);
        int64_t start = now_ms();
        tsr_comm_destroy(&comm);
        if (code == 0)
            printf("rank %d of %d, local %d of %d: well\n", rank, size, local, local_size);
        else
            fprintf(stderr, "destroyed in %" PRId64 " ms\n", now_ms() - start);
    }
    free(data);
    return code;
}
