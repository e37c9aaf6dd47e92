/* Writes and reads the numbers and bytes of saved states (saved_state.c describes the format). */
#include <string.h>

#include "sampler/sampler.h"

void tsr__state_put(tsr__state_writer *writer, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        tsr__state_put_bytes(writer, &byte, 1);
        value >>= 7;
    } while (value != 0);
}

void tsr__state_put_bytes(tsr__state_writer *writer, const void *data, size_t size_bytes)
{
    if (size_bytes > writer->capacity - writer->size) {
        writer->full = true;
        return;
    }
    memcpy(writer->data + writer->size, data, size_bytes);
    writer->size += size_bytes;
}

tsr_status tsr__state_get_bytes(tsr__state_reader *reader, size_t size_bytes, const uint8_t **data)
{
    if (size_bytes > reader->size - reader->at)
        return TSR__STATE_FAIL(reader, "%zu bytes are missing",
                               size_bytes - (reader->size - reader->at));
    *data = reader->data + reader->at;
    reader->at += size_bytes;
    return TSR_OK;
}

tsr_status tsr__state_get(tsr__state_reader *reader, uint64_t *value)
{
    uint64_t sum = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t *byte = NULL;
        TSR__TRY(tsr__state_get_bytes(reader, 1, &byte));
        if (shift == 63 && *byte > 1)
            break;
        sum |= (uint64_t)(*byte & 0x7f) << shift;
        if (*byte < 0x80) {
            *value = sum;
            return TSR_OK;
        }
    }
    return TSR__STATE_FAIL(reader, "%s", "the number before does not fit in 64 bits");
}

tsr_status tsr__state_get_signed(tsr__state_reader *reader, int64_t *value)
{
    uint64_t bits;
    TSR__TRY(tsr__state_get(reader, &bits));
    *value = tsr__unzigzag(bits);
    return TSR_OK;
}
