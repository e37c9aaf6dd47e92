/* Memory for the tool. A command that runs out of memory prints a message and exits; the library
 * never does. */
#ifndef TSR_CLI_LIB_MEMORY_H
#define TSR_CLI_LIB_MEMORY_H

#include <stddef.h>

/* Allocates count × size zeroed bytes; free them with free(). Exits with CLI_FAILED on failure. */
void *cli_alloc(size_t count, size_t size);

/* Changes the size of an allocation, as realloc() does. Exits with CLI_FAILED on failure. */
void *cli_resize(void *memory, size_t count, size_t size);

#endif
