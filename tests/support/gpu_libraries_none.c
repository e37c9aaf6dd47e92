/* For systems without fork, where a process loads the libraries only once anyway. */
#include "support/gpu_libraries.h"

void gpu_load_libraries(void)
{
}
