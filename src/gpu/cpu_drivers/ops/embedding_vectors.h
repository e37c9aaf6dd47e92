/* Embedding on Mesa's CPU driver with shaders/cpu_drivers/embedding_vectors.comp, for matrices that
 * have rows without gaps and the same dtype. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_EMBEDDING_VECTORS_H
#define TSR_GPU_CPU_DRIVERS_OPS_EMBEDDING_VECTORS_H

#include "gpu/ops/common/rows.h"

bool tsr__embedding_vectors_suit(const tsr_tensor *y, const tsr_tensor *table,
                                 const tsr_tensor *indices);

/* Adds the dispatches that compute the result of tsr__embedding. */
tsr_status tsr__embedding_vectors(tsr__dispatches *list, const tsr_tensor *y,
                                  const tsr_tensor *table, const tsr_tensor *indices,
                                  int64_t first) TSR_NODISCARD;

#endif
