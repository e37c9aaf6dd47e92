#include "cli/memory.h"

#include <stdint.h>
#include <stdlib.h>

#include "cli/command.h"

static void *checked(void *memory, size_t count, size_t size)
{
    if (memory == NULL)
        exit(cli_failed("out of memory: %zu elements of %zu bytes are not to be had", count, size));
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
