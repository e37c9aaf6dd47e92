/* Saves a snapshot of all streams as bytes, and reads it. All integers are little-endian:
 *
 *     "TSRM"  version: u16  generator: u16  epoch: u64  streams: u32
 *     for each stream: kind: u32  id: u32  seed: i64  size: u32  the output of tsr_rng_save
 *     checksum of everything before: u64 */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "seed/seed.h"

#define VERSION 1
#define HEADER_BYTES 20
#define STREAM_BYTES 20
#define CHECKSUM_BYTES 8

static const uint8_t magic[4] = {'T', 'S', 'R', 'M'};

tsr_status tsr__seed_save_bytes(const tsr_seed_manager *manager, size_t capacity_bytes, void *data,
                                size_t *size_bytes)
{
    const tsr__seed_set *set = &manager->set;
    uint8_t state[TSR_RNG_STATE_BYTES];
    size_t total = HEADER_BYTES + CHECKSUM_BYTES, size;
    for (size_t i = 0; i < set->count; i++) {
        TSR__TRY(tsr_rng_save(&set->streams[i]->rng, sizeof state, state, &size));
        total += STREAM_BYTES + size;
    }
    if (data == NULL) {
        *size_bytes = total;
        return TSR_OK;
    }
    TSR__REQUIRE(capacity_bytes >= total,
                 "seed: the snapshot takes %zu bytes, there is room for %zu", total,
                 capacity_bytes);

    uint8_t *position = data;
    memcpy(position, magic, sizeof magic);
    position = tsr__put_u16(position + sizeof magic, VERSION);
    position = tsr__put_u16(position, (uint16_t)manager->params.rng);
    position = tsr__put_u64(position, (uint64_t)manager->epoch);
    position = tsr__put_u32(position, (uint32_t)set->count);
    for (size_t i = 0; i < set->count; i++) {
        const tsr__seed_stream *stream = set->streams[i];
        position = tsr__put_u32(position, (uint32_t)stream->kind);
        position = tsr__put_u32(position, (uint32_t)stream->id);
        position = tsr__put_u64(position, (uint64_t)stream->seed);
        TSR__TRY(tsr_rng_save(&stream->rng, sizeof state, state, &size));
        position = tsr__put_u32(position, (uint32_t)size);
        memcpy(position, state, size);
        position += size;
    }
    (void)tsr__put_u64(position, tsr__hash(TSR__HASH_START, data, total - CHECKSUM_BYTES));
    *size_bytes = total;
    return TSR_OK;
}

/* The position of a reader: `position` is the offset of the next byte, and `end` is the offset of
 * the checksum. */
typedef struct reader {
    const uint8_t *bytes;
    size_t position, end;
    tsr_rng_kind rng;
} reader;

static tsr_status read_stream(reader *from, tsr__seed_set *set)
{
    size_t start = from->position;
    const uint8_t *head = from->bytes + start;
    TSR__REQUIRE(from->end - start >= STREAM_BYTES,
                 "seed: snapshot: offset %zu: %zu bytes are too few for a stream", start,
                 from->end - start);
    tsr_seed_kind kind = (tsr_seed_kind)tsr__get_u32(head);
    uint32_t id = tsr__get_u32(head + 4), size = tsr__get_u32(head + 16);
    TSR__REQUIRE(tsr__seed_has_stream(kind), "seed: snapshot: offset %zu: %u is no kind of stream",
                 start, (unsigned)kind);
    TSR__REQUIRE(tsr__seed_id_fits(kind, id),
                 "seed: snapshot: offset %zu: there can be no %s %" PRIu32, start + 4,
                 tsr_seed_kind_name(kind), id);
    TSR__REQUIRE(size <= from->end - start - STREAM_BYTES,
                 "seed: snapshot: offset %zu: a state of %" PRIu32 " bytes in the last %zu",
                 start + 16, size, from->end - start - STREAM_BYTES);
    TSR__REQUIRE(tsr__seed_find(set, kind, (int)id) == NULL,
                 "seed: snapshot: offset %zu: %s %" PRIu32 " comes twice", start,
                 tsr_seed_kind_name(kind), id);

    tsr_rng rng;
    if (tsr_rng_load(head + STREAM_BYTES, size, &rng) != TSR_OK)
        return tsr__fail_context(TSR_ERR_INVALID, "seed: snapshot: offset %zu",
                                 start + STREAM_BYTES);
    TSR__REQUIRE(rng.kind == from->rng,
                 "seed: snapshot: offset %zu: the generator is %s, the snapshot's are %s",
                 start + STREAM_BYTES, tsr_rng_kind_name(rng.kind), tsr_rng_kind_name(from->rng));
    tsr__seed_stream *stream = NULL;
    TSR__TRY(tsr__seed_add(set, kind, (int)id, &stream));
    stream->seed = tsr__as_i64(tsr__get_u64(head + 8));
    stream->rng = rng;
    from->position += STREAM_BYTES + size;
    return TSR_OK;
}

static tsr_status read_header(const tsr_seed_manager *manager, const uint8_t *bytes, size_t size)
{
    TSR__REQUIRE(size >= HEADER_BYTES + CHECKSUM_BYTES,
                 "seed: snapshot: offset 0: %zu bytes are too few", size);
    TSR__REQUIRE(memcmp(bytes, magic, sizeof magic) == 0,
                 "seed: snapshot: offset 0: it does not start with \"TSRM\"");
    unsigned version = tsr__get_u16(bytes + 4), kind = tsr__get_u16(bytes + 6);
    TSR__REQUIRE(version == VERSION, "seed: snapshot: offset 4: version %u is not %d", version,
                 VERSION);
    TSR__REQUIRE(kind == (unsigned)manager->params.rng,
                 "seed: snapshot: offset 6: its generators are %s, the manager's are %s",
                 tsr_rng_kind_name((tsr_rng_kind)kind), tsr_rng_kind_name(manager->params.rng));
    uint64_t epoch = tsr__get_u64(bytes + 8);
    TSR__REQUIRE(epoch <= TSR__SEED_MAX_EPOCH,
                 "seed: snapshot: offset 8: epoch %" PRIu64 " is outside 0 to %d", epoch,
                 TSR__SEED_MAX_EPOCH);
    size_t end = size - CHECKSUM_BYTES;
    uint64_t stored = tsr__get_u64(bytes + end), computed = tsr__hash(TSR__HASH_START, bytes, end);
    TSR__REQUIRE(stored == computed,
                 "seed: snapshot: offset %zu: checksum %016" PRIx64 " is not %016" PRIx64, end,
                 stored, computed);
    return TSR_OK;
}

tsr_status tsr__seed_load_bytes(tsr_seed_manager *manager, const void *data, size_t size_bytes)
{
    const uint8_t *bytes = data;
    TSR__TRY(read_header(manager, bytes, size_bytes));
    reader from = {bytes, HEADER_BYTES, size_bytes - CHECKSUM_BYTES, manager->params.rng};
    uint32_t count = tsr__get_u32(bytes + 16);
    tsr__seed_set set = {0};
    tsr_status status = TSR_OK;
    for (uint32_t i = 0; i < count && status == TSR_OK; i++)
        status = read_stream(&from, &set);
    if (status == TSR_OK && from.position != from.end)
        status = tsr__fail(TSR_ERR_INVALID,
                           "seed: snapshot: offset %zu: %zu bytes follow the last stream",
                           from.position, from.end - from.position);
    if (status != TSR_OK) {
        tsr__seed_set_finish(&set);
        return status;
    }
    tsr__seed_replace(manager, &set, (int64_t)tsr__get_u64(bytes + 8));
    return TSR_OK;
}
