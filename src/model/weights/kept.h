/* In which dtype a model's weights are kept on the ranks. */
#ifndef TSR_MODEL_WEIGHTS_KEPT_H
#define TSR_MODEL_WEIGHTS_KEPT_H

#include "model/weights/weights.h"

typedef struct tsr__kept {
    const tsr_model_config *config;
    int ranks;
    tsr_dtype matrices; /* the dtype of all matrices, as far as possible; 0: as in the files */
    tsr_dtype others;   /* the dtype of biases, of learned positions, and of matrices whose blocks
                         * cannot be divided */
} tsr__kept;

/* Chooses the dtypes. `wanted` is that of tsr_model_params: 0, a float or a block format. The
 * weights must outlive the result. */
tsr_status tsr__kept_choose(const tsr__weights *weights, int ranks, tsr_dtype wanted,
                            tsr__kept *out) TSR_NODISCARD;

/* Returns the dtype of a rank's part of a matrix. */
tsr_dtype tsr__kept_part(const tsr__kept *kept, const tsr__weight *weight,
                         const tsr__weight_part *part);

/* Gives the `align` of the partition of the heads (of the kv heads, if there is one for each rank)
 * of a kind of layer, with which each rank gets whole quantisation blocks of the matrices that are
 * kept in blocks. 0: there are too few blocks for every rank to have one, and these matrices are
 * then not kept in blocks. */
tsr_status tsr__kept_align_heads(const tsr__kept *kept, const tsr__weights *weights, int kind,
                                 uint64_t *out) TSR_NODISCARD;
/* Gives the `align` of the partition of hidden features with which each rank gets whole blocks; 0:
 * too few blocks. */
tsr_status tsr__kept_align_hidden(const tsr__kept *kept, const tsr__weights *weights, int kind,
                                  uint64_t *out) TSR_NODISCARD;

#endif
