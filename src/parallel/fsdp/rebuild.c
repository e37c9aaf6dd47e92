/* Models on another set of ranks, after ranks were lost or have joined.
 *
 * The generation of a model is how often it has been rebuilt. The ranks may have been interrupted
 * at different points. All of them must go on from the same step of the same generation, so they
 * agree on the latest that any of them has reached. If there are copies, the others can always
 * follow: before a rank changes its shards, all ranks are prepared for the step. Before a rank
 * replaces its model by a rebuilt one, all ranks have completed theirs. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/struct_size.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/group/group.h"

static const char who[] = "fsdp_rebuild";

/* What a rank sends to the others about its model. Processes of one build send this struct to each
 * other without conversion. */
typedef struct report {
    int64_t has; /* whether the rank has a model of the generation from which all go on */
    int64_t steps, progress;
    int64_t rank, size, distance; /* distance 0: no copies */
    int64_t optimizer, momentum, masters;
} report;

typedef struct rebuilding {
    tsr_comm *comm;
    int rank, size;
    tsr_fsdp *from; /* the model from which to go on; NULL: this rank has none */
    tsr_fsdp *to;
    int64_t generation; /* the generation from which the ranks go on */
    int64_t step;       /* the step from which the ranks go on */
    report *reports;    /* [size] */
    int root;           /* the lowest rank that has a model */
    tsr_shard_plan *plan;
    int *providers; /* [old size]: the rank that has the shards of each old rank; −1: none */
    bool *has;      /* [size] */
} rebuilding;

/* This rank's model -------------------------------------------------------------------------- */

/* Ends all requests of a model. Their results are not needed. */
static void end_requests(tsr_fsdp *model)
{
    for (int i = 0; i < model->param_count; i++) {
        tsr__fsdp_param *p = &model->params[i];
        tsr_request **each[] = {&p->gathering, &p->reducing};
        for (int k = 0; k < 2; k++) {
            if (*each[k] && tsr__group_check(model->group) != TSR_OK)
                tsr_request_cancel(each[k]);
            (void)!tsr_request_wait(each[k]);
        }
    }
}

/* Chooses the generation from which all ranks go on, and sets b->from to this rank's model of that
 * generation, if it has one. The rank's other models are destroyed only at the end. */
static tsr_status choose_model(tsr_fsdp *model, rebuilding *b)
{
    /* This rank's generation: known[0] if all ranks are known to have completed it, otherwise
     * known[1]. */
    int64_t known[] = {-1, -1};
    if (model)
        known[model->tentative] = model->generation;
    TSR__TRY(tsr_comm_all_reduce(b->comm, known, known, 2, TSR_I64, TSR_OP_MAX, NULL));
    const int64_t latest = known[0] >= 0 ? known[0] : known[1];
    b->generation = latest;
    if (model && model->generation == latest)
        b->from = model;
    else if (model && model->successor && model->successor->generation == latest)
        b->from = model->successor;
    return TSR_OK;
}

static report make_report(const tsr_fsdp *model)
{
    if (!model)
        return (report){0};
    return (report){.has = 1,
                    .steps = model->steps,
                    .progress = model->progress,
                    .rank = model->rank,
                    .size = model->size,
                    .distance = model->replica.params ? model->replica.distance : 0,
                    .optimizer = model->optimizer,
                    .momentum = model->momentum,
                    .masters = model->masters};
}

static tsr_status exchange_reports(rebuilding *b)
{
    report mine = make_report(b->from);
    b->reports = tsr__calloc((size_t)b->size, sizeof *b->reports);
    b->has = tsr__calloc((size_t)b->size, sizeof *b->has);
    TSR__TRY(
        tsr__checkpoint_agree(b->comm, who, b->reports && b->has ? TSR_OK : TSR_ERR_NO_MEMORY));
    TSR__TRY(tsr_comm_all_gather(b->comm, &mine, b->reports, sizeof mine, TSR_U8, NULL));
    b->root = -1;
    for (int r = b->size - 1; r >= 0; r--) {
        b->has[r] = b->reports[r].has != 0;
        if (b->has[r])
            b->root = r;
    }
    TSR__REQUIRE(b->root >= 0, "%s: no rank has a model; load a checkpoint", who);
    return TSR_OK;
}

/* Steps -------------------------------------------------------------------------------------- */

/* Returns the latest step that the rank of this report, or another rank of its old group, may have
 * made. */
static int64_t latest_step(const report *r)
{
    return r->steps + (r->progress == TSR__FSDP_MET);
}

static bool can_reach(const report *r, int64_t step)
{
    return r->steps == step || (r->steps == step - 1 && r->progress != TSR__FSDP_IDLE);
}

/* Sets b->step to the latest step that any rank may have made. Makes that step if this rank has
 * only prepared it. */
