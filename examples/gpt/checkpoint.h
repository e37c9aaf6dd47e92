/* Trainings in files: parameters, the optimizer's state, and which model and text they are of. */
#ifndef GPT_CHECKPOINT_H
#define GPT_CHECKPOINT_H

#include "model.h"
#include "text.h"

/* Collective, as tsr_optimizer_save and tsr_optimizer_load. In `parts`, each rank writes a file of
 * its own on its host; loading then also makes the checks of checkpoint_check, because no other
 * host may have the file, and their sentence is in `error`. */
tsr_status checkpoint_save(gpt_model *model, const gpt_text *text, const char *path, bool parts);
tsr_status checkpoint_load(gpt_model *model, const gpt_text *text, const char *path, bool parts,
                           char *error, size_t error_size);

/* Checks that a file is the checkpoint of a model with this description and of a text with the same
 * characters. Reads the header only, and needs no device. Returns false with a sentence in `error`.
 */
bool checkpoint_check(const char *path, const gpt_config *config, tsr_dtype dtype,
                      const gpt_text *text, char *error, size_t error_size);

#endif
