/* A list of parameters that owns the strings of its parameters. Lists read from files, and plans,
 * contain one. */
#ifndef TSR_SHARD_PARAMS_PARAMS_H
#define TSR_SHARD_PARAMS_PARAMS_H

#include <stdbool.h>

#include "tessera/shard.h"

/* How elements are stored. Quantised types store a block of elements in a number of bytes, and are
 * divided only between blocks. */
typedef struct tsr__file_dtype {
    const char *name;     /* "f32"; static storage */
    uint64_t block_count; /* elements in a block; 1 for ordinary types */
    uint64_t block_bytes;
} tsr__file_dtype;

/* Find the dtype with this name, in upper or lower case, or with this number in GGUF files. Return
 * false, without recording an error, if there is no such dtype. */
bool tsr__dtype_by_name(const char *name, tsr__file_dtype *out);
bool tsr__dtype_by_gguf(uint32_t number, tsr__file_dtype *out);
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
/* Finds a parameter by `count` sorted names: those of all, or of those before some were added.
 * Returns NULL if there is none with this name. */
const tsr_shard_param *tsr__params_find(const tsr__params *params, const tsr__param_name *names,
                                        uint64_t count, const char *name);
/* Returns the first of two consecutive entries that have the same name, or NULL if all names
 * differ. */
const tsr__param_name *tsr__params_twice(const tsr__param_name *names, size_t count);

/* Returns the layer of a parameter whose `layer` is NULL: the name up to and including its first
 * component of digits ("model.layers.10" for "model.layers.10.mlp.up.weight"); if it has none, the
 * name without its last component ("embed" for "embed.weight"); if it has only one component, the
 * name. Components are separated by dots. Writes the layer to `text`, truncated to `size` bytes
 * including the terminating zero (nothing if `size` is 0), and returns `text`. `name` must not be
 * NULL. */
char *tsr__shard_layer_of(const char *name, size_t size, char *text);

/* Matches a name with patterns: `*` stands for any text, `?` for one character, `[a-z]` for one of
 * a set, `[!a-z]` for one outside it; `\` removes the special meaning of the next character. A
 * pattern without a dot must match one full component of the name, a pattern with a dot the full
 * name: "head" matches "lm.head.weight" but not "multi_head.weight", and "embed*" matches
 * "model.embed_tokens.weight".
 *
 * `patterns` is a list that ends with NULL, or NULL. The last pattern that matches decides; a
 * pattern that starts with `!` sets *matched to false: {"embed*", "!embed_positions"}. If none
 * matches, *matched is `otherwise`. Errors: TSR_ERR_INVALID for a malformed pattern ("[a", "\",
 * "!", ""). */
TSR_NODISCARD tsr_status tsr__shard_match(const char *const *patterns, const char *name,
                                          bool otherwise, bool *matched);

#endif
