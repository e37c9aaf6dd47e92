/* Small models with a layer that predicts further tokens, and that layer in double precision. */
#ifndef TESTS_MODEL_NEXT_LAYER_H
#define TESTS_MODEL_NEXT_LAYER_H

#include "tessera/model.h"

enum { NEXT_VOCABULARY = 96, NEXT_CONTEXT = 256, NEXT_SEED = 3, NEXT_WIDTH = 32 };
/* What is added to the part of the join that the embedding multiplies, times the identity. The
 * layer then mostly predicts what follows the token itself. */
enum { NEXT_JOIN = 8 };

typedef enum next_kind {
    NEXT_ATTENTION, /* Qwen 3.5: two of three layers are delta nets */
    NEXT_LATENT,    /* DeepSeek V3: latent attention of 3 heads, and experts after a dense layer */
    NEXT_KINDS
} next_kind;

/* Opens the file of a model with random weights, with or without the layer. */
tsr_status next_open_file(next_kind kind, bool with_layer, tsr_model_file **out);
/* Reads the weights of a model's layer for next_predict. */
void next_read(next_kind kind);
/* Computes the layer at a place, whose keys and values become known, from the model's or its own
 * output `hidden`, which becomes its output there, and the token that follows. Returns the token
 * that it predicts, and how much larger its logit is than all others, *gap. */
int32_t next_predict(int place, int32_t token, double *hidden, double *gap);

#endif
