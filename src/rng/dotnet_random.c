/* .NET's System.Random with a seed. All arithmetic uses uint32, because it wraps as .NET's int32
 * does. */
#include <inttypes.h>

#include "base/bytes.h"
#include "base/error.h"
#include "rng/rng.h"

#define LAST 55
#define MAX UINT32_C(0x7fffffff)

/* Adds INT32_MAX if the value, a difference, is negative as an int32. The difference of two table
 * entries may have wrapped; .NET then uses the wrapped value, and so does this function, which only
 * checks the sign bit. */
static uint32_t lifted(uint32_t value)
{
    return (value >> 31) != 0 ? value + MAX : value;
}

void tsr__dotnet_init(int32_t seed, tsr_dotnet *out)
{
    uint32_t table[LAST + 1] = {0};
    uint32_t magnitude = seed < 0 ? 0u - (uint32_t)seed : (uint32_t)seed;
    uint32_t mj = UINT32_C(161803398) - (seed == INT32_MIN ? MAX : magnitude);
    uint32_t mk = 1;
    table[LAST] = mj;
    for (int i = 1; i < LAST; i++) {
        int slot = 21 * i % LAST;
        table[slot] = mk;
        mk = lifted(mj - mk);
        mj = table[slot];
    }
    for (int pass = 0; pass < 4; pass++)
        for (int i = 1; i <= LAST; i++)
            table[i] = lifted(table[i] - table[1 + (i + 30) % LAST]);

    *out = (tsr_dotnet){.next = 0, .other = 21};
    for (int i = 1; i <= LAST; i++)
        out->table[i] = tsr__as_i32(table[i]);
}

int32_t tsr_dotnet_next(tsr_dotnet *rng)
{
    rng->next = rng->next >= LAST ? 1 : rng->next + 1;
    rng->other = rng->other >= LAST ? 1 : rng->other + 1;
    uint32_t value = (uint32_t)rng->table[rng->next] - (uint32_t)rng->table[rng->other];
    if (value == MAX)
        value--;
    rng->table[rng->next] = tsr__as_i32(lifted(value));
    return rng->table[rng->next];
}

double tsr__dotnet_next_double(tsr_dotnet *rng)
{
    return tsr_dotnet_next(rng) * (1.0 / 2147483647.0);
}

/* Computes the fraction that .NET uses for ranges larger than INT32_MAX. A second draw decides the
 * sign. */
static double next_wide_double(tsr_dotnet *rng)
{
    int32_t value = tsr_dotnet_next(rng);
    if (tsr_dotnet_next(rng) % 2 == 0)
        value = -value;
    return (value + 2147483646.0) / 4294967293.0;
}

tsr_status tsr_dotnet_next_range(tsr_dotnet *rng, int32_t min, int32_t max, int32_t *out)
{
    TSR__REQUIRE(rng != NULL && out != NULL, "dotnet: %s is NULL", rng != NULL ? "out" : "rng");
    TSR__REQUIRE(min <= max, "dotnet: the minimum %" PRId32 " is above the maximum %" PRId32, min,
                 max);
    int64_t range = (int64_t)max - min;
    double fraction = range <= INT32_MAX ? tsr__dotnet_next_double(rng) : next_wide_double(rng);
    *out = (int32_t)((int64_t)(fraction * (double)range) + min);
    return TSR_OK;
}

void tsr__dotnet_next_bytes(tsr_dotnet *rng, size_t size_bytes, uint8_t *out)
{
    for (size_t i = 0; i < size_bytes; i++)
        out[i] = (uint8_t)((uint32_t)tsr_dotnet_next(rng) & 0xff);
}

void tsr__dotnet_skip(tsr_dotnet *rng, uint64_t draws)
{
    for (uint64_t i = 0; i < draws; i++)
        (void)tsr_dotnet_next(rng);
}

tsr_status tsr_dotnet_shuffle(tsr_dotnet *rng, uint64_t count, int64_t *items)
{
    TSR__REQUIRE(rng != NULL, "dotnet: rng is NULL");
    TSR__REQUIRE(items != NULL || count == 0, "dotnet: items is NULL");
    TSR__REQUIRE(count <= INT32_MAX,
                 "dotnet: %" PRIu64 " items are more than System.Random can shuffle, %" PRId32,
                 count, INT32_MAX);
    for (uint64_t i = count; i-- > 1;) {
        /* With some seeds, Next() returns -1 once. .NET then throws an exception; this function
         * chooses item 0. */
        int64_t drawn = (int64_t)(tsr__dotnet_next_double(rng) * (double)(i + 1));
        uint64_t chosen = drawn < 0 ? 0 : (uint64_t)drawn;
        int64_t kept = items[i];
        items[i] = items[chosen];
        items[chosen] = kept;
    }
    return TSR_OK;
}