static tsr_status agree_on_step(rebuilding *b)
{
    int latest = b->root;
    b->step = 0;
    for (int r = 0; r < b->size; r++)
        if (b->has[r] && latest_step(&b->reports[r]) > b->step) {
            b->step = latest_step(&b->reports[r]);
            latest = r;
        }
    for (int r = 0; r < b->size; r++)
        TSR__REQUIRE(
            !b->has[r] || can_reach(&b->reports[r], b->step),
            "%s: rank %d has made %lld steps, but rank %d has made %lld; without replicas, "
            "load a checkpoint",
            who, r, (long long)b->reports[r].steps, latest, (long long)b->step);
    return b->from && b->from->steps < b->step ? tsr__fsdp_apply(b->from) : TSR_OK;
}

/* Plans -------------------------------------------------------------------------------------- */

/* Gives all ranks the plan of the old model, as its text. */
static tsr_status share_plan(rebuilding *b)
{
    uint64_t size = 0;
    char *text = NULL;
    tsr_status status = TSR_OK;
    if (b->rank == b->root) {
        size_t bytes = 0;
        status = tsr_shard_plan_save_json(b->from->plan, 0, NULL, &bytes);
        size = bytes;
    }
    TSR__TRY(tsr__checkpoint_agree(b->comm, who, status));
    TSR__TRY(tsr_comm_broadcast(b->comm, &size, sizeof size, TSR_U8, b->root, NULL));
    text = tsr__calloc((size_t)size, 1);
    status = text ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK && b->rank == b->root) {
        size_t bytes = 0;
        status = tsr_shard_plan_save_json(b->from->plan, (size_t)size, text, &bytes);
    }
    status = tsr__checkpoint_agree(b->comm, who, status);
    if (status == TSR_OK)
        status = tsr_comm_broadcast(b->comm, text, size, TSR_U8, b->root, NULL);
    if (status == TSR_OK)
        status = tsr__checkpoint_agree(
            b->comm, who, tsr_shard_plan_load_json(text, strnlen(text, size), &b->plan));
    tsr__free(text);
    return status;
}

