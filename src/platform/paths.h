/* The properties of file paths that differ between systems. For everything else the library calls
 * POSIX's functions, which the folder windows/ implements for Windows. */
#ifndef TSR_PLATFORM_PATHS_H
#define TSR_PLATFORM_PATHS_H

#include <stdbool.h>
#include <stddef.h>

/* The name of Vulkan's loader, for dlopen. */
extern const char tsr__vulkan_loader[];

/* Writes the path of the user's folder for caches: $XDG_CACHE_HOME, or if that is not an absolute
 * path, ~/.cache (on Windows %LOCALAPPDATA%). Returns false if neither is an absolute path, or if
 * the path has `size` bytes or more. */
bool tsr__path_cache(char *out, size_t size);

/* Returns the last separator of folders in the path, or NULL if there is none. */
const char *tsr__path_last_separator(const char *path);

/* Returns the number of bytes at the start of an absolute path that name the root, which is not a
 * folder that mkdir could make. Returns 0 for a relative path. */
size_t tsr__path_root(const char *path);

#endif
