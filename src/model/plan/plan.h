/* What each rank will hold of a model, computed from the header of its files.
 *
 *     plan.c    the parameters of a model, and the plan of all ranks
 *     shares.c  divides heads, hidden features, experts and the vocabulary over the ranks of a
 * stage limits.c  gives whole experts to ranks with more memory held.c    the bytes of a rank's
 * share divide.c  divides layers over stages fit.c     whether all of it fits */
#ifndef TSR_MODEL_PLAN_PLAN_H
#define TSR_MODEL_PLAN_PLAN_H

#include "model/weights/kept.h"

/* A parameter of the model, and its place in the files. */
typedef struct tsr__planned {
    const char *ours;
    int layer; /* -1: outside layers */
    int ndim;
    bool of_heads;   /* `experts` counts the heads, each of which has a matrix */
    int64_t experts; /* 0: not of experts */
    bool is_f32;     /* as in tsr__parameter */
    tsr__weight weight;
} tsr__planned;

typedef struct tsr__model_plan {
    const tsr__weights *weights;
    tsr__planned *items; /* [count] */
    size_t count, capacity;
    /* [ranks] of the params of the next calls, 0: no limit; or NULL. Ranks that lack memory for
     * their share of whole experts leave some to others of their stage. */
    const uint64_t *memory_bytes;
} tsr__model_plan;

/* plan.c */

/* Lists the parameters. Call tsr__model_plan_finish afterwards, also after an error. */
tsr_status tsr__model_plan_init(const tsr__weights *weights, tsr__model_plan *out) TSR_NODISCARD;
void tsr__model_plan_finish(tsr__model_plan *plan);

/* Checks params, and replaces those that are 0 by the values that this means, except for `context`.
 * The other functions need such params; for them, a context of 0 means that no cache counts. */
tsr_status tsr__model_plan_check(const tsr_model_config *config,
                                 tsr_model_plan_params *params) TSR_NODISCARD;

/* Computes what each rank holds if stage s has layers[s] layers: out[params->ranks]. */
tsr_status tsr__model_plan_ranks(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                                 const int *layers, tsr_model_rank_plan *out) TSR_NODISCARD;

/* Sets expert_division and expert_skew of held[params->ranks], whose layers are set. */
tsr_status tsr__model_plan_experts(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                                   tsr_model_rank_plan *held) TSR_NODISCARD;

/* Computes the bytes of each layer, with its cache, on each rank: of rank r and layer i in
 * out[r · (layers + 1) + i]. Element `layers` of a rank is what it holds outside layers. `experts`
 * has the part of them in whole experts that can move to other ranks of the stage. */
tsr_status tsr__model_plan_layers(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                                  uint64_t *out, uint64_t *experts) TSR_NODISCARD;

/* limits.c */

/* Gives the most whole experts of each kind of layer for each rank, [kinds][ranks], if memory and
 * not only rates divide them; otherwise NULL. The caller must free it. */
tsr_status tsr__model_plan_limits(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                                  const int *layers, uint64_t **out) TSR_NODISCARD;

/* divide.c */

/* Divides the layers over the stages: as given, or by rates and memory_bytes[params->ranks] (NULL,
 * or 0 for a rank: no limit). If they do not fit, the stages get as few layers more than fit as is
 * possible. layers[params->stages]. */
tsr_status tsr__model_plan_divide(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                                  const uint64_t *memory_bytes, int *layers) TSR_NODISCARD;

/* fit.c */

/* Finds out whether the plan fits into memory_bytes[ranks], and otherwise what would fit. */
tsr_status tsr__model_plan_fit(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                               const uint64_t *memory_bytes, tsr_model_fit *out) TSR_NODISCARD;

/* Returns TSR_ERR_DEVICE_MEMORY if ranks have too little memory for what they hold, with a sentence
 * that says which ranks lack how much, and what would fit. */
tsr_status tsr__model_plan_require(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                                   const uint64_t *memory_bytes,
                                   const tsr_model_rank_plan *held) TSR_NODISCARD;

#endif
