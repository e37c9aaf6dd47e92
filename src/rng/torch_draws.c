/* PyTorch's randint and randperm. Their results depend on PyTorch's release. */
#include <inttypes.h>

#include "base/error.h"
#include "rng/rng.h"

/* UINT32_MAX / 20. For this many elements or more, PyTorch 2.6 and later draw 64 bits for each
 * element. */
#define LARGE_RANDPERM UINT64_C(214748364)

tsr_status tsr__torch_version(const char *what, tsr_torch_version version, tsr_torch_version *out)
{
    switch (version) {
    case TSR_TORCH_DEFAULT:
        *out = TSR_TORCH_2_6;
        return TSR_OK;
    case TSR_TORCH_1_13:
    case TSR_TORCH_2_0:
    case TSR_TORCH_2_6:
    case TSR_TORCH_2_7:
        *out = version;
        return TSR_OK;
    }
    return tsr__fail(TSR_ERR_INVALID, "%s: unknown PyTorch version %d", what, (int)version);
}

tsr_status tsr_torch_randint(tsr_mt19937 *rng, tsr_torch_version version, int64_t low, int64_t high,
                             uint64_t count, int64_t *out)
{
    TSR__REQUIRE(rng != NULL, "randint: rng is NULL");
    TSR__REQUIRE(out != NULL || count == 0, "randint: out is NULL");
    TSR__TRY(tsr__torch_version("randint", version, &version));
    TSR__REQUIRE(low < high, "randint: low %" PRId64 " is not below high %" PRId64, low, high);
    /* The unsigned difference wraps to the right value, 1 … 2^64 − 1. */
    uint64_t range = (uint64_t)high - (uint64_t)low;
    uint64_t wide_from = UINT64_C(1) << (version >= TSR_TORCH_2_7 ? 28 : 32);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits =
            range >= wide_from ? tsr__mt19937_next_u64(rng) : tsr__mt19937_next_u32(rng);
        out[i] = (int64_t)((uint64_t)low + bits % range);
    }
    return TSR_OK;
}

/* Fisher and Yates' shuffle, from the first element to the last. Each swap draws 32 bits to choose
 * the other element. */
static void shuffle_forward(tsr_mt19937 *rng, uint64_t n, int64_t *out)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = (int64_t)i;
    for (uint64_t i = 0; i + 1 < n; i++) {
        uint32_t bits = tsr__mt19937_next_u32(rng);
        /* A 32-bit remainder is several times as fast as a 64-bit one, so use it if `left` fits 32
         * bits. */
        uint64_t left = n - i;
        uint64_t chosen = i + (left > UINT32_MAX ? bits : bits % (uint32_t)left);
        int64_t kept = out[i];
        out[i] = out[chosen];
        out[chosen] = kept;
    }
}

/* The "inside-out" shuffle, which builds the permutation element by element. Each element draws 64
 * bits to choose its place. */
static void shuffle_inside_out(tsr_mt19937 *rng, uint64_t n, int64_t *out)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t chosen = tsr__mt19937_next_u64(rng) % (i + 1);
        out[i] = out[chosen];
        out[chosen] = (int64_t)i;
    }
}

tsr_status tsr_torch_randperm(tsr_mt19937 *rng, tsr_torch_version version, uint64_t n, int64_t *out)
{
    TSR__REQUIRE(rng != NULL, "randperm: rng is NULL");
    TSR__REQUIRE(out != NULL || n == 0, "randperm: out is NULL");
    TSR__TRY(tsr__torch_version("randperm", version, &version));
    if (n > SIZE_MAX / sizeof *out)
        return tsr__fail(TSR_ERR_OVERFLOW, "randperm: %" PRIu64 " indices do not fit in memory", n);
    if (n >= LARGE_RANDPERM && version >= TSR_TORCH_2_6)
        shuffle_inside_out(rng, n, out);
    else
        shuffle_forward(rng, n, out);
    return TSR_OK;
}
