/* Simulates the steps of a collective (see cost.h). */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "cli/lib/memory.h"
#include "cli/lib/say.h"
#include "cli/plan/cluster/cost.h"

/* The state of a rank whose steps are simulated. Steps of a rank with the same round number start
 * together; the next round starts when all of them are done. */
typedef struct player {
    uint64_t at, end; /* the start of its current round, and the end of its steps */
    double now;       /* when the current round started */
    int processor;    /* the processor of the rank */
} player;

typedef struct play_state {
    const plan_group *group;
    player *players; /* [size] */
    uint64_t *first; /* [size + 1]: the first step of each rank */
    tsr_comm_step *steps;
    /* For each step that receives a message: when the message arrives. For each collective in
     * shared memory: when the rank reaches it. < 0: not known yet. */
    double *times;
    uint64_t *match;        /* for each step that sends: the step that receives the message */
    double *link_free;      /* [hosts][hosts]: when the link has sent its last message */
    double *processor_free; /* [size]: when each processor is free */
} play_state;

static uint64_t steps_of(const plan_group *g, tsr_collective kind, double bytes, int rank,
                         uint64_t capacity, tsr_comm_step *steps)
{
    uint64_t count = 0;
    const tsr_status status =
        tsr_comm_steps(tsr_comm_steps_params(.collective = kind, .size = g->size, .hosts = g->host,
                                             .rank = rank, .bytes = (uint64_t)bytes),
                       capacity, steps, &count);
    if (status != TSR_OK)
        exit(cli_failed("plan: %s", tsr_last_error()));
    return count;
}

static void match_messages(const play_state *p)
{
    const int size = p->group->size;
    for (int from = 0; from < size; from++)
        for (uint64_t out = p->first[from]; out < p->first[from + 1]; out++) {
            if (p->steps[out].kind != TSR_COMM_STEP_SEND)
                continue;
            const int to = p->steps[out].peer;
            uint64_t in = p->first[to];
            while (p->steps[in].kind != TSR_COMM_STEP_RECV || p->steps[in].peer != from ||
                   p->match[in])
                in++;
            p->match[in] = 1; /* this step has its sender */
            p->match[out] = in;
        }
}

/* Returns the number of ranks for each processor of a host, at least 1. */
static double ranks_per_processor(const plan_group *g, int host)
{
    return g->turns ? fmax(g->turns[host].ranks, 1) : 1;
}

static int ranks_on(const plan_group *g, int host)
{
    int ranks = 0;
    for (int i = 0; i < g->size; i++)
        ranks += g->host[i] == host;
    return ranks;
}

/* Assigns the ranks of each host to its processors in turn. */
static void assign_processors(const play_state *p)
{
    const plan_group *g = p->group;
    for (int i = 0; i < g->size; i++) {
        const int ranks = ranks_on(g, g->host[i]);
        const int processors =
            (int)fmax(ceil(ranks / ranks_per_processor(g, g->host[i]) - 1e-9), 1);
        int before = 0, first = 0;
        for (int j = 0; j < i; j++)
            before += g->host[j] == g->host[i];
        while (g->host[first] != g->host[i])
            first++;
        p->players[i].processor = first + before % processors;
    }
}

/* The seconds for which a round keeps the processor of its rank busy. */
typedef struct round_work {
    double copies;
    /* The time that messages to other hosts keep the processor busy. It does not delay the rank
     * itself, because the time of the link includes it, but only the other ranks of its processor.
     * The measured time to wake a rank includes it too, so the larger of the two times counts. */
    double messages;
} round_work;

/* Returns when a rank that is ready at `when` has done the work of its round. It starts after the
 * ranks of its processor that were ready before it. Ranks of other groups on the same processor are
 * not simulated: they are assumed to take the same steps at the same time, so each of them takes a
 * turn, too. */
static double take_turn(const play_state *p, int rank, double when, round_work work)
{
    const plan_group *g = p->group;
    if (ranks_per_processor(g, g->host[rank]) <= 1)
        return when + work.copies;
    int mine = 0;
    for (int i = 0; i < g->size; i++)
        mine += p->players[i].processor == p->players[rank].processor;
    const plan_turns *turns = &g->turns[g->host[rank]];
    const bool sleeps = when - p->players[rank].now > PLAN_POLL_SECONDS;
    const double each = fmax(sleeps ? turns->asleep : turns->awake, work.messages) + work.copies,
                 groups = fmax(ranks_per_processor(g, g->host[rank]) / mine, 1);
    double *is_free = &p->processor_free[p->players[rank].processor];
    const double start = fmax(when + (groups - 1) * each, *is_free);
    *is_free = start + groups * each;
    return start + work.copies;
}

