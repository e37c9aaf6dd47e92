/* Simulates the stages of a model that generates (see cost.h). */
#include <math.h>
#include <stdlib.h>

#include "cli/lib/memory.h"
#include "cli/plan/cluster/cost.h"

/* What a stage does with a part of the sequences. It needs processors only to compute. */
typedef enum phase { WAITS_FOR_PART, COMPUTES, WAITS_FOR_MESSAGES } phase;

typedef struct state {
    int host, end; /* its ranks are on hosts host, …, end - 1 */
    phase phase;
    int part;    /* the part that it works on, or waits for */
    double ends; /* unless it computes: when the phase ends; INFINITY: not known yet */
} state;

typedef struct line {
    const plan_stages *stages;
    state *state;     /* [stages] */
    double *left;     /* [stages][hosts]: the seconds that its ranks on a host still compute */
    double *arrivals; /* [stages][parts]: when the stage has received the part */
    double *speed;    /* [hosts]: how much of a processor each computing rank has */
    /* Stages before `first` have computed all parts, and those from `end` on have none yet. */
    int first, end;
} line;

static double *arrival(const line *l, int stage, int part)
{
    return &l->arrivals[stage * l->stages->parts + part];
}

static double *left(const line *l, int stage, int host)
{
    return &l->left[stage * l->stages->hosts + host];
}

static int ranks_on(const line *l, int stage, int host)
{
    return l->stages->ranks[stage * l->stages->hosts + host];
}

static void share_processors(const line *l)
{
    for (int host = 0; host < l->stages->hosts; host++)
        l->speed[host] = 0;
    for (int s = l->first; s < l->end; s++)
        for (int host = l->state[s].host; host < l->state[s].end; host++)
            if (*left(l, s, host) > 0)
                l->speed[host] += ranks_on(l, s, host);
    for (int host = 0; host < l->stages->hosts; host++) {
        const double processors = l->stages->processors[host], ranks = l->speed[host];
        l->speed[host] = processors > 0 && ranks > processors ? processors / ranks : 1;
    }
}

/* Returns how long the phase of a stage lasts from `now` on, if processors stay shared as they are
 * now. */
static double rest_of_phase(const line *l, int stage, double now)
{
    double longest = 0;
    if (l->state[stage].phase != COMPUTES)
        return fmax(l->state[stage].ends - now, 0);
    for (int host = l->state[stage].host; host < l->state[stage].end; host++)
        longest = fmax(longest, *left(l, stage, host) / l->speed[host]);
    return longest;
}

/* Returns how long it takes until a rank that computes has finished, on any host. */
static double first_rest(const line *l)
{
    double shortest = INFINITY;
    for (int s = l->first; s < l->end; s++)
        for (int host = l->state[s].host; host < l->state[s].end; host++)
            if (*left(l, s, host) > 0)
                shortest = fmin(shortest, *left(l, s, host) / l->speed[host]);
    return shortest;
}

static void compute_for(const line *l, double seconds)
{
    for (int s = l->first; s < l->end; s++)
        for (int host = l->state[s].host; host < l->state[s].end; host++) {
            double *here = left(l, s, host);
            const double more = *here - seconds * l->speed[host];
            /* The rank that finishes first has nothing left, whatever the rounding, so that each
             * step of the simulation ends something. */
            *here = more > 1e-9 * *here ? more : 0;
        }
}

static void end_phase(line *l, int stage, double now)
{
    const plan_stages *all = l->stages;
    state *s = &l->state[stage];
    switch (s->phase) {
    case WAITS_FOR_PART:
        s->phase = COMPUTES;
        for (int host = s->host; host < s->end; host++)
            *left(l, stage, host) = all->compute[stage * all->hosts + host];
        return;
    case COMPUTES:
        s->phase = WAITS_FOR_MESSAGES;
        s->ends = now + all->messages[stage];
        return;
    case WAITS_FOR_MESSAGES:
        break;
    }
    if (stage + 1 < all->count) {
        state *next = &l->state[stage + 1];
        *arrival(l, stage + 1, s->part) = now + all->sends[stage];
        if (next->phase == WAITS_FOR_PART && next->part == s->part)
            next->ends = now + all->sends[stage];
        l->end = stage + 2 > l->end ? stage + 2 : l->end;
    }
    s->phase = WAITS_FOR_PART;
    s->part++;
    l->first += s->part == all->parts;
    s->ends = s->part < all->parts ? fmax(now, *arrival(l, stage, s->part)) : INFINITY;
}

static double play(line *l)
{
    const int count = l->stages->count;
    double now = 0;
    while (l->state[count - 1].part < l->stages->parts) {
        int next = l->first;
        double rest = INFINITY;
        share_processors(l);
        for (int s = l->first; s < l->end; s++) {
            const double here = rest_of_phase(l, s, now);
            if (here < rest) {
                rest = here;
                next = s;
            }
        }
        const double first = first_rest(l), seconds = fmin(rest, first);
        compute_for(l, seconds);
        now += seconds;
        if (rest <= first)
            end_phase(l, next, now);
    }
    return now;
}

/* Finds the hosts of each stage. */
static void find_hosts(const line *l)
{
    const int hosts = l->stages->hosts;
    for (int s = 0; s < l->stages->count; s++) {
        state *here = &l->state[s];
        while (here->host < hosts && ranks_on(l, s, here->host) == 0)
            here->host++;
        for (int host = here->host; host < hosts; host++)
            here->end = ranks_on(l, s, host) > 0 ? host + 1 : here->end;
    }
}

double plan_stages_seconds(const plan_stages *stages)
{
    const size_t count = (size_t)stages->count, parts = (size_t)stages->parts,
                 hosts = (size_t)stages->hosts;
    line l = {.stages = stages,
              .end = 1,
              .state = cli_alloc(count, sizeof *l.state),
              .left = cli_alloc(count * hosts, sizeof *l.left),
              .arrivals = cli_alloc(count * parts, sizeof *l.arrivals),
              .speed = cli_alloc(hosts, sizeof *l.speed)};
    for (size_t i = 0; i < count * parts; i++)
        l.arrivals[i] = i < parts ? 0 : INFINITY; /* the first stage has all parts */
    for (size_t s = 1; s < count; s++)
        l.state[s].ends = INFINITY;
    find_hosts(&l);
    const double seconds = play(&l);
    free(l.state);
    free(l.left);
    free(l.arrivals);
    free(l.speed);
    return seconds;
}
