/* Random numbers for tests: splitmix64, which gives the same sequence everywhere. */
#ifndef TESTS_SUPPORT_RANDOM_H
#define TESTS_SUPPORT_RANDOM_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Returns a number in low … high, both included. The slight bias of % does not matter to tests. */
static inline int64_t random_between(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(random_next(state) % (uint64_t)(high - low + 1));
}

#endif
