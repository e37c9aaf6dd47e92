/* Detects children of fork(). A child has copies of the library's memory but not its threads, and
 * resources outside the memory (devices, connections) still belong to its parent. */
#ifndef TSR_BASE_FORK_H
#define TSR_BASE_FORK_H

#include <stdbool.h>

#include "base/error.h"

/* Gives the generation of the calling process. A child's is one more than its parent's. Errors:
 * TSR_ERR_NO_MEMORY. */
tsr_status tsr__fork_generation(unsigned *out) TSR_NODISCARD;

/* Returns whether an object made in `generation` was made by an ancestor of this process. */
bool tsr__fork_inherited(unsigned generation);

#endif
