/* Many operations of all kinds must not make memory grow. TESSERA_TEST_SOAK is their number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/values.h"

#define OPERATIONS 20000
#define STRETCHES 5

static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    need(file);
    need(fscanf(file, "%*u %llu", &pages) == 1);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Performs one random operation on small integers and checks its result. */
static void one(tsr_comm *comm, uint64_t *random, int32_t *data, int32_t *more)
{
    static const uint64_t counts[] = {1, 1, 1, 7, 100, 1000, 6000};
    const int size = tsr_comm_size(comm), rank = tsr_comm_rank(comm);
    const int root = (int)random_between(random, 0, size - 1);
    const uint64_t count = counts[random_between(random, 0, 6)], last = count - 1;
    const int32_t sum = size * (size + 1) / 2;
    uint64_t counts_of[MAX_RANKS];
    for (int i = 0; i < size; i++)
        counts_of[i] = count;
    for (uint64_t i = 0; i < count * (uint64_t)size; i += count)
        data[i] = data[i + last] = rank + 1;
    switch (random_between(random, 0, 9)) {
    case 0:
        need_ok(tsr_comm_all_reduce(comm, data, more, count, TSR_I32, TSR_OP_SUM, NULL));
        need(more[0] == sum && more[last] == sum);
        break;
    case 1:
        need_ok(tsr_comm_reduce_scatter(comm, data, more, count, TSR_I32, TSR_OP_MAX, NULL));
        need(more[0] == size && more[last] == size);
        break;
    case 2:
        need_ok(tsr_comm_all_gather(comm, data, more, count, TSR_I32, NULL));
        need(more[0] == 1 && more[count * (uint64_t)size - 1] == size);
        break;
    case 3:
        need_ok(tsr_comm_broadcast(comm, data, count, TSR_I32, root, NULL));
        need(data[0] == root + 1 && data[last] == root + 1);
        break;
    case 4:
        need_ok(tsr_comm_reduce(comm, data, more, count, TSR_I32, TSR_OP_SUM, root, NULL));
        need(rank != root || (more[0] == sum && more[last] == sum));
        break;
    case 5:
        need_ok(tsr_comm_gather_v(comm, data, more, counts_of, TSR_I32, root, NULL));
        need(rank != root || more[count * (uint64_t)size - 1] == size);
        break;
    case 6:
        need_ok(tsr_comm_all_to_all(comm, data, more, count, TSR_I32, NULL));
        need(more[0] == 1 && more[count * (uint64_t)size - 1] == size);
        break;
    case 7: {
        tsr_request *requests[2] = {NULL, NULL};
        need_ok(tsr_comm_recv(comm, more, count, TSR_I32, (rank + 1) % size, 1, &requests[0]));
        need_ok(
            tsr_comm_send(comm, data, count, TSR_I32, (rank + size - 1) % size, 1, &requests[1]));
        need_ok(tsr_request_wait(&requests[1]));
        need_ok(tsr_request_wait(&requests[0]));
        need(more[0] == (rank + 1) % size + 1);
        break;
    }
    case 8:
        if (random_between(random, 0, 49) == 0) {
            tsr_comm *part;
            need_ok(tsr_comm_split(comm, rank % 2, 0, &part));
            need_ok(tsr_comm_barrier(part, NULL));
            tsr_comm_destroy(&part);
        }
        break;
    default:
        need_ok(tsr_comm_barrier(comm, NULL));
    }
}

/* If a rank is much faster than another, UCX allocates megabytes once for waiting messages, and
 * keeps them. A leak grows in every part of the test, so the smallest growth of all parts
 * counts. */
static void soak(tsr_comm *comm, void *user)
{
    const int count = *(const int *)user;
    uint64_t random = 3, before = 0, least = UINT64_MAX;
    int32_t *data = rank_memory(6000 * MAX_RANKS * 4), *more = rank_memory(6000 * MAX_RANKS * 4);
    for (int stretch = 0; stretch < STRETCHES; stretch++) {
        for (int i = 0; i < count / STRETCHES; i++)
            one(comm, &random, data, more);
        const uint64_t now = resident_bytes(), growth = now > before ? now - before : 0;
        if (stretch > 0 && growth < least)
            least = growth;
        before = now;
    }
    if (least > (UINT64_C(256) << 10))
        rank_fail("memory grew by %llu bytes or more in each %d operations, to %llu bytes",
                  (unsigned long long)least, count / STRETCHES, (unsigned long long)before);
}

START_TEST(without_growth)
{
    const char *wish = getenv("TESSERA_TEST_SOAK");
    int count = wish ? atoi(wish) : OPERATIONS;
    ranks_run(&(ranks_job){
        .size = 2 + _i / PATHS, .path = (ranks_path)(_i % PATHS), .run = soak, .user = &count});
}
END_TEST

TESTS(soak)
{
    tcase_set_timeout(tests, 3000);
    tcase_add_loop_test(tests, without_growth, 0, 2 * PATHS);
}
