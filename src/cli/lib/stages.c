#include "cli/lib/stages.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"

static int count_of(const cli_stages *s)
{
    if (s->count > 0)
        return (int)s->count;
    return s->layers.count > 0 ? s->layers.count : 1;
}

static int contexts_of(const cli_stages *s)
{
    return s->context_ranks > 0 ? (int)s->context_ranks : 1;
}

static bool contexts_fit(const cli_stages *s, int ranks, char *problem, size_t size)
{
    const int contexts = contexts_of(s), stages = count_of(s), each = ranks / contexts;
    if (contexts == 1)
        return true;
    if (stages > 1)
        snprintf(problem, size, "--context-parallel %d cannot go with %d stages", contexts, stages);
    else if (ranks % contexts != 0)
        snprintf(problem, size, "--context-parallel %d does not divide %d rank%s", contexts, ranks,
                 CLI_PLURAL(ranks));
    else if (s->rates.measured)
        snprintf(problem, size, "--context-parallel %d cannot go with measured rates", contexts);
    else if (s->rates.count > 0 && s->rates.count != each)
        snprintf(problem, size,
                 "--rates has %d value%s; with --context-parallel, %d rank%s divide%s "
                 "the model",
                 s->rates.count, CLI_PLURAL(s->rates.count), each, CLI_PLURAL(each),
                 each == 1 ? "s" : "");
    else
        return true;
    return false;
}

static bool rates_fit(const cli_stages *s, int ranks, char *problem, size_t size)
{
    const int given = s->rates.count, stages = count_of(s), each = ranks / stages;
    if (given == 0 || given == ranks || given == each || contexts_of(s) > 1)
        return true;
    if (stages == 1)
        snprintf(problem, size, "--rates has %d value%s for %d rank%s", given, CLI_PLURAL(given),
                 ranks, CLI_PLURAL(ranks));
    else
        snprintf(problem, size, "--rates has %d value%s for %d ranks in stages of %d", given,
                 CLI_PLURAL(given), ranks, each);
    return false;
}

static bool memory_fits(const cli_stages *s, int ranks, char *problem, size_t size)
{
    const int given = s->memory.count;
    if (given <= 1 || given == ranks)
        return true;
    snprintf(problem, size, "--memory has %d value%s for %d rank%s", given, CLI_PLURAL(given),
             ranks, CLI_PLURAL(ranks));
    return false;
}

bool cli_stages_fit(const cli_stages *s, int ranks, char *problem, size_t size)
{
    const int stages = count_of(s), given = s->layers.count;
    if (given > 0 && given != stages) {
        snprintf(problem, size, "--stage-layers has %d value%s for %d stage%s", given,
                 CLI_PLURAL(given), stages, CLI_PLURAL(stages));
        return false;
    }
    if (ranks % stages != 0) {
        snprintf(problem, size,
                 s->count > 0 ? "--stages %d does not divide %d rank%s"
                              : "--stage-layers gives %d stages, which do not divide %d rank%s",
                 stages, ranks, CLI_PLURAL(ranks));
        return false;
    }
    return contexts_fit(s, ranks, problem, size) && rates_fit(s, ranks, problem, size) &&
           memory_fits(s, ranks, problem, size);
}

static bool has_newcomer(int ranks, const int *numbers)
{
    for (int i = 0; i < ranks; i++)
        if (numbers[i] < 0)
            return true;
    return false;
}

