/* Parameters that own their strings. Lists read from files and plans consist of them. */
#ifndef TSR_SHARD_PARAMS_PARAMS_H
#define TSR_SHARD_PARAMS_PARAMS_H

#include <stdbool.h>

#include "tessera/shard.h"

/* The dtype of this name, or of this number in GGUF files; false if there is none. No error is
 * recorded. */
bool tsr__dtype_by_name(const char *name, tsr_shard_dtype *out);
bool tsr__dtype_by_gguf(uint32_t number, tsr_shard_dtype *out);

typedef struct tsr__params {
    tsr_shard_param *items;
    size_t count, capacity;
} tsr__params;

/* Fills in what follows from the rest: dtype, count, bytes, block. The layer is left as it is.
 * Errors: TSR_ERR_INVALID, TSR_ERR_OVERFLOW; the text does not say
 * which parameter it is. */
tsr_status tsr__param_resolve(tsr_shard_param *param) TSR_NODISCARD;

/* Resolves a copy, with its strings, and appends it. On failure nothing has changed. */
tsr_status tsr__params_add(tsr__params *params, const tsr_shard_param *param) TSR_NODISCARD;
void tsr__params_finish(tsr__params *params);

/* Parameters in the byte order of their names, for bsearch. */
typedef struct tsr__param_name {
    const char *name;
    uint64_t param;
} tsr__param_name;

/* `names` holds params->count entries, which the caller frees. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__params_sort(const tsr__params *params, tsr__param_name **names) TSR_NODISCARD;
/* The first entry whose name the next one has too; NULL when there is none. */
const tsr__param_name *tsr__params_twice(const tsr__param_name *names, size_t count);

#endif
