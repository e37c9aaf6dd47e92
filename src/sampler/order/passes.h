/* Reference generators are seeded once and then drawn from, epoch after epoch. Since every epoch
 * draws as much as any other, the state at its start follows from its number, and need not be
 * saved.
 */
#ifndef TSR_SAMPLER_ORDER_PASSES_H
#define TSR_SAMPLER_ORDER_PASSES_H

#include "sampler/order/order.h"

typedef struct tsr__passes {
    tsr_order order; /* torch, dotnet or mlx; otherwise there is no generator */
    uint64_t seed;
    tsr_torch_options torch; /* the version filled in */
    uint64_t draws;          /* of the generator in an epoch, all together */
    int64_t epoch;
    tsr_rng start; /* at the start of the epoch */
} tsr__passes;

/* At epoch 0. `draws` is what the sampler itself draws in an epoch: 32-bit words, calls of Next(),
 * or the keys that MLX splits off; draws_fit is false when that is more than 64 bits hold, and then
 * only epoch 0 can be had. Errors: TSR_ERR_INVALID for a version or seed that cannot be. */
tsr_status tsr__passes_init(const char *what, tsr_order order, int64_t seed,
                            const tsr_torch_options *torch, uint64_t draws, bool draws_fit,
                            tsr__passes *out);
/* To another epoch. Errors: TSR_ERR_INVALID for a negative one, TSR_ERR_OVERFLOW. On failure
 * nothing has changed. Also for the orders without a generator. */
tsr_status tsr__passes_set(const char *what, tsr__passes *passes, int64_t epoch);
/* The generator that this epoch's indices are drawn from. */
void tsr__passes_begin(const tsr__passes *passes, tsr_rng *out);
/* MLX's generator is a key, which every draw takes another one from. The first of this epoch. */
tsr_threefry_key tsr__passes_key(const tsr__passes *passes);

/* Items drawn one after the other from one epoch's generator. */
typedef struct tsr__draws {
    tsr_rng rng;
    bool begun;
    uint64_t next; /* the item that comes next */
} tsr__draws;

/* Moves to `item`, where each takes `words` draws. */
void tsr__draws_to(tsr__draws *draws, const tsr__passes *passes, uint64_t item, uint64_t words);

#endif
