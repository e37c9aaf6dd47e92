/* Cross-entropy of logits whose rows are divided over the ranks. For each row, each rank computes
 * three numbers: its largest logit, the sum of its exponentials relative to that logit, and the
 * label's logit if the rank has it. These numbers are gathered from all ranks. The loss is computed
 * from them in the order of ranks. */
#include "gpu/internal.h"

#include <math.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "parallel/internal.h"
#include "parallel/layers/layer.h"

typedef struct loss_call {
    tsr_group *group;
    tsr_tensor *loss, *dlogits;
    const tsr_tensor *logits, *labels;
    int64_t classes, first;
    float scale;
} loss_call;

/* Finds the classes that belong to this rank. */
static tsr_status find_classes(loss_call *call, const tsr_partition_params *partition)
{
    const int ranks = tsr_group_size(call->group), rank = tsr_group_rank(call->group);
    tsr_partition_params chosen;
    TSR__TRY(TSR__TAKE_PART(tsr_partition_params, partition, &chosen));
    if (chosen.kind == TSR_PARTITION_EVEN)
        chosen.kind = TSR_PARTITION_STRICT;
    tsr_shard_range *ranges = tsr__calloc((size_t)ranks, sizeof *ranges);
    if (!ranges)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr_partition((uint64_t)call->classes, ranks, &chosen, ranges);
    const int64_t count = (int64_t)ranges[rank].count;
    call->first = (int64_t)ranges[rank].start;
    tsr__free(ranges);
    if (status != TSR_OK)
        return tsr__fail_context(status, "vocabulary_cross_entropy");
    const tsr_layout *logits = tsr_tensor_layout(call->logits);
    TSR__REQUIRE(logits->ndim == 2 && logits->shape[1] == count,
                 "vocabulary_cross_entropy: logits are %s; rank %d has %lld of %lld classes",
                 TSR__SHAPE_OF(call->logits), rank, (long long)count, (long long)call->classes);
    return TSR_OK;
}

/* Sets the numbers for a rank that has no classes: the largest logit is −∞, and the sum is 0. */
static tsr_status stats_without_classes(tsr__temps *temps, tsr_tensor *mine)
{
    tsr_tensor *most;
    TSR__TRY(tsr_fill(temps->stream, mine, 0));
    TSR__TRY(tsr__temp_slice(temps, mine, 0, 0, 1, &most));
    return tsr_fill(temps->stream, most, -INFINITY);
}

static tsr_status compute_loss(const loss_call *call, tsr__temps *temps)
{
    const int64_t rows = tsr_tensor_layout(call->logits)->shape[0];
    const int64_t shape[] = {tsr_group_size(call->group), 3, rows};
    tsr_tensor *stats, *mine, *mine2;
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 3, shape, &stats));
    TSR__TRY(tsr__cross_entropy_shard_check(temps->stream, call->loss, call->dlogits, call->logits,
                                            call->labels, stats, call->first, call->classes));
    if (shape[0] == 1)
        return tsr_cross_entropy(temps->stream, call->loss, call->dlogits, call->logits,
                                 call->labels, call->scale);
    TSR__TRY(tsr__temp_slice(temps, stats, 0, tsr_group_rank(call->group), 1, &mine));
    TSR__TRY(tsr__temp_reshape(temps, mine, 2, shape + 1, &mine2));
    if (tsr_tensor_layout(call->logits)->shape[1] > 0)
        TSR__TRY(tsr__cross_entropy_shard_stats(temps->stream, mine2, call->logits, call->labels,
                                                call->first));
    else
        TSR__TRY(stats_without_classes(temps, mine2));
    TSR__TRY(tsr_group_all_gather(call->group, stats, mine, 0, NULL, NULL));
    return tsr__cross_entropy_shard(temps->stream, call->loss, call->dlogits, call->logits,
                                    call->labels, stats, call->first, call->classes, call->scale);
}

static tsr_status run(const loss_call *call)
{
    tsr__temps temps = {.stream = tsr_group_stream(call->group)};
    const tsr_status status = compute_loss(call, &temps);
    tsr__temps_finish(&temps);
    return status;
}

tsr_status tsr__vocabulary_cross_entropy(tsr_group *group, tsr_tensor *loss, tsr_tensor *dlogits,
                                         const tsr_tensor *logits, const tsr_tensor *labels,
                                         int64_t classes, int64_t first, float grad_scale)
{
    return run(&(loss_call){.group = group,
                            .loss = loss,
                            .dlogits = dlogits,
                            .logits = logits,
                            .labels = labels,
                            .classes = classes,
                            .first = first,
                            .scale = grad_scale});
}

tsr_status tsr_vocabulary_cross_entropy(tsr_group *group, tsr_tensor *loss, tsr_tensor *dlogits,
                                        const tsr_tensor *logits, const tsr_tensor *labels,
                                        int64_t classes, const tsr_partition_params *partition,
                                        float grad_scale)
{
    const char *who = "vocabulary_cross_entropy";
    group = group ? group : tsr_group_default();
    TSR__REQUIRE(group, "%s: no group is given, and there is no default one", who);
    TSR__REQUIRE(logits && labels, "%s: %s is NULL", who, logits ? "labels" : "logits");
    TSR__REQUIRE(loss || dlogits, "%s: loss and dlogits are both NULL", who);
    TSR__REQUIRE(classes >= 1 && classes <= INT32_MAX, "%s: %lld classes; 1 to %d are possible",
                 who, (long long)classes, (int)INT32_MAX);
    loss_call call = {.group = group,
                      .loss = loss,
                      .dlogits = dlogits,
                      .logits = logits,
                      .labels = labels,
                      .classes = classes,
                      .scale = grad_scale};
    TSR__TRY(find_classes(&call, partition));
    return run(&call);
}
