/* The internal interface of models. */
#ifndef TSR_MODEL_MODEL_H
#define TSR_MODEL_MODEL_H

#include "model/kept.h"
#include "tessera/model.h"

struct tsr_model {
    tsr_model_config config;
    tsr_group *group;
    tsr_stream *stream;
    tsr_device *device;
    tsr__kept kept;
    tsr_partition_params partition;
    int64_t *vocabulary; /* [ranks]: how the vocabulary is divided */
    tsr_layer *embedding, *norm, *head;
    tsr_layer **blocks;    /* [config.layers] */
    tsr_tensor *positions; /* learned positions [context, width]; NULL: none */
    tsr_model_stats stats;
};

/* memory.c */

/* Allocates the parameters of all layers, each in the dtype in which it is kept. */
tsr_status tsr__model_allocate(tsr_model *model, const tsr__weights *weights) TSR_NODISCARD;

/* load.c: reads the weights of all layers. */
tsr_status tsr__model_load(tsr_model *model, const tsr__weights *weights,
                           const tsr_model_params *params) TSR_NODISCARD;

/* forward.c */

/* Computes the features of the step's tokens after the last norm, f32 [count, tokens, width], which
 * the caller must destroy. A step of the cache must have begun; ids are [count, tokens], of which
 * the first of each sequence count. */
tsr_status tsr__model_forward(tsr_model *model, tsr_kv_cache *cache, int64_t count, int64_t tokens,
                              const int32_t *ids, tsr_tensor **out) TSR_NODISCARD;
/* Computes the logits of tokens first … first + count − 1 of every sequence, from all ranks:
 * logits[sequences · count · vocabulary]. Collective; blocks until they are there. */
tsr_status tsr__model_logits(tsr_model *model, const tsr_tensor *features, int64_t first,
                             int64_t count, float *logits) TSR_NODISCARD;

#endif
