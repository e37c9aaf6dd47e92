#include "base/struct_size.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

/* struct_size is the first field of every such struct. */
static size_t size_of(const void *any)
{
    size_t size;
    memcpy(&size, any, sizeof size);
    return size;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), end_length = strlen(end);
    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

static tsr_status check_set(const char *name, size_t given)
{
    if (given == 0 && (ends_with(name, "_params") || ends_with(name, "_options")))
        return tsr__fail(TSR_ERR_INVALID,
                         "%s: struct_size is 0; use the macro %s(...) or TSR_INIT(%s)", name, name,
                         name);
    TSR__REQUIRE(given != 0, "%s: struct_size is 0; use TSR_INIT(%s)", name, name);
    TSR__REQUIRE(given >= sizeof given, "%s: struct_size is %zu, less than its own %zu bytes", name,
                 given, sizeof given);
    return TSR_OK;
}

tsr_status tsr__struct_take(const char *name, size_t size, const void *given, void *out)
{
    memset(out, 0, size);
    if (given) {
        const size_t given_size = size_of(given);
        TSR__TRY(check_set(name, given_size));
        for (size_t i = size; i < given_size; i++)
            TSR__REQUIRE(((const unsigned char *)given)[i] == 0,
                         "%s: struct_size is %zu, this library knows the first %zu bytes, and byte "
                         "%zu is not 0: the program uses a field of a newer library",
                         name, given_size, size, i);
        memcpy(out, given, given_size < size ? given_size : size);
    }
    memcpy(out, &size, sizeof size);
    return TSR_OK;
}

tsr_status tsr__struct_take_array(const char *name, size_t size, uint64_t count, const void *given,
                                  void **out)
{
    *out = NULL;
    if (count == 0)
        return TSR_OK;
    TSR__REQUIRE(given, "%s: the array of %" PRIu64 " is NULL", name, count);
    const size_t stride = size_of(given);
    TSR__TRY(check_set(name, stride));
    uint64_t given_bytes;
    if (!tsr__mul_u64(count, stride, &given_bytes) || given_bytes > SIZE_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW, "%s: an array of %" PRIu64 " does not fit in memory",
                         name, count);
    unsigned char *copies = tsr__calloc((size_t)count, size);
    if (!copies)
        return TSR_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < count; i++) {
        const unsigned char *element = (const unsigned char *)given + (size_t)i * stride;
        tsr_status status;
        if (size_of(element) != stride)
            status = tsr__fail(TSR_ERR_INVALID,
                               "%s: struct_size of element %" PRIu64 " is %zu, of element 0 %zu",
                               name, i, size_of(element), stride);
        else if ((status = tsr__struct_take(name, size, element, copies + (size_t)i * size)) !=
                 TSR_OK)
            (void)tsr__fail_context(status, "element %" PRIu64, i);
        if (status != TSR_OK) {
            tsr__free(copies);
            return status;
        }
    }
    *out = copies;
    return TSR_OK;
}

tsr_status tsr__struct_check_out(const char *name, const void *out)
{
    return check_set(name, size_of(out));
}

tsr_status tsr__struct_check_out_array(const char *name, uint64_t count, const void *out)
{
    if (count == 0)
        return TSR_OK;
    const size_t stride = size_of(out);
    TSR__TRY(check_set(name, stride));
    for (uint64_t i = 1; i < count; i++) {
        const size_t size = size_of((const unsigned char *)out + (size_t)i * stride);
        TSR__REQUIRE(size == stride,
                     "%s: struct_size of element %" PRIu64 " is %zu, of element 0 %zu", name, i,
                     size, stride);
    }
    return TSR_OK;
}

void tsr__struct_write(size_t size, const void *value, void *out)
{
    const size_t out_size = size_of(out);
    const size_t common = out_size < size ? out_size : size;
    memcpy((unsigned char *)out + sizeof size, (const unsigned char *)value + sizeof size,
           common - sizeof size);
    memset((unsigned char *)out + common, 0, out_size - common);
}

void tsr__struct_write_array(size_t size, uint64_t count, const void *values, void *out)
{
    const size_t stride = count > 0 ? size_of(out) : 0;
    for (size_t i = 0; i < count; i++)
        tsr__struct_write(size, (const unsigned char *)values + i * size,
                          (unsigned char *)out + i * stride);
}
