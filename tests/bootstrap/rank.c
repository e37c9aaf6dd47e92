/* One real rank for the tests of launchers: bootstraps from its environment, exchanges a few times,
 * checks every byte and prints its place.
 *
 *     rank [rounds]
 *
 * TEST_TIMEOUT_MS is the deadline; TEST_LOG=1 prints the library's log. TEST_JOB is a number that
 * changes every byte, so that a process detects the bytes of another job. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/bootstrap/bootstrap.h"
#include "tessera/sampler.h"

static void print_log(void *user, tsr_log_level level, const char *message)
{
    (void)user, (void)level;
    fprintf(stderr, "log: %s\n", message);
}

/* Returns the size of a contribution. Sizes differ between ranks and rounds; some are 0 or the
 * maximum. */
static uint64_t contribution_size(int32_t rank, int round)
{
    if (round % 4 == 3)
        return (rank + round) % 2 == 0 ? TSR__BOOTSTRAP_MAX_BYTES : 0;
    return (uint64_t)(rank * 37 + round * 11) % 997;
}

static uint8_t contribution_byte(int32_t rank, int round, uint64_t i)
{
    const char *job = getenv("TEST_JOB");
    return (uint8_t)((uint64_t)rank * 131 + (uint64_t)round * 17 + i * 7 +
                     (uint64_t)(job != NULL ? atoi(job) : 0));
}

static int exchange(tsr__bootstrap *bootstrap, int round)
{
    static uint8_t mine[TSR__BOOTSTRAP_MAX_BYTES];
    const tsr__bootstrap_info *info = tsr__bootstrap_get_info(bootstrap);
    uint64_t size = contribution_size(info->rank, round);
    for (uint64_t i = 0; i < size; i++)
        mine[i] = contribution_byte(info->rank, round, i);
    tsr__bootstrap_gathered all;
    if (tsr__bootstrap_exchange(bootstrap, mine, size, NULL, &all) != TSR_OK) {
        fprintf(stderr, "exchange %d: %s\n", round, tsr_last_error());
        return 1;
    }
    int wrong = all.starts[0] != 0;
    for (int32_t rank = 0; rank < info->size; rank++) {
        uint64_t got = all.starts[rank + 1] - all.starts[rank];
        wrong |= got != contribution_size(rank, round);
        for (uint64_t i = 0; i < got && !wrong; i++)
            wrong |= all.bytes[all.starts[rank] + i] != contribution_byte(rank, round, i);
    }
    if (wrong)
        fprintf(stderr, "exchange %d: wrong bytes\n", round);
    tsr__bootstrap_gathered_finish(&all);
    return wrong;
}

/* Returns whether tsr_rank_from_environment() disagrees with the bootstrap. */
static int environment_differs(const tsr__bootstrap_info *info)
{
    int64_t rank = -1, ranks = -1;
    tsr_status status = tsr_rank_from_environment(&rank, &ranks);
    if (status == TSR_OK && rank == info->rank && ranks == info->size)
        return 0;
    fprintf(stderr, "the environment says rank %" PRId64 " of %" PRId64 " (%s): %s\n", rank, ranks,
            tsr_status_name(status), tsr_last_error());
    return 1;
}

static int bootstrap_and_exchange(int rounds, uint64_t timeout_ns)
{
    tsr__bootstrap *bootstrap;
    tsr__bootstrap_params params = {.timeout_ns = timeout_ns};
    tsr_status status = tsr__bootstrap_open(&params, &bootstrap);
    if (status != TSR_OK) {
        fprintf(stderr, "%s: %s\n", tsr_status_name(status), tsr_last_error());
        return 1;
    }
    const tsr__bootstrap_info *info = tsr__bootstrap_get_info(bootstrap);
    int wrong = environment_differs(info);
    for (int round = 0; round < rounds && !wrong; round++)
        wrong = exchange(bootstrap, round);
    if (!wrong)
        printf("rank %" PRId32 " of %" PRId32 ", local %" PRId32 " of %" PRId32 ", node %" PRId32
               " of %" PRId32 "\n",
               info->rank, info->size, info->local_rank, info->local_size,
               info->node_of[info->rank], info->node_count);
    tsr__bootstrap_close(&bootstrap);
    return wrong;
}

int main(int argc, char **argv)
{
    const char *timeout = getenv("TEST_TIMEOUT_MS");
    if (getenv("TEST_LOG") != NULL)
        tsr_log_set(print_log, NULL, TSR_LOG_DEBUG);
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    /* Runs twice, because a job may create one communicator after another. */
    for (int i = 0; i < 2; i++)
        if (bootstrap_and_exchange(rounds, timeout != NULL ? (uint64_t)atoi(timeout) * 1000000 : 0))
            return 1;
    return 0;
}
