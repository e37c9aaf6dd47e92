/* A job that survives random kills, stops and joins. Its ranks sum all the time and check every
 * sum. After a loss they shrink; now and then they look for newcomers; a rank that was left out
 * joins again. No rank may hang, no sum may be wrong, and in the end all ranks that are left must
 * be in one communicator. TESSERA_TEST_ROUNDS is the number of jobs, TESSERA_TEST_SEED the first
 * seed. */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/values.h"

#define MS UINT64_C(1000000)
#define ROUNDS 4
#define COUNT 2000
#define GROW_EVERY 8 /* ranks look for newcomers after this many sums */

typedef struct progress {
    uint64_t shrink_ns; /* the timeout of shrinking; a short one leaves stopped ranks out */
    _Atomic int started, numbers, finish;
    _Atomic int shrinks, grows, left_out, minorities, works;
    /* For each process, the ranks of its last communicator, when it ends */
    _Atomic unsigned members[MAX_RANKS];
} progress;

typedef struct worker {
    progress *shown;
    tsr_comm *comm;
    bool is_first; /* the communicator belongs to ranks.c */
    int number;    /* of this process */
    int32_t *data;
    unsigned members; /* bits of the numbers of the ranks that took part in the last sum */
} worker;

static void leave(worker *w)
{
    if (w->is_first)
        rank_destroy();
    else
        tsr_comm_destroy(&w->comm);
    w->comm = NULL;
    w->is_first = false;
}

static void use(worker *w, tsr_comm *comm)
{
    if (w->comm)
        leave(w);
    w->comm = comm;
    tsr_comm_set_timeout(comm, 700 * MS);
}

/* Makes a sum and checks it against the list of members. Sets *finish to whether all must end. */
static tsr_status work(worker *w, bool *finish)
{
    int32_t numbers[MAX_RANKS], told = atomic_load(&w->shown->finish);
    tsr_status status = tsr_comm_all_gather(w->comm, &w->number, numbers, 1, TSR_I32, NULL);
    for (int i = 0; i < COUNT; i++)
        w->data[i] = 1 << w->number;
    if (status == TSR_OK)
        status = tsr_comm_all_reduce(w->comm, w->data, w->data, COUNT, TSR_I32, TSR_OP_SUM, NULL);
    if (status == TSR_OK)
        status = tsr_comm_all_reduce(w->comm, &told, &told, 1, TSR_I32, TSR_OP_MAX, NULL);
    if (status != TSR_OK)
        return status;
    w->members = 0;
    for (int i = 0; i < tsr_comm_size(w->comm); i++)
        w->members |= 1U << numbers[i];
    for (int i = 0; i < COUNT; i++) {
        if ((unsigned)w->data[i] != w->members)
            rank_fail("the sum is 0x%x of the members 0x%x", (unsigned)w->data[i], w->members);
    }
    *finish = told != 0;
    atomic_fetch_add(&w->shown->works, 1);
    return TSR_OK;
}

/* Joins the job again after this rank was left out. */
static bool join(worker *w)
{
    tsr_comm *comm = NULL;
    if (w->comm)
        leave(w);
    const tsr_status status = tsr_comm_create(
        tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_JOIN, .timeout_ns = 4000 * MS), &comm);
    if (status == TSR_OK)
        use(w, comm);
    return status == TSR_OK;
}

/* Continues after a loss. Returns false if this process cannot. */
static bool go_on(worker *w)
{
    tsr_comm *smaller = NULL;
    const tsr_status status = tsr_comm_shrink(
        w->comm, tsr_comm_shrink_params(.timeout_ns = w->shown->shrink_ns), &smaller);
    if (status == TSR_OK) {
        atomic_fetch_add(&w->shown->shrinks, 1);
        use(w, smaller);
        return true;
    }
    if (status != TSR_ERR_PEER_LOST && status != TSR_ERR_TIMEOUT)
        rank_fail("%s: %s", tsr_status_name(status), tsr_last_error());
    atomic_fetch_add(status == TSR_ERR_PEER_LOST ? &w->shown->left_out : &w->shown->minorities, 1);
    return join(w);
}

static bool look_for_newcomers(worker *w)
{
    tsr_comm *larger = NULL;
    const tsr_status status =
        tsr_comm_grow(w->comm, tsr_comm_grow_params(.count = 2, .timeout_ns = 50 * MS), &larger);
    if (status == TSR_OK) {
        atomic_fetch_add(&w->shown->grows, 1);
        use(w, larger);
    } else if (tsr_comm_status(w->comm) != TSR_OK) {
        return go_on(w);
    }
    return true;
}

