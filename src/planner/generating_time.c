/* Simulates the stages of a model that generates (see cost.h). */
#include <math.h>

#include "base/alloc.h"
#include "planner/cost.h"

/* What a stage does with a micro-batch of the sequences. It needs processors only to compute. */
typedef enum stage_phase { WAITS_FOR_INPUT, COMPUTES, WAITS_FOR_MESSAGES } stage_phase;

typedef struct stage_state {
    int host, end; /* its ranks are on hosts host, …, end - 1 */
    stage_phase phase;
    int micro_batch; /* the micro-batch that it works on, or waits for */
    double ends;     /* unless it computes: when the phase ends; INFINITY: not known yet */
} stage_state;

typedef struct simulation {
    const tsr__generating *model;
    stage_state *state; /* [stages] */
    double *left;       /* [stages][hosts]: the seconds that its ranks on a host still compute */
    double *arrivals;   /* [stages][micro_batches]: when the stage has received the micro-batch */
    double *speed;      /* [hosts]: how much of a processor each computing rank has */
    /* Stages before `first` have computed all micro-batches, and those from `end` on have none yet.
     */
    int first, end;
} simulation;

static double *arrival(const simulation *sim, int stage, int micro_batch)
{
    return &sim->arrivals[stage * sim->model->micro_batches + micro_batch];
}

static double *left(const simulation *sim, int stage, int host)
{
    return &sim->left[stage * sim->model->hosts + host];
}

static int ranks_on(const simulation *sim, int stage, int host)
{
    return sim->model->ranks[stage * sim->model->hosts + host];
}

static void share_processors(const simulation *sim)
{
    for (int host = 0; host < sim->model->hosts; host++)
        sim->speed[host] = 0;
    for (int s = sim->first; s < sim->end; s++)
        for (int host = sim->state[s].host; host < sim->state[s].end; host++)
            if (*left(sim, s, host) > 0)
                sim->speed[host] += ranks_on(sim, s, host);
    for (int host = 0; host < sim->model->hosts; host++) {
        const double processors = sim->model->processors[host], ranks = sim->speed[host];
        sim->speed[host] = processors > 0 && ranks > processors ? processors / ranks : 1;
    }
}

/* Returns how long the phase of a stage lasts from `now` on, if processors stay shared as they are
 * now. */
static double rest_of_phase(const simulation *sim, int stage, double now)
{
    double longest = 0;
    if (sim->state[stage].phase != COMPUTES)
        return fmax(sim->state[stage].ends - now, 0);
    for (int host = sim->state[stage].host; host < sim->state[stage].end; host++)
        longest = fmax(longest, *left(sim, stage, host) / sim->speed[host]);
    return longest;
}

/* Returns how long it takes until a rank that computes has finished, on any host. */
static double first_rest(const simulation *sim)
{
    double shortest = INFINITY;
    for (int s = sim->first; s < sim->end; s++)
        for (int host = sim->state[s].host; host < sim->state[s].end; host++)
            if (*left(sim, s, host) > 0)
                shortest = fmin(shortest, *left(sim, s, host) / sim->speed[host]);
    return shortest;
}

static void compute_for(const simulation *sim, double seconds)
{
    for (int s = sim->first; s < sim->end; s++)
        for (int host = sim->state[s].host; host < sim->state[s].end; host++) {
            double *here = left(sim, s, host);
            const double more = *here - seconds * sim->speed[host];
            /* The rank that finishes first has nothing left, whatever the rounding, so that each
             * step of the simulation ends something. */
            *here = more > 1e-9 * *here ? more : 0;
        }
}

static void end_phase(simulation *sim, int stage, double now)
{
    const tsr__generating *all = sim->model;
    stage_state *s = &sim->state[stage];
    switch (s->phase) {
    case WAITS_FOR_INPUT:
        s->phase = COMPUTES;
        for (int host = s->host; host < s->end; host++)
            *left(sim, stage, host) = all->compute[stage * all->hosts + host];
        return;
    case COMPUTES:
        s->phase = WAITS_FOR_MESSAGES;
        s->ends = now + all->messages[stage];
        return;
    case WAITS_FOR_MESSAGES:
        break;
    }
    if (stage + 1 < all->stages) {
        stage_state *next = &sim->state[stage + 1];
        *arrival(sim, stage + 1, s->micro_batch) = now + all->sends[stage];
        if (next->phase == WAITS_FOR_INPUT && next->micro_batch == s->micro_batch)
            next->ends = now + all->sends[stage];
        sim->end = stage + 2 > sim->end ? stage + 2 : sim->end;
    }
    s->phase = WAITS_FOR_INPUT;
    s->micro_batch++;
    sim->first += s->micro_batch == all->micro_batches;
    s->ends = s->micro_batch < all->micro_batches ? fmax(now, *arrival(sim, stage, s->micro_batch))
                                                  : INFINITY;
}

static double simulate(simulation *sim)
{
    const int count = sim->model->stages;
    double now = 0;
    while (sim->state[count - 1].micro_batch < sim->model->micro_batches) {
        int next = sim->first;
        double rest = INFINITY;
        share_processors(sim);
        for (int s = sim->first; s < sim->end; s++) {
            const double here = rest_of_phase(sim, s, now);
            if (here < rest) {
                rest = here;
                next = s;
            }
        }
        const double first = first_rest(sim), seconds = fmin(rest, first);
        compute_for(sim, seconds);
        now += seconds;
        if (rest <= first)
            end_phase(sim, next, now);
    }
    return now;
}

/* Finds the hosts of each stage. */
static void find_hosts(const simulation *sim)
{
    const int hosts = sim->model->hosts;
    for (int s = 0; s < sim->model->stages; s++) {
        stage_state *here = &sim->state[s];
        while (here->host < hosts && ranks_on(sim, s, here->host) == 0)
            here->host++;
        for (int host = here->host; host < hosts; host++)
            here->end = ranks_on(sim, s, host) > 0 ? host + 1 : here->end;
    }
}

double tsr__generating_seconds(const tsr__generating *model, tsr_status *status)
{
    const size_t stages = (size_t)model->stages, micro_batches = (size_t)model->micro_batches,
                 hosts = (size_t)model->hosts;
    double seconds = 0;
    if (*status != TSR_OK)
        return 0;
    simulation sim = {.model = model,
                      .end = 1,
                      .state = tsr__calloc(stages, sizeof *sim.state),
                      .left = tsr__calloc(stages * hosts, sizeof *sim.left),
                      .arrivals = tsr__calloc(stages * micro_batches, sizeof *sim.arrivals),
                      .speed = tsr__calloc(hosts, sizeof *sim.speed)};
    if (sim.state && sim.left && sim.arrivals && sim.speed) {
        /* The first stage has all micro-batches. */
        for (size_t i = 0; i < stages * micro_batches; i++)
            sim.arrivals[i] = i < micro_batches ? 0 : INFINITY;
        for (size_t s = 1; s < stages; s++)
            sim.state[s].ends = INFINITY;
        find_hosts(&sim);
        seconds = simulate(&sim);
    } else {
        *status = TSR_ERR_NO_MEMORY;
    }
    tsr__free(sim.state);
    tsr__free(sim.left);
    tsr__free(sim.arrivals);
    tsr__free(sim.speed);
    return seconds;
}
