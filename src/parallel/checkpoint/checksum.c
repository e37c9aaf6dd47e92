#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/output.h"

#define DIGITS 8 /* number of hexadecimal digits of a checksum */

/* Tensors ------------------------------------------------------------------------------------ */

void tsr__checksum_add(tsr__checksum *checksum, uint64_t at_bytes, uint64_t size, const void *data)
{
    const uint64_t start = at_bytes - checksum->at_bytes;
    if (start != checksum->end) {
        checksum->sum = tsr__checksum_state(checksum);
        checksum->range = 0;
    }
    checksum->range = tsr__crc32c_state(checksum->range, data, size);
    checksum->end = start + size;
}

uint32_t tsr__checksum_state(const tsr__checksum *checksum)
{
    return checksum->sum ^ tsr__crc32c_shift(checksum->range, checksum->size_bytes - checksum->end);
}

/* Headers ------------------------------------------------------------------------------------ */

/* Returns the start of the checksums' digits, or NULL if the header has none. The searched text can
 * match only at the right place, because quotes inside of other texts are escaped. */
static char *find_digits(const char *header, uint64_t header_bytes)
{
    static const char before[] = "\"" TSR__CHECKSUM_KEY "\":\"";
    const size_t size = sizeof before - 1;
    for (const char *quote = header, *end = header + header_bytes; (size_t)(end - quote) >= size;
         quote++) {
        quote = memchr(quote, '"', (size_t)(end - quote));
        if (!quote || (size_t)(end - quote) < size)
            return NULL;
        if (memcmp(quote, before, size) == 0)
            return (char *)quote + size;
    }
    return NULL;
}

static void put_digits(char *digits, uint32_t value)
{
    char text[DIGITS + 1];
    snprintf(text, sizeof text, "%08" PRIx32, value);
    memcpy(digits, text, DIGITS);
}

static bool get_digits(const char *digits, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < DIGITS; i++) {
        static const char hexadecimal[] = "0123456789abcdef";
        const char *found = digits[i] ? strchr(hexadecimal, digits[i]) : NULL;
        if (!found)
            return false;
        value = value << 4 | (uint32_t)(found - hexadecimal);
    }
    *out = value;
    return true;
}

static uint32_t header_checksum(const char *header, uint64_t header_bytes, const char *digits)
{
    const size_t before = (size_t)(digits - header);
    uint32_t state = tsr__crc32c_state(UINT32_MAX, header, before);
    state = tsr__crc32c_state(state, "00000000", DIGITS);
    return ~tsr__crc32c_state(state, digits + DIGITS, header_bytes - before - DIGITS);
}

void tsr__checksums_write(char *header, uint64_t header_bytes, int count, const uint32_t *tensors)
{
    char *digits = find_digits(header, header_bytes);
    for (int i = 0; i < count; i++)
        put_digits(digits + (size_t)DIGITS * ((size_t)i + 1), tensors[i]);
    put_digits(digits, header_checksum(header, header_bytes, digits));
}

tsr_status tsr__checksums_put(tsr__checkpoint_output *file, int count,
                              const tsr_checkpoint_entry *entries,
                              const tsr__checkpoint_layout *layout, const uint32_t *states)
{
    uint32_t *tensors = tsr__calloc((size_t)count, sizeof *tensors);
    if (!tensors)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        const tsr_checkpoint_entry *entry = &entries[layout->order[i]];
        tensors[i] =
            tsr__crc32c_of_state(states[layout->order[i]], tsr__checkpoint_elements(entry) *
                                                               tsr__checkpoint_width(entry->dtype));
    }
    tsr__checksums_write(layout->header, layout->header_bytes, count, tensors);
    tsr__free(tensors);
    TSR__TRY(tsr__checkpoint_output_write(file, layout->header, layout->header_bytes, 0));
    return tsr__checkpoint_output_sync(file);
}

static tsr_status read_checksums(const char *header, uint64_t header_bytes, const char *digits,
                                 uint64_t count, uint32_t *tensors)
{
    static const char hint[] = "the header is damaged, or another program rewrote it and kept "
                               "'" TSR__CHECKSUM_KEY "'; skip_checksums loads the file";
    const uint64_t left = header_bytes - (uint64_t)(digits - header);
    uint32_t expected = 0;
    bool complete = left > DIGITS * (count + 1) && get_digits(digits, &expected) &&
                    digits[DIGITS * (count + 1)] == '"';
    for (uint64_t i = 0; i < count && complete; i++)
        complete = get_digits(digits + DIGITS * (i + 1), &tensors[i]);
    TSR__REQUIRE(complete, "the checksums are not those of %" PRIu64 " tensors: %s", count, hint);
    const uint32_t found = header_checksum(header, header_bytes, digits);
    TSR__REQUIRE(found == expected, "the header's checksum is %08" PRIx32 ", not %08" PRIx32 ": %s",
                 found, expected, hint);
    return TSR_OK;
}

tsr_status tsr__checksums_read(const char *header, uint64_t header_bytes, uint64_t count,
                               uint32_t **out)
{
    *out = NULL;
    const char *digits = find_digits(header, header_bytes);
    if (!digits)
        return TSR_OK;
    uint32_t *tensors = tsr__calloc(count, sizeof *tensors);
    if (!tensors)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = read_checksums(header, header_bytes, digits, count, tensors);
    if (status != TSR_OK) {
        tsr__free(tensors);
        return status;
    }
    *out = tensors;
    return TSR_OK;
}
