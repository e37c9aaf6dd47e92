/* tests_at_end is in a file of its own, because check_main.c also has main(), and some programs
 * that link gpu.c have another one. */
#include "support/at_end.h"

void (*tests_at_end)(void);
