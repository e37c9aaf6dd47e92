#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/paths.h"

const char tsr__vulkan_loader[] = "libvulkan.so.1";

bool tsr__path_cache(char *out, size_t size)
{
    const char *base = getenv("XDG_CACHE_HOME"), *below = "";
    if (!base || base[0] != '/') {
        base = getenv("HOME");
        below = "/.cache";
    }
    if (!base || base[0] != '/')
        return false;
    const int wrote = snprintf(out, size, "%s%s", base, below);
    return wrote > 0 && (size_t)wrote < size;
}

const char *tsr__path_last_separator(const char *path)
{
    return strrchr(path, '/');
}

size_t tsr__path_root(const char *path)
{
    return path[0] == '/';
}
