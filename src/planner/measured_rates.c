/* Reads the output of tessera bench rates: how fast each rank computes. */
#include <stdio.h>

#include "planner/cluster.h"

/* Reads the measured time of a rank's passes with one number of rows, and appends it to rank->pass.
 * The numbers of rows must ascend. */
static tsr_status read_pass(const tsr__document *document, tsr__value object, int number,
                            tsr__cluster_rank *rank)
{
    const double last = rank->passes > 0 ? rank->pass[rank->passes - 1].rows : 0;
    char where[64];
    tsr__measured_pass read = {0};
    snprintf(where, sizeof where, "passes[%d] of rank %d", rank->passes, number);
    if (rank->passes == TSR__MEASURED_PASSES)
        return tsr__document_fail(document, "rank %d has more than %d passes", number,
                                  TSR__MEASURED_PASSES);
    const struct {
        tsr__number_limits limits;
        double *out, unit;
    } numbers[] = {
        {{"rows", 0, 1e9, false}, &read.rows, 1},
        {{"pass_us", 0, 1e9, true}, &read.pass, 1e-6},
        {{"layer_us", 0, 1e9, true}, &read.layer, 1e-6},
        {{"million_elements_us", 0, 1e12, false}, &read.element, 1e-12},
        {{"head_us", 0, 1e9, true}, &read.head, 1e-6},
        {{"million_head_elements_us", 0, 1e12, true}, &read.head_element, 1e-12},
        {{"million_expert_elements_us", 0, 1e12, true}, &read.expert_element, 1e-12},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        TSR__TRY(tsr__value_number(document, object, where, numbers[i].limits, numbers[i].out));
        *numbers[i].out *= numbers[i].unit;
    }
    if (read.rows <= last)
        return tsr__document_fail(document, "%s has %g rows, after %g; they must ascend", where,
                                  read.rows, last);
    rank->pass[rank->passes++] = read;
    return TSR_OK;
}

/* Reads what was measured for a rank. The rates of the rank (see tsr__cluster_rank) that are
 * computed from it replace those of the description for training and for dividing the model. */
static tsr_status read_rank(const tsr__document *document, tsr__value object, int number,
                            double element_bytes, tsr__cluster_rank *rank)
{
    char where[32];
    double collective = 0;
    snprintf(where, sizeof where, "rank %d", number);
    const tsr__number_limits limits = {"collective_us", 0, 1e7, true},
                             host_limits = {"host_collective_us", 0, 1e7, true};
    TSR__TRY(tsr__value_number(document, object, where, limits, &collective));
    double host_collective = collective; /* if the document does not have it */
    TSR__TRY(tsr__value_number(document, object, where, host_limits, &host_collective));
    tsr__elements list = tsr__value_elements(tsr__value_member(object, "passes"));
    tsr__value pass;
    while (tsr__next_element(&list, &pass))
        TSR__TRY(read_pass(document, pass, number, rank));
    if (rank->passes == 0)
        return tsr__document_fail(document, "rank %d has no passes", number);
    const tsr__measured_pass *first = &rank->pass[0], *last = &rank->pass[rank->passes - 1];
    rank->collective_seconds = collective * 1e-6;
    rank->host_collective_seconds = host_collective * 1e-6;
    rank->layer_seconds = first->layer;
    rank->bandwidth = element_bytes / first->element;
    rank->flops = 2 * last->rows / last->element;
    return TSR_OK;
}

tsr_status tsr__cluster_measure_rates(const tsr__document *document, tsr_cluster *c)
{
    const tsr__value root = tsr__document_root(document), ranks = tsr__value_member(root, "ranks");
    const tsr__number_limits limits = {"bytes_per_element", 0, 8, false};
    double bytes = 0;
    if (!tsr__value_is(tsr__value_member(root, "schema"), "tessera.bench.rates"))
        return tsr__document_fail(document, "is not the output of tessera bench rates --json");
    if (tsr__value_count(ranks) != (size_t)c->ranks)
        return tsr__document_fail(document, "has %zu ranks, but the cluster has %d",
                                  tsr__value_count(ranks), c->ranks);
    TSR__TRY(
        tsr__value_number(document, tsr__value_member(root, "model"), "\"model\"", limits, &bytes));
    tsr__elements list = tsr__value_elements(ranks);
    tsr__value rank;
    for (int i = 0; tsr__next_element(&list, &rank); i++)
        TSR__TRY(read_rank(document, rank, i, bytes, &c->rank[i]));
    return TSR_OK;
}
