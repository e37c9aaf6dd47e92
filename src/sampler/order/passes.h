/* Generators of the reference orders are seeded once; the epochs draw from them one after the
 * other. Every epoch draws the same number of values, so the state at the start of an epoch follows
 * from its number and need not be saved. */
#ifndef TSR_SAMPLER_ORDER_PASSES_H
#define TSR_SAMPLER_ORDER_PASSES_H

#include "sampler/order/order.h"

typedef struct tsr__passes {
    tsr_order order; /* torch, dotnet or mlx; other orders have no generator */
    uint64_t seed;
    tsr_torch_options torch; /* with the default version filled in */
    uint64_t draws;          /* total draws of an epoch; UINT64_MAX: more than 64 bits hold */
    int64_t epoch;
    tsr_rng start; /* at the start of the epoch */
} tsr__passes;

/* Starts at epoch 0. `draws` is the number of draws that the sampler itself makes in an epoch:
 * 32-bit words, calls of Next(), or keys that MLX splits off. draws_fit is false if 64 bits cannot
 * hold this number; then only epoch 0 exists. Errors: TSR_ERR_INVALID for an invalid version or
 * seed. */
tsr_status tsr__passes_init(const char *what, tsr_order order, int64_t seed,
                            const tsr_torch_options *torch, uint64_t draws, bool draws_fit,
                            tsr__passes *out);
/* Moves to another epoch. Also for orders without a generator. Errors: TSR_ERR_INVALID for a
 * negative epoch, TSR_ERR_OVERFLOW if the draws before it do not fit 64 bits. On failure nothing
 * has changed. */
tsr_status tsr__passes_set(const char *what, tsr__passes *passes, int64_t epoch);
/* Gives the generator from which this epoch's indices are drawn, at its start. */
void tsr__passes_begin(const tsr__passes *passes, tsr_rng *out);
/* Returns the first key of this epoch. MLX's generator is a key, and every draw splits off another
 * key. */
tsr_threefry_key tsr__passes_key(const tsr__passes *passes);

/* A position in one epoch's generator, from which items are drawn one after the other. */
typedef struct tsr__draws {
    tsr_rng rng;
    bool begun;
    uint64_t next; /* number of the next item */
} tsr__draws;

/* Moves to `item`. Each item takes `words` draws. */
void tsr__draws_to(tsr__draws *draws, const tsr__passes *passes, uint64_t item, uint64_t words);

#endif
