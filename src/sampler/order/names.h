/* The names of orders, tails and splits, in error texts and in the tool's options. */
#ifndef TSR_SAMPLER_ORDER_NAMES_H
#define TSR_SAMPLER_ORDER_NAMES_H

#include "tessera/sampler.h"

/* Return "feistel", "torch", "dotnet", "none" or "mlx"; "pad", "pad-mask", "uneven" or "drop";
 * "interleaved" or "contiguous"; "?" for any other value. The strings are in static storage. */
const char *tsr__order_name(tsr_order order);
const char *tsr__tail_name(tsr_tail tail);
const char *tsr__split_name(tsr_split split);

/* Find the value called `name`. Errors: TSR_ERR_NOT_FOUND naming the text. */
tsr_status tsr__order_parse(const char *name, tsr_order *out);
tsr_status tsr__tail_parse(const char *name, tsr_tail *out);
tsr_status tsr__split_parse(const char *name, tsr_split *out);

#endif
