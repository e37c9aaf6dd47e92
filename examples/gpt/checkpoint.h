/* Saves and loads the state of a training: parameters, the optimizer's state, a description of the
 * model and its text, and the options that describe the training. */
#ifndef GPT_CHECKPOINT_H
#define GPT_CHECKPOINT_H

#include "model.h"
#include "text.h"

/* All ranks must call these, as tsr_optimizer_save and tsr_optimizer_load. With `parts`, each rank
 * has a file of its own on its host. `options` is the text for checkpoint_options(). Loading parts
 * also makes the checks of checkpoint_check, because no other host may have the file; `error` then
 * has the sentence. */
tsr_status checkpoint_save(gpt_model *model, const gpt_text *text, const char *options,
                           const char *path, bool parts);
tsr_status checkpoint_load(gpt_model *model, const gpt_text *text, const char *path, bool parts,
                           char *error, size_t error_size);

/* Reads the options with which a checkpoint was saved, as a string in memory of malloc. Reads the
 * header only. On failure returns NULL with a sentence in `error`. */
char *checkpoint_options(const char *path, char *error, size_t error_size);
/* The same for a checkpoint in parts. All ranks of `world` must call it. With NULL, the part of any
 * rank in the folder of `path` on this host is enough. */
char *checkpoint_parts_options(const char *path, tsr_comm *world, char *error, size_t error_size);

/* Checks that a file is the checkpoint of a model with this description and of a text with the same
 * characters. Reads the header only, and needs no device. On failure returns false with a sentence
 * in `error`. */
bool checkpoint_check(const char *path, const gpt_config *config, tsr_dtype dtype,
                      const gpt_text *text, char *error, size_t error_size);

#endif
