/* The orders torch, dotnet and mlx have a generator that is seeded only once. The epochs draw from
 * the generator in sequence. Every epoch draws the same number of values, so the generator's
 * state at the start of an epoch follows from the epoch's number and need not be saved. */
#ifndef TSR_SAMPLER_ORDER_EPOCH_GENERATORS_H
#define TSR_SAMPLER_ORDER_EPOCH_GENERATORS_H

#include "sampler/order/order.h"

typedef struct tsr__epoch_generator {
    tsr_order order; /* torch, dotnet and mlx have a generator; other orders have none */
    uint64_t seed;
    /* the options; the default version has been replaced by the one it stands for */
    tsr_torch_options torch;
    /* number of draws in each epoch; UINT64_MAX if 64 bits cannot hold it */
    uint64_t draws;
    int64_t epoch;
    tsr_rng start; /* the generator at the start of the epoch */
} tsr__epoch_generator;

/* Initialises the generator for epoch 0. `draws` is the number of draws that the sampler itself
 * makes in each epoch. Depending on the order, a draw is a 32-bit word, a call of Next(), or a key
 * that MLX splits off. If 64 bits cannot hold this number, draws_fit must be false, and only epoch
 * 0 can be used. Errors: TSR_ERR_INVALID for an invalid version or seed. */
tsr_status tsr__epoch_generator_init(const char *what, tsr_order order, int64_t seed,
                                     const tsr_torch_options *torch, uint64_t draws, bool draws_fit,
                                     tsr__epoch_generator *out);
/* Moves to another epoch. If the order has no generator, this only changes the epoch's number.
 * Errors: TSR_ERR_INVALID for a negative epoch; TSR_ERR_OVERFLOW if 64 bits cannot hold the number
 * of draws before the epoch. On failure nothing changes. */
tsr_status tsr__epoch_generator_set_epoch(const char *what, tsr__epoch_generator *generator,
                                          int64_t epoch);
/* Gives the generator from which this epoch's indices are drawn, in its state at the start of the
 * epoch. */
void tsr__epoch_generator_copy(const tsr__epoch_generator *generator, tsr_rng *out);
/* Returns the first key of this epoch. The generator of MLX is itself a key, and each draw splits
 * off another key. */
tsr_threefry_key tsr__epoch_generator_key(const tsr__epoch_generator *generator);

/* A generator from which the items of one epoch are drawn in sequence. */
typedef struct tsr__draws {
    tsr_rng rng;
    bool begun;
    uint64_t next; /* number of the item that is drawn next */
} tsr__draws;

/* Moves the generator so that it draws item number `item` next. Each item takes `words` draws. */
void tsr__draws_to(tsr__draws *draws, const tsr__epoch_generator *generator, uint64_t item,
                   uint64_t words);

#endif
