/* Trainings in files: parameters, the optimizer's state, and which model and text they are of. */
#ifndef GPT_CHECKPOINT_H
#define GPT_CHECKPOINT_H

#include "model.h"
#include "text.h"

/* Collective, as tsr_optimizer_save and tsr_optimizer_load. */
tsr_status checkpoint_save(gpt_model *model, const gpt_text *text, const char *path);
tsr_status checkpoint_load(gpt_model *model, const char *path);

/* Checks that a file is the checkpoint of a model with this description and of a text with the same
 * characters. Reads the header only, and needs no device. Returns false with a sentence in `error`.
 */
bool checkpoint_check(const char *path, const gpt_config *config, tsr_dtype dtype,
                      const gpt_text *text, char *error, size_t error_size);

#endif
