/* A model's weights in files with Hugging Face's names. */
#ifndef GPT_WEIGHTS_H
#define GPT_WEIGHTS_H

#include "model.h"

/* Replaces all weights by those of a safetensors file or a model.safetensors.index.json, of any
 * float dtype. Matrices of GPT-2 may be stored as torch.nn.Linear has them, [out, in], or
 * transposed, as Hugging Face has them. All ranks call it. Returns TSR_ERR_INVALID for a tensor
 * that the file lacks or that has another shape, with a sentence in `error` that names it.
 * names_check_file() finds the same errors without a device. */
tsr_status weights_load(gpt_model *model, const char *path, char *error, size_t error_size);

/* Writes the model to `path`, and config.json into the same folder: that of the folder
 * `given_model`, from which the model was read, unless it is NULL. All ranks call it; rank 0
 * writes. For GPT-2, matrices are transposed, and biases that the model lacks are written as 0,
 * because other programs expect both. */
tsr_status weights_save(gpt_model *model, const char *path, const char *given_model, char *error,
                        size_t error_size);

#endif