/* Checks that the old and the new model have the same parameters and state. */
static tsr_status compare_params(const rebuilding *b)
{
    const tsr_fsdp *to = b->to;
    const report *old = &b->reports[b->root];
    const tsr_shard_param *before = tsr_shard_plan_param(b->plan, 0);
    const tsr_shard_param *now = tsr_shard_plan_param(to->plan, 0);
    const uint64_t count = tsr_shard_plan_param_count(b->plan);
    TSR__REQUIRE(old->optimizer == to->optimizer && old->momentum == to->momentum &&
                     old->masters == to->masters,
                 "%s: optimizer, plain_sgd or in_place is not that of the model", who);
    TSR__REQUIRE(count == (uint64_t)to->param_count,
                 "%s: the units have %d parameters, the model has %llu", who, to->param_count,
                 (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++)
        TSR__REQUIRE(strcmp(before[i].name, now[i].name) == 0 && before[i].count == now[i].count &&
                         strcmp(before[i].dtype, now[i].dtype) == 0,
                     "%s: parameter %llu is '%s', %s of %llu elements; the model has '%s', %s of "
                     "%llu",
                     who, (unsigned long long)i, now[i].name, now[i].dtype,
                     (unsigned long long)now[i].count, before[i].name, before[i].dtype,
                     (unsigned long long)before[i].count);
    return TSR_OK;
}

/* Who has what ------------------------------------------------------------------------------- */

static int find_rank(const rebuilding *b, int old_rank)
{
    for (int r = 0; r < b->size; r++)
        if (b->has[r] && b->reports[r].rank == old_rank)
            return r;
    return -1;
}

/* Returns whether a rank of the old group had elements that not every rank had. */
static bool had_shards(const rebuilding *b, int old_rank)
{
    for (uint64_t i = 0; i < tsr_shard_plan_param_count(b->plan); i++) {
        tsr_shard_range range;
        if (!tsr_shard_plan_param(b->plan, i)->always_gather &&
            tsr_shard_plan_range(b->plan, i, old_rank, &range) == TSR_OK && range.count > 0)
            return true;
    }
    return false;
}

static tsr_status find_provider(const rebuilding *b, int old_rank)
{
    const report *old = &b->reports[b->root];
    const int holder = tsr__fsdp_holder(old_rank, (int)old->distance, (int)old->size);
    int *out = &b->providers[old_rank];
    *out = find_rank(b, old_rank);
    if (*out < 0 && old->distance > 0)
        *out = find_rank(b, holder);
    if (*out >= 0 || !had_shards(b, old_rank))
        return TSR_OK;
    if (old->distance == 0)
        return tsr__fail(TSR_ERR_NOT_FOUND,
                         "%s: rank %d of %d is lost, and its shards have no replicas; load a "
                         "checkpoint",
                         who, old_rank, (int)old->size);
    return tsr__fail(TSR_ERR_NOT_FOUND,
                     "%s: rank %d of %d is lost, and so is rank %d, which had the replicas of its "
                     "shards; load a checkpoint",
                     who, old_rank, (int)old->size, holder);
}

static tsr_status find_providers(rebuilding *b)
{
    const int old_size = (int)b->reports[b->root].size;
    b->providers = tsr__calloc((size_t)old_size, sizeof *b->providers);
    if (!b->providers)
        return TSR_ERR_NO_MEMORY;
    for (int r = 0; r < old_size; r++)
        TSR__TRY(find_provider(b, r));
    return TSR_OK;
}

/* Rebuilding --------------------------------------------------------------------------------- */

static tsr_status agree_on_origin(rebuilding *b, tsr_fsdp *model)
{
    if (model)
        end_requests(model);
    TSR__TRY(choose_model(model, b));
    TSR__TRY(exchange_reports(b));
    TSR__TRY(tsr__checkpoint_agree(b->comm, who, agree_on_step(b)));
    TSR__TRY(share_plan(b));
    return tsr__checkpoint_agree(b->comm, who, find_providers(b));
}

static tsr_status fill_rebuilt(rebuilding *b)
{
    TSR__TRY(tsr__checkpoint_agree(b->comm, who, compare_params(b)));
    tsr_status status =
        tsr__fsdp_move_all(&(tsr__fsdp_move){.from = b->from,
                                             .to = b->to,
                                             .plan = b->plan,
                                             .from_size = (int)b->reports[b->root].size,
                                             .providers = b->providers,
                                             .has = b->has});
    /* Uploads must be complete before this rank reports that its model is complete. */
    if (status == TSR_OK)
        status = tsr_stream_wait(b->to->stream);
    b->to->steps = b->step;
    b->to->generation = b->generation + 1;
    return status;
}

/* Keeps the rebuilt model b->to beside the old one, because it is not known whether the other ranks
 * have replaced theirs. Without an old model, the rebuilt one becomes *model, but remains
 * tentative. */
static void keep_both_models(rebuilding *b, tsr_fsdp **model)
{
    if (b->from &&
        *model != b->from) { /* `from` is the successor of *model, which is out of date */
        b->from = (*model)->successor;
        (*model)->successor = NULL;
        tsr_fsdp_destroy(model);
        *model = b->from;
    }
    if (!b->from)
        tsr_fsdp_destroy(model);
    if (*model) {
        tsr_fsdp_destroy(&(*model)->successor);
        (*model)->successor = b->to;
        (*model)->tentative = false;
    } else {
        b->to->tentative = true;
        *model = b->to;
    }
    b->to = NULL;
}

static void free_rebuilding(rebuilding *b)
{
    tsr_fsdp_destroy(&b->to);
    tsr_shard_plan_destroy(&b->plan);
    tsr__free(b->reports);
    tsr__free(b->providers);
    tsr__free(b->has);
}

static tsr_status rebuild_model(rebuilding *b, const tsr_fsdp_params *params, tsr_fsdp **model)
{
    TSR__TRY(agree_on_origin(b, *model));
    TSR__TRY(tsr__fsdp_create_model(params, NULL, false, &b->to));
    const tsr_status filled = fill_rebuilt(b);
    const tsr_status status = tsr__checkpoint_agree(b->comm, who, filled);
    if (status != TSR_OK) {
        if (filled == TSR_OK && tsr_comm_status(b->comm) != TSR_OK)
            keep_both_models(b, model);
        return status;
    }
    tsr_fsdp_destroy(model);
    tsr__fsdp_take_layers(b->to);
    *model = b->to;
    b->to = NULL;
    return TSR_OK;
}

tsr_status tsr_fsdp_rebuild(const tsr_fsdp_params *params, tsr_fsdp **model)
{
    TSR__REQUIRE(params && model, "%s: %s is NULL", who, params ? "model" : "params");
    TSR__TAKE(tsr_fsdp_params, params);
    tsr_group *group = params->group ? params->group : tsr_group_default();
    TSR__REQUIRE(group, "%s: no group is given, and there is no default one", who);
    TSR__TRY(tsr__group_check(group));
    rebuilding b = {.comm = tsr_group_comm(group),
                    .rank = tsr_group_rank(group),
                    .size = tsr_group_size(group)};
    TSR__REQUIRE(b.comm, "%s: the group has no communicator", who);
    tsr_status status = rebuild_model(&b, params, model);
    free_rebuilding(&b);
    return status;
}
