/* A cluster, as a file describes it: hosts, their ranks, and the links inside and between hosts. */
#ifndef TSR_CLI_PLAN_CLUSTER_HOSTS_H
#define TSR_CLI_PLAN_CLUSTER_HOSTS_H

#include <stddef.h>
#include <stdint.h>

#include "cli/plan/cluster/cost.h"

#define PLAN_MAX_HOSTS 64
#define PLAN_MAX_CLUSTER_RANKS 256
#define PLAN_HOST_NAME 64

typedef struct plan_rank {
    int host;
    double flops;         /* operations per second of matrix products */
    double bandwidth;     /* bytes per second from memory */
    double layer_seconds; /* what a layer takes in addition, whatever its size */
    /* what a collective of tensors takes in addition, until the device goes on */
    double collective_seconds;
    uint64_t memory; /* bytes; 0: no limit */
} plan_rank;

typedef struct plan_cluster {
    int hosts, ranks;
    char names[PLAN_MAX_HOSTS][PLAN_HOST_NAME];
    double processors[PLAN_MAX_HOSTS];                                    /* 0: as many as ranks */
    double awake_seconds[PLAN_MAX_HOSTS], asleep_seconds[PLAN_MAX_HOSTS]; /* see plan_turns */
    plan_rank rank[PLAN_MAX_CLUSTER_RANKS]; /* in the order of the hosts */
    plan_memory_cost memory[PLAN_MAX_HOSTS];
    plan_link *busy;  /* [hosts][hosts], see plan_group */
    plan_link *links; /* [hosts][hosts], symmetric; on the diagonal those inside hosts */
} plan_cluster;

#define PLAN_CLUSTER_ERROR 512

/* Reads the description of a cluster. `links` is the output of tessera bench link --json in a job
 * with the cluster's ranks, whose links then count instead of those of the description, and whose
 * processors and turns of hosts count where the description has none; NULL: none.
 * Returns false if a file cannot be read or something in it is wrong, with a sentence in `error`
 * that begins with the file's name. Free it with plan_cluster_free(), also after false. */
bool plan_cluster_read(const char *path, const char *links, plan_cluster *out,
                       char error[PLAN_CLUSTER_ERROR]);
void plan_cluster_free(plan_cluster *cluster);

/* The number of the cluster's ranks on a host. */
int plan_cluster_host_ranks(const plan_cluster *cluster, int host);

#endif
