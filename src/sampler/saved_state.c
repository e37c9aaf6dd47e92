/* Saves a sampler's position in its epoch as bytes, and reads such a state:
 *
 *     "TSRS"  version: u8  kind: u8  fingerprint: u64  parameters (see saved_params.c)
 *     epoch  position  own data of each sampler …  checksum: u32
 *
 * Integers are little-endian. The epoch (in zigzag form), the position and the samplers' own data
 * are numbers with seven bits per byte. The epoch and the position are those of the outermost
 * sampler. The position of a wrapped sampler is not stored, because it follows from the position of
 * the sampler that wraps it. The samplers' own data follow each other, starting with the outermost
 * sampler. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "sampler/sampler.h"

#define VERSION 2

static const uint8_t magic[4] = {'T', 'S', 'R', 'S'};

/* Writes the complete state that the sampler has after it has given `position` items. */
static tsr_status write_state(const tsr_sampler *sampler, uint64_t position,
                              uint8_t bytes[TSR_SAMPLER_STATE_BYTES], size_t *size_bytes)
{
    tsr__state_writer writer = {.data = bytes,
                                .capacity = TSR_SAMPLER_STATE_BYTES - TSR__STATE_CHECKSUM_BYTES,
                                .elsewhere = position != sampler->position};
    memcpy(bytes, magic, sizeof magic);
    bytes[4] = VERSION;
    bytes[5] = (uint8_t)sampler->class_->kind;
    (void)tsr__put_u64(bytes + 6, sampler->fingerprint);
    writer.size = TSR__STATE_PARAMS;
    tsr__state_put_params(&writer, sampler);
    tsr__state_put(&writer, tsr__zigzag(sampler->epoch));
    tsr__state_put(&writer, position);
    if (sampler->class_->save != NULL)
        TSR__TRY(sampler->class_->save(sampler, &writer));
    TSR__REQUIRE(!writer.full, "sampler save: this state does not fit in %d bytes",
                 TSR_SAMPLER_STATE_BYTES);
    uint64_t hash = tsr__hash(TSR__HASH_START, bytes, writer.size);
    (void)tsr__put_u32(bytes + writer.size, (uint32_t)(hash ^ (hash >> 32)));
    *size_bytes = writer.size + TSR__STATE_CHECKSUM_BYTES;
    return TSR_OK;
}

tsr_status tsr_sampler_save(const tsr_sampler *sampler, uint64_t position, size_t capacity_bytes,
                            void *data, size_t *size_bytes)
{
    TSR__REQUIRE(sampler != NULL && data != NULL && size_bytes != NULL, "sampler save: %s is NULL",
                 sampler == NULL ? "sampler"
                 : data == NULL  ? "data"
                                 : "size_bytes");
    uint64_t length = tsr_sampler_length(sampler);
    TSR__REQUIRE(position <= length,
                 "sampler save: position %" PRIu64 " is beyond the end: there are %" PRIu64
                 " items",
                 position, length);
    const tsr__rollback *back = &sampler->rollback;
    uint8_t written[TSR_SAMPLER_STATE_BYTES];
    const uint8_t *bytes = written;
    size_t size = 0;
    if (back->size_bytes == 0) {
        TSR__TRY(write_state(sampler, position, written, &size));
    } else {
        TSR__REQUIRE(position == sampler->position,
                     "sampler save: position %" PRIu64
                     " cannot be saved after a failed resume, only the current position",
                     position);
        bytes = back->state;
        size = back->size_bytes;
    }
    TSR__REQUIRE(capacity_bytes >= size,
                 "sampler save: the state takes %zu bytes, there is room for %zu", size,
                 capacity_bytes);
    memcpy(data, bytes, size);
    *size_bytes = size;
    return TSR_OK;
}

tsr__state_reader tsr__state_body(const uint8_t *bytes, size_t size_bytes)
{
    return (tsr__state_reader){.data = bytes,
                               .size = size_bytes - TSR__STATE_CHECKSUM_BYTES,
                               .at = TSR__STATE_PARAMS + 1 + bytes[TSR__STATE_PARAMS]};
}

/* Checks the checksum, and everything in the state up to and including the parameters. */
tsr_status tsr__state_open(const tsr_sampler *sampler, const uint8_t *bytes, size_t size_bytes,
                           tsr__state_reader *reader)
{
    const size_t least = TSR__STATE_PARAMS + 3 + TSR__STATE_CHECKSUM_BYTES;
    TSR__REQUIRE(size_bytes >= least && size_bytes <= TSR_SAMPLER_STATE_BYTES,
                 "sampler resume: offset 0: a state has %zu to %d bytes, not %zu", least,
                 TSR_SAMPLER_STATE_BYTES, size_bytes);
    TSR__REQUIRE(memcmp(bytes, magic, sizeof magic) == 0,
                 "sampler resume: offset 0: it does not start with \"TSRS\"");
    TSR__REQUIRE(bytes[4] == VERSION, "sampler resume: offset 4: version %u is not %d",
                 (unsigned)bytes[4], VERSION);
    size_t end = size_bytes - TSR__STATE_CHECKSUM_BYTES;
    uint64_t hash = tsr__hash(TSR__HASH_START, bytes, end);
    uint32_t computed = (uint32_t)(hash ^ (hash >> 32)), stored = tsr__get_u32(bytes + end);
    TSR__REQUIRE(stored == computed,
                 "sampler resume: offset %zu: checksum %08" PRIx32 " is not %08" PRIx32, end,
                 stored, computed);
    unsigned kind = bytes[5];
    TSR__REQUIRE(kind == (unsigned)sampler->class_->kind,
                 "sampler resume: offset 5: the state is that of a %s sampler, this one is %s",
                 tsr__sampler_kind_name(kind),
                 tsr__sampler_kind_name((unsigned)sampler->class_->kind));
    if (tsr__get_u64(bytes + 6) != sampler->fingerprint)
        return tsr__state_refuse_params(sampler, bytes, end);
    *reader = tsr__state_body(bytes, size_bytes);
    if (reader->at > reader->size)
        return TSR__STATE_FAIL(reader, "%zu bytes are missing", reader->at - reader->size);
    return TSR_OK;
}
