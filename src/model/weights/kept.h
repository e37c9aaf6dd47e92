/* In which dtype a model's weights are kept on the ranks. */
#ifndef TSR_MODEL_WEIGHTS_KEPT_H
#define TSR_MODEL_WEIGHTS_KEPT_H

#include "model/weights/weights.h"

typedef struct tsr__kept {
    const tsr_model_config *config;
    int ranks;
    tsr_dtype matrices; /* the dtype of all matrices, as far as possible; 0: as in the files */
    tsr_expert_division experts;
    /* The hosts of the ranks of a stage, 0 to ranks − 1, and their rates, [ranks] each. NULL: they
     * are on one host, or equally fast. The caller sets both after tsr__kept_choose. */
    const int *hosts;
    const double *rates;
    /* Delta nets keep the tiled order of heads that the files have, because blocks of the output
     * product's matrix have columns of several heads. */
    bool tiles;
    tsr_dtype others; /* the dtype of biases, of learned positions, and of matrices whose blocks
                       * cannot be divided */
} tsr__kept;

/* Chooses the dtypes. `wanted` and `experts` are those of tsr_model_params: 0, a float or a block
 * format. The weights must outlive the result. */
tsr_status tsr__kept_choose(const tsr__weights *weights, int ranks, tsr_dtype wanted,
                            tsr_expert_division experts, tsr__kept *out) TSR_NODISCARD;

/* Returns the dtype of a rank's part of a matrix. */
tsr_dtype tsr__kept_part(const tsr__kept *kept, const tsr__weight *weight,
                         const tsr__weight_part *part);

/* Gives the `align` of the partition of the heads (of the kv heads, if there is one for each rank;
 * of the key heads of a delta net) of a kind of layer, with which each rank gets whole quantisation
 * blocks of the matrices that are kept in blocks. 0: there are too few blocks for every rank to
 * have one, and these matrices are then not kept in blocks. */
tsr_status tsr__kept_align_heads(const tsr__kept *kept, const tsr__weights *weights, int kind,
                                 uint64_t *out) TSR_NODISCARD;
/* The same for the hidden features of a shared expert. A layer without one has 0. */
tsr_status tsr__kept_align_shared(const tsr__kept *kept, const tsr__weights *weights, int kind,
                                  uint64_t *out) TSR_NODISCARD;

/* The same for those of an MLP beside experts. */
tsr_status tsr__kept_align_mlp(const tsr__kept *kept, const tsr__weights *weights, int kind,
                               uint64_t *out) TSR_NODISCARD;

/* How the MLP or the experts of a kind of layer are divided. */
typedef struct tsr__kept_hidden {
    bool whole_experts; /* ranks have whole experts, not a part of each */
    bool mixed;         /* hosts have whole experts, and their ranks a part of these */
    int64_t length;     /* what is divided: experts or hidden features */
    uint64_t align;     /* of the partition, with which each rank gets whole blocks; 0: too few */
} tsr__kept_hidden;
tsr_status tsr__kept_divide_hidden(const tsr__kept *kept, const tsr__weights *weights, int kind,
                                   tsr__kept_hidden *out) TSR_NODISCARD;
/* Gives the expected work of the slowest rank of a stage with the experts that tokens choose, see
 * tsr__expert_load. */
tsr_status tsr__kept_expert_load(const tsr__kept *kept, const tsr_model_experts *experts,
                                 const tsr__kept_hidden *how, int64_t chosen, double *slowest,
                                 double *by_average) TSR_NODISCARD;

#endif
