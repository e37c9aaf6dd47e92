/* A cost model: computes from measured links how long messages and collective operations take. All
 * times are in seconds, and all sizes in bytes.
 *
 * A collective is simulated with the steps that tsr_comm_steps gives. A message takes the time of
 * its link, and messages between the same two hosts leave one after the other. If a host has more
 * ranks than processors, ranks that have received their messages take turns: a rank waits until the
 * earlier ranks of its processor have copied the data of their messages and collectives in memory.
 * A rank that has waited for a long time sleeps, and its turn takes longer, because it must be
 * woken. */
#ifndef TSR_CLI_PLAN_CLUSTER_COST_H
#define TSR_CLI_PLAN_CLUSTER_COST_H

#include <stdbool.h>

#include "tessera/comm.h"

/* The measured times of messages of several sizes, in ascending order of sizes. Between two sizes,
 * the time is interpolated. Above the largest size, it grows with the bandwidth between the last
 * two. A latency and a bandwidth are not enough, because UCX changes its protocol at some sizes. */
#define PLAN_LINK_POINTS 16
typedef struct plan_link {
    int count; /* 0: there is no link; otherwise at least 2 */
    double bytes[PLAN_LINK_POINTS], seconds[PLAN_LINK_POINTS];
} plan_link;

/* Returns a link whose messages take `latency` plus their size divided by `bandwidth`, which must
 * be above 0. */
plan_link plan_link_of(double latency, double bandwidth);
double plan_link_seconds(const plan_link *link, double bytes);
/* Returns the bytes per second of large messages. */
double plan_link_bandwidth(const plan_link *link);

/* How ranks share the processors of a host. */
typedef struct plan_turns {
    double ranks; /* ranks for each processor; less than 1 counts as 1 */
    /* the time until the processor runs its next rank: `awake` if that rank polls, `asleep` if it
     * sleeps */
    double awake, asleep;
} plan_turns;

/* If ranks share processors, a rank that has waited for this time sleeps. */
#define PLAN_POLL_SECONDS 60e-6

/* Returns how long a sleeping rank waits until it runs, counted from the arrival of its message. */
double plan_turns_seconds(const plan_turns *turns);

/* The measured cost of collectives of a host's ranks in shared memory. */
typedef struct plan_memory_cost {
    int ranks;
    double latency; /* the time without data, if each rank has a processor */
    /* the time for which the data of a collective keeps the processor of a rank busy, as a function
     * of the number of bytes that the rank reads from other ranks. If count is 0, it was not
     * measured, and the link inside the host is used instead. */
    plan_link work;
} plan_memory_cost;

/* The ranks of a group: the host of each, and the costs of all hosts. */
typedef struct plan_group {
    int size;
    const int *host; /* [size] */
    int hosts;
    const plan_link *links;         /* [hosts][hosts]; the diagonal has the links inside hosts */
    const plan_turns *turns;        /* [hosts]; NULL: each rank has a processor */
    const plan_memory_cost *memory; /* [hosts]; NULL: not measured */
    /* [hosts][hosts]: how long a message between two hosts keeps the processor of each of its ranks
     * busy; NULL, or count 0: not measured, and counts as 0 */
    const plan_link *message_work;
} plan_group;

/* Returns the time of a collective, which is 0 for a single rank. `bytes` is the size of the
 * complete data, as in tessera bench. */
double plan_collective_seconds(const plan_group *group, tsr_collective kind, double bytes);

/* Returns the time of a training step of a pipeline, with the schedule 1F1B of
 * tsr_pipeline_schedule. passes[s] is the time that stage s computes for a micro-batch; a third of
 * it is the forward pass. sends[s] is the time of a message between stages s and s + 1, during
 * which both can compute. The schedule is simulated. If there are very many micro-batches, only the
 * first ones are simulated, and the time is extrapolated. */
double plan_pipeline_seconds(int stages, int micro_batches, const double *passes,
                             const double *sends);

/* The stages of a model that generates. Each stage computes the parts of the sequences one after
 * the other, and sends each to the next stage. */
typedef struct plan_stages {
    int count, parts, hosts;
    /* [count][hosts]: seconds that the stage's ranks on a host compute for a part, if each rank has
     * a processor */
    const double *compute;
    const double *messages; /* [count]: seconds of a part's collectives, which need no processor */
    const double *sends;    /* [count]: seconds of a message to the next stage */
    const int *ranks;       /* [count][hosts]: the ranks of a stage on each host */
    const double *processors; /* [hosts]; 0: one for each rank */
} plan_stages;

/* Returns the time until the last stage has the last part. The ranks of a host that compute at the
 * same time share its processors. */
double plan_stages_seconds(const plan_stages *stages);

#endif
