/* A stream of random numbers from Philox4x32-10. The block function is in base/philox.c and gives
 * the same bits as the shaders. */
#include "base/philox.h"
#include "rng/rng.h"

void tsr__philox_init(uint64_t seed, uint64_t stream, tsr_philox *out)
{
    *out = (tsr_philox){.seed = seed, .stream = stream, .block = UINT64_MAX};
}

static void compute_block(tsr_philox *rng, uint64_t block)
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)rng->stream,
                                 (uint32_t)(rng->stream >> 32)};
    const uint32_t key[2] = {(uint32_t)rng->seed, (uint32_t)(rng->seed >> 32)};
    tsr__philox4x32(counter, key, rng->words);
    rng->block = block;
}

uint32_t tsr__philox_next_u32(tsr_philox *rng)
{
    uint64_t position = rng->position++;
    if (position / 4 != rng->block)
        compute_block(rng, position / 4);
    return rng->words[position % 4];
}

uint64_t tsr__philox_next_u64(tsr_philox *rng)
{
    uint64_t high = tsr__philox_next_u32(rng);
    return (high << 32) | tsr__philox_next_u32(rng);
}
