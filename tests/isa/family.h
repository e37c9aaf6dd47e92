/* The GPU for which a driver compiles on null hardware. */
#ifndef TESTS_ISA_FAMILY_H
#define TESTS_ISA_FAMILY_H

#include <stdbool.h>

/* If RADV_FORCE_FAMILY is a list with commas, replaces it by the first family that the driver
 * knows, because releases of Mesa use different names. */
void isa_choose_family(void);

/* Returns the name of the GPU: RADV's family, or the platform of the shim for Intel's driver. */
const char *isa_family(void);
/* Returns true if the GPU is Intel's. */
bool isa_family_is_intel(void);

#endif
