/* The internal interface of models. */
#ifndef TSR_MODEL_MODEL_H
#define TSR_MODEL_MODEL_H

#include "model/file.h"
#include "model/stack/stack.h"
#include "model/weights/kept.h"

struct tsr_model {
    tsr__config *own_config;
    const tsr_model_config *config; /* in own_config */
    tsr_group *group;
    tsr_stream *stream;
    tsr_device *device;
    tsr__kept kept;
    tsr_partition_params partition;
    tsr_pipeline *pipeline;
    int stage, stage_count;
    tsr_comm *stages;         /* the ranks with this rank's number in each stage; NULL: one stage */
    tsr_group *context_group; /* as in tsr_model_params; NULL: no other ranks divide sequences */
    /* [ranks of all stages, by stages]: memory for the model, and rates, 0 if there are none */
    uint64_t *memory_bytes;
    double *rates;
    int *hosts;              /* the same: the numbers of ranks' hosts in their stage */
    uint64_t *expert_limits; /* see tsr__model_plan_limits; NULL: none */
    bool is_first, is_last, recompute;
    bool next_token;              /* as in tsr_model_params */
    int first_layer, layer_count; /* the layers of this stage */
    tsr_dtype cache_dtype;        /* the dtype of caches for which the caller gives none */
    int host_experts;             /* as in tsr_model_params */
    int64_t context;  /* for which it was opened, see tsr_model_params; 0: the configuration's */
    int32_t division; /* a hash of how stages divide layers and experts */
    tsr_stack *stack; /* the layers of this stage */
    tsr_model_stats stats;
};

/* stages.c */

/* Creates the model's pipeline. Collective over all stages. */
tsr_status tsr__model_connect(tsr_model *model, const tsr_model_params *params) TSR_NODISCARD;
/* Tells all ranks of all stages the memory and the rate of each, and those of a context group the
 * least of each. Collective over them. */
tsr_status tsr__model_share_memory(tsr_model *model, const tsr_model_params *params) TSR_NODISCARD;
/* Divides the layers over the stages, as given, or by rates and memory. Fails if the ranks' memory
 * is too small. */
tsr_status tsr__model_divide(tsr_model *model, const tsr__weights *weights,
                             const tsr_model_params *params) TSR_NODISCARD;
/* Replaces values[count] by the largest of all ranks of all stages and of context groups. */
tsr_status tsr__model_all_max(const tsr_model *model, int32_t *values,
                              uint64_t count) TSR_NODISCARD;
/* Returns whether this rank chooses the tokens: rank 0 of the last stage, and of its context group,
 * does. */
bool tsr__model_chooses(const tsr_model *model);
/* Copies data from the last stage to all stages. */
tsr_status tsr__model_from_last(const tsr_model *model, void *data, uint64_t count,
                                tsr_dtype dtype) TSR_NODISCARD;

/* memory.c */

/* Allocates the parameters of all layers, each in the dtype in which it is kept. */
tsr_status tsr__model_allocate(tsr_model *model, const tsr__weights *weights) TSR_NODISCARD;

/* Allocates the parameters of one layer of the stack. */
tsr_status tsr__model_allocate_layer(const tsr_model *model, const tsr__weights *weights,
                                     tsr_layer *layer) TSR_NODISCARD;
tsr_status tsr__model_allocate_positions(tsr_model *model) TSR_NODISCARD;

/* load.c: reads the weights of all layers. */
tsr_status tsr__model_load(tsr_model *model, const tsr__weights *weights,
                           const tsr_model_params *params) TSR_NODISCARD;
/* The same for layers without memory, whose weights are frozen and divided over
 * params->sharded_over: one layer after the other has memory while it is read. */
tsr_status tsr__model_load_sharded(tsr_model *model, const tsr__weights *weights,
                                   const tsr_model_params *params) TSR_NODISCARD;

/* forward.c */

/* Computes the layers of this stage for the tokens of a step of the cache, which must have begun.
 * The first stage takes the tokens' ids [count, tokens] (of a sequence with fewer tokens, only the
 * first ones count), the others take the features x of the previous stage. *out are the features
 * after this stage's blocks, f32 [count, tokens, width]. The caller must destroy them. */
tsr_status tsr__model_forward(tsr_model *model, tsr_kv_cache *cache, int64_t count, int64_t tokens,
                              const int32_t *ids, const tsr_tensor *x,
                              tsr_tensor **out) TSR_NODISCARD;
/* The same if the model's context group divides the tokens of the step, which has one sequence:
 * *out is f32 [1, 1, width], the features after the last token, on all ranks. Collective over the
 * context group, too. */
tsr_status tsr__model_forward_divided(tsr_model *model, tsr_kv_cache *cache, const int32_t *ids,
                                      tsr_tensor **out) TSR_NODISCARD;
/* Applies the last norm and the head: computes the logits of tokens first … first + count − 1 of
 * every sequence, from all ranks: logits[sequences · count · vocabulary]. Last stage only.
 * Collective. Blocks until the logits have arrived. */
tsr_status tsr__model_logits(tsr_model *model, const tsr_tensor *features, int64_t first,
                             int64_t count, float *logits) TSR_NODISCARD;

#endif