static void live(tsr_comm *comm, void *user)
{
    progress *shown = ranks_shared();
    worker w = {.shown = shown, .is_first = true, .number = atomic_fetch_add(&shown->numbers, 1)};
    bool finish = false, lives = true;
    (void)user;
    w.data = rank_memory(COUNT * sizeof *w.data);
    use(&w, comm);
    atomic_fetch_add(&shown->started, 1);
    for (int i = 0; lives && !finish; i++) {
        if (work(&w, &finish) != TSR_OK) {
            finish = false;
            lives = go_on(&w);
        } else if (i % GROW_EVERY == 0 && !finish) {
            lives = look_for_newcomers(&w);
        }
    }
    if (lives)
        atomic_store(&shown->members[w.number], w.members);
    if (w.comm)
        leave(&w);
}

/* Functions that run in the test --------------------------------------------------------------- */

/* Kills, stops or adds a process. Returns the number of processes. */
static int disturb(uint64_t *random, int processes)
{
    const int victim = (int)random_between(random, 0, processes - 1);
    switch (random_between(random, 0, 3)) {
    case 0:
        ranks_signal(victim, SIGKILL);
        break;
    case 1:
        ranks_signal(victim, SIGSTOP);
        usleep((useconds_t)random_between(random, 100000, 1500000));
        ranks_signal(victim, SIGCONT);
        break;
    default:
        if (processes < 10)
            processes = ranks_join(live, NULL, 4000 * MS) + 1;
    }
    usleep((useconds_t)random_between(random, 0, 300000));
    return processes;
}

/* Checks that all processes that ended in a communicator ended in the same one. */
static void check_members(const progress *shown, uint64_t seed)
{
    unsigned all = 0, first = 0;
    for (int i = 0; i < MAX_RANKS; i++) {
        const unsigned members = atomic_load(&shown->members[i]);
        if (!members)
            continue;
        all |= 1U << i;
        first = first ? first : members;
        ck_assert_msg(members == first, "seed %llu: two communicators at the end: 0x%x and 0x%x",
                      (unsigned long long)seed, first, members);
    }
    ck_assert_msg((all & ~first) == 0, "seed %llu: 0x%x have ended in the communicator of 0x%x",
                  (unsigned long long)seed, all, first);
}

/* Waits until the ranks have made some sums after the last event. A rank that did not take part in
 * the others' decision, because it was too late, learns that it was left out only while they run;
 * once they have ended, it goes on alone. If too few are left for sums, waits for 10 s. */
static void let_work(const progress *shown, int processes)
{
    const int enough = atomic_load(&shown->works) + 10 * processes;
    const double end = seconds_now() + 10;
    while (atomic_load(&shown->works) < enough && seconds_now() < end)
        usleep(1000);
}

static void play(uint64_t seed)
{
    uint64_t random = seed;
    int processes = 4;
    ranks_choose_port();
    ranks_start(&(ranks_job){.size = 4, .path = (ranks_path)(seed % PATHS), .run = live});
    progress *shown = ranks_shared();
    shown->shrink_ns = (seed % 2 ? 8000 : 1200) * MS;
    const double end = seconds_now() + 60;
    while (atomic_load(&shown->started) < 4 && seconds_now() < end)
        usleep(1000);
    const int events = (int)random_between(&random, 2, 6);
    for (int i = 0; i < events; i++)
        processes = disturb(&random, processes);
    let_work(shown, processes);
    atomic_store(&shown->finish, 1);
    ranks_wait();
    for (int i = 0; i < processes; i++) {
        const char *failure = ranks_record(i)->failure;
        /* a process may join too late, or reach the ranks while they fail */
        const bool may = !failure[0] || (i >= 4 && strstr(failure, ": comm_create: "));
        ck_assert_msg(may, "seed %llu: process %d: %s", (unsigned long long)seed, i, failure);
        ck_assert_msg(ranks_record(i)->wait_status == 0 || ranks_record(i)->wait_status == SIGKILL,
                      "seed %llu: process %d ended with wait status 0x%x", (unsigned long long)seed,
                      i, (unsigned)ranks_record(i)->wait_status);
    }
    check_members(shown, seed);
    fprintf(stderr,
            "seed %llu: %d processes, %d events: %d sums, %d shrinks, %d grows, %d left out, %d "
            "without a majority\n",
            (unsigned long long)seed, processes, events, atomic_load(&shown->works),
            atomic_load(&shown->shrinks), atomic_load(&shown->grows), atomic_load(&shown->left_out),
            atomic_load(&shown->minorities));
}

START_TEST(through_kills_stops_and_joins)
{
    const char *wish = getenv("TESSERA_TEST_ROUNDS"), *first = getenv("TESSERA_TEST_SEED");
    const int rounds = wish ? atoi(wish) : ROUNDS;
    const uint64_t seed = first ? strtoull(first, NULL, 0) : 1;
    for (int round = 0; round < rounds; round++)
        play(seed + (uint64_t)round);
}
END_TEST

TESTS(elastic)
{
    tcase_set_timeout(tests, 6000);
    tcase_add_test(tests, through_kills_stops_and_joins);
}
