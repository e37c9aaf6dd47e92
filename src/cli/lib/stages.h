/* The ranks of a job as stages of a model, for commands that take --stages. */
#ifndef TSR_CLI_LIB_STAGES_H
#define TSR_CLI_LIB_STAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "tessera/tessera.h"

/* Returns whether so many stages divide the ranks. Otherwise writes a sentence about --stages to
 * `problem`. */
bool cli_stages_fit(int stages, int ranks, char *problem, size_t size);

/* Divides the job's ranks over `stages` stages of consecutive ranks. *group are the ranks of a
 * stage, and *across those that have the same place in all stages; NULL if there is one stage. The
 * caller destroys both, also after an error. */
TSR_NODISCARD tsr_status cli_stages_create(tsr_comm *job, int stages, tsr_stream *stream,
                                           const tsr_group_params *params, tsr_group **group,
                                           tsr_comm **across);

#endif
