/* Reading the environment: what launchers promise is not taken on trust. */
#ifndef TSR_BASE_ENVIRONMENT_H
#define TSR_BASE_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/base.h"

/* A variable's value; NULL when it is not set or empty. */
const char *tsr__env_text(const char *name);

/* Whether a switch is on: set, not empty, and not 0. */
bool tsr__env_switch(const char *name);

/* A decimal integer within low … high. `fallback` when the variable is not set or empty. Errors:
 * TSR_ERR_INVALID with "what: " before the reason. */
tsr_status tsr__env_integer(const char *what, const char *name, int64_t low, int64_t high,
                            int64_t fallback, int64_t *out) TSR_NODISCARD;

/* The same, and not to be missing. */
tsr_status tsr__env_needed_integer(const char *what, const char *name, int64_t low, int64_t high,
                                   int64_t *out) TSR_NODISCARD;

#endif
