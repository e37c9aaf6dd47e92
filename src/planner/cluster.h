/* A cluster: hosts, their ranks, and the links inside and between hosts. Documents describe it
 * (docs/models.md, "Which grid"). */
#ifndef TSR_PLANNER_CLUSTER_H
#define TSR_PLANNER_CLUSTER_H

#include <stddef.h>
#include <stdint.h>

#include "planner/cost.h"
#include "planner/document.h"
#include "tessera/planner.h"

#define TSR__HOST_NAME 64

/* The measured time of a pass with this number of rows, in seconds. It is the sum of `pass`,
 * `layer` times the number of layers, and `element` times the number of elements of the layers'
 * matrices; on the last stage also of `head`, and `head_element` times the number of elements of
 * the head. */
typedef struct tsr__measured_pass {
    double rows, pass, layer, element, head, head_element;
    double expert_element; /* replaces `element` for matrices of experts; 0: equal to `element` */
} tsr__measured_pass;
#define TSR__MEASURED_PASSES 16

typedef struct tsr__cluster_rank {
    int host;
    int passes;                                    /* 0: not measured, so the rates below count */
    tsr__measured_pass pass[TSR__MEASURED_PASSES]; /* in ascending order of rows */
    double flops;                                  /* operations per second of matrix products */
    double bandwidth;                              /* bytes per second from memory */
    double host_bandwidth; /* bytes per second from the host's memory; 0: not described */
    double layer_seconds;  /* the fixed additional time of a layer */
    /* the fixed time that a collective of tensors takes, in addition to that of its messages, until
     * the device continues; and that of a collective of ranks of one host */
    double collective_seconds, host_collective_seconds;
    uint64_t memory; /* bytes; 0: no limit */
} tsr__cluster_rank;

struct tsr_cluster {
    int hosts, ranks;
    char names[TSR_CLUSTER_MAX_HOSTS][TSR__HOST_NAME];
    double processors[TSR_CLUSTER_MAX_HOSTS]; /* 0: as many as ranks */
    /* see tsr__turns */
    double awake_seconds[TSR_CLUSTER_MAX_HOSTS], asleep_seconds[TSR_CLUSTER_MAX_HOSTS];
    tsr__cluster_rank rank[TSR_CLUSTER_MAX_RANKS]; /* in the order of the hosts */
    tsr__memory_cost memory[TSR_CLUSTER_MAX_HOSTS];
    tsr__link *message_work; /* [hosts][hosts], see tsr__cost_group */
    tsr__link *links; /* [hosts][hosts], symmetric; the diagonal has the links inside hosts */
};

/* Returns the number of the cluster's ranks on a host. */
int tsr__host_ranks(const tsr_cluster *cluster, int host);

/* Frees what belongs to the cluster, but not the cluster itself. */
void tsr__cluster_finish(tsr_cluster *cluster);

/* The functions below read one document each into the cluster. They fail with TSR_ERR_INVALID, with
 * a sentence that begins with the document's name, and with TSR_ERR_NO_MEMORY. */

/* Reads a description into a cluster that is {0}. Without `need_rates`, the description may lack
 * the rates of ranks. Times of turns that the description lacks are −1. */
tsr_status tsr__cluster_describe(const tsr__document *document, bool need_rates,
                                 tsr_cluster *cluster) TSR_NODISCARD;
/* Checks that all pairs of hosts, and all hosts with several ranks, have links. */
tsr_status tsr__cluster_check_links(const tsr__document *document,
                                    const tsr_cluster *cluster) TSR_NODISCARD;
/* Reads the output of tessera bench link. Its links replace those of the cluster. Its numbers of
 * processors, and the times of turns, are used where the cluster has none. */
tsr_status tsr__cluster_measure_links(const tsr__document *document,
                                      tsr_cluster *cluster) TSR_NODISCARD;
/* Reads the output of tessera bench rates, whose rates replace those of the cluster. */
tsr_status tsr__cluster_measure_rates(const tsr__document *document,
                                      tsr_cluster *cluster) TSR_NODISCARD;

#endif
