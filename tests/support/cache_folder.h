/* A checked fixture that uses a cache folder of the test's own instead of the user's. */
#ifndef TESTS_SUPPORT_CACHE_FOLDER_H
#define TESTS_SUPPORT_CACHE_FOLDER_H

/* The folder's path; valid while the folder exists. */
extern char cache_folder[64];

/* Creates the folder, sets XDG_CACHE_HOME to it and unsets TESSERA_TUNING. The drivers' own
 * caches stay in their usual place, because compiling all kernels again takes long. */
void cache_folder_make(void);

void cache_folder_remove(void);

#endif
