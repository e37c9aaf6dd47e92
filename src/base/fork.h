/* Detects processes that fork() has created. Such a child process has copies of the library's
 * memory, but not its threads. Resources outside the memory, such as devices and connections, still
 * belong to its parent. */
#ifndef TSR_BASE_FORK_H
#define TSR_BASE_FORK_H

#include <stdbool.h>

#include "base/error.h"

/* Gives the calling process's generation: how many calls of fork() created it and its ancestors,
 * since the first call of this function. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__fork_generation(unsigned *out) TSR_NODISCARD;

/* Returns whether this process inherited an object through fork(). `generation` is the generation
 * of the process that created the object. */
bool tsr__fork_inherited(unsigned generation);

#endif
