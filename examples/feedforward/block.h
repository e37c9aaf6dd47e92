/* A gated feed-forward block and its weights in a safetensors file, with the names that Llama and
 * similar models use. */
#ifndef FEEDFORWARD_BLOCK_H
#define FEEDFORWARD_BLOCK_H

#include "tessera/tessera.h"

#define BLOCK_PREFIX_SIZE 256

typedef struct block_sizes {
    int64_t width, hidden;
    tsr_dtype dtype;
    char prefix[BLOCK_PREFIX_SIZE]; /* what precedes "gate_proj.weight" in the names of the file,
                                       for example "model.layers.0.mlp." */
} block_sizes;

#define BLOCK_PROBLEM 512

/* Reads the sizes of the first block in the file, which for a complete model is that of its first
 * layer. If the library can read the file but the block is invalid, `problem` says why. */
tsr_status block_read_sizes(const char *path, block_sizes *out, char problem[BLOCK_PROBLEM]);

/* Creates a block with random weights. */
tsr_status block_create(tsr_group *group, const block_sizes *sizes, tsr_layer **out);

/* Load and save this rank's part of the weights. */
tsr_status block_load(tsr_layer *layer, const block_sizes *sizes, const char *path, tsr_comm *comm);
tsr_status block_save(tsr_layer *layer, const char *path, tsr_comm *comm);

#endif
