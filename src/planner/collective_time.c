/* Simulates the steps of a collective (see cost.h). */
#include <math.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/error.h"
#include "planner/cost.h"

/* The state of a rank whose steps are simulated. Steps of a rank with the same round number start
 * together; the next round starts when all of them are done. */
typedef struct rank_state {
    uint64_t step, end; /* the start of its current round, and the end of its steps */
    double now;         /* when the current round started */
    int processor;      /* the processor of the rank */
} rank_state;

typedef struct simulation {
    const tsr__cost_group *group;
    rank_state *ranks; /* [size] */
    uint64_t *first;   /* [size + 1]: the first step of each rank */
    tsr__comm_step *steps;
    /* For each step that receives a message: when the message arrives. For each collective in
     * shared memory: when the rank reaches it. < 0: not known yet. */
    double *times;
    uint64_t *match;        /* for each step that sends: the step that receives the message */
    double *link_free;      /* [hosts][hosts]: when the link has sent its last message */
    double *processor_free; /* [size]: when each processor is free */
} simulation;

/* Finds for each message that is sent the step that receives it. */
static void match_messages(const simulation *p)
{
    const int size = p->group->size;
    for (int from = 0; from < size; from++)
        for (uint64_t out = p->first[from]; out < p->first[from + 1]; out++) {
            if (p->steps[out].kind != TSR__COMM_STEP_SEND)
                continue;
            const int to = p->steps[out].peer;
            uint64_t in = p->first[to];
            while (p->steps[in].kind != TSR__COMM_STEP_RECV || p->steps[in].peer != from ||
                   p->match[in])
                in++;
            p->match[in] = 1; /* this step has its sender */
            p->match[out] = in;
        }
}

/* Returns the number of ranks for each processor of a host, at least 1. */
static double ranks_per_processor(const tsr__cost_group *g, int host)
{
    return g->turns ? fmax(g->turns[host].ranks, 1) : 1;
}

static int ranks_on(const tsr__cost_group *g, int host)
{
    int ranks = 0;
    for (int i = 0; i < g->size; i++)
        ranks += g->host[i] == host;
    return ranks;
}

