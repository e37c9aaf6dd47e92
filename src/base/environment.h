/* Reads environment variables and checks their values, which come from launchers and users. */
#ifndef TSR_BASE_ENVIRONMENT_H
#define TSR_BASE_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/base.h"

/* Returns a variable's value, or NULL if it is not set or empty. */
const char *tsr__env_text(const char *name);

/* Returns whether a variable that is a switch is on: set, not empty, and not "0". */
bool tsr__env_switch(const char *name);

/* Reads a decimal integer within low … high. Gives `fallback` if the variable is not set or empty.
 * Errors: TSR_ERR_INVALID with "what: " before the reason. */
tsr_status tsr__env_integer(const char *what, const char *name, int64_t low, int64_t high,
                            int64_t fallback, int64_t *out) TSR_NODISCARD;

/* Does the same for a variable that must be set. */
tsr_status tsr__env_needed_integer(const char *what, const char *name, int64_t low, int64_t high,
                                   int64_t *out) TSR_NODISCARD;

#endif
