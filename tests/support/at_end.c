/* A file of its own, because not every program that links gpu.c has the main() of check_main.c. */
#include "support/at_end.h"

void (*tests_at_end)(void);
