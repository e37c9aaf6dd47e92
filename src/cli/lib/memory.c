#include "cli/lib/memory.h"

#include <stdint.h>
#include <stdlib.h>

#include "cli/lib/say.h"

static void *checked(void *memory, size_t count, size_t size)
{
    if (memory == NULL)
        exit(cli_failed("out of memory: cannot allocate %zu elements of %zu bytes", count, size));
    return memory;
}

void *cli_alloc(size_t count, size_t size)
{
    if (count == 0 || size == 0)
        count = size = 1;
    return checked(calloc(count, size), count, size);
}

void *cli_resize(void *memory, size_t count, size_t size)
{
    if (count == 0 || size == 0)
        count = size = 1;
    void *grown = count > SIZE_MAX / size ? NULL : realloc(memory, count * size);
    return checked(grown, count, size);
}
