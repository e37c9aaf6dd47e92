/* Saves a generator as bytes and loads it. All integers are little-endian:
 *
 *     "TSRG"  version: u16  kind: u16  state  checksum of everything before: u64
 *
 *     philox     seed: u64  stream: u64  position: u64
 *     mt19937    words: u32[624]  next: u32
 *     dotnet     table[1 … 55]: i32[55]  next: u32
 *     threefry   key: u32[2]  position: u64
 *
 * Members of a generator that can be computed from the saved ones, such as its cached block of
 * words, are not saved. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "rng/rng.h"

#define VERSION 1
#define HEADER_BYTES 8
#define CHECKSUM_BYTES 8
#define DOTNET_LAST 55

static const uint8_t magic[4] = {'T', 'S', 'R', 'G'};

/* Returns the size in bytes of the state without header and checksum, or 0 for an unknown kind of
 * generator. */
static size_t state_bytes(unsigned kind)
{
    switch (kind) {
    case TSR_RNG_PHILOX:
        return 24;
    case TSR_RNG_MT19937:
        return sizeof(uint32_t) * (TSR__MT19937_WORDS + 1);
    case TSR_RNG_DOTNET:
        return sizeof(uint32_t) * (DOTNET_LAST + 1);
    case TSR_RNG_THREEFRY:
        return 16;
    default:
        return 0;
    }
}

/* Computes the second index of .NET's generator from the first one. The second index is always 21
 * places ahead, cyclically in 1 … 55. */
static int32_t dotnet_other(int32_t next)
{
    return (next + 20) % DOTNET_LAST + 1;
}

/* Returns a text that says why the generator's state is impossible, or NULL if it is possible. */
static const char *problem_of(const tsr_rng *rng)
{
    if (rng->kind == TSR_RNG_MT19937) {
        const tsr_mt19937 *mt = &rng->as.mt19937;
        if (mt->next > TSR__MT19937_WORDS)
            return "the next word is beyond the last";
        uint32_t any = mt->words[0] & UINT32_C(0x80000000);
        for (int i = 1; i < TSR__MT19937_WORDS; i++)
            any |= mt->words[i];
        return any == 0 ? "all words are zero" : NULL;
    }
    if (rng->kind == TSR_RNG_DOTNET) {
        const tsr_dotnet *dotnet = &rng->as.dotnet;
        if (dotnet->next < 0 || dotnet->next > DOTNET_LAST)
            return "the next entry is beyond the last";
        if (dotnet->other != dotnet_other(dotnet->next))
            return "the two indices do not belong together";
        for (int i = 1; i <= DOTNET_LAST; i++)
            if (dotnet->table[i] < -1)
                return "an entry of the table is negative";
    }
    return NULL;
}

tsr_status tsr_rng_save(const tsr_rng *rng, size_t capacity_bytes, void *data, size_t *size_bytes)
{
    TSR__REQUIRE(rng != NULL && data != NULL && size_bytes != NULL, "rng: %s is NULL",
                 rng == NULL    ? "rng"
                 : data == NULL ? "data"
                                : "size_bytes");
    size_t state = state_bytes((unsigned)rng->kind), total = HEADER_BYTES + state + CHECKSUM_BYTES;
    TSR__REQUIRE(state != 0, "rng: %d is no kind of generator", (int)rng->kind);
    TSR__REQUIRE(capacity_bytes >= total, "rng: the state takes %zu bytes, there is room for %zu",
                 total, capacity_bytes);
    const char *problem = problem_of(rng);
    TSR__REQUIRE(problem == NULL, "rng: the %s generator is damaged: %s",
                 tsr_rng_kind_name(rng->kind), problem);

    uint8_t *position = data;
    memcpy(position, magic, sizeof magic);
    position = tsr__put_u16(position + 4, VERSION);
    position = tsr__put_u16(position, (uint16_t)rng->kind);
    switch (rng->kind) {
    case TSR_RNG_PHILOX:
        position = tsr__put_u64(position, rng->as.philox.seed);
        position = tsr__put_u64(position, rng->as.philox.stream);
        position = tsr__put_u64(position, rng->as.philox.position);
        break;
    case TSR_RNG_MT19937:
        for (int i = 0; i < TSR__MT19937_WORDS; i++)
            position = tsr__put_u32(position, rng->as.mt19937.words[i]);
        position = tsr__put_u32(position, rng->as.mt19937.next);
        break;
    case TSR_RNG_DOTNET:
        for (int i = 1; i <= DOTNET_LAST; i++)
            position = tsr__put_u32(position, (uint32_t)rng->as.dotnet.table[i]);
        position = tsr__put_u32(position, (uint32_t)rng->as.dotnet.next);
        break;
    case TSR_RNG_THREEFRY:
        position = tsr__put_u32(position, rng->as.threefry.key.words[0]);
        position = tsr__put_u32(position, rng->as.threefry.key.words[1]);
        position = tsr__put_u64(position, rng->as.threefry.position);
        break;
    }
    (void)tsr__put_u64(position, tsr__hash(TSR__HASH_START, data, HEADER_BYTES + state));
    *size_bytes = total;
    return TSR_OK;
}

