/* Element types of model files. */
#ifndef TSR_SHARD_FORMATS_DTYPE_H
#define TSR_SHARD_FORMATS_DTYPE_H

#include <stdbool.h>

#include "tessera/shard.h"

/* False when there is none; nothing is recorded. */
bool tsr__dtype_by_name(const char *name, tsr_shard_dtype *out);
bool tsr__dtype_by_gguf(uint32_t number, tsr_shard_dtype *out);

#endif
