/* Prints what the cost model of tessera plan --cluster predicts for an all-reduce of all ranks, so
 * that one can compare it with the output of tessera bench all-reduce:
 *
 *     predict-all-reduce CLUSTER.json LINKS.json BYTES…
 *
 * The first file describes the cluster, and the second is the output of tessera bench link --json.
 * The output is in microseconds, with a line for each size. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/plan/cluster/hosts.h"

static void predict(const plan_cluster *cluster, char **bytes)
{
    static int host[PLAN_MAX_CLUSTER_RANKS];
    static plan_turns turns[PLAN_MAX_HOSTS];
    for (int i = 0; i < cluster->ranks; i++)
        host[i] = cluster->rank[i].host;
    for (int i = 0; i < cluster->hosts; i++)
        turns[i] = (plan_turns){
            .ranks = cluster->processors[i] > 0
                         ? plan_cluster_host_ranks(cluster, i) / cluster->processors[i]
                         : 1,
            .awake = cluster->awake_seconds[i],
            .asleep = cluster->asleep_seconds[i],
        };
    const plan_group group = {.size = cluster->ranks,
                              .host = host,
                              .hosts = cluster->hosts,
                              .links = cluster->links,
                              .turns = turns,
                              .memory = cluster->memory,
                              .message_work = cluster->message_work};
    for (; *bytes; bytes++)
        printf("%s %.1f\n", *bytes,
               1e6 * plan_collective_seconds(&group, TSR_COLLECTIVE_ALL_REDUCE, atof(*bytes)));
}

int main(int argc, char **argv)
{
    static plan_cluster cluster;
    char error[PLAN_CLUSTER_ERROR];
    if (argc < 4) {
        fputs("usage: predict-all-reduce CLUSTER.json LINKS.json BYTES...\n", stderr);
        return 2;
    }
    const bool read = plan_cluster_read(argv[1], argv[2], NULL, &cluster, error);
    if (read)
        predict(&cluster, argv + 3);
    else
        fprintf(stderr, "%s\n", error);
    plan_cluster_free(&cluster);
    return !read;
}
