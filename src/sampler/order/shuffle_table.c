/* The shuffles of PyTorch, .NET and MLX, in a table with 4 bytes per element. The shuffles of
 * PyTorch and .NET swap elements that can be anywhere in memory. The choice of these elements
 * depends only on the generator. Therefore the next AHEAD of them are chosen in advance and
 * prefetched into the cache. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/error.h"
#include "rng/rng.h"
#include "sampler/order/order.h"

/* UINT32_MAX / 20. For this many elements or more, PyTorch 2.6 and later draw 64 bits for each
 * element. */
#define LARGE_RANDPERM UINT64_C(214748364)
#define AHEAD 64

#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address, 1)
#else
#define FETCH(address) (void)(address)
#endif

static bool draws_64(tsr_torch_version version, uint64_t n)
{
    return n >= LARGE_RANDPERM && version >= TSR_TORCH_2_6;
}

uint64_t tsr__torch_randperm_words(tsr_torch_version version, uint64_t n)
{
    return draws_64(version, n) ? 2 * n : n == 0 ? 0 : n - 1;
}

static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t kept = *a;
    *a = *b;
    *b = kept;
}

static void count_up(uint32_t *elements, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        elements[i] = (uint32_t)i;
}

/* Swaps each element i with a random one of the elements i … n − 1. */
static void shuffle_forward(tsr_mt19937 *rng, uint64_t n, uint32_t *elements)
{
    uint64_t chosen[AHEAD];
    count_up(elements, n);
    for (uint64_t i = 0; i + 1 < n; i += AHEAD) {
        uint64_t count = n - 1 - i < AHEAD ? n - 1 - i : AHEAD;
        for (uint64_t j = 0; j < count; j++) {
            uint32_t bits = tsr__mt19937_next_u32(rng);
            /* a 32-bit remainder is several times as fast as a 64-bit one */
            uint64_t left = n - i - j;
            chosen[j] = i + j + (left > UINT32_MAX ? bits : bits % (uint32_t)left);
            FETCH(elements + chosen[j]);
        }
        for (uint64_t j = 0; j < count; j++)
            swap(elements + i + j, elements + chosen[j]);
    }
}

/* Builds the permutation element by element. Element i is put in a random place from 0 to i, and
 * the element that was in this place moves to place i. */
static void shuffle_inside_out(tsr_mt19937 *rng, uint64_t n, uint32_t *elements)
{
    uint64_t chosen[AHEAD];
    for (uint64_t i = 0; i < n; i += AHEAD) {
        uint64_t count = n - i < AHEAD ? n - i : AHEAD;
        for (uint64_t j = 0; j < count; j++) {
            chosen[j] = tsr__mt19937_next_u64(rng) % (i + j + 1);
            FETCH(elements + chosen[j]);
        }
        for (uint64_t j = 0; j < count; j++) {
            elements[i + j] = elements[chosen[j]];
            elements[chosen[j]] = (uint32_t)(i + j);
        }
    }
}

tsr_status tsr__table_torch(tsr__table *table, tsr_torch_version version, uint64_t n,
                            tsr_mt19937 *rng)
{
    TSR__TRY(tsr__table_reserve(table, n));
    if (table->narrow == NULL)
        return tsr_torch_randperm(rng, version, n, table->wide);
    if (draws_64(version, n))
        shuffle_inside_out(rng, n, table->narrow);
    else
        shuffle_forward(rng, n, table->narrow);
    return TSR_OK;
}

tsr_status tsr__table_dotnet(tsr__table *table, uint64_t n, tsr_dotnet *rng)
{
    TSR__TRY(tsr__table_reserve(table, n));
    uint32_t *elements = table->narrow;
    uint64_t chosen[AHEAD];
    count_up(elements, n);
    for (uint64_t left = n; left > 1;) {
        uint64_t count = left - 1 < AHEAD ? left - 1 : AHEAD;
        for (uint64_t j = 0; j < count; j++) {
            /* This is .NET's Next(0, i + 1). With some seeds, Next() returns -1 once; .NET then
             * throws an exception, and this function chooses element 0. */
            double drawn = tsr__dotnet_next_double(rng) * (double)(left - j);
            chosen[j] = drawn < 0 ? 0 : (uint64_t)drawn;
            FETCH(elements + chosen[j]);
        }
        for (uint64_t j = 0; j < count; j++)
            swap(elements + left - 1 - j, elements + chosen[j]);
        left -= count;
    }
    return TSR_OK;
}

tsr_status tsr__table_mlx(tsr__table *table, uint64_t n, tsr_threefry_key key)
{
    TSR__TRY(tsr__table_reserve(table, n));
    return tsr__threefry_argsort_narrow(key, n, table->narrow);
}
