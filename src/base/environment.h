/* Reads environment variables and checks their values, which come from launchers and users. */
#ifndef TSR_BASE_ENVIRONMENT_H
#define TSR_BASE_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/base.h"

/* Returns the value of an environment variable, or NULL if the variable is not set or is empty. */
const char *tsr__env_text(const char *name);

/* Returns whether an environment variable switches something on: it is set, is not empty and is not
 * "0". */
bool tsr__env_switch(const char *name);

/* Reads a decimal integer from low to high (inclusive) from the environment variable `name`. Gives
 * `fallback` if the variable is not set or is empty. Errors: TSR_ERR_INVALID with a text that
 * starts with `what` and a colon. */
tsr_status tsr__env_integer(const char *what, const char *name, int64_t low, int64_t high,
                            int64_t fallback, int64_t *out) TSR_NODISCARD;

/* Does the same as tsr__env_integer, but fails if the variable is not set or is empty. */
tsr_status tsr__env_needed_integer(const char *what, const char *name, int64_t low, int64_t high,
                                   int64_t *out) TSR_NODISCARD;

#endif
