/* A random rank is killed at a random moment of a random operation. No rank may hang or crash, all
 * survivors must get an error in time, and no memory may be left behind. TESSERA_TEST_KILLS is the
 * number of rounds. */
#define _GNU_SOURCE /* for unshare */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "comm/values.h"

#define ROUNDS 20

typedef struct plan_of_round {
    uint64_t seed;
    int victim;
    ranks_path path;
} plan_of_round;

typedef struct evidence {
    _Atomic int ready;
    double failed_at[MAX_RANKS];
    double ended_at[MAX_RANKS];
} evidence;

#define DATA 200000

static tsr_status one(tsr_comm *comm, uint64_t *random, float *data, float *more)
{
    static const uint64_t counts[] = {0, 1, 100, 5000, 50000, DATA / MAX_RANKS};
    uint64_t counts_of[MAX_RANKS];
    const int size = tsr_comm_size(comm), rank = tsr_comm_rank(comm);
    const uint64_t count = counts[random_between(random, 0, 5)], part = count / (uint64_t)size;
    const int root = (int)random_between(random, 0, size - 1);
    for (int i = 0; i < size; i++)
        counts_of[i] = part;
    switch (random_between(random, 0, 11)) {
    case 0:
        return tsr_comm_all_reduce(comm, data, more, count, TSR_F32, TSR_OP_SUM, NULL);
    case 1:
        return tsr_comm_all_reduce(comm, data, data, count, TSR_BF16, TSR_OP_AVG, NULL);
    case 2:
        return tsr_comm_reduce(comm, data, more, count, TSR_F32, TSR_OP_MAX, root, NULL);
    case 3:
        return tsr_comm_reduce_scatter(comm, data, more, part, TSR_F32, TSR_OP_SUM, NULL);
    case 4:
        return tsr_comm_all_gather(comm, data, more, part, TSR_F32, NULL);
    case 5:
        return tsr_comm_broadcast(comm, data, count, TSR_F32, root, NULL);
    case 6:
        return tsr_comm_gather_v(comm, data, more, counts_of, TSR_F32, root, NULL);
    case 7:
        return tsr_comm_scatter_v(comm, data, more, counts_of, TSR_F32, root, NULL);
    case 8:
        return tsr_comm_all_to_all_v(comm, data, counts_of, more, counts_of, TSR_F32, NULL);
    case 9: {
        tsr_comm *part_of = NULL;
        tsr_status status = tsr_comm_split(comm, rank % 2, rank, &part_of);
        if (status == TSR_OK)
            status = tsr_comm_all_reduce(part_of, data, more, count, TSR_F32, TSR_OP_SUM, NULL);
        tsr_comm_destroy(&part_of);
        return status;
    }
    case 10: {
        tsr_request *requests[3] = {NULL, NULL, NULL};
        tsr_status status = TSR_OK;
        for (int i = 0; i < 3 && status == TSR_OK; i++)
            status = tsr_comm_all_reduce(comm, data + i, more + (uint64_t)i * count, count, TSR_F32,
                                         TSR_OP_SUM, &requests[i]);
        for (int i = 2; i >= 0; i--) {
            const tsr_status ended = tsr_request_wait(&requests[i]);
            status = status == TSR_OK ? ended : status;
        }
        return status;
    }
    default:
        return tsr_comm_barrier(comm, NULL);
    }
}

static void live_until(tsr_comm *comm, void *user)
{
    const plan_of_round *plan = user;
    evidence *shown = ranks_shared();
    uint64_t random = plan->seed;
    const int rank = tsr_comm_rank(comm);
    float *data = rank_memory(2 * DATA * sizeof *data),
          *more = rank_memory(2 * DATA * sizeof *more);
    char name[32];
    tsr_status status = TSR_OK;
    atomic_fetch_add(&shown->ready, 1);
    while (status == TSR_OK)
        status = one(comm, &random, data, more);
    shown->failed_at[rank] = seconds_now();
    /* The error may name another rank: a rank that shares a split communicator with the victim
     * gives up and destroys its communicators. */
    snprintf(name, sizeof name, "rank %d", plan->victim);
    if (status != TSR_ERR_PEER_LOST || (!strstr(tsr_last_error(), "is lost: ") &&
                                        !strstr(tsr_last_error(), " has destroyed the comm")))
        rank_fail("%s: %s", tsr_status_name(status), tsr_last_error());
    /* Closing a socket may lose the last messages of its process. So over TCP the error may name a
     * rank that gave up because of the victim. */
    if (plan->path != PATH_TCP && tsr_comm_status(comm) != TSR_OK &&
        strstr(tsr_last_error(), "is lost: ") && !strstr(tsr_last_error(), name))
        rank_fail("not %s: %s", name, tsr_last_error());
    rank_destroy();
    shown->ended_at[rank] = seconds_now();
}

