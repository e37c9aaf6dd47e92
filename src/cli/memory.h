/* The tool's memory. Unlike the library, a command can do nothing better without memory than say so
 * and exit. */
#ifndef TSR_CLI_MEMORY_H
#define TSR_CLI_MEMORY_H

#include <stddef.h>

/* count × size zeroed bytes, for free(). Exits with CLI_FAILED when there is not that much. */
void *cli_alloc(size_t count, size_t size);

/* Grows or shrinks, new bytes undefined; otherwise as above. */
void *cli_resize(void *memory, size_t count, size_t size);

#endif
