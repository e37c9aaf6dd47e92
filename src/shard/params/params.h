/* Parameters that own their strings. Lists read from files and plans consist of them. */
#ifndef TSR_SHARD_PARAMS_PARAMS_H
#define TSR_SHARD_PARAMS_PARAMS_H

#include <stdbool.h>

#include "tessera/shard.h"

/* Finds the dtype with this name, or with this number in GGUF files. Returns false if there is
 * none; no error is recorded then. */
bool tsr__dtype_by_name(const char *name, tsr_shard_dtype *out);
bool tsr__dtype_by_gguf(uint32_t number, tsr_shard_dtype *out);

typedef struct tsr__params {
    tsr_shard_param *items;
    size_t count, capacity;
} tsr__params;

/* Checks a parameter and fills in the members that follow from others: dtype, count, size_bytes,
 * block_count and block_bytes. A NULL layer stays NULL. Errors: TSR_ERR_INVALID, TSR_ERR_OVERFLOW;
 * the text does not name the parameter. */
tsr_status tsr__param_resolve(tsr_shard_param *param) TSR_NODISCARD;

/* Resolves a copy of a parameter and of its strings, and appends it. On failure nothing has
 * changed. */
tsr_status tsr__params_add(tsr__params *params, const tsr_shard_param *param) TSR_NODISCARD;
void tsr__params_finish(tsr__params *params);

/* Parameters in the byte order of their names, for bsearch. */
typedef struct tsr__param_name {
    const char *name;
    uint64_t param;
} tsr__param_name;

/* *names gets an array of params->count entries, which the caller must free. Errors:
 * TSR_ERR_NO_MEMORY. */
tsr_status tsr__params_sort(const tsr__params *params, tsr__param_name **names) TSR_NODISCARD;
/* The first of two consecutive entries with the same name; NULL if all names differ. */
const tsr__param_name *tsr__params_twice(const tsr__param_name *names, size_t count);

#endif
