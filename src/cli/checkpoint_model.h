/* tessera checkpoint show, of models: GGUF files and folders with a config.json. */
#ifndef CLI_CHECKPOINT_MODEL_H
#define CLI_CHECKPOINT_MODEL_H

#include <stdbool.h>

/* Returns whether `path` is a GGUF file, or a folder with a config.json. */
bool checkpoint_is_model(const char *path);

/* Prints the configuration and the tensors of a model, and returns the exit status. */
int checkpoint_show_model(const char *path, bool json);

#endif
