/* A cache folder of a test's own, in place of the user's: a checked fixture. */
#ifndef TESTS_SUPPORT_CACHE_FOLDER_H
#define TESTS_SUPPORT_CACHE_FOLDER_H

/* Its path, while there is one. */
extern char cache_folder[64];

/* Makes it and has XDG_CACHE_HOME say so; TESSERA_TUNING is unset. Drivers keep their caches, since
 * building all kernels anew takes long. */
void cache_folder_make(void);

void cache_folder_remove(void);

#endif
