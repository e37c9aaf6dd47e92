/* threefry2x32-20: the hash function, the derivation of keys with it, and a
 * stream of random words. */
#include <inttypes.h>

#include "base/error.h"
#include "rng/rng.h"
#include "rng/threefry_rounds.h"

void tsr__threefry_hash(tsr_threefry_key key, const uint32_t counter[2], uint32_t out[2])
{
    uint32_t x0 = counter[0], x1 = counter[1];
    tsr__threefry_rounds(key.words[0], key.words[1], &x0, &x1);
    out[0] = x0;
    out[1] = x1;
}

tsr_threefry_key tsr_threefry_key_from_seed(uint64_t seed)
{
    return (tsr_threefry_key){{(uint32_t)(seed >> 32), (uint32_t)seed}};
}

tsr_status tsr_threefry_split(tsr_threefry_key key, uint64_t count, tsr_threefry_key *out)
{
    TSR__REQUIRE(out != NULL || count == 0, "threefry: out is NULL");
    TSR__REQUIRE(count <= UINT64_C(1) << 31,
                 "threefry: a key cannot be split into %" PRIu64 ", but into 2^31 at most", count);
    /* `count` keys consist of 2 · count words. This number is even, so hash number i gives the
     * words i and i + count. */
    for (uint64_t i = 0; i < count; i++) {
        uint32_t words[2];
        tsr__threefry_hash(key, (uint32_t[]){(uint32_t)i, (uint32_t)(i + count)}, words);
        out[i / 2].words[i % 2] = words[0];
        out[(i + count) / 2].words[(i + count) % 2] = words[1];
    }
    return TSR_OK;
}

tsr_threefry_key tsr_threefry_next_key(tsr_threefry_key *state)
{
    uint32_t even[2], odd[2];
    tsr__threefry_hash(*state, (uint32_t[]){0, 2}, even);
    tsr__threefry_hash(*state, (uint32_t[]){1, 3}, odd);
    *state = (tsr_threefry_key){{even[0], odd[0]}};
    return (tsr_threefry_key){{even[1], odd[1]}};
}

void tsr__threefry_init(tsr_threefry_key key, tsr_threefry *out)
{
    *out = (tsr_threefry){.key = key, .pair = UINT64_MAX};
}

uint32_t tsr__threefry_next_u32(tsr_threefry *rng)
{
    uint64_t position = rng->position++, pair = position / 2;
    if (pair != rng->pair) {
        const uint32_t counter[2] = {(uint32_t)(pair >> 32), (uint32_t)pair};
        tsr__threefry_hash(rng->key, counter, rng->words);
        rng->pair = pair;
    }
    return rng->words[position % 2];
}
