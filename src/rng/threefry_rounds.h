/* The rounds of threefry2x32-20, which hash a counter of two words. They use no branches and no
 * tables, so that the compiler can vectorise loops of them. */
#ifndef TSR_RNG_THREEFRY_ROUNDS_H
#define TSR_RNG_THREEFRY_ROUNDS_H

#include <stdint.h>

#define TSR__THREEFRY_PARITY UINT32_C(0x1BD11BDA)

static inline uint32_t tsr__threefry_rotated(uint32_t word, int by)
{
    return word << by | word >> (32 - by);
}

static inline void tsr__threefry_round(uint32_t *x0, uint32_t *x1, int rotation)
{
    *x0 += *x1;
    *x1 = tsr__threefry_rotated(*x1, rotation) ^ *x0;
}

static inline void tsr__threefry_even_rounds(uint32_t *x0, uint32_t *x1)
{
    tsr__threefry_round(x0, x1, 13);
    tsr__threefry_round(x0, x1, 15);
    tsr__threefry_round(x0, x1, 26);
    tsr__threefry_round(x0, x1, 6);
}

static inline void tsr__threefry_odd_rounds(uint32_t *x0, uint32_t *x1)
{
    tsr__threefry_round(x0, x1, 17);
    tsr__threefry_round(x0, x1, 29);
    tsr__threefry_round(x0, x1, 16);
    tsr__threefry_round(x0, x1, 24);
}

static inline void tsr__threefry_inject(uint32_t *x0, uint32_t *x1, uint32_t key0, uint32_t key1,
                                        uint32_t number)
{
    *x0 += key0;
    *x1 += key1 + number;
}

/* Replaces the counter in *x0 and *x1 by its hash under the key (key0, key1). */
static inline void tsr__threefry_rounds(uint32_t key0, uint32_t key1, uint32_t *x0, uint32_t *x1)
{
    const uint32_t key2 = key0 ^ key1 ^ TSR__THREEFRY_PARITY;

    tsr__threefry_inject(x0, x1, key0, key1, 0);
    tsr__threefry_even_rounds(x0, x1);
    tsr__threefry_inject(x0, x1, key1, key2, 1);
    tsr__threefry_odd_rounds(x0, x1);
    tsr__threefry_inject(x0, x1, key2, key0, 2);
    tsr__threefry_even_rounds(x0, x1);
    tsr__threefry_inject(x0, x1, key0, key1, 3);
    tsr__threefry_odd_rounds(x0, x1);
    tsr__threefry_inject(x0, x1, key1, key2, 4);
    tsr__threefry_even_rounds(x0, x1);
    tsr__threefry_inject(x0, x1, key2, key0, 5);
}

#endif