static void send_message(const play_state *p, int rank, uint64_t step)
{
    const plan_group *g = p->group;
    const int from = g->host[rank], to = g->host[p->steps[step].peer];
    const plan_link *link = &g->links[from * g->hosts + to];
    const double bytes = (double)p->steps[step].bytes;
    double start = p->players[rank].now;
    if (from != to) {
        double *is_free = &p->link_free[from * g->hosts + to];
        start = fmax(start, *is_free);
        *is_free = start + bytes / plan_link_bandwidth(link);
    }
    p->times[p->match[step]] = start + plan_link_seconds(link, bytes);
}

static uint64_t end_of_round(const play_state *p, int rank)
{
    const player *who = &p->players[rank];
    uint64_t end = who->at;
    while (end < who->end && p->steps[end].round == p->steps[who->at].round)
        end++;
    return end;
}

static void start_round(const play_state *p, int rank)
{
    const uint64_t end = end_of_round(p, rank);
    for (uint64_t i = p->players[rank].at; i < end; i++) {
        if (p->steps[i].kind == TSR_COMM_STEP_SEND)
            send_message(p, rank, i);
        else if (p->steps[i].kind == TSR_COMM_STEP_MEMORY)
            p->times[i] = p->players[rank].now;
    }
}

/* Returns when the last rank reaches a collective in shared memory, which is step `step` of `rank`.
 * Returns a negative number if this is not known yet. All ranks of the host take their collectives
 * in shared memory in the same order, so this is the n-th one of each of these ranks. */
static double all_present(const play_state *p, int rank, uint64_t step)
{
    int before = 0;
    double last = 0;
    for (uint64_t i = p->first[rank]; i < step; i++)
        before += p->steps[i].kind == TSR_COMM_STEP_MEMORY;
    for (int other = p->steps[step].peer; other < p->steps[step].peer + p->steps[step].ranks;
         other++) {
        int seen = -1;
        uint64_t i = p->first[other];
        while ((seen += p->steps[i].kind == TSR_COMM_STEP_MEMORY) < before)
            i++;
        if (p->times[i] < 0)
            return -1;
        last = fmax(last, p->times[i]);
    }
    return last;
}

static const plan_link *link_inside(const plan_group *g, int rank)
{
    return &g->links[g->host[rank] * g->hosts + g->host[rank]];
}

/* Returns the measured cost of collectives in the memory of a rank's host, or NULL if it was not
 * measured. */
static const plan_memory_cost *memory_of(const plan_group *g, int rank)
{
    const plan_memory_cost *memory = g->memory ? &g->memory[g->host[rank]] : NULL;
    return memory && memory->work.count > 0 ? memory : NULL;
}

static double memory_latency(const plan_group *g, int rank, const tsr_comm_step *step)
{
    const plan_memory_cost *memory = memory_of(g, rank);
    if (memory && ranks_per_processor(g, g->host[rank]) > 1)
        return 0; /* the measured time to wait for a turn contains the latency */
    if (memory)
        return memory->latency * log2(step->ranks) / log2(memory->ranks);
    return ceil(log2(step->ranks)) * plan_link_seconds(link_inside(g, rank), 0);
}

/* Adds how long a step keeps its rank's processor busy. For a message inside the host, the sender
 * and the receiver each need half of the link's time. (A host without a link inside has only one
 * rank.) If each rank has a processor, messages add nothing, because the link's time contains this
 * work. */
static void add_work(const plan_group *g, int rank, const tsr_comm_step *step, round_work *sum)
{
    const plan_link *inside = link_inside(g, rank);
    const plan_memory_cost *memory = memory_of(g, rank);
    const int host = g->host[rank];
    if (step->kind == TSR_COMM_STEP_MEMORY)
        sum->copies += memory ? plan_link_seconds(&memory->work, (double)step->bytes)
                              : (double)step->bytes / plan_link_bandwidth(inside);
    else if (ranks_per_processor(g, host) <= 1)
        return;
    else if (g->host[step->peer] != host && g->message_work &&
             g->message_work[host * g->hosts + g->host[step->peer]].count > 0)
        sum->messages += plan_link_seconds(&g->message_work[host * g->hosts + g->host[step->peer]],
                                           (double)step->bytes);
    else if (inside->count > 0)
        sum->copies += (double)step->bytes / 2 / plan_link_bandwidth(inside);
}

