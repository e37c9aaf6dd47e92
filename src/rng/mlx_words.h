/* The words of 32 bits that MLX makes from a threefry key, and all else from them: which one stands
 * where depends on how many there are. */
#ifndef TSR_RNG_MLX_WORDS_H
#define TSR_RNG_MLX_WORDS_H

#include <stdbool.h>

#include "tessera/rng.h"

typedef struct tsr__mlx_words {
    tsr_threefry_key key;
    uint64_t count, half, odd;
} tsr__mlx_words;

/* Errors: TSR_ERR_INVALID for more than TSR__MAX_THREEFRY_WORDS of data/rng.h. */
tsr_status tsr__mlx_words_check(uint64_t count);
tsr__mlx_words tsr__mlx_words_of(tsr_threefry_key key, uint64_t count);

/* One of them. */
uint32_t tsr__mlx_word(const tsr__mlx_words *words, uint64_t i);

/* A word as a float in [0, 1). */
static inline float tsr__mlx_unit(uint32_t word)
{
    float fraction = (float)word * 0x1p-32F;
    return fraction < 1 ? fraction : 1 - 0x1p-24F;
}

/* Takes words position … position + count − 1. */
typedef void tsr__mlx_take_fn(void *user, uint64_t position, const uint32_t *words, size_t count);
/* All of them, a run at a time, in no order. */
void tsr__mlx_words_each(const tsr__mlx_words *words, tsr__mlx_take_fn *take, void *user);

/* For tests: the same with the loops of this processor's instruction set number `level`; false
 * where it has not so many. */
bool tsr__mlx_words_each_at(const tsr__mlx_words *words, int level, tsr__mlx_take_fn *take,
                            void *user);

#endif
