/* The place of this process among the ranks. The ranks of a stage are consecutive, and so are the
 * tensor-parallel ranks of a row of its grid. */
#include <stdlib.h>
#include <string.h>

#include "cli/training/training.h"

int64_t training_job_first_row(const training_job *j)
{
    const int64_t rows = training_chosen.batch / training_chosen.accumulate;
    return rows * (j->data_rank / j->context_ranks) / (j->data_ranks / j->context_ranks);
}

int64_t training_job_rows(const training_job *j)
{
    const int64_t rows = training_chosen.batch / training_chosen.accumulate;
    const int next = j->data_rank / j->context_ranks + 1;
    return rows * next / (j->data_ranks / j->context_ranks) - training_job_first_row(j);
}

tsr_status training_job_divide(const training_job *j, data_batch *rows)
{
    tsr_shard_range ranges[2];
    if (j->context_ranks == 1)
        return TSR_OK;
    const int rank = j->data_rank % j->context_ranks;
    TRY(tsr_context_divide(rows->context, j->context_ranks, NULL, rank, ranges));
    data_batch_select(rows, ranges);
    if (rank > 0)
        rows->tokens = 0; /* the first of the ranks counts them */
    return TSR_OK;
}

tsr_status training_job_share(const training_job *j, double *value)
{
    if (j->stages == NULL)
        return TSR_OK;
    return tsr_comm_broadcast(j->stages, value, 1, TSR_F64, j->stage_count - 1, NULL);
}

/* Rates ---------------------------------------------------------------------------------------- */

/* Data-parallel ranks must divide the model alike. Rates that were given for all ranks of the job
 * become those of one copy of the model: the sums over its copies. */
static void fold_rates(const training_job *j)
{
    cli_rates *rates = &training_chosen.stages.rates;
    const int stage = j->ranks / j->stage_count, each = stage / j->data_ranks;
    if (j->data_ranks == 1 || rates->count != j->ranks)
        return;
    for (int s = 0; s < j->stage_count; s++)
        for (int t = 0; t < each; t++) {
            double sum = 0;
            for (int d = 0; d < j->data_ranks; d++)
                sum += rates->values[s * stage + d * each + t];
            /* The place of a sum is before, or is, that of the rates that are added. */
            rates->values[s * each + t] = sum;
        }
    rates->count = j->stage_count * each;
}

/* As fold_rates, for rates that each copy of the model has measured for itself. */
static tsr_status add_measured_rates(const training_job *j)
{
    cli_rates *rates = &training_chosen.stages.rates;
    if (j->data_ranks == 1 || !rates->measured)
        return TSR_OK;
    return tsr_comm_all_reduce(j->data, rates->values, rates->values, (uint64_t)rates->count,
                               TSR_F64, TSR_OP_SUM, NULL);
}

/* Connecting ----------------------------------------------------------------------------------- */

static tsr_status choose_grid(training_job *j)
{
    const training_options *o = &training_chosen;
    const int64_t rows = o->batch / o->accumulate;
    const int groups = o->data_parallel > 0 ? (int)o->data_parallel : 1;
    j->context_ranks = o->context_parallel > 0 ? (int)o->context_parallel : 1;
    if (groups > j->ranks / j->context_ranks)
        return training_fail(
            "--data-parallel %d and --context-parallel %d need more than %d rank%s", groups,
            j->context_ranks, j->ranks, j->ranks == 1 ? "" : "s");
    j->data_ranks = groups * j->context_ranks;
    j->stage_count = o->stages.count > 0          ? (int)o->stages.count
                     : o->stages.layers.count > 0 ? o->stages.layers.count
                                                  : 1;
    if (j->ranks % (j->stage_count * j->data_ranks) != 0)
        return j->context_ranks > 1
                   ? training_fail("--stages %d, --data-parallel %d and --context-parallel %d do "
                                   "not divide %d rank%s",
                                   j->stage_count, groups, j->context_ranks, j->ranks,
                                   j->ranks == 1 ? "" : "s")
                   : training_fail("--stages %d and --data-parallel %d do not divide %d rank%s",
                                   j->stage_count, groups, j->ranks, j->ranks == 1 ? "" : "s");
    if (j->context_ranks > 1 && o->context < j->context_ranks)
        return training_fail("rows of %lld token%s have fewer than the %d context ranks",
                             (long long)o->context, o->context == 1 ? "" : "s", j->context_ranks);
    if (rows < groups)
        return training_fail("a micro-batch of %lld row%s has fewer than the %d data-parallel "
                             "ranks; --batch %lld is divided by --accumulate %lld",
                             (long long)rows, rows == 1 ? "" : "s", groups, (long long)o->batch,
                             (long long)o->accumulate);
    return TSR_OK;
}

/* Connects those data-parallel ranks that have the same rows. */
static tsr_status connect_contexts(training_job *j)
{
    tsr_comm *contexts = NULL;
    if (j->context_ranks == 1)
        return TSR_OK;
    tsr_status status =
        tsr_comm_split(j->data, j->data_rank / j->context_ranks, j->data_rank, &contexts);
    if (status == TSR_OK)
        status = tsr_group_create(contexts, j->stream, NULL, &j->context_group);
    tsr_comm_destroy(&contexts);
    return status;
}

