/* Prints what the cost model of tessera plan --cluster predicts for an all-reduce of all ranks, so
 * that one can compare it with the output of tessera bench all-reduce:
 *
 *     predict-all-reduce CLUSTER.json LINKS.json BYTES…
 *
 * The first file describes the cluster, and the second is the output of tessera bench link --json.
 * The output is in microseconds, with a line for each size. */
#include <stdio.h>
#include <stdlib.h>

#include "planner/predict.h"

static tsr_status predict(const tsr_cluster *cluster, char **bytes)
{
    int ranks[TSR_CLUSTER_MAX_RANKS];
    tsr__predictor predictor;
    const tsr__grid grid = {.data = 1, .tensor = cluster->ranks, .stages = 1, .ranks = ranks};
    for (int i = 0; i < cluster->ranks; i++)
        ranks[i] = i;
    tsr__predictor_init(cluster, NULL, &grid, &predictor);
    const tsr__cost_group group = tsr__predictor_group(&predictor, 0, 1, cluster->ranks);
    for (; *bytes; bytes++)
        printf("%s %.1f\n", *bytes,
               1e6 * tsr__collective_seconds(&group, TSR__CALL_ALL_REDUCE, atof(*bytes),
                                             &predictor.status));
    return predictor.status;
}

int main(int argc, char **argv)
{
    tsr_cluster *cluster = NULL;
    if (argc < 4) {
        fputs("usage: predict-all-reduce CLUSTER.json LINKS.json BYTES...\n", stderr);
        return 2;
    }
    tsr_status status =
        tsr_cluster_create(tsr_cluster_params(.description = argv[1], .links = argv[2]), &cluster);
    if (status == TSR_OK)
        status = predict(cluster, argv + 3);
    if (status != TSR_OK)
        fprintf(stderr, "%s\n", tsr_last_error());
    tsr_cluster_destroy(&cluster);
    return status != TSR_OK;
}
