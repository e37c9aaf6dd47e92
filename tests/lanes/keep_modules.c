/* Preloaded in the sanitizers' lane, so that drivers stay loaded. If a driver were unloaded, its
 * globals would be gone. The leak checker would then report the memory to which they point as
 * leaked, by a module whose name it no longer knows. */
#include <dlfcn.h>

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
