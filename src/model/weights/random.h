/* Random weights: a model without files. They look like files to the code that opens models: there
 * is a list of tensors, and any range of their bytes can be read. */
#ifndef TSR_MODEL_WEIGHTS_RANDOM_H
#define TSR_MODEL_WEIGHTS_RANDOM_H

#include "model/weights/files.h"
#include "tessera/model.h"

/* A tensor is a matrix, the weight of a norm or a bias. */
enum { TSR__RANDOM_MATRIX, TSR__RANDOM_NORM, TSR__RANDOM_BIAS };

/* Returns which of these a tensor with this name is. */
int tsr__random_kind(const char *name, int ndim);

typedef struct tsr__random_weights {
    int64_t width; /* of the model */
    uint64_t seed;
    uint8_t *chunks; /* of matrices, which consist of copies of them */
    uint64_t chunk_bytes;
} tsr__random_weights;

/* Makes the weights of a model: matrices of `dtype`, and other tensors of f32. Errors:
 * TSR_ERR_UNSUPPORTED for a format that tsr_quantize does not support, TSR_ERR_NO_MEMORY. */
tsr_status tsr__random_weights_create(int64_t width, tsr_dtype dtype, uint64_t seed,
                                      tsr__random_weights **out) TSR_NODISCARD;
void tsr__random_weights_destroy(tsr__random_weights **weights);

/* Writes bytes at … at + size − 1 of a tensor. Their values depend on the seed and the tensor's
 * place in the list only, apart from the rounding of their dtype. */
void tsr__random_read(const tsr__random_weights *weights, const tsr_shard_param *param, uint64_t at,
                      uint64_t size, void *out);

/* random_list.c: makes files of a model with random weights. The configuration must have been
 * checked. Call tsr__model_files_finish
 * afterwards, also after an error. Errors: TSR_ERR_INVALID for the dtype, and
 * those of tsr__random_weights_create. */
tsr_status tsr__random_files(const tsr_model_config *config, tsr_dtype dtype, uint64_t seed,
                             tsr__model_files *out) TSR_NODISCARD;

#endif
