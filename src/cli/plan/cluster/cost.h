/* A model of cost: how long messages and collective operations take, from measured links. All times
 * are in seconds, and sizes in bytes.
 *
 * A collective is played through: the library says which steps each rank makes (tsr_comm_steps). A
 * message takes the time of its link, and messages between the same two hosts leave one after the
 * other. If a host has more ranks than processors, ranks take turns: one whose message has come
 * waits until those that were ready before have run. Copies in memory then take as many times as
 * long as there are ranks for a processor, but only inside a host: between hosts, some ranks copy
 * while the messages of others travel. Additions are not counted. */
#ifndef TSR_CLI_PLAN_CLUSTER_COST_H
#define TSR_CLI_PLAN_CLUSTER_COST_H

#include <stdbool.h>

#include "tessera/comm.h"

/* The times of messages of some sizes, which ascend. Between two sizes the time is interpolated;
 * beyond the largest one it grows with the bandwidth of the last two. A protocol that changes at
 * some size, as UCX's does, is so part of the model. */
#define PLAN_LINK_POINTS 16
typedef struct plan_link {
    int count; /* 0: there is no such link; otherwise at least 2 */
    double bytes[PLAN_LINK_POINTS], seconds[PLAN_LINK_POINTS];
} plan_link;

/* A link whose messages take `latency`, and their bytes at `bandwidth` (more than 0) in addition.
 */
plan_link plan_link_of(double latency, double bandwidth);
double plan_link_seconds(const plan_link *link, double bytes);
/* Bytes per second of large messages. */
double plan_link_bandwidth(const plan_link *link);

/* How ranks share the processors of a host. */
typedef struct plan_turns {
    double ranks;   /* that run at the same time, for a processor; at most 1 counts as 1 */
    double seconds; /* until another rank of the processor runs */
} plan_turns;

/* How long a rank waits for its turn after each message. */
double plan_turns_seconds(const plan_turns *turns);

/* The ranks of a group in their order, by the hosts where they are. */
typedef struct plan_group {
    int size;
    const int *host; /* [size] */
    int hosts;
    const plan_link *links;  /* [hosts][hosts]; on the diagonal those inside hosts */
    const plan_turns *turns; /* [hosts]; NULL: each rank has a processor */
} plan_group;

/* Takes 0 for a single rank. `bytes` is the size of the whole data, as in tessera bench. */
double plan_collective_seconds(const plan_group *group, tsr_collective kind, double bytes);

/* The time of a pipeline's step with the schedule 1F1B of tsr_pipeline_schedule: passes[s] is how
 * long stage s computes for a micro-batch, a third of it forward, and sends[s] how long a message
 * between stages s and s + 1 takes, which does not keep either from computing. The schedule is
 * played through; of very many micro-batches only the first ones, the others take as long as these
 * do on average. */
double plan_pipeline_seconds(int stages, int micro_batches, const double *passes,
                             const double *sends);

#endif
