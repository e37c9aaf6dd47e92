/* Steps and checkpoints of FSDP models, each with an optimizer of its own: all state is in the
 * model. */
#ifndef TESTS_PARALLEL_FSDP_STEPS_H
#define TESTS_PARALLEL_FSDP_STEPS_H

#include "tessera/optimizer.h"

/* The learning rate of the step is that of the params. */
tsr_status fsdp_adamw_step(tsr_fsdp *model, const tsr_adamw_params *params);
tsr_status fsdp_sgd_step(tsr_fsdp *model, const tsr_sgd_params *params);
tsr_status fsdp_zero_grad(tsr_fsdp *model);
tsr_status fsdp_save(tsr_fsdp *model, const char *path, const tsr_optimizer_file_params *params);
tsr_status fsdp_load(tsr_fsdp *model, const char *path, const tsr_optimizer_file_params *params);

/* The number of steps that a new optimizer takes over from the model. */
int64_t fsdp_steps(tsr_fsdp *model);

#endif
