#include "cli/lib/stages.h"

#include <stdio.h>

bool cli_stages_fit(int stages, int ranks, char *problem, size_t size)
{
    if (ranks % stages == 0)
        return true;
    snprintf(problem, size, "--stages %d does not divide %d rank%s", stages, ranks,
             ranks == 1 ? "" : "s");
    return false;
}

tsr_status cli_stages_create(tsr_comm *job, int stages, tsr_stream *stream,
                             const tsr_group_params *params, tsr_group **group, tsr_comm **across)
{
    const int rank = tsr_comm_rank(job), each = tsr_comm_size(job) / stages;
    tsr_comm *stage = NULL;
    if (stages == 1)
        return tsr_group_create(job, stream, params, group);
    tsr_status status = tsr_comm_split(job, rank % each, rank, across);
    if (status == TSR_OK)
        status = tsr_comm_split(job, rank / each, rank, &stage);
    if (status == TSR_OK)
        status = tsr_group_create(stage, stream, params, group);
    tsr_comm_destroy(&stage);
    return status;
}
