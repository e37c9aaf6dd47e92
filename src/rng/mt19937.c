/* MT19937, the 32-bit Mersenne Twister. Seeds and derived values follow the conventions of
 * PyTorch's CPU generator. */
#include <string.h>

#include "rng/rng.h"

#define WORDS TSR__MT19937_WORDS
#define SHIFT 397 /* "m" in the paper */
#define TWIST UINT32_C(0x9908b0df)
#define UPPER UINT32_C(0x80000000)
#define LOWER UINT32_C(0x7fffffff)

void tsr__mt19937_init(uint64_t seed, tsr_mt19937 *out)
{
    uint32_t word = (uint32_t)seed;
    for (uint32_t i = 0; i < WORDS; i++) {
        if (i > 0)
            word = UINT32_C(1812433253) * (word ^ (word >> 30)) + i;
        out->words[i] = word;
    }
    out->next = WORDS;
}

static inline uint32_t twisted(uint32_t upper, uint32_t lower, uint32_t shifted)
{
    uint32_t mixed = (upper & UPPER) | (lower & LOWER);
    return shifted ^ (mixed >> 1) ^ ((0u - (lower & 1u)) & TWIST);
}

/* Replaces the generator's 624 words by the next 624. */
static void twist(tsr_mt19937 *rng)
{
    uint32_t *words = rng->words;
    for (int i = 0; i < WORDS - SHIFT; i++)
        words[i] = twisted(words[i], words[i + 1], words[i + SHIFT]);
    for (int i = WORDS - SHIFT; i < WORDS - 1; i++)
        words[i] = twisted(words[i], words[i + 1], words[i + SHIFT - WORDS]);
    words[WORDS - 1] = twisted(words[WORDS - 1], words[0], words[SHIFT - 1]);
    rng->next = 0;
}

uint32_t tsr__mt19937_next_u32(tsr_mt19937 *rng)
{
    if (rng->next >= WORDS)
        twist(rng);
    uint32_t word = rng->words[rng->next++];
    word ^= word >> 11;
    word ^= (word << 7) & UINT32_C(0x9d2c5680);
    word ^= (word << 15) & UINT32_C(0xefc60000);
    return word ^ (word >> 18);
}

uint64_t tsr__mt19937_next_u64(tsr_mt19937 *rng)
{
    uint64_t high = tsr__mt19937_next_u32(rng);
    return (high << 32) | tsr__mt19937_next_u32(rng);
}

double tsr__mt19937_next_double(tsr_mt19937 *rng)
{
    return tsr__unit_double(tsr__mt19937_next_u64(rng));
}

void tsr__mt19937_skip(tsr_mt19937 *rng, uint64_t words)
{
    while (words > WORDS - rng->next) {
        words -= WORDS - rng->next;
        twist(rng);
    }
    rng->next += (uint32_t)words;
}
