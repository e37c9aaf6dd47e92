/* How ranks share the layers of a plan, and the bytes of each share, for the files of this folder.
 */
#ifndef TSR_MODEL_PLAN_SHARES_H
#define TSR_MODEL_PLAN_SHARES_H

#include "model/plan/plan.h"

/* shares.c */

/* The heads, hidden features and entries of the vocabulary that a rank has. `hidden` are those of
 * the MLP, or of each of `experts`; with whole experts, these are the rank's. */
typedef struct tsr__plan_share {
    tsr_shard_range heads, kv_heads, hidden, experts, shared, vocabulary;
    tsr_shard_range key_heads; /* of a delta net; of a short convolution, its features */
    tsr_shard_range mlp;       /* hidden features of an MLP, also of one beside experts */
    tsr_shard_range width;     /* of the join before a layer that predicts further tokens */
    bool all_kv_heads;         /* the rank has the parameters of all kv heads */
} tsr__plan_share;

/* The shares of all ranks, and the dtypes of their weights. */
typedef struct tsr__plan_division {
    tsr__kept kept;
    tsr__plan_share *shares; /* [ranks][kinds of layers] */
    /* [kinds of layers][ranks]: the most whole experts for each rank; NULL: no limits */
    uint64_t *limits;
} tsr__plan_division;

/* Divides by rates, without limits. Call tsr__plan_division_finish afterwards, also after an error.
 */
tsr_status tsr__plan_divide_by_rates(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                     tsr__plan_division *out) TSR_NODISCARD;
/* Returns d->kept with the hosts and the rates of a stage's ranks. */
tsr__kept tsr__plan_kept_of(const tsr__plan_division *d, const tsr_model_plan_params *p, int stage);
/* Divides all kinds of layers over the ranks of each stage, in d->shares, within d->limits.
 * ranges[ranks of a stage] is scratch memory. */
tsr_status tsr__plan_divide_stages(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                   tsr_shard_range *ranges, tsr__plan_division *d) TSR_NODISCARD;
void tsr__plan_division_finish(tsr__plan_division *d);
/* Returns what a rank has of a layer; of layer −1, what is divided outside layers. */
const tsr__plan_share *tsr__plan_share_of(const tsr__plan_division *d, int rank, int layer);

/* limits.c */

/* Divides by rates. If ranks have whole experts, and one has too little memory for its share of
 * those of its stage, others of the stage that have room get more. layers[stages]; NULL: they are
 * not known yet, and with several stages experts are divided by rates only. Call
 * tsr__plan_division_finish afterwards, also after an error. */
tsr_status tsr__plan_divide_ranks(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                  const int *layers, tsr__plan_division *out) TSR_NODISCARD;

/* Returns whether all experts are whole on the ranks of all stages. */
bool tsr__plan_has_whole_experts(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                 const tsr__plan_division *d);

/* held.c */

/* Whether a rank's stage is the first or the last one of the model, and whether it has the layer
 * that predicts further tokens, and with it the embedding. */
typedef struct tsr__plan_ends {
    bool first, last, next;
} tsr__plan_ends;
tsr__plan_ends tsr__plan_ends_of(const tsr_model_plan_params *p, int rank);
/* Returns whether a rank has a parameter of a layer: if it is one of `layers` layers from `first`
 * on, or the layer that predicts further tokens. */
bool tsr__plan_has_inside(const tsr_model_config *c, const tsr__planned *item, tsr__plan_ends of,
                          int first, int layers);
/* Returns whether a stage has a parameter that is outside layers. A tied head is the embedding. */
bool tsr__plan_has_outside(const tsr_model_config *c, const tsr__planned *item, tsr__plan_ends of);
/* Adds the bytes of a rank's part of a parameter to the rank's plan. */
void tsr__plan_add_item(const tsr__kept *kept, const tsr__planned *item, const tsr__plan_share *s,
                        const tsr_model_plan_params *p, tsr__plan_ends of,
                        tsr_model_rank_plan *out);
/* The bytes of a layer's cache on a rank with the share `s` of the layer. */
uint64_t tsr__plan_cache_bytes(const tsr_model_config *c, const tsr_model_plan_params *p, int layer,
                               const tsr__plan_share *s);
/* Checks that a cache of the model can have this dtype: a float, or blocks of which the keys and
 * values of each head have whole ones. */
tsr_status tsr__plan_check_cache_dtype(const tsr_model_config *c, tsr_dtype dtype) TSR_NODISCARD;
/* Checks that the bytes of the cache fit into an int64_t, also if one rank had all of it. */
tsr_status tsr__plan_check_cache(const tsr_model_config *c,
                                 const tsr_model_plan_params *p) TSR_NODISCARD;
/* Computes what a rank holds of the layers from out->first_layer on, out->layers of them. The other
 * values of *out must be 0. */
void tsr__plan_rank(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                    const tsr__plan_division *d, int rank, tsr_model_rank_plan *out);

#endif
