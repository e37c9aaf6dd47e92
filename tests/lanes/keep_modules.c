/* Preloaded by the sanitizers' lane, so that drivers stay loaded. If a driver were unloaded, its
 * globals would be gone, and the leak checker would report the memory that they point to as leaked
 * by a module whose name it does not know any more. */
#include <dlfcn.h>

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