/* Assigns the ranks of each host to its processors in turn. */
static void assign_processors(const simulation *p)
{
    const tsr__cost_group *g = p->group;
    for (int i = 0; i < g->size; i++) {
        const int ranks = ranks_on(g, g->host[i]);
        const int processors =
            (int)fmax(ceil(ranks / ranks_per_processor(g, g->host[i]) - 1e-9), 1);
        int before = 0, first = 0;
        for (int j = 0; j < i; j++)
            before += g->host[j] == g->host[i];
        while (g->host[first] != g->host[i])
            first++;
        p->ranks[i].processor = first + before % processors;
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
static double take_turn(const simulation *p, int rank, double when, round_work work)
{
    const tsr__cost_group *g = p->group;
    if (ranks_per_processor(g, g->host[rank]) <= 1)
        return when + work.copies;
    int mine = 0;
    for (int i = 0; i < g->size; i++)
        mine += p->ranks[i].processor == p->ranks[rank].processor;
    const tsr__turns *turns = &g->turns[g->host[rank]];
    const bool sleeps = when - p->ranks[rank].now > TSR__POLL_SECONDS;
    const double each = fmax(sleeps ? turns->asleep : turns->awake, work.messages) + work.copies,
                 groups = fmax(ranks_per_processor(g, g->host[rank]) / mine, 1);
    double *is_free = &p->processor_free[p->ranks[rank].processor];
    const double start = fmax(when + (groups - 1) * each, *is_free);
    *is_free = start + groups * each;
    return start + work.copies;
}

static void send_message(const simulation *p, int rank, uint64_t step)
{
    const tsr__cost_group *g = p->group;
    const int from = g->host[rank], to = g->host[p->steps[step].peer];
    const tsr__link *link = &g->links[from * g->hosts + to];
    const double bytes = (double)p->steps[step].bytes;
    double start = p->ranks[rank].now;
    if (from != to) {
        double *is_free = &p->link_free[from * g->hosts + to];
        start = fmax(start, *is_free);
        *is_free = start + bytes / tsr__link_bandwidth(link);
    }
    p->times[p->match[step]] = start + tsr__link_seconds(link, bytes);
}

static uint64_t end_of_round(const simulation *p, int rank)
{
    const rank_state *who = &p->ranks[rank];
    uint64_t end = who->step;
    while (end < who->end && p->steps[end].round == p->steps[who->step].round)
        end++;
    return end;
}

static void start_round(const simulation *p, int rank)
{
    const uint64_t end = end_of_round(p, rank);
    for (uint64_t i = p->ranks[rank].step; i < end; i++) {
        if (p->steps[i].kind == TSR__COMM_STEP_SEND)
            send_message(p, rank, i);
        else if (p->steps[i].kind == TSR__COMM_STEP_MEMORY)
            p->times[i] = p->ranks[rank].now;
    }
}

/* Returns when the last rank reaches a collective in shared memory, which is step `step` of `rank`.
 * Returns a negative number if this is not known yet. All ranks of the host take their collectives
 * in shared memory in the same order, so this is the n-th one of each of these ranks. */
static double all_present(const simulation *p, int rank, uint64_t step)
{
    int before = 0;
    double last = 0;
    for (uint64_t i = p->first[rank]; i < step; i++)
        before += p->steps[i].kind == TSR__COMM_STEP_MEMORY;
    for (int other = p->steps[step].peer; other < p->steps[step].peer + p->steps[step].ranks;
         other++) {
        int seen = -1;
        uint64_t i = p->first[other];
        while ((seen += p->steps[i].kind == TSR__COMM_STEP_MEMORY) < before)
            i++;
        if (p->times[i] < 0)
            return -1;
        last = fmax(last, p->times[i]);
    }
    return last;
}

static const tsr__link *link_inside(const tsr__cost_group *g, int rank)
{
    return &g->links[g->host[rank] * g->hosts + g->host[rank]];
}

/* Returns the measured cost of collectives in the memory of a rank's host, or NULL if it was not
 * measured. */
static const tsr__memory_cost *memory_of(const tsr__cost_group *g, int rank)
{
    const tsr__memory_cost *memory = g->memory ? &g->memory[g->host[rank]] : NULL;
    return memory && memory->work.count > 0 ? memory : NULL;
}

static double memory_latency(const tsr__cost_group *g, int rank, const tsr__comm_step *step)
{
    const tsr__memory_cost *memory = memory_of(g, rank);
    if (memory && ranks_per_processor(g, g->host[rank]) > 1)
        return 0; /* the measured time to wait for a turn contains the latency */
    if (memory)
        return memory->latency * log2(step->ranks) / log2(memory->ranks);
    return ceil(log2(step->ranks)) * tsr__link_seconds(link_inside(g, rank), 0);
}

/* Adds how long a step keeps its rank's processor busy. For a message inside the host, the sender
 * and the receiver each need half of the link's time. (A host without a link inside has only one
 * rank.) If each rank has a processor, messages add nothing, because the link's time contains this
 * work. */
static void add_work(const tsr__cost_group *g, int rank, const tsr__comm_step *step,
                     round_work *sum)
{
    const tsr__link *inside = link_inside(g, rank);
    const tsr__memory_cost *memory = memory_of(g, rank);
    const int host = g->host[rank];
    if (step->kind == TSR__COMM_STEP_MEMORY)
        sum->copies += memory ? tsr__link_seconds(&memory->work, (double)step->bytes)
                              : (double)step->bytes / tsr__link_bandwidth(inside);
    else if (ranks_per_processor(g, host) <= 1)
        return;
    else if (g->host[step->peer] != host && g->message_work &&
             g->message_work[host * g->hosts + g->host[step->peer]].count > 0)
        sum->messages += tsr__link_seconds(&g->message_work[host * g->hosts + g->host[step->peer]],
                                           (double)step->bytes);
    else if (inside->count > 0)
        sum->copies += (double)step->bytes / 2 / tsr__link_bandwidth(inside);
}

/* Returns when a rank has received all messages, and reached all collectives, of its current round.
 * Returns a negative number if this is not known yet. */
static double round_end(const simulation *p, int rank)
{
    const uint64_t end = end_of_round(p, rank);
    double last = p->ranks[rank].now;
    for (uint64_t i = p->ranks[rank].step; i < end; i++) {
        double when = last;
        if (p->steps[i].kind == TSR__COMM_STEP_RECV)
            when = p->times[i];
        else if (p->steps[i].kind == TSR__COMM_STEP_MEMORY)
            when = all_present(p, rank, i);
        if (when < 0)
            return -1;
        if (p->steps[i].kind == TSR__COMM_STEP_MEMORY)
            when += memory_latency(p->group, rank, &p->steps[i]);
        last = fmax(last, when);
    }
    return last;
}

static void end_round(const simulation *p, int rank, double when)
{
    rank_state *who = &p->ranks[rank];
    const uint64_t end = end_of_round(p, rank);
    bool waits = false;
    round_work work = {0, 0};
    for (uint64_t i = who->step; i < end; i++) {
        waits = waits || p->steps[i].kind != TSR__COMM_STEP_SEND;
        add_work(p->group, rank, &p->steps[i], &work);
    }
    who->now = waits ? take_turn(p, rank, when, work) : when;
    who->step = end;
    if (end < who->end)
        start_round(p, rank);
}

/* Simulates the ends of all rounds in the order of time. Returns the time of the last one. */
static double simulate_rounds(const simulation *p)
{
    const int size = p->group->size;
    double last = 0;
    for (int rank = 0; rank < size; rank++)
        if (p->ranks[rank].step < p->ranks[rank].end)
            start_round(p, rank);
    for (;;) {
        int next = -1;
        double first = INFINITY;
        for (int rank = 0; rank < size; rank++) {
            if (p->ranks[rank].step == p->ranks[rank].end)
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
        last = fmax(last, p->ranks[rank].now);
    return last;
}

double tsr__turns_seconds(const tsr__turns *turns)
{
    return fmax(turns->ranks - 1, 0) * turns->asleep;
}

/* Lists the steps of all ranks: the steps of rank r are p->first[r] … p->first[r + 1] − 1. */
static tsr_status list_steps(simulation *p, tsr__call_kind kind, double bytes)
{
    const tsr__cost_group *g = p->group;
    tsr__comm_steps_params params = {
        .collective = kind, .size = g->size, .hosts = g->host, .bytes = (uint64_t)bytes};
    for (params.rank = 0; params.rank < g->size; params.rank++) {
        uint64_t count = 0;
        TSR__TRY(tsr__comm_steps(&params, 0, NULL, &count));
        p->first[params.rank + 1] = p->first[params.rank] + count;
    }
    const uint64_t total = p->first[g->size];
    p->steps = tsr__calloc((size_t)total, sizeof *p->steps);
    p->times = tsr__calloc((size_t)total, sizeof *p->times);
    p->match = tsr__calloc((size_t)total, sizeof *p->match);
    if (!p->steps || !p->times || !p->match)
        return TSR_ERR_NO_MEMORY;
    for (params.rank = 0; params.rank < g->size; params.rank++) {
        rank_state *who = &p->ranks[params.rank];
        uint64_t count = 0;
        who->step = p->first[params.rank];
        who->end = p->first[params.rank + 1];
        TSR__TRY(tsr__comm_steps(&params, who->end - who->step, p->steps + who->step, &count));
    }
    for (uint64_t i = 0; i < total; i++)
        p->times[i] = -1;
    return TSR_OK;
}

/* Simulates a collective and returns its seconds. The simulation's own run time grows with the
 * square of the number of steps. */
static double simulate(const tsr__cost_group *g, tsr__call_kind kind, double bytes,
                       tsr_status *status)
{
    const size_t size = (size_t)g->size, hosts = (size_t)g->hosts;
    double seconds = 0;
    if (*status != TSR_OK)
        return 0;
    simulation p = {.group = g,
                    .ranks = tsr__calloc(size, sizeof *p.ranks),
                    .first = tsr__calloc(size + 1, sizeof *p.first),
                    .link_free = tsr__calloc(hosts * hosts, sizeof *p.link_free),
                    .processor_free = tsr__calloc(size, sizeof *p.processor_free)};
    *status = p.ranks && p.first && p.link_free && p.processor_free ? list_steps(&p, kind, bytes)
                                                                    : TSR_ERR_NO_MEMORY;
    if (*status == TSR_OK) {
        match_messages(&p);
        assign_processors(&p);
        seconds = simulate_rounds(&p);
    }
    tsr__free(p.ranks);
    tsr__free(p.first);
    tsr__free(p.steps);
    tsr__free(p.times);
    tsr__free(p.match);
    tsr__free(p.link_free);
    tsr__free(p.processor_free);
    return seconds;
}

/* Data of more than 2 · SIMULATED_BYTES is extrapolated from the times of SIMULATED_BYTES and of
 * twice as much: large data is sent in messages of a fixed size, so the time grows in proportion to
 * the bytes. */
#define SIMULATED_BYTES (256.0 * 1048576)

double tsr__collective_seconds(const tsr__cost_group *g, tsr__call_kind kind, double bytes,
                               tsr_status *status)
{
    if (g->size < 2)
        return 0;
    if (bytes <= 2 * SIMULATED_BYTES)
        return simulate(g, kind, bytes, status);
    const double half = simulate(g, kind, SIMULATED_BYTES, status),
                 both = simulate(g, kind, 2 * SIMULATED_BYTES, status);
    return both + (bytes - 2 * SIMULATED_BYTES) / SIMULATED_BYTES * (both - half);
}
