/* Real processes write a checkpoint together in a loop, until one of them is killed at a random
 * moment. The other ranks must get an error, and the file must be a complete version. A few rounds;
 * TESSERA_TEST_KILLS=200 runs 200. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/folder.h"
#include "comm/ranks.h"
#include "support/random.h"

#define ROUNDS 12
#define EACH 20000 /* elements of a rank */

typedef struct round_plan {
    char path[512];
    int32_t first; /* the first version */
} round_plan;

static void save_for_ever(tsr_comm *comm, void *user)
{
    const round_plan *plan = user;
    _Atomic int32_t *ready = ranks_shared();
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    int32_t *data = rank_memory(EACH * sizeof *data);
    for (int32_t version = plan->first;; version++) {
        char text[16];
        snprintf(text, sizeof text, "%d", (int)version);
        for (int i = 0; i < EACH; i++)
            data[i] = version;
        /* Rank r has some columns of all rows, so its ranges of the file lie between those of
         * the other ranks. */
        const tsr_checkpoint_entry entry = {.struct_size = sizeof(tsr_checkpoint_entry),
                                            .name = "x",
                                            .dtype = TSR_I32,
                                            .ndim = 2,
                                            .shape = {EACH / 100, 100 * size},
                                            .shard_dim = 1,
                                            .offset = 100 * rank,
                                            .length = 100,
                                            .count = EACH,
                                            .data = data};
        const char *const metadata[] = {"version", text, NULL};
        tsr_status status = tsr_checkpoint_save(plan->path, comm, NULL, 1, &entry,
                                                tsr_checkpoint_params(.metadata = metadata));
        if (status != TSR_OK) {
            need(status == TSR_ERR_PEER_LOST || status == TSR_ERR_TIMEOUT);
            return;
        }
        atomic_store(ready, version);
    }
}

static int32_t whole_version(const char *path, int size)
{
    char text[16];
    int32_t *data = calloc((size_t)size * EACH, sizeof *data);
    ck_assert_ptr_nonnull(data);
    tsr_checkpoint_entry entry =
        host_entry("x", TSR_I32, 2, (int64_t[]){EACH / 100, 100 * size}, data);
    ck_assert_ok(tsr_checkpoint_load(path, NULL, NULL, 1, &entry, NULL));
    ck_assert_ok(tsr_checkpoint_metadata(path, NULL, NULL, "version", sizeof text, text));
    const int32_t version = data[0];
    ck_assert_int_eq(atoi(text), version);
    for (int64_t i = 0; i < (int64_t)size * EACH; i++)
        ck_assert(data[i] == version);
    free(data);
    return version;
}

START_TEST(a_rank_is_killed_while_all_write)
{
    const char *asked = getenv("TESSERA_TEST_KILLS");
    const int rounds = asked ? atoi(asked) : ROUNDS;
    uint64_t state = (uint64_t)getpid();
    for (int round = 0; round < rounds; round++) {
        round_plan plan = {.first = 1};
        snprintf(plan.path, sizeof plan.path, "%s", in_folder("model"));
        const int size = 2 + round % 3, victim = (int)random_between(&state, 0, size - 1);
        ranks_job job = {.size = size, .run = save_for_ever, .user = &plan};
        ranks_start(&job);
        const _Atomic int32_t *ready = ranks_shared();
        while (atomic_load(ready) < 2)
            rest_ms(1);
        const int32_t before = atomic_load(ready);
        rest_ms((int)random_between(&state, 0, 15));
        ranks_signal(victim, SIGKILL);
        ranks_wait();
        for (int r = 0; r < size; r++)
            if (r != victim)
                ranks_check(r);
        ck_assert_int_ge(whole_version(plan.path, size), before);
        ck_assert_int_le(files_in_folder(), 2);
        remove(plan.path);
    }
}
END_TEST

TESTS(killed_ranks)
{
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, folder_make, folder_remove);
    tcase_add_test(tests, a_rank_is_killed_while_all_write);
}
