/* Children of fork(). They have copies of what the library keeps, but not its threads, and what
 * lies outside the process's memory is their parent's. */
#ifndef TSR_BASE_FORK_H
#define TSR_BASE_FORK_H

#include <stdbool.h>

#include "base/error.h"

/* Of the calling process: one more in each child than in its parent. */
tsr_status tsr__fork_generation(unsigned *out) TSR_NODISCARD;

/* Whether something of that generation is the parent's, or a parent's of it. */
bool tsr__fork_inherited(unsigned generation);

#endif