/* Gives this process and its children a /dev/shm and System V segments of their own, because tests
 * that run at the same time kill processes, too, and a process that is killed while UCX makes such
 * memory leaves it behind. Without permission for this, the test may fail because of the memory of
 * other tests. */
static void separate_memory(void)
{
    if (unshare(CLONE_NEWNS | CLONE_NEWIPC) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, NULL) != 0)
        perror("no memory of its own for this test");
}

/* Lists named shared memory, and System V segments that no process has attached, one per line. */
static char *memory_there(void)
{
    char *text = NULL, line[512];
    size_t size;
    FILE *out = open_memstream(&text, &size), *in = fopen("/proc/sysvipc/shm", "r");
    DIR *folder = opendir("/dev/shm");
    int key, id, holders;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        fprintf(out, "\n/dev/shm/%s\n", entry->d_name);
    while (in && fgets(line, sizeof line, in)) {
        if (sscanf(line, "%d %d %*d %*d %*d %*d %d", &key, &id, &holders) == 3 && holders == 0)
            fprintf(out, "\nsegment %d\n", id);
    }
    if (in)
        fclose(in);
    if (folder)
        closedir(folder);
    fclose(out);
    return text;
}

/* Checks that no memory is left behind. Other processes use such memory for a while, too, so
 * only memory that stays is an error. */
static void need_nothing_left(const char *before)
{
    char *after = memory_there();
    for (char *line = strtok(after, "\n"); line; line = strtok(NULL, "\n")) {
        char whole[512];
        bool is_there = true;
        snprintf(whole, sizeof whole, "\n%s\n", line);
        for (int i = 0; i < 200 && is_there && !strstr(before, whole); i++) {
            char *now = memory_there();
            is_there = strstr(now, whole) != NULL;
            free(now);
            rest_ms(is_there ? 50 : 0);
        }
        ck_assert_msg(!is_there || strstr(before, whole), "%s is left behind", line);
    }
    free(after);
}

static void kill_one(uint64_t *random, int round, double *slowest)
{
    static const int sizes[] = {2, 3, 4, 5, 8};
    const int size = sizes[random_between(random, 0, 4)];
    const ranks_path path = (ranks_path)(round % PATHS);
    plan_of_round plan = {.seed = random_next(random),
                          .path = path,
                          .victim = (int)random_between(random, 0, size - 1)};
    const int after_us = (int)random_between(random, 0, 30000);
    ranks_start(&(ranks_job){.size = size,
                             .path = path,
                             .hosts = round % 2 ? "aabbccdd" : NULL,
                             .run = live_until,
                             .user = &plan});
    const evidence *shown = ranks_shared();
    const double end = seconds_now() + 60;
    while (atomic_load(&shown->ready) < size && seconds_now() < end)
        usleep(200);
    usleep((useconds_t)after_us);
    ranks_signal(plan.victim, SIGKILL);
    const double since = seconds_now();
    ranks_wait();
    for (int i = 0; i < size; i++) {
        if (i == plan.victim)
            continue;
        ranks_check(i);
        if (shown->failed_at[i] - since > *slowest)
            *slowest = shown->failed_at[i] - since;
        ck_assert_msg(shown->failed_at[i] - since < 1.5, "%s: rank %d of %d: after %g s",
                      path_names[path], i, size, shown->failed_at[i] - since);
        ck_assert_msg(shown->ended_at[i] - shown->failed_at[i] < 1.5,
                      "%s: rank %d of %d: ending took %g s", path_names[path], i, size,
                      shown->ended_at[i] - shown->failed_at[i]);
    }
}

START_TEST(a_rank_is_killed_at_any_moment)
{
    const char *wish = getenv("TESSERA_TEST_KILLS");
    const int rounds = wish ? atoi(wish) : ROUNDS;
    const char *seed = getenv("TESSERA_TEST_SEED");
    uint64_t random = seed ? strtoull(seed, NULL, 0) : 1;
    separate_memory();
    char *before = memory_there();
    double slowest = 0;
    for (int round = 0; round < rounds; round++)
        kill_one(&random, round, &slowest);
    fprintf(stderr, "%d rounds; the last survivor was told after %.3f s\n", rounds, slowest);
    need_nothing_left(before);
    free(before);
}
END_TEST

TESTS(kill)
{
    tcase_set_timeout(tests, 3000);
    tcase_add_test(tests, a_rank_is_killed_at_any_moment);
}
