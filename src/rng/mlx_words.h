/* The 32-bit random words that MLX computes from a threefry key. All other random values of MLX are
 * computed from these words. The value of word i also depends on how many words are computed from
 * the key. */
#ifndef TSR_RNG_MLX_WORDS_H
#define TSR_RNG_MLX_WORDS_H

#include <stdbool.h>

#include "tessera/rng.h"

typedef struct tsr__mlx_words {
    tsr_threefry_key key;
    uint64_t count, half, odd;
} tsr__mlx_words;

/* Checks that `count` is at most TSR__MAX_THREEFRY_WORDS. Errors: TSR_ERR_INVALID. */
tsr_status tsr__mlx_words_check(uint64_t count);
tsr__mlx_words tsr__mlx_words_of(tsr_threefry_key key, uint64_t count);

/* Returns word i. */
uint32_t tsr__mlx_word(const tsr__mlx_words *words, uint64_t i);

/* Converts a word to a float in [0, 1). */
static inline float tsr__mlx_unit(uint32_t word)
{
    float fraction = (float)word * 0x1p-32F;
    return fraction < 1 ? fraction : 1 - 0x1p-24F;
}

/* A function that receives the `count` words with the numbers position … position + count − 1. */
typedef void tsr__mlx_take_fn(void *user, uint64_t position, const uint32_t *words, size_t count);
/* Passes all words to the function `take`, many in each call. The order of the calls is not
 * specified. */
void tsr__mlx_words_each(const tsr__mlx_words *words, tsr__mlx_take_fn *take, void *user);

/* For tests. Does the same as tsr__mlx_words_each, with the loops that are compiled for the
 * processor's instruction set number `instruction_set`, counted from 0. Returns false if the
 * processor has no such instruction set. */
bool tsr__mlx_words_each_at(const tsr__mlx_words *words, int instruction_set,
                            tsr__mlx_take_fn *take, void *user);

#endif
