/* A cost model: computes from measured links how long collective operations and the stages of a
 * model take. All times are in seconds, and all sizes in bytes.
 *
 * A collective is simulated with the steps that tsr__comm_steps lists. A message takes the time of
 * its link, and messages between the same two hosts leave one after the other. If a host has more
 * ranks than processors, ranks that have received their messages take turns: a rank waits until the
 * earlier ranks of its processor have copied the data of their messages and collectives in memory.
 * A rank that has waited for a long time sleeps, and its turn takes longer, because it must be
 * woken.
 *
 * The functions that simulate return a time. If one fails, it sets *status and returns 0; if
 * *status is not TSR_OK, it does nothing and returns 0. So a caller may add several times and check
 * *status once. */
#ifndef TSR_PLANNER_COST_H
#define TSR_PLANNER_COST_H

#include <stdbool.h>

#include "comm/api/comm_steps.h"
#include "planner/link.h"

/* How ranks share the processors of a host. */
typedef struct tsr__turns {
    double ranks; /* ranks for each processor; less than 1 counts as 1 */
    /* the time until the processor runs its next rank: `awake` if that rank polls, `asleep` if it
     * sleeps */
    double awake, asleep;
} tsr__turns;

/* If ranks share processors, a rank that has waited for this time sleeps. */
#define TSR__POLL_SECONDS 60e-6

/* Returns how long a sleeping rank waits until it runs, counted from the arrival of its message. */
double tsr__turns_seconds(const tsr__turns *turns);

/* The measured cost of collectives of a host's ranks in shared memory. */
typedef struct tsr__memory_cost {
    int ranks;
    double latency; /* the time without data, if each rank has a processor */
    /* the time for which the data of a collective keeps the processor of a rank busy, as a function
     * of the number of bytes that the rank reads from other ranks. If count is 0, it was not
     * measured, and the link inside the host is used instead. */
    tsr__link work;
} tsr__memory_cost;

/* The ranks of a group: the host of each, and the costs of all hosts. */
typedef struct tsr__cost_group {
    int size;
    const int *host; /* [size] */
    int hosts;
    const tsr__link *links;         /* [hosts][hosts]; the diagonal has the links inside hosts */
    const tsr__turns *turns;        /* [hosts]; NULL: each rank has a processor */
    const tsr__memory_cost *memory; /* [hosts]; NULL: not measured */
    /* [hosts][hosts]: how long a message between two hosts keeps the processor of each of its ranks
     * busy; NULL, or count 0: not measured, and counts as 0 */
    const tsr__link *message_work;
} tsr__cost_group;

/* Returns the time of a collective, which is 0 for a single rank. `bytes` is the size of the
 * complete data, as in tessera bench. */
double tsr__collective_seconds(const tsr__cost_group *group, tsr__call_kind kind, double bytes,
                               tsr_status *status);

/* Returns the time of a training step of a pipeline, with the schedule 1F1B of
 * tsr__pipeline_schedule. passes[s] is the time that stage s computes for a micro-batch; a third of
 * it is the forward pass. sends[s] is the time of a message between stages s and s + 1, during
 * which both can compute. The schedule is simulated. If there are very many micro-batches, only the
 * first ones are simulated, and the time is extrapolated. */
double tsr__training_seconds(int stages, int micro_batches, const double *passes,
                             const double *sends, tsr_status *status);

/* The stages of a model that generates. Each stage computes the micro-batches of the sequences one
 * after the other, and sends each to the next stage. */
typedef struct tsr__generating {
    int stages, micro_batches, hosts;
    /* [stages][hosts]: seconds that the stage's ranks on a host compute for a micro-batch, if each
     * rank has a processor */
    const double *compute;
    /* [stages]: seconds of a micro-batch's collectives, which need no processor */
    const double *messages;
    const double *sends;      /* [stages]: seconds of a message to the next stage */
    const int *ranks;         /* [stages][hosts]: the ranks of a stage on each host */
    const double *processors; /* [hosts]; 0: one for each rank */
} tsr__generating;

/* Returns the time until the last stage has finished the last micro-batch. The ranks of a host that
 * compute at the same time share its processors. */
double tsr__generating_seconds(const tsr__generating *generating, tsr_status *status);

#endif