/* Returns when a rank has received all messages, and reached all collectives, of its current round.
 * Returns a negative number if this is not known yet. */
static double round_end(const play_state *p, int rank)
{
    const uint64_t end = end_of_round(p, rank);
    double last = p->players[rank].now;
    for (uint64_t i = p->players[rank].at; i < end; i++) {
        double when = last;
        if (p->steps[i].kind == TSR_COMM_STEP_RECV)
            when = p->times[i];
        else if (p->steps[i].kind == TSR_COMM_STEP_MEMORY)
            when = all_present(p, rank, i);
        if (when < 0)
            return -1;
        if (p->steps[i].kind == TSR_COMM_STEP_MEMORY)
            when += memory_latency(p->group, rank, &p->steps[i]);
        last = fmax(last, when);
    }
    return last;
}

static void end_round(const play_state *p, int rank, double when)
{
    player *who = &p->players[rank];
    const uint64_t end = end_of_round(p, rank);
    bool waits = false;
    round_work work = {0, 0};
    for (uint64_t i = who->at; i < end; i++) {
        waits = waits || p->steps[i].kind != TSR_COMM_STEP_SEND;
        add_work(p->group, rank, &p->steps[i], &work);
    }
    who->now = waits ? take_turn(p, rank, when, work) : when;
    who->at = end;
    if (end < who->end)
        start_round(p, rank);
}

/* Simulates the ends of all rounds in the order of time. Returns the time of the last one. */
static double play_all(const play_state *p)
{
    const int size = p->group->size;
    double last = 0;
    for (int rank = 0; rank < size; rank++)
        if (p->players[rank].at < p->players[rank].end)
            start_round(p, rank);
    for (;;) {
        int next = -1;
        double first = INFINITY;
        for (int rank = 0; rank < size; rank++) {
            if (p->players[rank].at == p->players[rank].end)
                continue;
            const double end = round_end(p, rank);
            if (end >= 0 && end < first) {
                first = end;
                next = rank;
            }
        }
        if (next < 0)
            break;
        end_round(p, next, first);
    }
    for (int rank = 0; rank < size; rank++)
        last = fmax(last, p->players[rank].now);
    return last;
}

/* Simulates a collective and returns its seconds. The simulation's own run time grows with the
 * square of the number of steps. */
static double play(const plan_group *g, tsr_collective kind, double bytes)
{
    const size_t size = (size_t)g->size, hosts = (size_t)g->hosts;
    play_state p = {.group = g,
                    .players = cli_alloc(size, sizeof *p.players),
                    .first = cli_alloc(size + 1, sizeof *p.first),
                    .link_free = cli_alloc(hosts * hosts, sizeof *p.link_free),
                    .processor_free = cli_alloc(size, sizeof *p.processor_free)};
    for (int i = 0; i < g->size; i++)
        p.first[i + 1] = p.first[i] + steps_of(g, kind, bytes, i, 0, NULL);
    const size_t all = (size_t)p.first[size];
    p.steps = cli_alloc(all, sizeof *p.steps);
    p.times = cli_alloc(all, sizeof *p.times);
    p.match = cli_alloc(all, sizeof *p.match);
    for (int i = 0; i < g->size; i++) {
        p.players[i].at = p.first[i];
        p.players[i].end = p.first[i + 1];
        steps_of(g, kind, bytes, i, p.first[i + 1] - p.first[i], p.steps + p.first[i]);
    }
    for (size_t i = 0; i < all; i++)
        p.times[i] = -1;
    match_messages(&p);
    assign_processors(&p);
    const double seconds = play_all(&p);
    free(p.players);
    free(p.first);
    free(p.steps);
    free(p.times);
    free(p.match);
    free(p.link_free);
    free(p.processor_free);
    return seconds;
}

/* Simulates at most 512 MiB, and extrapolates: large data is sent in messages of a fixed size, so
 * the time grows in proportion to the bytes. */
double plan_collective_seconds(const plan_group *g, tsr_collective kind, double bytes)
{
    const double played = 256.0 * 1048576;
    if (g->size < 2)
        return 0;
    if (bytes <= 2 * played)
        return play(g, kind, bytes);
    const double half = play(g, kind, played), both = play(g, kind, 2 * played);
    return both + (bytes - 2 * played) / played * (both - half);
}
