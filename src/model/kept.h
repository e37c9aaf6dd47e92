/* In which dtype a model's weights are kept on the ranks. */
#ifndef TSR_MODEL_KEPT_H
#define TSR_MODEL_KEPT_H

#include "model/weights.h"

typedef struct tsr__kept {
    const tsr_model_config *config;
    int ranks;
    tsr_dtype matrices; /* of all matrices, as far as possible; 0: as in the files */
    tsr_dtype others;   /* of matrices that are not in blocks, and of biases */
} tsr__kept;

/* Chooses the dtypes for what the caller wants: 0, a float or a block format. The weights must
 * outlive the result. */
tsr_status tsr__kept_choose(const tsr__weights *weights, int ranks, tsr_dtype wanted,
                            tsr__kept *out) TSR_NODISCARD;

/* Returns the dtype of a rank's part of a matrix. */
tsr_dtype tsr__kept_part(const tsr__kept *kept, const tsr__weight *weight,
                         const tsr__weight_part *part);

/* Give the `align` of the partition of heads, kv heads if each rank can have one, and of that of
 * hidden features, so that each rank's part of matrices that are kept in blocks is whole blocks.
 * 0: the parts would become too large for every rank to have one; these matrices are then not kept
 * in blocks. */
tsr_status tsr__kept_align_heads(const tsr__kept *kept, const tsr__weights *weights,
                                 uint64_t *out) TSR_NODISCARD;
tsr_status tsr__kept_align_hidden(const tsr__kept *kept, const tsr__weights *weights,
                                  uint64_t *out) TSR_NODISCARD;

#endif
