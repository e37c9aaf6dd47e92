/* A model of cost: how long messages and collective operations take, from measured links. All times
 * are in seconds, and sizes in bytes.
 *
 * A collective is simulated step by step; tsr_comm_steps says which steps each rank makes. A
 * message takes the time of its link, and messages between the same two hosts leave one after the
 * other. If a host has more ranks than processors, a rank whose message has arrived waits until the
 * ranks of its processor that were ready before it have run, and have copied what their messages
 * and collectives in memory carry. A rank that has waited for long sleeps, and its turn takes
 * longer, because it must be woken. */
#ifndef TSR_CLI_PLAN_CLUSTER_COST_H
#define TSR_CLI_PLAN_CLUSTER_COST_H

#include <stdbool.h>

#include "tessera/comm.h"

/* The times of messages of some sizes, which ascend. Between two sizes the time is interpolated;
 * beyond the largest one it grows with the bandwidth of the last two. The points also show where a
 * protocol changes, as UCX's does at some sizes. */
#define PLAN_LINK_POINTS 16
typedef struct plan_link {
    int count; /* 0: there is no such link; otherwise at least 2 */
    double bytes[PLAN_LINK_POINTS], seconds[PLAN_LINK_POINTS];
} plan_link;

/* A link whose messages take `latency`, and their bytes at `bandwidth`
 * (more than 0) in addition. */
plan_link plan_link_of(double latency, double bandwidth);
double plan_link_seconds(const plan_link *link, double bytes);
/* Bytes per second of large messages. */
double plan_link_bandwidth(const plan_link *link);

/* How ranks share the processors of a host. */
typedef struct plan_turns {
    double ranks; /* ranks per processor; less than 1 counts as 1 */
    /* the time until another rank of the processor runs, if that polls, and if it sleeps */
    double awake, asleep;
} plan_turns;

/* A rank that has waited so long sleeps, if ranks share processors. */
#define PLAN_POLL_SECONDS 60e-6

/* How long a rank waits for its turn after a message for which it has waited for long. */
double plan_turns_seconds(const plan_turns *turns);

/* Collectives of a host's ranks through their memory, as measured with `ranks` ranks. */
typedef struct plan_memory_cost {
    int ranks;
    double latency; /* of one without data, if each rank has a processor */
    plan_link work; /* what its data take of each rank's processor: bytes that it reads of others,
                     * and seconds; count 0: not measured, and the link inside the host counts */
} plan_memory_cost;

/* The ranks of a group in their order, by the hosts where they are. */
typedef struct plan_group {
    int size;
    const int *host; /* [size] */
    int hosts;
    const plan_link *links;         /* [hosts][hosts]; on the diagonal those inside hosts */
    const plan_turns *turns;        /* [hosts]; NULL: each rank has a processor */
    const plan_memory_cost *memory; /* [hosts]; NULL: not measured */
    /* [hosts][hosts]: what a message between two hosts takes of the processor of either rank;
     * NULL, or count 0: not measured, and taken to be nothing */
    const plan_link *busy;
} plan_group;

/* Returns the time of a collective, 0 for a single rank. `bytes` is the size of the complete data,
 * as in tessera bench. */
double plan_collective_seconds(const plan_group *group, tsr_collective kind, double bytes);

/* Returns the time of a pipeline's step with the schedule 1F1B of tsr_pipeline_schedule. passes[s]
 * is how long stage s computes for a micro-batch, a third of it forward. sends[s] is how long a
 * message between stages s and s + 1 takes, during which both can compute. The schedule is
 * simulated; if there are very many micro-batches, only for the first ones, and the others are
 * taken to need as long as these on average. */
double plan_pipeline_seconds(int stages, int micro_batches, const double *passes,
                             const double *sends);

#endif
