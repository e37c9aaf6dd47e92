/* Many rounds of training with random kills, stops and joins. Sometimes a second process is killed
 * immediately, while the others are still recovering from the first loss. Its rank is never the one
 * before or after that of the first, because then one of the two would have the copies of the
 * other's shards. In the end all parameters must be those of an undisturbed training.
 * TESSERA_TEST_ROUNDS is the number of jobs, TESSERA_TEST_SEED the first seed. */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "parallel/elastic.h"

#define ROUNDS 3
#define MS UINT64_C(1000000)
#define MOST_RANKS 6 /* the batch can be divided over this number */
#define FIRST_RANKS 4

typedef struct crowd {
    uint64_t random;
    int processes; /* how many have been started */
    unsigned killed;
    uint64_t timeout_ns; /* 0: no process is stopped */
    int kills, stops, joins;
} crowd;

static bool lives(const crowd *c, int process)
{
    return process < c->processes && !(c->killed >> process & 1);
}

static int count(const crowd *c)
{
    return c->processes - __builtin_popcount(c->killed);
}

/* Waits until all processes that have not been killed train together. */
static void settle(const crowd *c, const char *after)
{
    const elastic_shared *shared = ranks_shared();
    const double end = seconds_now() + 60;
    bool settled = false;
    while (!settled) {
        settled = true;
        for (int i = 0; i < c->processes; i++) {
            ck_assert_msg(!lives(c, i) || !ranks_record(i)->failure[0], "%s: process %d: %s", after,
                          i, ranks_record(i)->failure);
            settled = settled && (!lives(c, i) || shared->ranks[i] == count(c));
        }
        ck_assert_msg(seconds_now() < end, "%s: %d processes do not train together", after,
                      count(c));
        usleep(1000);
    }
}

static int choose(crowd *c)
{
    int process;
    do
        process = (int)random_between(&c->random, 0, c->processes - 1);
    while (!lives(c, process));
    return process;
}

static void kill_one(crowd *c, int process)
{
    ranks_signal(process, SIGKILL);
    c->killed |= 1U << process;
    c->kills++;
}

/* Returns whether neither of the ranks a and b keeps the copies of the other's shards, if each
 * rank's copies are `distance` ranks after it. */
static bool are_apart(int ranks, int distance, int a, int b)
{
    return (a + distance) % ranks != b && (b + distance) % ranks != a;
}

static void kill_some(crowd *c)
{
    const elastic_shared *shared = ranks_shared();
    const int ranks = count(c), first = choose(c);
    usleep((useconds_t)random_between(&c->random, 0, 20000));
    kill_one(c, first);
    if (ranks < 4 || random_between(&c->random, 0, 2) > 0)
        return;
    const int second = choose(c);
    if (!are_apart(ranks, 1, shared->rank[first], shared->rank[second]))
        return;
    usleep((useconds_t)random_between(&c->random, 0, 300000));
    kill_one(c, second);
}

/* Stops a process, often for so long that the others continue without it. In that case it joins
 * them later. */
static void stop_one(crowd *c)
{
    const int process = choose(c);
    ranks_signal(process, SIGSTOP);
    usleep((useconds_t)random_between(&c->random, 0, (int64_t)(2 * c->timeout_ns / 1000)));
    ranks_signal(process, SIGCONT);
    c->stops++;
}

static void disturb(crowd *c, elastic_job *job)
{
    const bool room = c->processes < MAX_RANKS && count(c) < MOST_RANKS;
    if (c->timeout_ns > 0 && count(c) > 1 && random_between(&c->random, 0, 1) == 0) {
        stop_one(c);
        settle(c, "after a stop");
    } else if (count(c) > 1 && (!room || random_between(&c->random, 0, 1) == 0)) {
        kill_some(c);
        settle(c, "after a loss");
    } else if (room) {
        (void)!ranks_join(elastic_join, job, 0);
        c->processes++;
        c->joins++;
        settle(c, "after a process has joined");
    }
    usleep((useconds_t)random_between(&c->random, 0, 100000));
}

static void play(uint64_t seed, uint64_t timeout_ns)
{
    crowd c = {.random = seed, .processes = FIRST_RANKS, .timeout_ns = timeout_ns};
    elastic_job job = {.ranks = FIRST_RANKS,
                       .always_grows = true,
                       .timeout_ns = timeout_ns,
                       .momentum = seed % 2 == 1,
                       .layerwise = seed % 4 == 2,
                       .staged = seed % 3 == 0};
    ranks_choose_port();
    elastic_start(&job);
    settle(&c, "at the start");
    const int events = (int)random_between(&c.random, 4, 10);
    for (int i = 0; i < events; i++)
        disturb(&c, &job);
    elastic_shared *shared = ranks_shared();
    shared->finish = 1;
    elastic_wait(c.processes, c.killed);
    ck_assert_int_eq(shared->final_ranks, count(&c));
    fprintf(stderr,
            "seed %llu: %d kills, %d stops, %d joins; %d steps, %d ranks left; at most %d ms to go "
            "on\n",
            (unsigned long long)seed, c.kills, c.stops, c.joins, shared->final_steps, count(&c),
            shared->worst_ms);
}

static void play_rounds(int rounds, uint64_t timeout_ns)
{
    const char *wish = getenv("TESSERA_TEST_ROUNDS"), *first = getenv("TESSERA_TEST_SEED");
    const uint64_t seed = first ? strtoull(first, NULL, 0) : 1;
    if (wish)
        rounds = atoi(wish);
    for (int round = 0; round < rounds; round++)
        play(seed + (uint64_t)round, timeout_ns);
}

START_TEST(through_kills_and_joins)
{
    play_rounds(ROUNDS, 0);
}
END_TEST

START_TEST(through_stops_too)
{
    play_rounds(1, 5000 * MS);
}
END_TEST

TESTS(elastic_rounds)
{
    tcase_set_timeout(tests, 6000);
    tcase_add_test(tests, through_kills_and_joins);
    tcase_add_test(tests, through_stops_too);
}