bool cli_stages_adapt(cli_stages *s, int ranks, const int *numbers, int stage_count)
{
    char problem[256];
    bool dropped = false;
    const bool grown = has_newcomer(ranks, numbers);
    const int last = ranks > 0 ? numbers[ranks - 1] : 0;
    s->count = stage_count;
    if (s->rates.measured)
        s->rates.count = 0;
    /* Values of all ranks lose those of ranks that are gone. */
    if (!grown && s->rates.count > last) {
        for (int i = 0; i < ranks; i++)
            s->rates.values[i] = s->rates.values[numbers[i]];
        s->rates.count = ranks;
    }
    if (!grown && s->memory.count > last && s->memory.count > 1) {
        for (int i = 0; i < ranks; i++)
            s->memory.values[i] = s->memory.values[numbers[i]];
        s->memory.count = ranks;
    }
    if (grown && s->rates.count > 0) {
        s->rates.count = 0;
        dropped = true;
    }
    if (grown && s->memory.count > 1) {
        s->memory.count = 0;
        dropped = true;
    }
    if (!cli_stages_fit(s, ranks, problem, sizeof problem)) {
        s->count = s->context_ranks = 0;
        s->layers.count = s->rates.count = 0;
        s->memory.count = s->memory.count > 1 ? 0 : s->memory.count;
        free(s->layers.values);
        s->layers.values = NULL;
        dropped = true;
    }
    return dropped;
}

static tsr_status measure_rates(cli_rates *rates, tsr_comm *job, tsr_stream *stream)
{
    tsr_group *all = NULL;
    tsr_status status = tsr_group_create(job, stream, NULL, &all);
    rates->count = tsr_comm_size(job);
    free(rates->values); /* of other ranks, measured before */
    rates->values = cli_alloc((size_t)rates->count, sizeof *rates->values);
    if (status == TSR_OK)
        status = tsr_calibrate(all, NULL, rates->values);
    tsr_group_destroy(&all);
    return status;
}

tsr_status cli_stages_create(cli_stages *s, tsr_comm *job, tsr_stream *stream,
                             const tsr_group_params *params, tsr_group **group, tsr_comm **across,
                             tsr_group **contexts)
{
    const int rank = tsr_comm_rank(job), stages = count_of(s) * contexts_of(s),
              each = tsr_comm_size(job) / stages;
    tsr_comm *stage = NULL;
    tsr_status status = s->rates.measured ? measure_rates(&s->rates, job, stream) : TSR_OK;
    if (status != TSR_OK || stages == 1)
        return status == TSR_OK ? tsr_group_create(job, stream, params, group) : status;
    status = tsr_comm_split(job, rank % each, rank, across);
    if (status == TSR_OK)
        status = tsr_comm_split(job, rank / each, rank, &stage);
    if (status == TSR_OK)
        status = tsr_group_create(stage, stream, params, group);
    tsr_comm_destroy(&stage);
    if (status == TSR_OK && contexts_of(s) > 1) {
        status = tsr_group_create(*across, stream, params, contexts);
        tsr_comm_destroy(across);
    }
    return status;
}

void cli_stages_divide(cli_stages *s, const tsr_comm *job, tsr_model_params *out)
{
    const int stages = count_of(s), ranks = tsr_comm_size(job) / contexts_of(s),
              each = ranks / stages, stage = tsr_comm_rank(job) % ranks / each;
    out->stage_layers = s->layers.values;
    out->expert_division = s->experts.division;
    out->host_experts = s->experts.host;
    free(s->hosts);
    s->hosts = cli_experts_hosts(&s->experts, stages, ranks);
    out->hosts = s->hosts;
    if (s->memory.count > 0)
        out->memory_bytes = s->memory.values[s->memory.count == 1 ? 0 : tsr_comm_rank(job)];
    if (s->rates.count == 0)
        return;
    const bool all = s->rates.count == ranks;
    s->partition = TSR_INIT(tsr_partition_params);
    s->partition.kind = TSR_PARTITION_WEIGHTED;
    s->partition.rates = &s->rates.values[all ? stage * each : 0];
    out->partition = &s->partition;
    if (!all)
        return;
    free(s->stage_speeds);
    s->stage_speeds = cli_alloc((size_t)stages, sizeof *s->stage_speeds);
    for (int rank = 0; rank < ranks; rank++)
        s->stage_speeds[rank / each] += s->rates.values[rank];
    out->stage_rates = s->stage_speeds;
}
