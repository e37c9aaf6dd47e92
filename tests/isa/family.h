/* The GPU for which RADV compiles on null hardware. */
#ifndef TESTS_ISA_FAMILY_H
#define TESTS_ISA_FAMILY_H

/* If RADV_FORCE_FAMILY is a list with commas, replaces it by the first family that the driver
 * knows, since releases of Mesa use different names. */
void isa_choose_family(void);

#endif
