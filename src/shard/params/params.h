/* A list of parameters that owns the strings of its parameters. Lists read from files, and plans,
 * contain one. */
#ifndef TSR_SHARD_PARAMS_PARAMS_H
#define TSR_SHARD_PARAMS_PARAMS_H

#include <stdbool.h>

#include "tessera/shard.h"

/* Find the dtype with this name, or with this number in GGUF files. Return false, without recording
 * an error, if there is no such dtype. */
bool tsr__dtype_by_name(const char *name, tsr_shard_dtype *out);
bool tsr__dtype_by_gguf(uint32_t number, tsr_shard_dtype *out);
/* Finds the number that a dtype has in GGUF files. Returns false if GGUF does not have this
 * dtype. */
bool tsr__dtype_gguf_number(const char *name, uint32_t *out);

typedef struct tsr__params {
    tsr_shard_param *items;
    size_t count, capacity;
} tsr__params;

/* Checks a parameter and computes the members that follow from the dtype's name and the shape:
 * dtype, count, size_bytes, block_count and block_bytes. A layer of NULL stays NULL. Errors:
 * TSR_ERR_INVALID, TSR_ERR_OVERFLOW. The error text does not contain the parameter's name. */
tsr_status tsr__param_resolve(tsr_shard_param *param) TSR_NODISCARD;

/* Copies a parameter and its strings, completes the copy as tsr__param_resolve does, and appends
 * it. On failure nothing changes. */
tsr_status tsr__params_add(tsr__params *params, const tsr_shard_param *param) TSR_NODISCARD;
void tsr__params_finish(tsr__params *params);

/* A parameter's name and number. Arrays of them are sorted by the bytes of
 * the names, for bsearch. */
typedef struct tsr__param_name {
    const char *name;
    uint64_t param;
} tsr__param_name;

/* Sets *names to an array of params->count entries in the order of the names. The caller must free
 * it. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__params_sort(const tsr__params *params, tsr__param_name **names) TSR_NODISCARD;
/* Returns the first of two consecutive entries that have the same name, or NULL if all names
 * differ. */
const tsr__param_name *tsr__params_twice(const tsr__param_name *names, size_t count);

#endif
