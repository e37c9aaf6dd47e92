/* A cluster: hosts, their ranks, and the links inside and between hosts. A file describes it. */
#ifndef TSR_CLI_PLAN_CLUSTER_HOSTS_H
#define TSR_CLI_PLAN_CLUSTER_HOSTS_H

#include <stddef.h>
#include <stdint.h>

#include "cli/plan/cluster/cost.h"

#define PLAN_MAX_HOSTS 64
#define PLAN_MAX_CLUSTER_RANKS 256
#define PLAN_HOST_NAME 64

/* The measured time of a pass with this number of rows, in seconds. It is the sum of `pass`,
 * `layer` times the number of layers, and `element` times the number of elements of the layers'
 * matrices; on the last stage also of `head`, and `head_element` times the number of elements of
 * the head. */
typedef struct plan_pass {
    double rows, pass, layer, element, head, head_element;
} plan_pass;
#define PLAN_PASSES 16

typedef struct plan_rank {
    int host;
    int passes;                  /* 0: not measured, so the rates below count */
    plan_pass pass[PLAN_PASSES]; /* in ascending order of rows */
    double flops;                /* operations per second of matrix products */
    double bandwidth;            /* bytes per second from memory */
    double layer_seconds;        /* the fixed additional time of a layer */
    /* the fixed time that a collective of tensors takes, in addition to that of its messages, until
     * the device continues; and that of a collective of ranks of one host */
    double collective_seconds, host_collective_seconds;
    uint64_t memory; /* bytes; 0: no limit */
} plan_rank;

typedef struct plan_cluster {
    int hosts, ranks;
    char names[PLAN_MAX_HOSTS][PLAN_HOST_NAME];
    double processors[PLAN_MAX_HOSTS];                                    /* 0: as many as ranks */
    double awake_seconds[PLAN_MAX_HOSTS], asleep_seconds[PLAN_MAX_HOSTS]; /* see plan_turns */
    plan_rank rank[PLAN_MAX_CLUSTER_RANKS]; /* in the order of the hosts */
    plan_memory_cost memory[PLAN_MAX_HOSTS];
    plan_link *message_work; /* [hosts][hosts], see plan_group */
    plan_link *links; /* [hosts][hosts], symmetric; the diagonal has the links inside hosts */
} plan_cluster;

#define PLAN_CLUSTER_ERROR 512

/* Reads the description of a cluster. `links` is NULL, or a file with the output of tessera bench
 * link --json in a job with the cluster's ranks. The links in this file replace those of the
 * description. Its numbers of processors, and the times of turns, are used where the description
 * has none. `rates` is NULL, or a file with the output of tessera bench rates --json in such a job,
 * whose rates replace those of the description. If a file cannot be read or is invalid, returns
 * false and writes a sentence that begins with the file's name to `error`. The caller must call
 * plan_cluster_free(), also after a failure. */
bool plan_cluster_read(const char *path, const char *links, const char *rates, plan_cluster *out,
                       char error[PLAN_CLUSTER_ERROR]);
void plan_cluster_free(plan_cluster *cluster);

/* Returns the number of the cluster's ranks on a host. */
int plan_cluster_host_ranks(const plan_cluster *cluster, int host);

#endif
