/* A generator whose algorithm, one of four, is chosen at run time. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "rng/rng.h"

static const char *const names[] = {
    [TSR_RNG_PHILOX] = "philox",
    [TSR_RNG_MT19937] = "mt19937",
    [TSR_RNG_DOTNET] = "dotnet",
    [TSR_RNG_THREEFRY] = "threefry",
};
#define KINDS ((int)(sizeof names / sizeof names[0]))

const char *tsr_rng_kind_name(tsr_rng_kind kind)
{
    return (int)kind >= 0 && (int)kind < KINDS ? names[kind] : "?";
}

tsr_status tsr_rng_kind_parse(const char *name, tsr_rng_kind *out)
{
    TSR__REQUIRE(name != NULL && out != NULL, "rng: %s is NULL", name != NULL ? "out" : "name");
    for (int kind = 0; kind < KINDS; kind++)
        if (strcmp(names[kind], name) == 0) {
            *out = (tsr_rng_kind)kind;
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_NOT_FOUND, "rng: '%s' is none of philox, mt19937, dotnet and threefry",
                     name);
}

/* Returns whether `seed`, in two's complement, fits an int32. */
static bool fits_int32(uint64_t seed)
{
    return seed <= INT32_MAX || seed >= UINT64_MAX - INT32_MAX;
}

tsr_status tsr_rng_init(tsr_rng_kind kind, uint64_t seed, uint64_t stream, tsr_rng *out)
{
    TSR__REQUIRE(out != NULL, "rng: out is NULL");
    TSR__REQUIRE(stream == 0 || kind == TSR_RNG_PHILOX,
                 "rng: stream %" PRIu64 " of %s, which has no streams", stream,
                 tsr_rng_kind_name(kind));
    switch (kind) {
    case TSR_RNG_PHILOX:
        tsr__philox_init(seed, stream, &out->as.philox);
        break;
    case TSR_RNG_MT19937:
        tsr__mt19937_init(seed, &out->as.mt19937);
        break;
    case TSR_RNG_DOTNET:
        if (!fits_int32(seed))
            return tsr__fail(TSR_ERR_INVALID,
                             "rng: seed %" PRIu64 " is outside System.Random's %" PRId32
                             " to %" PRId32,
                             seed, INT32_MIN, INT32_MAX);
        tsr__dotnet_init(tsr__as_i32((uint32_t)seed), &out->as.dotnet);
        break;
    case TSR_RNG_THREEFRY:
        tsr__threefry_init(tsr_threefry_key_from_seed(seed), &out->as.threefry);
        break;
    default:
        return tsr__fail(TSR_ERR_INVALID, "rng: %d is no kind of generator", (int)kind);
    }
    out->kind = kind;
    return TSR_OK;
}

static uint64_t dotnet_bits(tsr_dotnet *rng, size_t size_bytes)
{
    uint8_t bytes[8];
    uint64_t bits = 0;
    tsr__dotnet_next_bytes(rng, size_bytes, bytes);
    for (size_t i = 0; i < size_bytes; i++)
        bits |= (uint64_t)bytes[i] << (8 * i);
    return bits;
}

uint32_t tsr_rng_next_u32(tsr_rng *rng)
{
    switch (rng->kind) {
    case TSR_RNG_MT19937:
        return tsr__mt19937_next_u32(&rng->as.mt19937);
    case TSR_RNG_DOTNET:
        return (uint32_t)dotnet_bits(&rng->as.dotnet, 4);
    case TSR_RNG_THREEFRY:
        return tsr__threefry_next_u32(&rng->as.threefry);
    case TSR_RNG_PHILOX:
        break;
    }
    return tsr__philox_next_u32(&rng->as.philox);
}

uint64_t tsr_rng_next_u64(tsr_rng *rng)
{
    if (rng->kind == TSR_RNG_DOTNET)
        return dotnet_bits(&rng->as.dotnet, 8);
    uint64_t high = tsr_rng_next_u32(rng);
    return (high << 32) | tsr_rng_next_u32(rng);
}

double tsr_rng_next_double(tsr_rng *rng)
{
    if (rng->kind == TSR_RNG_DOTNET)
        return tsr__dotnet_next_double(&rng->as.dotnet);
    return tsr__unit_double(tsr_rng_next_u64(rng));
}

/* Returns a uniform random number below n: the high half of the product of n and a random 32-bit
 * value. To make all results equally probable, 2^32 mod n of the values are rejected; the low half
 * of the product identifies them. */
static uint64_t below_u32(tsr_rng *rng, uint32_t n)
{
    uint64_t product = (uint64_t)tsr_rng_next_u32(rng) * n;
    if ((uint32_t)product < n) {
        uint32_t surplus = (0u - n) % n;
        while ((uint32_t)product < surplus)
            product = (uint64_t)tsr_rng_next_u32(rng) * n;
    }
    return product >> 32;
}

uint64_t tsr_rng_below(tsr_rng *rng, uint64_t n)
{
    if (n == 0)
        return 0;
    if (n <= UINT32_MAX)
        return below_u32(rng, (uint32_t)n);
    if (n == UINT64_C(1) << 32)
        return tsr_rng_next_u32(rng);
    /* Standard C has no 128-bit product, so the result is the remainder of a random 64-bit value
     * modulo n. The last 2^64 mod n values are rejected, because with them some remainders would be
     * more probable. */
    uint64_t surplus = (0 - n) % n, value;
    do
        value = tsr_rng_next_u64(rng);
    while (value > UINT64_MAX - surplus);
    return value % n;
}

void tsr_rng_skip(tsr_rng *rng, uint64_t draws)
{
    switch (rng->kind) {
    case TSR_RNG_PHILOX:
        rng->as.philox.position += draws;
        break;
    case TSR_RNG_MT19937:
        tsr__mt19937_skip(&rng->as.mt19937, draws);
        break;
    case TSR_RNG_DOTNET:
        tsr__dotnet_skip(&rng->as.dotnet, draws);
        break;
    case TSR_RNG_THREEFRY:
        rng->as.threefry.position += draws;
        break;
    }
}
