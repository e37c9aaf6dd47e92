/* What differs between systems in the paths of files. Everything else that the library asks of a
 * system is POSIX's; the folder windows/ has those functions for Windows. */
#ifndef TSR_PLATFORM_PATHS_H
#define TSR_PLATFORM_PATHS_H

#include <stdbool.h>
#include <stddef.h>

/* The name of Vulkan's loader, for dlopen. */
extern const char tsr__vulkan_loader[];

/* Writes the path of the user's folder for caches: $XDG_CACHE_HOME or ~/.cache, and on Windows
 * %LOCALAPPDATA%. Returns false if there is none, or if it has `size` bytes or more. */
bool tsr__path_cache(char *out, size_t size);

/* Returns the last character of the path that separates folders, or NULL. */
const char *tsr__path_last_separator(const char *path);

/* Returns how many bytes at the start of an absolute path stand for the root: they name no folder
 * that could be made. */
size_t tsr__path_root(const char *path);

#endif
