/* For systems without fork: there, libraries are loaded once anyway. */
#include "support/gpu_libraries.h"

void gpu_load_libraries(void)
{
}
