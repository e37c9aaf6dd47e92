#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/paths.h"

const char tsr__vulkan_loader[] = "vulkan-1.dll";

static bool is_separator(char c)
{
    return c == '/' || c == '\\';
}

bool tsr__path_cache(char *out, size_t size)
{
    const char *base = getenv("XDG_CACHE_HOME");
    if (!base || tsr__path_root(base) == 0)
        base = getenv("LOCALAPPDATA");
    if (!base || tsr__path_root(base) == 0)
        return false;
    const int wrote = snprintf(out, size, "%s", base);
    if (wrote <= 0 || (size_t)wrote >= size)
        return false;
    /* use slashes, because the rest of the library appends file names with slashes */
    for (char *c = out; *c; c++)
        *c = *c == '\\' ? '/' : *c;
    return true;
}

const char *tsr__path_last_separator(const char *path)
{
    const char *last = NULL;
    for (; *path; path++)
        last = is_separator(*path) ? path : last;
    return last;
}

size_t tsr__path_root(const char *path)
{
    const char letter = (char)(path[0] | 0x20);
    if (letter >= 'a' && letter <= 'z' && path[1] == ':' && is_separator(path[2]))
        return 3;
    if (!is_separator(path[0]) || !is_separator(path[1]))
        return is_separator(path[0]); /* the root of the current drive */
    /* \\server\share\ */
    size_t root = 2;
    for (int parts = 0; path[root] && parts < 2; root++)
        parts += is_separator(path[root]);
    return root;
}
