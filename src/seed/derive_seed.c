/* Derives seeds from a base seed, with the documented formulas or with a hash. */
#include <inttypes.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/philox.h"
#include "rng/rng.h"
#include "seed/seed.h"

#define OPS_PER_DEVICE 1000

/* The number of bits of each member of a tsr_seed_point in the packed form; 64 bits in total. */
#define KIND_BITS 2
#define NODE_BITS 14
#define DEVICE_BITS 8
#define WORKER_BITS 10
#define EPOCH_BITS 20
#define OP_BITS 10

const char *tsr_seed_kind_name(tsr_seed_kind kind)
{
    switch (kind) {
    case TSR_SEED_PROCESS:
        return "process";
    case TSR_SEED_DEVICE:
        return "device";
    case TSR_SEED_WORKER:
        return "worker";
    case TSR_SEED_OP:
        return "op";
    }
    return "?";
}

/* Checks that a member of the caller's tsr_seed_point is 0, because the documented formula for this
 * kind of seed does not use it. */
static tsr_status must_be_zero(tsr_seed_kind kind, const char *member, int64_t value)
{
    TSR__REQUIRE(value == 0,
                 "seed: the documented formula for a %s has no place for %s %" PRId64
                 "; the hashed strategy has",
                 tsr_seed_kind_name(kind), member, value);
    return TSR_OK;
}

static tsr_status check_id(const char *member, int value)
{
    TSR__REQUIRE(value >= 0, "seed: %s %d is negative", member, value);
    return TSR_OK;
}

static tsr_status plus(int64_t base, int64_t offset, int64_t *seed)
{
    if (base > INT64_MAX - offset)
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "seed: base %" PRId64 " + %" PRId64 " does not fit 64 bits", base, offset);
    *seed = base + offset;
    return TSR_OK;
}

static tsr_status check_kind(tsr_seed_kind kind)
{
    TSR__REQUIRE((int)kind >= TSR_SEED_PROCESS && (int)kind <= TSR_SEED_OP,
                 "seed: %d is no kind of seed", (int)kind);
    return TSR_OK;
}

static tsr_status derive_documented(const tsr_seed_point *point, int64_t *seed)
{
    tsr_seed_kind kind = point->kind;
    TSR__TRY(check_kind(kind));
    TSR__TRY(must_be_zero(kind, "node", point->node));
    TSR__TRY(must_be_zero(kind, "epoch", point->epoch));
    if (kind != TSR_SEED_WORKER)
        TSR__TRY(must_be_zero(kind, "worker", point->worker));
    if (kind != TSR_SEED_DEVICE && kind != TSR_SEED_OP)
        TSR__TRY(must_be_zero(kind, "device", point->device));
    if (kind != TSR_SEED_OP)
        TSR__TRY(must_be_zero(kind, "op", point->op));
    TSR__TRY(check_id("device", point->device));
    TSR__TRY(check_id("worker", point->worker));
    TSR__REQUIRE(point->op >= 0 && point->op < OPS_PER_DEVICE,
                 "seed: op %d is outside 0 to %d and would take another device's seed", point->op,
                 OPS_PER_DEVICE - 1);

    int64_t per_device = kind == TSR_SEED_OP ? OPS_PER_DEVICE : 1;
    return plus(point->base, point->device * per_device + point->worker + point->op, seed);
}

/* Appends the value of a member, as the lowest bits, to the members that are already packed. */
static tsr_status pack(const char *member, int64_t value, int bits, uint64_t *packed)
{
    int64_t most = (INT64_C(1) << bits) - 1;
    TSR__REQUIRE(value >= 0 && value <= most,
                 "seed: %s %" PRId64 " is outside 0 to %" PRId64
                 ", which hashed seeds have room for",
                 member, value, most);
    *packed = *packed << bits | (uint64_t)value;
    return TSR_OK;
}

static tsr_status pack_point(const tsr_seed_point *point, uint64_t *out)
{
    uint64_t packed = 0;
    TSR__TRY(check_kind(point->kind));
    TSR__TRY(pack("kind", (int64_t)point->kind, KIND_BITS, &packed));
    TSR__TRY(pack("node", point->node, NODE_BITS, &packed));
    TSR__TRY(pack("device", point->device, DEVICE_BITS, &packed));
    TSR__TRY(pack("worker", point->worker, WORKER_BITS, &packed));
    TSR__TRY(pack("epoch", point->epoch, EPOCH_BITS, &packed));
    TSR__TRY(pack("op", point->op, OP_BITS, &packed));
    *out = packed;
    return TSR_OK;
}

static tsr_status derive_hashed(const tsr_seed_point *point, int64_t *seed)
{
    uint64_t packed, base = (uint64_t)point->base;
    uint32_t words[2];
    TSR__TRY(pack_point(point, &packed));
    tsr__threefry_hash(tsr_threefry_key_from_seed(base),
                       (uint32_t[]){(uint32_t)(packed >> 32), (uint32_t)packed}, words);
    *seed = tsr__as_i64((uint64_t)words[0] << 32 | words[1]);
    return TSR_OK;
}

tsr_status tsr_seed_derive(tsr_seed_strategy strategy, const tsr_seed_point *point, int64_t *seed)
{
    TSR__REQUIRE(point != NULL && seed != NULL, "seed: %s is NULL",
                 point != NULL ? "seed" : "point");
    switch (strategy) {
    case TSR_SEED_STRATEGY_DOCUMENTED:
        return derive_documented(point, seed);
    case TSR_SEED_STRATEGY_HASHED:
        return derive_hashed(point, seed);
    }
    return tsr__fail(TSR_ERR_INVALID, "seed: %d is no strategy", (int)strategy);
}

tsr_status tsr_seed_derive_key(const tsr_seed_point *point, tsr_seed_key *key)
{
    TSR__REQUIRE(point != NULL && key != NULL, "seed: %s is NULL", point != NULL ? "key" : "point");
    static const uint32_t cipher_key[2] = {UINT32_C(0x52524131), UINT32_C(0x54455353)};
    uint64_t packed, base = (uint64_t)point->base;
    TSR__TRY(pack_point(point, &packed));
    uint32_t words[4] = {(uint32_t)packed, (uint32_t)(packed >> 32), (uint32_t)base,
                         (uint32_t)(base >> 32)};
    tsr__philox4x32(words, cipher_key, words);
    *key = (tsr_seed_key){.seed = words[0] | (uint64_t)words[1] << 32,
                          .stream = words[2] | (uint64_t)words[3] << 32};
    return TSR_OK;
}
