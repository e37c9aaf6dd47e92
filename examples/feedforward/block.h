/* A gated feed-forward block and its weights in a safetensors file, under the names that Llama and
 * its kin give them. */
#ifndef FEEDFORWARD_BLOCK_H
#define FEEDFORWARD_BLOCK_H

#include "tessera/tessera.h"

#define BLOCK_PREFIX_SIZE 256

typedef struct block_sizes {
    int64_t width, hidden;
    tsr_dtype dtype;
    char prefix[BLOCK_PREFIX_SIZE]; /* before "gate_proj.weight" in the file */
} block_sizes;

#define BLOCK_PROBLEM 512

/* Those of the first block in the file; of a whole model, that of its first layer. What is wrong
 * with a file that the library can read goes into `problem`. */
tsr_status block_read_sizes(const char *path, block_sizes *out, char problem[BLOCK_PROBLEM]);

/* With random weights. */
tsr_status block_create(tsr_group *group, const block_sizes *sizes, tsr_layer **out);

/* This rank's part of the weights, from and to the file. */
tsr_status block_load(tsr_layer *layer, const block_sizes *sizes, const char *path, tsr_comm *comm);
tsr_status block_save(tsr_layer *layer, const char *path, tsr_comm *comm);

#endif
