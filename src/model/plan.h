/* What each rank will hold of a model, computed from the headers of its files. */
#ifndef TSR_MODEL_PLAN_H
#define TSR_MODEL_PLAN_H

#include "model/kept.h"

/* A parameter of the model, and its place in the files. */
typedef struct tsr__planned {
    const char *ours;
    int ndim;
    tsr__weight weight;
} tsr__planned;

typedef struct tsr__model_plan {
    const tsr__weights *weights;
    tsr__planned *items; /* [count] */
    size_t count, capacity;
} tsr__model_plan;

/* Lists the parameters. Call tsr__model_plan_finish afterwards, also after an error. */
tsr_status tsr__model_plan_init(const tsr__weights *weights, tsr__model_plan *out) TSR_NODISCARD;
void tsr__model_plan_finish(tsr__model_plan *plan);

/* Computes what each rank holds: out[params->ranks]. */
tsr_status tsr__model_plan_ranks(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                                 tsr_model_rank_plan *out) TSR_NODISCARD;

/* Finds out whether the plan fits into memory_bytes[ranks], and otherwise what would fit. */
tsr_status tsr__model_plan_fit(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                               const uint64_t *memory_bytes, tsr_model_fit *out) TSR_NODISCARD;

/* Writes a sentence about the weights of a rank, whose device has `memory_bytes`: how much is
 * missing, and what would fit. Returns `text`. */
#define TSR__MODEL_PLAN_ADVICE 320
const char *tsr__model_plan_advice(const tsr__weights *weights, const tsr_model_plan_params *params,
                                   int rank, uint64_t memory_bytes,
                                   char text[TSR__MODEL_PLAN_ADVICE]);

#endif
