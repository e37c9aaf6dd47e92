/* The ranks of a job as stages of a model, for commands that take --stages. */
#ifndef TSR_CLI_LIB_STAGES_H
#define TSR_CLI_LIB_STAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/lib/model.h"
#include "tessera/tessera.h"

/* How the ranks of a job divide a model: the values of --stages, --stage-layers, --rates,
 * --memory and --experts. */
typedef struct cli_stages {
    int64_t count;         /* 0: the number of entries of `layers`, or 1 if it has none */
    int64_t context_ranks; /* the value of --context-parallel; 0: 1. Only with one stage */
    cli_layers layers;
    /* for the ranks of one stage, or for all ranks of the job; with context ranks, for the ranks
     * that divide the model */
    cli_rates rates;
    cli_memory memory;   /* for all ranks of the job */
    cli_experts experts; /* --experts */
    /* set by cli_stages_divide */
    tsr_partition_params partition;
    int *hosts;           /* as in tsr_model_params */
    double *stage_speeds; /* [stages]: the sums of rates */
} cli_stages;

/* Returns whether the values fit the number of ranks. Otherwise writes a sentence that names the
 * option to `problem`. */
bool cli_stages_fit(const cli_stages *stages, int ranks, char *problem, size_t size);

/* Fits the values to the ranks of a job that has changed. numbers[ranks] are the numbers that they
 * had before, -1 for one that has joined; stages is the number of stages that all have now. Values
 * that do not fit are dropped, so that ranks divide the model evenly. Returns whether some were. */
bool cli_stages_adapt(cli_stages *stages, int ranks, const int *numbers, int stage_count);

/* Divides the job's ranks over stages of consecutive ranks. *group contains the ranks of this
 * rank's stage. *across contains one rank of each stage, as in tsr_pipeline_params, and is NULL if
 * there is one stage. With context ranks, *group has as many consecutive ranks as divide the model,
 * and *contexts those with the same place in each such group; otherwise it is NULL. The caller
 * destroys all of them, also after an error. With --rates measured, measures the rates of all ranks
 * first. Collective over the job. */
TSR_NODISCARD tsr_status cli_stages_create(cli_stages *stages, tsr_comm *job, tsr_stream *stream,
                                           const tsr_group_params *params, tsr_group **group,
                                           tsr_comm **across, tsr_group **contexts);

/* Fills in the members of `out` that divide the model: among stages by --stage-layers or by the
 * rates and the memory of all ranks, and inside a stage by the rates of its ranks. `out` then
 * points to arrays of `stages`, which must outlive it. */
void cli_stages_divide(cli_stages *stages, const tsr_comm *job, tsr_model_params *out);

#endif
