#include "planner/predict.h"

/* The bytes of a parameter, its gradient, and the two moments of AdamW, in f32. */
#define TRAINING_BYTES 16

/* Context ranks gather keys and values by groups of heads, at most this many, two of which are in
 * memory. In the backward pass, each has keys and values, and their gradients, twice: in the order
 * of ranks and in that of the sequence. */
#define HEAD_GROUPS 8
#define GATHERED_COPIES 4

static double gathered_bytes(const tsr__grid_work *w, const tsr__grid *g,
                             const tsr__model_share *held)
{
    const int64_t groups = held->kv_heads < HEAD_GROUPS ? held->kv_heads : HEAD_GROUPS;
    return w->context_ranks > 1
               ? GATHERED_COPIES * held->kv_bytes * tsr__context_tokens_of_pass(w, g) *
                     (groups > 2 ? 2 / (double)groups : 1)
               : 0;
}

static double share_of_blocks(const tsr__grid_work *w, const tsr__grid *g, int stage)
{
    return (double)g->blocks[stage] / w->layers;
}

double tsr__grid_parameters(const tsr__grid_work *w, const tsr__grid *g, int place)
{
    const int stage = place / (g->data * g->tensor);
    const tsr__model_share *held = &g->model_shares[place];
    const bool first = stage == 0, last = stage == g->stages - 1;
    double bytes = share_of_blocks(w, g, stage) * held->block_bytes;
    if (first)
        bytes += held->embedding_bytes;
    if (last && !(held->tied && first))
        bytes += held->head_bytes;
    return bytes / sizeof(float);
}

double tsr__grid_memory(const tsr__grid_work *w, const tsr__grid *g, int place)
{
    const int stage = place / (g->data * g->tensor);
    const tsr__model_share *held = &g->model_shares[place];
    const bool first = stage == 0, last = stage == g->stages - 1;
    const double share = share_of_blocks(w, g, stage);
    if (w->goal != TSR_PLAN_TRAINING)
        return share * (held->block_bytes + held->cache_bytes) +
               (first ? held->embedding_bytes : 0) +
               (last && !(held->tied && first) ? held->head_bytes : 0);
    const double parameters = tsr__grid_parameters(w, g, place), rows = tsr__rows_of_pass(w, g);
    const int after = g->stages - stage,
              in_flight = after < w->micro_batches ? after : w->micro_batches;
    /* With sharded parameters, a rank has the complete parameters and gradients of two blocks. */
    const double full = 4 * held->block_bytes / w->layers,
                 state = g->sharded ? parameters * TRAINING_BYTES / g->data + full
                                    : parameters * TRAINING_BYTES;
    return state + in_flight * g->blocks[stage] * rows * held->activation_bytes +
           gathered_bytes(w, g, held) +
           (last ? 2 * rows * w->vocabulary / g->tensor * sizeof(float) : 0);
}

uint64_t tsr__whole_bytes(double bytes)
{
    return bytes < 0x1p64 ? (uint64_t)bytes : UINT64_MAX;
}
