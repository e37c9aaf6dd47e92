#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fault.h"

static tsr_status out_of_memory(size_t count, size_t size)
{
    return tsr__fail(TSR_ERR_NO_MEMORY, "out of host memory: %zu × %zu bytes", count, size);
}

void *tsr__calloc(size_t count, size_t size)
{
    void *memory = NULL;
    /* calloc may return NULL for a size of 0, which callers would mistake for a failure. */
    if (!tsr__fault_hit(TSR__FAULT_ALLOC, __func__))
        memory = count == 0 || size == 0 ? calloc(1, 1) : calloc(count, size);
    if (!memory)
        (void)out_of_memory(count, size);
    return memory;
}

tsr_status tsr__grow(void **array, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity)
        return TSR_OK;

    /* Double the capacity, so that the time of a series of appends is linear in their number. If
     * doubling would overflow, allocate exactly `needed` elements. */
    size_t next = *capacity < 8 ? 8 : *capacity;
    while (next < needed)
        next = next > SIZE_MAX / 2 ? needed : next * 2;
    if (size != 0 && next > SIZE_MAX / size)
        next = needed;
    if (size != 0 && next > SIZE_MAX / size)
        return out_of_memory(needed, size);

    void *grown = NULL;
    if (!tsr__fault_hit(TSR__FAULT_ALLOC, __func__))
        grown = realloc(*array, size == 0 ? 1 : next * size);
    if (!grown)
        return out_of_memory(next, size);
    *array = grown;
    *capacity = next;
    return TSR_OK;
}

tsr_status tsr__bytes_append(tsr__bytes *to, const void *bytes, size_t size)
{
    void *data = to->data;
    TSR__TRY(tsr__grow(&data, &to->capacity, to->size + size, 1));
    to->data = data;
    if (size > 0)
        memcpy(to->data + to->size, bytes, size);
    to->size += size;
    return TSR_OK;
}

char *tsr__strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = tsr__calloc(size, 1);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

void tsr__free(void *memory)
{
    free(memory);
}
