/* Reading the environment: what launchers promise is not taken on trust. */
#ifndef TSR_COMM_BOOT_VARIABLES_H
#define TSR_COMM_BOOT_VARIABLES_H

#include <stdbool.h>

#include "comm/boot/boot.h"

/* A variable's value; NULL when it is not set or empty. */
const char *tsr__boot_variable(const char *name);

/* A decimal integer within low … high. `fallback` when the variable is not set or empty. */
tsr_status tsr__boot_integer(const char *name, int64_t low, int64_t high, int64_t fallback,
                             int64_t *out) TSR_NODISCARD;

/* The same, and not to be missing. */
tsr_status tsr__boot_needed_integer(const char *name, int64_t low, int64_t high,
                                    int64_t *out) TSR_NODISCARD;

#endif
