/* Parses any bytes as a part of a checkpoint. If they are accepted, all data lie within the file
 * and within the tensors. */
#include "fuzz/fuzz.h"
#include "parallel/checkpoint/parts.h"

static void check_slice(const tsr__part *part, const tsr__slice *slice)
{
    const tsr_checkpoint_entry *of = &slice->of;
    uint64_t elements = 1;
    FUZZ_CHECK(of->name && of->name[0] != '\0');
    FUZZ_CHECK(of->ndim >= 0 && of->ndim <= TSR_MAX_DIMS);
    for (int d = 0; d < of->ndim; d++)
        elements *= (uint64_t)(d == of->shard_dim ? of->length : of->shape[d]);
    FUZZ_CHECK(of->shard_dim < of->ndim);
    if (of->shard_dim >= 0)
        FUZZ_CHECK(of->offset >= 0 && of->length >= 0 && of->offset <= of->shape[of->shard_dim] &&
                   of->length <= of->shape[of->shard_dim] - of->offset);
    FUZZ_CHECK(of->first <= elements && of->count <= elements - of->first);
    FUZZ_CHECK(slice->size_bytes == of->count * tsr__checkpoint_width(of->dtype));
    FUZZ_CHECK(slice->at_bytes >= part->header_bytes && slice->at_bytes <= part->size_bytes &&
               slice->size_bytes <= part->size_bytes - slice->at_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t length = 0;
    tsr__part part = {0};
    for (int i = 7; i >= 0 && size >= 8; i--)
        length = length << 8 | data[i];
    if (size < 8 || length > size - 8)
        return 0;
    const tsr_status status = tsr__part_parse((const char *)data, 8 + length, size, &part);
    FUZZ_CHECK(status == TSR_OK || status == TSR_ERR_INVALID || status == TSR_ERR_UNSUPPORTED);
    if (status == TSR_OK) {
        FUZZ_CHECK(part.id.number >= 1 && part.id.number <= part.id.of &&
                   part.id.of <= TSR__PARTS_MAX);
        for (size_t i = 0; i < part.count; i++)
            check_slice(&part, &part.slices[i]);
    }
    tsr__part_finish(&part);
    return 0;
}
