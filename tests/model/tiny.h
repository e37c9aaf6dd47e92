/* A Llama of one layer, whose weights are zeros. */
#ifndef TESTS_MODEL_TINY_H
#define TESTS_MODEL_TINY_H

/* Creates a folder with config.json and model.safetensors, which takes no space on the disk. The
 * width is 32, and the head is tied. `more` has further members of config.json, after a leading
 * comma. */
void tiny_model(const char *folder, int vocabulary, const char *more);

#endif
