/* The built-in strategies, each in a file of its own, and what they share. */
#ifndef TSR_SHARD_STRATEGY_STRATEGY_H
#define TSR_SHARD_STRATEGY_STRATEGY_H

#include "tessera/shard.h"

/* The parameters of a built-in strategy: its tsr_shard_strategy.user. */
typedef struct tsr__strategy_data {
    tsr_shard_kind kind;
    tsr_partition_kind partition;
    uint64_t align;
    char **full_layers; /* ends in NULL; NULL for none */
    char **layerwise_layers;
} tsr__strategy_data;

/* The smallest number of elements that a parameter is cut into: the least common multiple of the
 * alignment (0 counts as 1) and the dtype's block. Errors: TSR_ERR_OVERFLOW. */
tsr_status tsr__shard_unit(const tsr_shard_param *param, uint64_t align,
                           uint64_t *unit) TSR_NODISCARD;

/* Bytes of `count` elements, which are whole blocks of the parameter's dtype. */
uint64_t tsr__shard_bytes(const tsr_shard_param *param, uint64_t count);

/* Bytes of all always-gathered parameters. The caller has checked that the sum fits. */
uint64_t tsr__gathered_bytes(const tsr_shard_request *request);

/* Divides one parameter among all ranks. `ranges` are that parameter's. */
tsr_status tsr__assign_param(const tsr_shard_request *request, uint64_t param,
                             tsr_partition_kind partition, uint64_t align,
                             tsr_shard_range *ranges) TSR_NODISCARD;

/* The built-in strategies write ranges[param_count * ranks], which are all 0 before. */
tsr_status tsr__assign_full(const tsr_shard_request *request, const tsr__strategy_data *data,
                            tsr_shard_range *ranges) TSR_NODISCARD;

/* Assigns whole layers to ranks. `chosen` marks the parameters to assign, NULL means all; the
 * ranges of the others are already set, and the layers are balanced with them. */
tsr_status tsr__assign_layerwise(const tsr_shard_request *request, const bool *chosen,
                                 tsr_shard_range *ranges) TSR_NODISCARD;

tsr_status tsr__assign_hybrid(const tsr_shard_request *request, const tsr__strategy_data *data,
                              tsr_shard_range *ranges) TSR_NODISCARD;

tsr_status tsr__assign_weighted(const tsr_shard_request *request, uint64_t align,
                                tsr_shard_range *ranges) TSR_NODISCARD;

#endif
