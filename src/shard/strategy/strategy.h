/* The built-in strategies, each in a file of its own. */
#ifndef TSR_SHARD_STRATEGY_STRATEGY_H
#define TSR_SHARD_STRATEGY_STRATEGY_H

#include "tessera/shard.h"

/* What a built-in strategy knows; its tsr_shard_strategy.user. */
typedef struct tsr__strategy_data {
    tsr_shard_kind kind;
    tsr_partition_kind partition;
    uint64_t align;
    char **full_layers; /* ended by NULL; NULL for none */
    char **layerwise_layers;
} tsr__strategy_data;

/* The smallest number of elements that a parameter is cut into: a multiple of the alignment and of
 * the dtype's block. Errors: TSR_ERR_OVERFLOW. */
tsr_status tsr__shard_unit(const tsr_shard_param *param, uint64_t align,
                           uint64_t *unit) TSR_NODISCARD;

/* Partitions one parameter over all ranks. `ranges` are its own. */
tsr_status tsr__assign_full(const tsr_shard_request *request, uint64_t param,
                            tsr_partition_kind partition, uint64_t align,
                            tsr_shard_range *ranges) TSR_NODISCARD;

/* Gives whole layers to ranks. `chosen` says which parameters, NULL all; `ranges` hold what has
 * been assigned already, and are balanced with it. */
tsr_status tsr__assign_layerwise(const tsr_shard_request *request, const bool *chosen,
                                 tsr_shard_range *ranges) TSR_NODISCARD;

tsr_status tsr__assign_hybrid(const tsr_shard_request *request, const tsr__strategy_data *data,
                              tsr_shard_range *ranges) TSR_NODISCARD;

tsr_status tsr__assign_weighted(const tsr_shard_request *request, uint64_t align,
                                tsr_shard_range *ranges) TSR_NODISCARD;

/* Bytes of `count` elements, whole blocks of the parameter's dtype. */
uint64_t tsr__shard_bytes(const tsr_shard_param *param, uint64_t count);

/* All always-gathered parameters together; the caller knows that it fits. */
uint64_t tsr__gathered_bytes(const tsr_shard_request *request);

#endif