static tsr_status connect_grid(training_job *j)
{
    training_options *o = &training_chosen;
    char problem[256];
    TRY(choose_grid(j));
    const int stage = j->ranks / j->stage_count, each = stage / j->data_ranks;
    j->stage = j->rank / stage;
    j->data_rank = j->rank % stage / each;
    fold_rates(j);
    if (!cli_stages_fit(&o->stages, j->ranks / j->data_ranks, problem, sizeof problem))
        return training_fail("%s", problem);
    TRY(tsr_comm_split(j->world, j->data_rank, j->rank, &j->replica));
    TRY(tsr_comm_split(j->world, tsr_comm_rank(j->replica), j->rank, &j->data));
    TRY(tsr_group_create(j->data, j->stream, NULL, &j->data_group));
    TRY(connect_contexts(j));
    TRY(cli_stages_create(&o->stages, j->replica, j->stream,
                          tsr_group_params(.wire = o->wire, .precision = o->precision),
                          &j->tensor_group, &j->stages, NULL));
    return add_measured_rates(j);
}

/* Elastic jobs --------------------------------------------------------------------------------- */

bool training_job_has_lost(tsr_status status)
{
    return status == TSR_ERR_PEER_LOST || status == TSR_ERR_TIMEOUT;
}

bool training_job_is_joining(void)
{
    const char *boot = getenv("TESSERA_BOOT");
    return boot != NULL && strcmp(boot, "join") == 0;
}

/* Connects the ranks of `world`, all of which call it. */
static tsr_status use_world(training_job *j, tsr_comm *world)
{
    j->world = world;
    j->rank = j->data_rank = tsr_comm_rank(world);
    j->ranks = j->data_ranks = tsr_comm_size(world);
    j->context_ranks = 1;
    TRY(tsr_comm_duplicate(world, &j->data));
    return tsr_group_create(j->data, j->stream, NULL, &j->data_group);
}

static tsr_status change_world(training_job *j, tsr_comm *world)
{
    if (j->old_data_group == NULL)
        j->old_data_group = j->data_group;
    else
        tsr_group_destroy(&j->data_group);
    j->data_group = NULL;
    tsr_comm_destroy(&j->data);
    tsr_comm_destroy(&j->world);
    return use_world(j, world);
}

tsr_status training_job_shrink(training_job *j, bool *again)
{
    tsr_comm *smaller;
    TRY(tsr_comm_shrink(j->world, NULL, &smaller));
    const tsr_status status = change_world(j, smaller);
    *again = training_job_has_lost(status);
    return *again ? TSR_OK : status;
}

tsr_status training_job_grow(training_job *j, int count, bool *grown)
{
    tsr_comm *larger;
    *grown = tsr_comm_grow(j->world, tsr_comm_grow_params(.count = count, .timeout_ns = 50000000),
                           &larger) == TSR_OK;
    /* If no process has joined, which is the usual case, the call fails but the job goes on. */
    return *grown ? change_world(j, larger) : tsr_comm_status(j->world);
}

void training_job_settle(training_job *j)
{
    tsr_group_destroy(&j->old_data_group);
}

/* Sets up an elastic job, in which all ranks are data-parallel. The other communicators contain
 * only this rank, so that they stay valid when ranks are lost or join. */
static tsr_status connect_elastic(training_job *j)
{
    const training_options *o = &training_chosen;
    tsr_comm *world = j->world;
    j->world = NULL;
    j->stage_count = 1;
    j->joined = training_job_is_joining();
    tsr_status status =
        tsr_comm_create(tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_SINGLE), &j->replica);
    if (status == TSR_OK)
        status = tsr_group_create(NULL, j->stream, tsr_group_params(.precision = o->precision),
                                  &j->tensor_group);
    if (status != TSR_OK) {
        tsr_comm_destroy(&world);
        return status;
    }
    status = use_world(j, world);
    bool again = j->joined && training_job_has_lost(status);
    if (!again)
        TRY(status);
    while (again)
        TRY(training_job_shrink(j, &again));
    if (o->batch / o->accumulate < j->ranks)
        return training_fail("a micro-batch of %lld rows has fewer than the %d ranks",
                             (long long)(o->batch / o->accumulate), j->ranks);
    return TSR_OK;
}

/* All jobs ------------------------------------------------------------------------------------- */

tsr_status training_job_join(training_job *j)
{
    const training_options *o = &training_chosen;
    TRY(tsr_comm_create(tsr_comm_params(.timeout_ns = (uint64_t)(o->timeout * 1e9)), &j->world));
    j->rank = tsr_comm_rank(j->world);
    j->ranks = tsr_comm_size(j->world);
    return TSR_OK;
}

tsr_status training_job_init(training_job *j)
{
    training_options *o = &training_chosen;
    cli_memory *memory = &o->stages.memory;
    if (memory->count > 1 && memory->count != j->ranks)
        return training_fail("--memory has %d values for %d rank%s", memory->count, j->ranks,
                             j->ranks == 1 ? "" : "s");
    TRY(tsr_device_open(tsr_device_params(.device = o->device,
                                          .memory_limit_bytes =
                                              memory->count > 0
                                                  ? memory->values[memory->count == 1 ? 0 : j->rank]
                                                  : 0),
                        &j->device));
    memory->count = 0; /* the model takes what the device has left */
    TRY(tsr_stream_create(j->device, &j->stream));
    return o->elastic ? connect_elastic(j) : connect_grid(j);
}

void training_job_finish(training_job *j)
{
    tsr_group_destroy(&j->tensor_group);
    tsr_group_destroy(&j->context_group);
    tsr_group_destroy(&j->data_group);
    tsr_group_destroy(&j->old_data_group);
    tsr_comm_destroy(&j->stages);
    tsr_comm_destroy(&j->data);
    tsr_comm_destroy(&j->replica);
    tsr_stream_destroy(&j->stream);
    tsr_device_close(&j->device);
    tsr_comm_destroy(&j->world);
}
