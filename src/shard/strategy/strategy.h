/* Declarations that the files of the built-in strategies share. */
#ifndef TSR_SHARD_STRATEGY_STRATEGY_H
#define TSR_SHARD_STRATEGY_STRATEGY_H

#include "tessera/shard.h"

/* The settings of a built-in strategy. tsr_shard_strategy.user points to them. */
typedef struct tsr__strategy_data {
    tsr_shard_kind kind;
    tsr_partition_kind partition;
    uint64_t align;
    char **full_layers; /* an array that ends in NULL; NULL if there are no patterns */
    char **layerwise_layers;
} tsr__strategy_data;

/* Computes the number of elements in one unit of a parameter. A unit is never divided among ranks.
 * The last unit of a parameter may be shorter. A unit is the least common multiple of the alignment
 * and of the number of elements in the dtype's block. An alignment of 0 counts as 1. Errors:
 * TSR_ERR_OVERFLOW. */
tsr_status tsr__shard_unit(const tsr_shard_param *param, uint64_t align,
                           uint64_t *unit) TSR_NODISCARD;

/* Returns the size in bytes of `count` elements, which must be complete blocks of the parameter's
 * dtype. */
uint64_t tsr__shard_bytes(const tsr_shard_param *param, uint64_t count);

/* Returns the size in bytes of all always-gathered parameters. The caller has checked that the sum
 * does not overflow. */
uint64_t tsr__gathered_bytes(const tsr_shard_request *request);

/* Strategies. They write ranges[param_count * ranks], which must be all 0 before the call. */

/* Assigns each layer to one rank. `chosen` marks the parameters that are to be assigned; NULL means
 * all. The ranges of the other parameters must already be set, and are taken into account when the
 * layers are balanced. */
tsr_status tsr__assign_layerwise(const tsr_shard_request *request, const bool *chosen,
                                 tsr_shard_range *ranges) TSR_NODISCARD;

tsr_status tsr__assign_weighted(const tsr_shard_request *request, uint64_t align,
                                tsr_shard_range *ranges) TSR_NODISCARD;

/* Checks that ranges[ranks], in any order, cover each of `length` elements exactly once. Errors:
 * TSR_ERR_INVALID naming the first elements that have no rank or two ranks, or the range that is
 * outside; TSR_ERR_NO_MEMORY. */
TSR_NODISCARD tsr_status tsr__partition_check(uint64_t length, int ranks,
                                              const tsr_shard_range *ranges);

#endif