/* Reads the state of a generator of the kind rng->kind. The caller has checked that `position` has
 * as many bytes as this kind needs. */
static void read_state(const uint8_t *position, tsr_rng *rng)
{
    switch (rng->kind) {
    case TSR_RNG_PHILOX:
        tsr__philox_init(tsr__get_u64(position), tsr__get_u64(position + 8), &rng->as.philox);
        rng->as.philox.position = tsr__get_u64(position + 16);
        break;
    case TSR_RNG_MT19937:
        for (int i = 0; i < TSR__MT19937_WORDS; i++, position += 4)
            rng->as.mt19937.words[i] = tsr__get_u32(position);
        rng->as.mt19937.next = tsr__get_u32(position);
        break;
    case TSR_RNG_DOTNET:
        rng->as.dotnet.table[0] = 0;
        for (int i = 1; i <= DOTNET_LAST; i++, position += 4)
            rng->as.dotnet.table[i] = tsr__as_i32(tsr__get_u32(position));
        rng->as.dotnet.next = tsr__as_i32(tsr__get_u32(position));
        /* Do not compute the other index from an index that is out of range, because the sum might
         * overflow. */
        if (rng->as.dotnet.next >= 0 && rng->as.dotnet.next <= DOTNET_LAST)
            rng->as.dotnet.other = dotnet_other(rng->as.dotnet.next);
        break;
    case TSR_RNG_THREEFRY:
        tsr__threefry_init((tsr_threefry_key){{tsr__get_u32(position), tsr__get_u32(position + 4)}},
                           &rng->as.threefry);
        rng->as.threefry.position = tsr__get_u64(position + 8);
        break;
    }
}

tsr_status tsr_rng_load(const void *data, size_t size_bytes, tsr_rng *out)
{
    TSR__REQUIRE(data != NULL && out != NULL, "rng: %s is NULL", data != NULL ? "out" : "data");
    const uint8_t *bytes = data;
    TSR__REQUIRE(size_bytes >= HEADER_BYTES,
                 "rng: saved state: offset 0: %zu bytes are too few for a header of %d", size_bytes,
                 HEADER_BYTES);
    TSR__REQUIRE(memcmp(bytes, magic, sizeof magic) == 0,
                 "rng: saved state: offset 0: it does not start with \"TSRG\"");
    unsigned version = tsr__get_u16(bytes + 4), kind = tsr__get_u16(bytes + 6);
    TSR__REQUIRE(version == VERSION, "rng: saved state: offset 4: version %u is not %d", version,
                 VERSION);
    size_t state = state_bytes(kind), total = HEADER_BYTES + state + CHECKSUM_BYTES;
    TSR__REQUIRE(state != 0, "rng: saved state: offset 6: %u is no kind of generator", kind);
    TSR__REQUIRE(size_bytes == total,
                 "rng: saved state: offset %d: a %s generator takes %zu bytes, not %zu",
                 HEADER_BYTES, tsr_rng_kind_name((tsr_rng_kind)kind), total, size_bytes);
    uint64_t stored = tsr__get_u64(bytes + HEADER_BYTES + state);
    uint64_t computed = tsr__hash(TSR__HASH_START, data, HEADER_BYTES + state);
    TSR__REQUIRE(stored == computed,
                 "rng: saved state: offset %zu: checksum %016" PRIx64 " is not %016" PRIx64,
                 HEADER_BYTES + state, stored, computed);

    tsr_rng rng = {.kind = (tsr_rng_kind)kind};
    read_state(bytes + HEADER_BYTES, &rng);
    const char *problem = problem_of(&rng);
    TSR__REQUIRE(problem == NULL, "rng: saved state: offset %d: %s", HEADER_BYTES, problem);
    *out = rng;
    return TSR_OK;
}
