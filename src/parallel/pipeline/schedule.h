/* The 1F1B schedule of a pipeline, which tessera/pipeline.h describes. */
#ifndef TSR_PARALLEL_PIPELINE_SCHEDULE_H
#define TSR_PARALLEL_PIPELINE_SCHEDULE_H

#include "tessera/pipeline.h"

typedef struct tsr__pipeline_step {
    tsr_pass pass;
    int micro_batch;
} tsr__pipeline_step;

/* Writes the steps of a stage to the caller's steps[2 · micro_batches]. Errors: TSR_ERR_INVALID for
 * a stage that is not 0 … stages − 1, stages outside 1 … TSR_MAX_COMM_SIZE, and micro-batches
 * outside 1 … TSR_MAX_PIPELINE_BATCHES. */
tsr_status tsr__pipeline_schedule(int stage, int stages, int micro_batches,
                                  tsr__pipeline_step *steps) TSR_NODISCARD;
/* Returns the largest number of micro-batches that at any time have had their forward but not yet
 * their backward pass on a stage: min(stages − stage, micro_batches). 0 for arguments that
 * tsr__pipeline_schedule refuses. */
int tsr__pipeline_in_flight(int stage, int stages, int micro_batches);

#endif
